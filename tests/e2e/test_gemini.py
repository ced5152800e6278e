from tests.e2e.suite import AgentSuite


class TestGemini(AgentSuite):
    programs = ("gemini",)
