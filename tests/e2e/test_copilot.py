from tests.e2e.suite import ProgramSuite


class TestCopilot(ProgramSuite):
    programs = ("copilot",)
