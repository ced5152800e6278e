"""Files commands read and write: written whole or not at all, for their owner alone, replaced with --force only."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from onrecord.machine import files
from onrecord.shell.splitting import quote
from onrecord.surfaces.cli.shared.exits import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable


def file_to_read(name: str) -> Path:
    """The path of a file that a person named; one clear error if there is none, or something else."""
    path = Path(name).expanduser()
    if path.is_dir():
        raise UsageError(f"{path} is a directory, not a file")
    if not path.is_file():
        raise UsageError(f"{path} is not a regular file" if path.exists() else f"the file {path} does not exist")
    return path


def refuse_existing(path: Path, *, force: bool) -> None:
    """An existing file is replaced only with --force."""
    if path.is_dir():
        raise UsageError(f"{path} is a directory", hint="name a file in it")
    if os.path.lexists(path) and not (path.is_file() or path.is_symlink()):
        raise UsageError(
            f"{path} is not a regular file", hint="name another file; without a file, it goes to standard output"
        )
    if os.path.lexists(path) and not force:
        raise UsageError(f"{path} already exists", hint="`--force` replaces it")


def refuse_missing_directory(path: Path) -> None:
    """A file is written into a directory that exists."""
    if not path.parent.is_dir():
        raise UsageError(f"there is no directory {path.parent}", hint=f"`mkdir -p {quote(str(path.parent))}`")


def write_file(name: str, chunks: Iterable[bytes], *, force: bool) -> Path:
    """Write a whole file for its owner alone."""
    path = Path(name).expanduser()
    refuse_existing(path, force=force)
    refuse_missing_directory(path)
    try:
        files.write_file(path, chunks, replace=force)
    except FileExistsError:
        refuse_existing(path, force=False)
    return path
