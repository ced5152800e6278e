"""Agents in tmux: a server of its own for each team, so that a person's tmux is left alone; a window for each agent.

tmux is told exact names and literal arguments only. A pane stays when its program ends, so that what it said last can
be read; a restart takes the same pane.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
from contextlib import suppress
from hashlib import sha256
from typing import TYPE_CHECKING

from onrecord.crew.places import end_group
from onrecord.errors import OnrecordError
from onrecord.machine import started

if TYPE_CHECKING:
    from libtmux import Pane, Server, Session

    from onrecord.crew.places import Spawn

HISTORY_LINES = 2_000
"""How much of a pane is shown as its output."""
WIDTH, HEIGHT = 200, 50
"""The size of a team's windows until a person attaches."""


class TmuxMissing(OnrecordError):
    """tmux, or the library that drives it, is not installed."""

    code = "tmux_missing"


def socket_of(session: str) -> str:
    """The name of the tmux server of a session's team."""
    return f"onrecord-{sha256(session.encode()).hexdigest()[:12]}"


class Panes:
    """Panes of one tmux server."""

    def __init__(self, session: str, name: str) -> None:
        try:
            from libtmux import Server
        except ImportError:
            raise TmuxMissing(
                "the library for tmux is not installed", hint='pip install "onrecord[team]", or use --headless'
            ) from None
        if shutil.which("tmux") is None:
            raise TmuxMissing("tmux is not installed", hint="install tmux, or use --headless")
        self.name = name
        self.server: Server = Server(socket_name=socket_of(session))

    def attach_command(self, agent: str | None = None) -> list[str]:
        """The command that shows the team, or one agent, to a person."""
        target = f"={self.name}:" + (f"={agent}" if agent else "")
        return ["tmux", "-L", str(self.server.socket_name), "attach-session", "-t", target]

    def start(self, spawn: Spawn) -> None:
        """Run it in the agent's window, made if it is missing."""
        pane = self._pane(spawn.agent)
        command = shlex.join(["env", "-i", *(f"{name}={value}" for name, value in spawn.env.items()), *spawn.argv])
        if pane is not None:
            pane.cmd("respawn-pane", "-k", "-c", spawn.cwd, command)
            return
        session = self._session()
        if session is None:
            session = self.server.new_session(
                session_name=self.name, window_name=spawn.agent, start_directory=spawn.cwd, window_command=command,
                x=WIDTH, y=HEIGHT,
            )  # fmt: skip
            session.cmd("set-option", "-g", "remain-on-exit", "on")
            session.cmd("set-option", "-g", "history-limit", str(HISTORY_LINES))
        else:
            session.new_window(
                window_name=spawn.agent, start_directory=spawn.cwd, window_shell=command, attach=False
            )  # fmt: skip

    def pid(self, agent: str) -> int | None:
        """The process in the agent's pane, while it is there."""
        pane = self._pane(agent)
        if pane is None or pane.pane_dead == "1" or not pane.pane_pid:
            return None
        pid = int(pane.pane_pid)
        return pid if started(pid) is not None else None

    def output(self, agent: str) -> str:
        """What its screen shows, and the lines before."""
        pane = self._pane(agent)
        lines = pane.capture_pane(start=-HISTORY_LINES) if pane is not None else []
        return "\n".join([lines] if isinstance(lines, str) else lines).rstrip()

    def end(self, agent: str) -> None:
        """End what runs in the pane, and the pane."""
        pid, pane = self.pid(agent), self._pane(agent)
        if pid is not None:
            end_group(pid)
        if pane is not None:
            pane.cmd("kill-pane")

    def close(self) -> None:
        """End the whole server of the team."""
        session = self._session()
        pids = [int(pane.pane_pid) for pane in session.panes if pane.pane_pid] if session else []
        with suppress(Exception):
            self.server.kill()
        for pid in pids:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGKILL)

    def _session(self) -> Session | None:
        return next((one for one in self.server.sessions if one.session_name == self.name), None)

    def _pane(self, agent: str) -> Pane | None:
        session = self._session()
        windows = session.windows if session else []
        return next((one.panes[0] for one in windows if one.window_name == agent and one.panes), None)
