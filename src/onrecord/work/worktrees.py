"""Git worktrees: one for a branch, created when it is first needed; what changed in it; and its removal."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import NamedTuple

from onrecord.errors import Conflict, InvalidInput, NotFound

GIT_SECONDS = 120.0
"""How long git may take for one command on a worktree."""
BRANCH_CHARACTERS = 200
"""The longest name of a branch, in characters."""


class Worktree(NamedTuple):
    """One worktree of a repository."""

    path: str
    branch: str
    """"" if no branch is checked out in it."""
    revision: str


class Changes(NamedTuple):
    """What differs in a worktree from a revision."""

    files: list[str]
    """Changed since the revision, committed or not; new files included."""
    commits: int
    uncommitted: list[str]


def worktrees(root: str | Path) -> list[Worktree]:
    """Every worktree of a repository, the main one first."""
    listed = _asked(root, "worktree", "list", "--porcelain", "-z")
    found = []
    for block in listed.split("\0\0"):
        told = dict(line.partition(" ")[::2] for line in block.split("\0") if line)
        if told.get("worktree"):
            branch = told.get("branch", "").removeprefix("refs/heads/")
            found.append(Worktree(told["worktree"], branch, told.get("HEAD", "")))
    return found


def worktree_of_branch(root: str | Path, branch: str) -> str:
    """The worktree of a branch, beside the main one; created, with the branch, unless it is there."""
    if not branch or branch.startswith("-") or len(branch) > BRANCH_CHARACTERS:
        raise InvalidInput(f"{branch!r:.80} is not the name of a branch")
    if _git(root, "check-ref-format", "--branch", branch).returncode:
        raise InvalidInput(f"{branch!r:.80} is not the name of a branch", hint="use a name like fix/login")
    main, *others = worktrees(root)
    known = next((one.path for one in (main, *others) if one.branch == branch), None)
    if known == main.path:
        raise Conflict(f"{branch} is checked out in {known} itself", hint="name another branch")
    return known or add_worktree(main.path, place_of(main.path, branch), branch)


def place_of(root: str | Path, branch: str) -> Path:
    """Where the worktree of a branch is: in a folder beside the repository."""
    main = Path(root)
    folder = "".join(one if one.isalnum() or one in "._-" else "-" for one in branch).strip(".-") or "branch"
    return main.with_name(f"{main.name}.worktrees") / folder


def add_worktree(root: str | Path, place: Path, branch: str) -> str:
    """The worktree in this directory; its branch is created unless it exists."""
    if (place / ".git").exists():
        return str(place)
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise InvalidInput(f"{place.parent} cannot be created: {problem.strerror}") from None
    known = _git(root, "show-ref", "--verify", "--quiet", f"refs/heads/{branch}").returncode == 0
    made = _git(root, "worktree", "add", *([] if known else ["-b", branch]), str(place), *([branch] if known else []))
    if made.returncode:
        raise InvalidInput(
            f"git could not create a worktree at {place}: {made.stderr.strip()[-300:]}",
            hint="a worktree needs a git repository that has a commit",
        )
    return str(place)


def base_of(place: str | Path, root: str | Path, recorded: str = "") -> str:
    """The revision a worktree began with: the recorded one, else where its branch left the main worktree's."""
    if recorded and _git(place, "rev-parse", "--verify", "-q", f"{recorded}^{{commit}}").returncode == 0:
        return recorded
    main = _asked(root, "rev-parse", "--verify", "-q", "HEAD").strip()
    return _asked(place, "merge-base", main, "HEAD").strip()


def changes_in(place: str | Path, base: str) -> Changes:
    """What differs from a revision."""
    changed = _asked(place, "diff", "--name-only", "-z", base).split("\0")
    new = _asked(place, "ls-files", "--others", "--exclude-standard", "-z").split("\0")
    status = _asked(place, "status", "--porcelain=v1", "-z", "--no-renames").split("\0")
    commits = int(_asked(place, "rev-list", "--count", f"{base}..HEAD").strip() or 0)
    files = sorted({name for name in (*changed, *new) if name})
    return Changes(files, commits, [entry[3:] for entry in status if entry])


def diff_of(place: str | Path, base: str) -> str:
    """The difference from a revision, as git shows it, with new files: in a copy of the index, which stays as it is."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder, "index")
        index = Path(place, _asked(place, "rev-parse", "--git-path", "index").strip())
        if index.exists():
            shutil.copyfile(index, copy)
        _asked(place, "add", "--intent-to-add", ".", index=copy)
        return _asked(place, "diff", base, index=copy)


def remove_worktree(root: str | Path, place: str, *, force: bool = False) -> None:
    """Remove a worktree; its branch and commits stay. What is not committed is lost only with `force`."""
    main, *others = worktrees(root)
    if not any(Path(one.path).resolve() == Path(place).resolve() for one in others):
        raise NotFound(f"{place} is not a worktree of {main.path}, or it is the main one")
    unsaved = changes_in(place, "HEAD").uncommitted if Path(place).is_dir() else []
    if unsaved and not force:
        raise Conflict(
            f"{place} has changes that are not committed: {len(unsaved)} file{'' if len(unsaved) == 1 else 's'}, "
            f"for instance {unsaved[0]}",
            hint="commit them, or force it", step="force_remove",
        )  # fmt: skip
    done = _git(main.path, "worktree", "remove", *(["--force"] if force else []), place)
    if done.returncode:
        raise InvalidInput(f"git could not remove {place}: {done.stderr.strip()[-300:]}")


def _asked(root: str | Path, *words: str, index: Path | None = None) -> str:
    done = _git(root, *words, index=index)
    if done.returncode:
        raise InvalidInput(
            f"git {words[0]} failed in {root}: {done.stderr.strip()[-300:]}", hint="a worktree needs a git repository"
        )
    return done.stdout


def _git(root: str | Path, *words: str, index: Path | None = None) -> subprocess.CompletedProcess[str]:
    env = os.environ | {"GIT_INDEX_FILE": str(index)} if index else None
    try:
        return subprocess.run(
            ["git", "-C", str(root), *words], capture_output=True, text=True, errors="replace", check=False,
            timeout=GIT_SECONDS, stdin=subprocess.DEVNULL, env=env,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError) as problem:
        raise InvalidInput(f"git cannot be run: {problem}", hint="worktrees need git") from None
