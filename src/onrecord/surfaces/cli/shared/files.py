"""Files the command writes: complete or not there, for their owner alone, never over another one unasked."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

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
    """Write a file by its side, bring it to the disk, then give it its name."""
    path = Path(name).expanduser()
    refuse_existing(path, force=force)
    part = path.with_name(f".{path.name}.part-{os.getpid()}")
    try:
        file = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except FileNotFoundError:
        raise UsageError(f"the directory {path.parent} does not exist", hint="create it first") from None
    try:
        with os.fdopen(file, "wb") as stream:
            for chunk in chunks:
                stream.write(chunk)
            stream.flush()
            os.fsync(stream.fileno())
        if force:
            part.replace(path)
        else:
            _name_without_replacing(part, path)
        _sync_directory(path.parent)
    finally:
        part.unlink(missing_ok=True)
    return path


def _name_without_replacing(part: Path, path: Path) -> None:
    """A hard link fails if somebody made the file in the meantime; a rename would replace it."""
    try:
        os.link(part, path)
    except FileExistsError:
        refuse_existing(path, force=False)
    except OSError:
        refuse_existing(path, force=False)
        part.rename(path)


def _sync_directory(directory: Path) -> None:
    file = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        os.close(file)
