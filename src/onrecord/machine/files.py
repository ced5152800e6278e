"""Writing a file so that readers see the old one or the new one, never a part of it, and a crash loses neither."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

PRIVATE_MODE = 0o600
"""For its owner alone."""
_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW


def write_file(
    path: Path, pieces: Iterable[bytes], *, mode: int = PRIVATE_MODE, exact_mode: int | None = None,
    replace: bool = True, durable: bool = True,
) -> None:  # fmt: skip
    """Write the pieces to a temporary file beside `path`, sync it, rename it to `path`, and sync the directory.

    `mode` is subject to the umask; `exact_mode` is not. Without `replace`, an existing file is `FileExistsError`.
    Without `durable`, the syncs are left out: for a file that can be written again from the log at any time.
    """
    part = path.with_name(f".{path.name}.part-{os.getpid()}")
    part.unlink(missing_ok=True)  # of a killed process that had the same number
    descriptor = os.open(part, _FLAGS, mode)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            if exact_mode is not None:
                os.fchmod(stream.fileno(), exact_mode)
            stream.writelines(pieces)
            stream.flush()
            if durable:
                os.fsync(stream.fileno())
        if replace:
            part.replace(path)
        else:
            _rename_without_replacing(part, path)
        if durable:
            sync_directory(path.parent)
    finally:
        part.unlink(missing_ok=True)


def _rename_without_replacing(part: Path, path: Path) -> None:
    """A hard link fails if the file was created in the meantime; a rename would replace it."""
    try:
        path.hardlink_to(part)
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links
        if os.path.lexists(path):
            raise FileExistsError(str(path)) from None
        part.rename(path)


def sync_directory(directory: Path) -> None:
    """Make a rename in this directory survive a power failure."""
    file = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        os.close(file)
