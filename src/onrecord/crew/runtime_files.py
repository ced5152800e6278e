"""Files for tools that look into a runtime folder. They are renderings of the record and are never read back.

runtime/pids/<agent>.session.json    agent_id, cli_command, session_name, session_id (null until known), spawned_at
runtime/sessions/<name>.json         one name for every agent's vendor session id
runtime/state.json                   everybody's state
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

from onrecord.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path


class RuntimeFiles:
    """The runtime folder of a team."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, session: str, agents: Mapping[str, Mapping[str, Any]]) -> None:
        """Bring every file up to date; an agent has command, tmux name, vendor id, start and state."""
        for agent, one in agents.items():
            self._write(
                self.folder / "pids" / f"{agent}.session.json",
                {
                    "agent_id": agent, "cli_command": one["command"], "session_name": one["session_name"],
                    "session_id": one["session_id"], "spawned_at": one["spawned_at"],
                },
            )  # fmt: skip
        self._forget(agents)
        ids = {agent: one["session_id"] for agent, one in agents.items()}
        self._write(self.folder / "sessions" / f"{session}.json", {"session": session, "agents": ids})
        self._write(self.folder / "state.json", {"session": session, "agents": {k: dict(v) for k, v in agents.items()}})

    def _forget(self, agents: Iterable[str]) -> None:
        """Files of agents who are not in the team any more."""
        known = {f"{agent}.session.json" for agent in agents}
        try:
            for path in (self.folder / "pids").glob("*.session.json"):
                if path.name not in known:
                    path.unlink(missing_ok=True)
        except OSError as problem:
            raise _trouble(self.folder, problem) from None

    def _write(self, path: Path, data: Any) -> None:
        part = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            file = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            with os.fdopen(file, "w", encoding="utf-8") as stream:
                json.dump(data, stream, indent=2)
                stream.write("\n")
            part.replace(path)
        except OSError as problem:
            raise _trouble(path, problem) from None
        finally:
            part.unlink(missing_ok=True)


def _trouble(path: Path, problem: OSError) -> InvalidInput:
    return InvalidInput(
        f"{path} cannot be written: {problem.strerror}", hint="choose another folder: runtime in [team]"
    )  # fmt: skip
