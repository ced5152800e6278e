from tests.e2e.lab import Lab
from tests.e2e.suite import AgentSuite
from tests.e2e.terminal import Terminal


class TestOpencode(AgentSuite):
    programs = ("opencode",)
    ready = "commands"

    def lose(self, lab: Lab, vendor_id: str) -> None:
        """All conversations are in one database; the program itself deletes one of them."""
        done = lab.run(["opencode", "session", "delete", vendor_id])
        assert done.status == 0, done

    def begin_another(self, terminal: Terminal) -> None:
        terminal.say("/new", "Ask anything")
