from tests.e2e.suite import ProgramSuite


class TestOpencode(ProgramSuite):
    programs = ("opencode",)
