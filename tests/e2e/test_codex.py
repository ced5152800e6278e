from tests.e2e.lab import Lab
from tests.e2e.modelserver import patiently
from tests.e2e.suite import WIPED, AgentSuite
from tests.e2e.terminal import Terminal

HOOKS = 7


class TestCodex(AgentSuite):
    programs = ("codex",)
    ready = "› "
    plain = ("codex", "--no-daemon")

    def accept_hooks(self, lab: Lab) -> None:
        """Codex runs no hook that its user has not trusted, and asks for it at the next start in a terminal."""
        terminal = Terminal(lab, ["codex", "--no-daemon"])
        terminal.choose("Trust all and continue")
        settings = lab.home / ".codex" / "config.toml"
        patiently(lambda: settings.read_text().count("trusted_hash") == HOOKS, "the hooks are trusted")
        lab.room.clear()

    def begin_another(self, terminal: Terminal) -> None:
        terminal.shows("Worked for")  # a command is refused as long as the turn's hooks run
        terminal.say("/new", "Where should the new conversation run")
        terminal.choose("Use current Git worktree")
        terminal.shows(WIPED)
