from tests.e2e.suite import ProgramSuite


class TestCodex(ProgramSuite):
    programs = ("codex",)
