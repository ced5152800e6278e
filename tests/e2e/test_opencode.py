from tests.e2e.suite import AgentSuite


class TestOpencode(AgentSuite):
    programs = ("opencode",)
    hears_nudges = False
