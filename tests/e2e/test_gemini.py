from tests.e2e.suite import ProgramSuite


class TestGemini(ProgramSuite):
    programs = ("gemini",)
