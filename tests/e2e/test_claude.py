from tests.e2e.suite import ProgramSuite


class TestClaude(ProgramSuite):
    programs = ("claude",)
