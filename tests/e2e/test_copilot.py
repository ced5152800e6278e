from tests.e2e.suite import AgentSuite


class TestCopilot(AgentSuite):
    programs = ("copilot",)
