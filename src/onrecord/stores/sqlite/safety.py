"""Whether a directory is safe for a store: who owns its files, who else may write them, and on what disk they are.

Nothing here opens an existing database file, except through SQLite: closing any other handle of it would drop the locks
that other connections of this process hold on it. `stat` answers most questions, and a new file is created empty, with
its permissions, before SQLite opens it.
"""

from __future__ import annotations

import errno
import os
import stat
import sys

from onrecord import machine
from onrecord.errors import StoreError, StoreFull, StoreReadOnly, StoreUnsafe
from onrecord.stores.sqlite.cipher import header_of
from onrecord.stores.sqlite.connection import is_store, no_store

COMPANIONS = ("", "-wal", "-shm", "-journal", ".lock")
"""What the names of a database's own files end with."""

NETWORK_FILE_SYSTEMS = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "smb2", "smbfs", "ncpfs", "afs", "afpfs", "9p", "ceph", "lustre", "gpfs", "beegfs",
     "glusterfs", "ocfs2", "gfs2", "coda", "davfs", "webdav", "orangefs", "pvfs2", "vboxsf", "vmhgfs-fuse", "drvfs",
     "sshfs", "rclone", "s3fs", "gcsfuse", "smbnetfs", "curlftpfs", "remote"}
)  # fmt: skip
"""File systems whose locks or shared memory SQLite cannot rely on; those of FUSE without their `fuse.`."""

_OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH
_OTHERS_MAY_ANYTHING = 0o077
_DARWIN_LOCAL = 0x1000
_USE_POSTGRESQL = "keep the store on a local disk (set ONRECORD_STORE), or use PostgreSQL for several machines"


def resolve(path: str) -> str:
    """The real path of a database file: links followed, its directory created if it is missing.

    A link that another user made could lead anywhere, and one that leads nowhere would decide where a store is made:
    both are refused.
    """
    named = os.path.abspath(os.path.expanduser(path))
    refuse_planted(named)
    real = os.path.realpath(named)
    _make_directory(os.path.dirname(real))
    return real


def refuse_planted(path: str) -> None:
    """Refuse a path with a link that another user made, or whose last part is a link to nothing."""
    part = path
    while part != os.path.dirname(part):
        if os.path.islink(part) and os.lstat(part).st_uid not in (os.geteuid(), 0):
            raise StoreUnsafe(
                f"{part} is a symbolic link that another user made", hint="set ONRECORD_STORE to a path of your own"
            )
        part = os.path.dirname(part)
    if os.path.islink(path) and not os.path.exists(path):
        raise StoreUnsafe(f"{path} is a symbolic link to a file that does not exist", hint="remove the link")


def check(path: str) -> bool:
    """Refuse a path that is not safe and create a missing file; True when the file was created just now.

    No existing file is changed: whether it is a store of ours is known only once it is open (`tighten`).
    """
    _check_directory(os.path.dirname(path))
    refuse_network(path)
    for companion in COMPANIONS[1:]:
        _check_file(path + companion)
    made = _make_file(path)
    _check_database(path)
    if not made:
        _refuse_empty(path)
    return made


def tighten(path: str) -> None:
    """Close the files of a store to other users; the caller has opened it, so it is a store of ours."""
    for companion in COMPANIONS:
        try:
            mode = os.lstat(path + companion).st_mode
        except OSError:
            continue
        if stat.S_ISREG(mode) and mode & _OTHERS_MAY_ANYTHING:
            _tighten(path + companion, mode)


def _refuse_empty(path: str) -> None:
    """An empty file may be a store that another process is making; one that others may read is another program's."""
    facts = os.lstat(path)
    if facts.st_size == 0 and facts.st_mode & _OTHERS_MAY_ANYTHING:
        raise StoreUnsafe(
            f"{path} is an empty file that onrecord did not make",
            hint="remove it if it is not needed, or set ONRECORD_STORE to another path",
        )


def _make_directory(directory: str) -> None:
    missing = []
    while not os.path.isdir(directory):
        missing.append(directory)
        directory = os.path.dirname(directory)
        if directory == os.path.dirname(directory):
            break
    for place in reversed(missing):
        try:
            os.mkdir(place, 0o700)
            os.chmod(place, 0o700)
        except FileExistsError:
            if not os.path.isdir(place):
                raise StoreError(f"{place} is a file, but a directory is needed") from None
        except OSError as problem:
            raise unwritable(place, problem) from None


def _check_directory(directory: str) -> None:
    facts = os.stat(directory)
    if facts.st_uid not in (os.geteuid(), 0):
        raise StoreUnsafe(
            f"the directory {directory} belongs to another user", hint="set ONRECORD_STORE to a path of your own"
        )
    if machine.others_may_write(facts) and not facts.st_mode & stat.S_ISVTX:
        raise StoreUnsafe(
            f"other users may write to the directory {directory} and so replace the store",
            hint=f"remove that permission: chmod go-w {directory}",
        )


def _make_file(path: str) -> bool:
    if os.path.lexists(path):
        return False
    try:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            os.fchmod(file, 0o600)
        finally:
            os.close(file)
        sync_directory(os.path.dirname(path))
    except FileExistsError:
        return False
    except OSError as problem:
        raise unwritable(path, problem) from None
    return True


def sync_directory(directory: str) -> None:
    """Make the names in a directory durable."""
    file = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def _check_database(path: str) -> None:
    """Refuse a file for what it is first, then for its owner and mode: advice for a store fits no other file."""
    try:
        _check_file(path)
    except StoreUnsafe:
        if header_of(path, 1) and not is_store(path):
            raise no_store(path) from None
        raise


def _check_file(path: str) -> None:
    try:
        facts = os.lstat(path)
    except FileNotFoundError:
        return
    except OSError as problem:
        raise unwritable(path, problem) from None
    if not stat.S_ISREG(facts.st_mode):
        raise StoreUnsafe(f"{path} is not a regular file", hint="move it, or set ONRECORD_STORE to another path")
    if facts.st_uid != os.geteuid():
        raise StoreUnsafe(
            f"{path} belongs to another user",
            hint="run onrecord as that user, or set ONRECORD_STORE to a path of your own",
        )
    if facts.st_mode & _OTHERS_MAY_WRITE:
        from onrecord.shell.splitting import quote

        raise StoreUnsafe(
            f"other users may write to {path}, so its content cannot be trusted",
            hint=f"verify it, then remove that permission: chmod 600 {quote(path)}",
        )


def _tighten(path: str, mode: int) -> None:
    try:
        os.chmod(path, stat.S_IMODE(mode) & ~_OTHERS_MAY_ANYTHING)
    except OSError as problem:
        if problem.errno == errno.EROFS:
            return  # a read-only mount cannot be closed to others, and onrecord adds nothing to it
        raise StoreUnsafe(f"other users may read {path}, and that cannot be changed: {problem.strerror}") from None


def unwritable(path: str, problem: OSError) -> StoreError:
    """What an error of the system means to a caller."""
    if problem.errno in (errno.ENOSPC, errno.EDQUOT):
        return StoreFull(f"no space left to create {path}")
    if problem.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
        return StoreReadOnly(f"{path} cannot be created: {problem.strerror}")
    return StoreError(f"{path} cannot be used: {problem.strerror}", hint="set ONRECORD_STORE to another path")


def refuse_network(path: str) -> None:
    """Refuse a file system that other machines write too."""
    kind = file_system_of(os.path.dirname(path))
    if kind.removeprefix("fuse.") in NETWORK_FILE_SYSTEMS:
        raise StoreUnsafe(
            f"{path} is on a network file system ({kind}), where SQLite can lose or damage data", hint=_USE_POSTGRESQL
        )


def file_system_of(directory: str) -> str:
    """The type of the file system a directory is on; empty when the system does not say."""
    if sys.platform == "darwin":
        return _ask_darwin(directory)
    try:
        with open("/proc/self/mountinfo", "rb") as file:
            table = file.read()
    except OSError:
        return ""
    return kind_in_mounts(table, os.fsencode(directory))


def kind_in_mounts(table: bytes, directory: bytes) -> str:
    """The type of the file system that a table in the form of /proc/self/mountinfo has mounted over a directory."""
    best, kind = -1, b""
    for line in table.splitlines():
        mount, separator, source = line.partition(b" - ")
        fields = mount.split(b" ", 5)
        if not separator or len(fields) < 5:  # noqa: PLR2004 - the mount point is the fifth field
            continue
        point = _unescape(fields[4]).rstrip(b"/")
        # The longest mount point wins, and of several on the same point the last: it covers the others.
        if (directory == point or directory.startswith(point + b"/")) and len(point) >= best:
            best, kind = len(point), source.split(b" ", 1)[0]
    return kind.decode("ascii", "replace")


def _unescape(point: bytes) -> bytes:
    if b"\\" not in point:
        return point
    for code, byte in ((b"\\040", b" "), (b"\\011", b"\t"), (b"\\012", b"\n"), (b"\\134", b"\\")):
        point = point.replace(code, byte)
    return point


def _ask_darwin(directory: str) -> str:
    """What statfs says, on macOS: the type's name, or `remote` for anything that is not local."""
    import ctypes

    answer = ctypes.create_string_buffer(4096)
    try:
        library = ctypes.CDLL(None)
        ask = getattr(library, "statfs$INODE64", None) or library.statfs
        if ask(os.fsencode(directory), answer) != 0:
            return ""
    except (OSError, AttributeError):
        return ""
    flags = int.from_bytes(answer.raw[64:68], sys.byteorder)
    return answer.raw[72:88].split(b"\0", 1)[0].decode("ascii", "replace") if flags & _DARWIN_LOCAL else "remote"
