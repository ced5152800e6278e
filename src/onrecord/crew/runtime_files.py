"""Files for tools that look into a runtime folder. They are renderings of the record and are never read back.

runtime/pids/<agent>.session.json    agent_id, cli_command, session_name, session_id (null until known), spawned_at
runtime/sessions/<name>.json         one name for every agent's vendor session id
runtime/state.json                   the state of every agent
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from onrecord.errors import InvalidInput
from onrecord.machine.files import write_file

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


class RuntimeFiles:
    """The runtime folder of a team."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._written: dict[Path, Any] = {}

    def prepare(self) -> None:
        """Create the folder, kept out of version control; an existing one is left as it is."""
        if not self.folder.exists():
            self.folder.mkdir(parents=True)
            _replace(self.folder / ".gitignore", "*\n")

    def write(self, session: str, agents: Mapping[str, Mapping[str, Any]]) -> list[str]:
        """Bring every file up to date; returns what was missing or damaged.

        An agent has command, session_name, session_id, spawned_at and more fields of its state.
        """
        wanted: dict[Path, Any] = {
            self.folder / "pids" / f"{agent}.session.json": {
                "agent_id": agent, "cli_command": one["command"], "session_name": one["session_name"],
                "session_id": one["session_id"], "spawned_at": one["spawned_at"],
            }
            for agent, one in agents.items()
        }  # fmt: skip
        ids = {agent: one["session_id"] for agent, one in agents.items()}
        wanted[self.folder / "sessions" / f"{session}.json"] = {"session": session, "agents": ids}
        state = {"session": session, "agents": {agent: dict(one) for agent, one in agents.items()}}
        wanted[self.folder / "state.json"] = state
        try:
            return self._bring(wanted)
        except OSError as problem:
            raise InvalidInput(
                f"{problem.filename or self.folder} cannot be written: {problem.strerror}",
                hint="set `runtime` in [team] to another directory",
            ) from None

    def _bring(self, wanted: Mapping[Path, Any]) -> list[str]:
        told = []
        self.prepare()
        for path, data in wanted.items():
            trouble = _trouble_of(path, known=path in self._written)
            if trouble:
                told.append(f"{path} {trouble}, and is written again")
            if trouble or self._written.get(path) != data:
                path.parent.mkdir(parents=True, exist_ok=True)
                _replace(path, json.dumps(data, indent=2) + "\n")
                self._written[path] = data
        for path in (self.folder / "pids").glob("*.session.json"):
            if path not in wanted:  # an agent that left the team
                path.unlink(missing_ok=True)
                self._written.pop(path, None)
        return told


def _trouble_of(path: Path, *, known: bool) -> str:
    """What is wrong with a file; nothing is wrong with one that was never written."""
    try:
        json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return "is gone" if known else ""
    except (ValueError, RecursionError):
        return "is damaged"
    return ""


def _replace(path: Path, text: str) -> None:
    """Not synced: a rendering can be written again at any time."""
    write_file(path, [text.encode()], durable=False)
