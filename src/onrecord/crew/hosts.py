"""Where agents run: a host starts a command for an agent, knows whether it is running and shows what it printed.

`ProcessHost` runs children with a log file each, in sessions of their own, so that they outlive their supervisor.
`crew/panes.py` does the same in tmux. A host knows only this machine at this moment; who an agent is, and how
it ended, is on record.
"""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

LOG_TAIL_BYTES = 64 * 1024
"""How much of an agent's output is shown at once."""


class Spawn(NamedTuple):
    """What to run for an agent."""

    agent: str
    argv: Sequence[str]
    env: Mapping[str, str]
    """The whole environment."""
    cwd: str
    layout: str = "windows"
    group: str = ""


class Host(Protocol):
    """Somewhere agents can run."""

    def start(self, spawn: Spawn) -> None:
        """Run it."""

    def pid(self, agent: str) -> int | None:
        """The process that was started for an agent, while it runs."""

    def output(self, agent: str) -> str:
        """The last part of what it printed."""

    def clear(self, agent: str) -> None:
        """Its process has ended: remove what is left of it on this host."""


class ProcessHost:
    """Children without a terminal."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._children: dict[str, subprocess.Popen[bytes]] = {}

    def log(self, agent: str) -> Path:
        """The file an agent's output goes to."""
        return self.folder / f"{agent}.log"

    def start(self, spawn: Spawn) -> None:
        """Run it, its output appended to its log."""
        self.folder.mkdir(parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        file = os.open(self.log(spawn.agent), flags, 0o600)
        try:
            self._children[spawn.agent] = subprocess.Popen(
                list(spawn.argv), env=dict(spawn.env), cwd=spawn.cwd, stdin=subprocess.DEVNULL, stdout=file,
                stderr=file, start_new_session=True,
            )  # fmt: skip
        finally:
            os.close(file)

    def pid(self, agent: str) -> int | None:
        """The child, while it runs."""
        child = self._children.get(agent)
        return child.pid if child is not None and child.poll() is None else None

    def output(self, agent: str) -> str:
        """The end of its log."""
        try:
            with self.log(agent).open("rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - LOG_TAIL_BYTES))
                return file.read().decode(errors="replace")
        except OSError:
            return ""

    def clear(self, agent: str) -> None:
        """Its log stays."""
        child = self._children.pop(agent, None)
        if child is not None:
            child.wait()
