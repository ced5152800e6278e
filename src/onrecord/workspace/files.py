"""The files of a session in a worktree: where they are, and writing one whole without touching another's file."""

from __future__ import annotations

import os
import re
import shutil
import stat
from typing import TYPE_CHECKING, NamedTuple

from onrecord.errors import Conflict
from onrecord.machine.files import PRIVATE_MODE, write_file

if TYPE_CHECKING:
    from pathlib import Path

FILE_BYTES = 8 * 1024 * 1024
"""The largest file that is read back."""
ARCHIVES_LIMIT = 10_000
"""How many numbered copies may be beside one file."""
STEALTH_KEY = "stealth"
"""The scratch value of a session that keeps its files beside the store instead of in the worktree."""
FOLDER = ".onrecord"
"""Our own folder in a worktree. It ignores itself in git: a note may quote what no one wants to publish."""


class Paths(NamedTuple):
    """Where the files of a session are."""

    state: Path
    note: Path
    git: Path | None = None
    """Git's directory of the repository they are in, if they are in one."""


def refuse_link(path: Path) -> None:
    """A symbolic link is the user's, or came with a repository; what it leads to is never written."""
    for part in (path, path.parent) if path.parent.name == FOLDER else (path,):
        if part.is_symlink():
            raise Conflict(f"{part} is a symbolic link", hint="onrecord writes only a file of its own there")


def content_of(path: Path) -> bytes | None:
    """What is in a file; None when there is no file."""
    try:
        about = path.stat()
        if not stat.S_ISREG(about.st_mode):
            raise Conflict(f"{path} is not a regular file; it was not changed", hint="remove it, or rename it")
        if about.st_size > FILE_BYTES:
            raise Conflict(
                f"{path} is larger than {FILE_BYTES:,} bytes; it was not changed",
                hint="rename it and start a new one",
                step="fresh_state_file",
            )
        return path.read_bytes()
    except FileNotFoundError:
        return None


def write(path: Path, content: bytes) -> None:
    """Write a whole file, for its owner alone; one that exists keeps the permissions that it has."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.parent.name == FOLDER:
        ignored = path.parent / ".gitignore"
        if not os.path.lexists(ignored):
            write_file(ignored, [b"*\n"])
    mode = path.stat().st_mode & 0o777 if path.exists() else None
    write_file(path, [content], exact_mode=mode)


def archive(path: Path, mark: str, *, copy: bool = False) -> Path:
    """Move a file to the first free number: STATE.1.md, or STATE.kept-1.md for a copy."""
    for number in range(1, ARCHIVES_LIMIT):
        target = path.with_name(f"{path.stem}.{mark}{number}{path.suffix}")
        try:
            if copy:
                new = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, PRIVATE_MODE)
                with os.fdopen(new, "wb") as made, path.open("rb") as source:
                    shutil.copyfileobj(source, made)
                    made.flush()
                    os.fsync(made.fileno())
            else:
                # The same file under another name: what is written to it at this moment is not lost either.
                os.link(path, target)
                path.unlink()
        except FileExistsError:
            continue
        return target
    raise Conflict(f"there are {ARCHIVES_LIMIT:,} copies of {path.name} beside it", hint="move some of them away")


def copies_of(path: Path) -> list[str]:
    """The names of copies that `archive` left beside a file."""
    kept = re.compile(rf"{re.escape(path.stem)}\.(kept-)?\d+{re.escape(path.suffix)}")
    return sorted(one.name for one in path.parent.glob(f"{path.stem}.*{path.suffix}") if kept.fullmatch(one.name))
