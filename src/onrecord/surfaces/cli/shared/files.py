"""Files the command writes: complete or absent, private to their owner, replaced only with --force."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from onrecord.machine import files
from onrecord.surfaces.cli.shared.exits import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable


def refuse_existing(path: Path, *, force: bool) -> None:
    """An existing file is replaced only with --force."""
    if path.is_dir():
        raise UsageError(f"{path} is a directory", hint="name a file in it")
    if os.path.lexists(path) and not force:
        raise UsageError(f"{path} already exists", hint="`--force` replaces it")


def write_file(name: str, chunks: Iterable[bytes], *, force: bool) -> Path:
    """Write a whole file for its owner alone."""
    path = Path(name).expanduser()
    refuse_existing(path, force=force)
    if not path.parent.is_dir():
        raise UsageError(f"there is no directory {path.parent}")
    try:
        files.write_file(path, chunks, replace=force)
    except FileExistsError:
        refuse_existing(path, force=False)
    return path
