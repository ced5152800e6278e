"""Where an agent works: a directory, or a git worktree of its own, created when it is first needed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from onrecord.errors import InvalidInput
from onrecord.work.worktrees import add_worktree

if TYPE_CHECKING:
    from onrecord.crew.team_file import Member, Team

RUNTIME = "runtime"
"""The runtime folder beside the team file, unless the file names another."""


def root_of(team: Team, here: str) -> Path:
    """Where the team's relative paths start: beside its file, or here if that is on another machine."""
    return Path(here) if is_from_elsewhere(team) else Path(team.root)


def is_from_elsewhere(team: Team) -> bool:
    """Whether the team was formed on another machine: its file's directory does not exist."""
    return not Path(team.root).is_dir()


def runtime_of(team: Team, here: str) -> Path:
    """The runtime folder; for a team from another machine the usual one, whatever its record says."""
    return root_of(team, here) / (RUNTIME if is_from_elsewhere(team) else team.runtime)


def directory_of(team: Team, member: Member, here: str, folder: Path) -> str:
    """The directory an agent works in."""
    root = root_of(team, here)
    if member.worktree:
        return add_worktree(root, folder / "worktrees" / member.id, f"{team.name}/{member.id}")
    place = root / member.directory
    if not place.is_dir():
        raise InvalidInput(f"{member.id}: {place} is not a directory", hint="create it, or name another one")
    return str(place)
