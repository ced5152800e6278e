from tests.e2e.suite import ProgramSuite


class TestQwen(ProgramSuite):
    programs = ("qwen",)
