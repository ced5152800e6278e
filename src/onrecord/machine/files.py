"""Reading only what is a file, and writing one so that readers see the old or the new one and a crash loses neither."""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from onrecord.machine import started

if TYPE_CHECKING:
    from collections.abc import Iterable

_OPENED = ("/dev/fd/", "/proc/self/fd/", "/dev/stdin")
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
    A device, named pipe or socket is never replaced.
    """
    refuse_to_replace(path)
    part = path.with_name(f".{path.name}.part-{os.getpid()}")
    part.unlink(missing_ok=True)  # of a killed process that had the same number
    remove_left_over(str(path.parent), f".{path.name}.part-")
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


def refuse_to_replace(path: Path) -> None:
    """`OSError` for what is neither a file nor a link: a file renamed to `/dev/null` would harm the whole machine."""
    with suppress(FileNotFoundError):
        mode = path.lstat().st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISLNK(mode)):
            raise OSError(errno.EINVAL, "not a regular file", str(path))


def refuse_special(path: str | Path) -> None:
    """`OSError` for a directory, device or named pipe, which would fail later or block for ever.

    A pipe that a shell opened for this process (`<(command)`) is fine: it has a writer.
    """
    mode = Path(path).stat().st_mode
    if stat.S_ISREG(mode) or str(path).startswith(_OPENED):
        return
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    raise OSError(errno.EINVAL, "not a regular file", str(path))


def read_regular(path: str | Path) -> bytes:
    """The content of a regular file; `OSError` for anything else: who opens a named pipe waits for its writer."""
    refuse_special(path)
    return Path(path).read_bytes()


def remove_left_over(directory: str, beginning: str) -> None:
    """Remove the parts of files that killed processes left: their names end with the number of the process."""
    with suppress(OSError), os.scandir(directory) as entries:
        for entry in entries:
            number = entry.name.removeprefix(beginning)
            if entry.name == number or not number.isdigit() or not entry.is_file(follow_symlinks=False):
                continue
            if started(int(number)) is None:
                Path(entry.path).unlink(missing_ok=True)


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
