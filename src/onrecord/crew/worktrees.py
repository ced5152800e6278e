"""Where an agent works: a directory, or a git worktree of its own, created when it is first needed."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from onrecord.errors import InvalidInput

if TYPE_CHECKING:
    from onrecord.crew.team_file import Member, Team

RUNTIME = "runtime"
"""The runtime folder beside the team file, unless the file names another."""
GIT_SECONDS = 120.0
"""How long git may take to create a worktree."""


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
        return _worktree(root, folder / "worktrees" / member.id, f"{team.name}/{member.id}")
    place = root / member.directory
    if not place.is_dir():
        raise InvalidInput(f"{member.id}: {place} is not a directory", hint="create it, or name another one")
    return str(place)


def _worktree(root: Path, place: Path, branch: str) -> str:
    """The worktree in this directory; its branch is created unless it exists."""
    if (place / ".git").exists():
        return str(place)
    place.parent.mkdir(parents=True, exist_ok=True)
    known = _git(root, "show-ref", "--verify", "--quiet", f"refs/heads/{branch}").returncode == 0
    made = _git(root, "worktree", "add", *([] if known else ["-b", branch]), str(place), *([branch] if known else []))
    if made.returncode:
        raise InvalidInput(
            f"git could not create a worktree at {place}: {made.stderr.strip()[-300:]}",
            hint="a worktree needs a git repository",
        )
    return str(place)


def _git(root: Path, *words: str) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            ["git", "-C", str(root), *words], capture_output=True, text=True, check=False, timeout=GIT_SECONDS,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError) as problem:
        raise InvalidInput(f"git cannot be run: {problem}", hint="worktree = true needs git") from None
