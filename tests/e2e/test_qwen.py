from tests.e2e.suite import AgentSuite


class TestQwen(AgentSuite):
    programs = ("qwen",)
