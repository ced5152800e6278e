import sqlite3
from contextlib import closing

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

    def test_a_moved_project_leaves_the_database_alone(self, lab: Lab):
        """Moved to another folder, the conversation is resumed there; the database of all conversations stays where it is."""
        agent = self.set_up(lab)
        agent.start("The word is magenta. [[say noted]]")
        (database,) = lab.cli("opencode").files(lab.home, agent.vendor_id)
        with closing(sqlite3.connect(database)) as opened, opened:
            before = opened.execute("SELECT count(*) FROM session").fetchone()
        lab.project.rename(lab.root / "moved")
        lab.project = lab.root / "moved"
        data = agent.resumed("Which word was it? [[say ochre]]")
        assert (data["state"], data["verified"]) == ("resumed", True), data
        assert "The word is magenta." in lab.server.conversation()[-1].text
        assert [file.name for file in database.parent.glob("*moved*")] == []
        with closing(sqlite3.connect(database)) as opened, opened:
            assert opened.execute("SELECT count(*) FROM session").fetchone() == before
