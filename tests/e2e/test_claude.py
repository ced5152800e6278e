from tests.e2e.suite import AgentSuite


class TestClaude(AgentSuite):
    programs = ("claude",)
