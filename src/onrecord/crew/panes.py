"""Agents in tmux: each team has its own server, so that the user's tmux is left alone; each agent has a window.

Groups with a layout share a window. tmux gets only ids of panes and literal arguments. A pane stays when its program
ends, so that its last output can be read; a restart uses the same pane.
"""

from __future__ import annotations

import os
import shlex
import shutil
import time
from hashlib import sha256
from typing import TYPE_CHECKING, NamedTuple

from onrecord.crew.launching import describe
from onrecord.errors import TmuxMissing
from onrecord.machine import started

if TYPE_CHECKING:
    from pathlib import Path

    from libtmux import Server, Session

    from onrecord.crew.hosts import Spawn

HISTORY_LINES = 2_000
"""How many lines of a pane are shown as its output."""
WIDTH, HEIGHT = 200, 50
"""The size of a team's windows until a person attaches."""
WINDOWS = "windows"
"""The layout in which each agent has a window of its own."""
LOOK_SECONDS = 0.3
"""For how long a list of the panes is used again, in seconds."""
SETTINGS = "source-file -q ~/.tmux.conf\nset -g remain-on-exit on\nset -g history-limit {lines}\n"
"""The user's own settings; and a pane stays when its program ends."""
_AGENT = "@onrecord-agent"
_FORM = "\t".join(("#{pane_id}", "#{window_id}", "#{pane_pid}", "#{pane_dead}", f"#{{{_AGENT}}}"))
_COLUMNS = 5
_TMUX_NAME = str.maketrans(".:", "--")


def socket_of(session: str) -> str:
    """The name of the tmux server of a session's team."""
    return f"onrecord-{sha256(session.encode()).hexdigest()[:12]}"


class Pane(NamedTuple):
    """What tmux says of a pane."""

    id: str
    window: str
    pid: int
    """0 when its program has ended and tmux names no process any more, as newer versions do (3.8)."""
    dead: bool


class TmuxHost:
    """The panes of one team's tmux server."""

    def __init__(self, session: str, name: str, folder: Path) -> None:
        try:
            from libtmux import Server
        except ImportError:
            raise TmuxMissing(
                "the Python library for tmux is not installed",
                hint='pip install "onrecord[team]"',
                step="install_tmux_library",
            ) from None
        if shutil.which("tmux") is None:
            raise TmuxMissing("tmux is not installed")
        self.name = name.translate(_TMUX_NAME)
        self.folder = folder
        self._settings = folder / "tmux.conf"
        self._seen: tuple[float, dict[str, Pane]] = (0.0, {})
        self.server: Server = Server(socket_name=socket_of(session), config_file=str(self._settings))

    def attach_command(self, agent: str | None = None) -> list[str] | None:
        """The command that shows the team, or one agent, to a person; None when it has no pane."""
        session, pane = self._session(), self._pane(agent) if agent else None
        if session is None or (agent and pane is None):
            return None
        show = ["select-window", "-t", pane.window, ";", "select-pane", "-t", pane.id, ";"] if pane else []
        return ["tmux", "-L", str(self.server.socket_name), *show, "attach-session", "-t", f"={session.session_name}:"]

    def outside(self) -> dict[str, str]:
        """The environment to attach from, which does not name a tmux other than the team's.

        tmux compares only names of terminals: if the person's own tmux has one that an ended agent had, it would take
        the person's terminal for a pane of the team and refuse.
        """
        inside = os.environ.get("TMUX", "").partition(",")[0].rpartition("/")[2] == self.server.socket_name
        return {name: value for name, value in os.environ.items() if inside or name != "TMUX"}

    def start(self, spawn: Spawn) -> None:
        """Run it in the agent's pane, which is created if it is missing."""
        command = shlex.join(describe(spawn, self.folder / f"{spawn.agent}.spawn.json"))
        pane = self._pane(spawn.agent)
        self._seen = (0.0, {})
        if pane is not None:
            self._do("respawn-pane", "-k", "-t", pane.id, "-c", spawn.cwd, command)
            return
        session = self._session()
        made = self._first(spawn, command) if session is None else self._beside(session, spawn, command)
        self._do("set-option", "-p", "-t", made, _AGENT, spawn.agent)

    def _first(self, spawn: Spawn, command: str) -> str:
        self._settings.write_text(SETTINGS.format(lines=HISTORY_LINES))
        session = self.server.new_session(
            session_name=self.name, window_name=_window_name(spawn), start_directory=spawn.cwd, window_command=command,
            x=WIDTH, y=HEIGHT,
        )  # fmt: skip
        return str(session.active_pane.pane_id) if session.active_pane else ""

    def _beside(self, session: Session, spawn: Spawn, command: str) -> str:
        """A pane in the window of its group, or a window of its own."""
        name = _window_name(spawn)
        window = next((one for one in session.windows if name != spawn.agent and one.window_name == name), None)
        if window is None:
            window = session.new_window(
                window_name=name, start_directory=spawn.cwd, window_shell=command, attach=False
            )  # fmt: skip
            return str(window.active_pane.pane_id) if window.active_pane else ""
        pane = window.split(start_directory=spawn.cwd, shell=command, attach=False)
        window.select_layout(spawn.layout)
        return str(pane.pane_id)

    def pid(self, agent: str) -> int | None:
        """The process in the agent's pane, while it runs."""
        pane = self._pane(agent)
        return pane.pid if pane is not None and not pane.dead and started(pane.pid) is not None else None

    def output(self, agent: str) -> str:
        """What its screen shows, and the lines before."""
        return self._capture(agent, "-S", str(-HISTORY_LINES))

    def screen(self, agent: str) -> str:
        """What its screen shows just now."""
        return self._capture(agent)

    def _capture(self, agent: str, *options: str) -> str:
        pane = self._pane(agent)
        return "\n".join(self._do("capture-pane", "-p", "-J", "-t", pane.id, *options)).rstrip() if pane else ""

    def clear(self, agent: str) -> None:
        """Close its pane."""
        pane = self._pane(agent)
        self._seen = (0.0, {})
        if pane is not None:
            self._do("kill-pane", "-t", pane.id)

    def close(self) -> None:
        """End the team's server, after its agents have ended."""
        self._do("kill-server")
        self._settings.unlink(missing_ok=True)
        for file in self.folder.glob("*.spawn.json"):  # of a pane that never came up; an environment has secrets
            file.unlink(missing_ok=True)

    def _do(self, *words: str) -> list[str]:
        return self.server.cmd(*words).stdout

    def _session(self) -> Session | None:
        """The only session of the server: it keeps the name it was created with."""
        return next(iter(self.server.sessions), None)

    def _pane(self, agent: str | None) -> Pane | None:
        at, found = self._seen
        if time.monotonic() - at > LOOK_SECONDS:
            found = panes_of(self._do("list-panes", "-a", "-F", _FORM))
            self._seen = (time.monotonic(), found)
        return found.get(agent or "")


def panes_of(lines: list[str]) -> dict[str, Pane]:
    """The panes that tmux lists in our form, by agent."""
    rows = [line.split("\t") for line in lines]
    return {
        agent: Pane(id_, window, int(pid or 0), dead == "1")
        for id_, window, pid, dead, agent in (row for row in rows if len(row) == _COLUMNS)
    }


def _window_name(spawn: Spawn) -> str:
    return spawn.group if spawn.group and spawn.layout != WINDOWS else spawn.agent
