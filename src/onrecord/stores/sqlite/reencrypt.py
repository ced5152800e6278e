"""Encrypting a store, giving it another key, and decrypting it: a copy is made beside it, checked, and renamed over it.

The store must not be in use. A crash at any moment leaves the old store or the new one under its name, complete; what
is left of a copy is removed by the next run.
"""

from __future__ import annotations

import contextlib
import os

import apsw

from onrecord.errors import StoreBusy, StoreCorrupt, StoreError, StoreLocked
from onrecord.machine import started
from onrecord.stores.sqlite import safety
from onrecord.stores.sqlite.cipher import CIPHER, REPLACE_APSW, can_encrypt, is_encrypted, unlock
from onrecord.stores.sqlite.connection import open_writer, store_error
from onrecord.stores.sqlite.write_lock import WriteLock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

_BESIDE = ("-wal", "-shm", "-journal")
_PIECE = 1024 * 1024


def reencrypt(path: str, old: bytes | None, new: bytes | None, check: Callable[[str], None]) -> None:
    """Replace a store by a copy under another key; None is no encryption.

    `check` gets the path of the copy and raises if a session in it is damaged; the store has not changed then.
    """
    if not can_encrypt():
        raise StoreLocked("the installed apsw has no ciphers", hint=REPLACE_APSW)
    copy = f"{path}.new-key-{os.getpid()}"
    _remove_left_over(path)
    lock = WriteLock(path + ".lock")
    lock.acquire()  # writers wait; that no other process has the store open is SQLite's to say
    try:
        alone = _alone(path, old)
        try:
            _copy(alone, copy, new)
            check(copy)
            _settle(copy, new)
            _take_place(alone, copy, path)
        finally:
            alone.close()
    except apsw.Error as problem:
        raise store_error(problem, path) from problem
    except OSError as problem:
        raise safety.unwritable(copy, problem) from None
    finally:
        lock.release()
        lock.close()
        for companion in safety.COMPANIONS:
            with contextlib.suppress(OSError):
                os.unlink(copy + companion)


def _remove_left_over(path: str) -> None:
    """Remove the copies of killed runs: their names have the number of the process."""
    folder, name = os.path.split(path)
    for entry in os.listdir(folder):
        number = entry.removeprefix(f"{name}.new-key-").partition("-")[0].removesuffix(".lock")
        if entry.startswith(f"{name}.new-key-") and number.isdigit() and started(int(number)) is None:
            with contextlib.suppress(OSError):
                os.unlink(os.path.join(folder, entry))


def _in_use(path: str) -> StoreBusy:
    return StoreBusy(f"another process uses {path}", hint="stop that process first; nothing was changed")


def _alone(path: str, key: bytes | None) -> apsw.Connection:
    """A connection that shuts out all others; the file is complete without its write-ahead log."""
    connection = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_URI)
    try:
        if key is not None:
            unlock(connection, key)
        connection.set_busy_timeout(0)
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        connection.pragma("temp_store", "memory")
        connection.pragma("locking_mode", "exclusive")
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("COMMIT")
        connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    except (apsw.BusyError, apsw.LockedError):
        connection.close()
        raise _in_use(path) from None
    except BaseException:
        connection.close()
        raise
    return connection


def _copy(alone: apsw.Connection, copy: str, key: bytes | None) -> None:
    """Write every row to a new file under the new key. The key is bound, so no statement text has it."""
    file = os.open(copy, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    os.close(file)
    quoted = copy.replace("%", "%25").replace("?", "%3f").replace("#", "%23")
    wanted = "key=" if key is None else f"cipher={CIPHER}&key=raw:{key.hex()}"
    alone.execute("VACUUM INTO ?", (f"file:{quoted}?{wanted}",))
    if is_encrypted(copy) != (key is not None):
        raise StoreError("the copy is not encrypted as it should be; nothing was changed")


def _settle(copy: str, key: bytes | None) -> None:
    """Back into WAL mode, checked, everything in one file and on the disk."""
    connection = open_writer(copy, "full", key)
    try:
        ((found,),) = connection.execute("PRAGMA quick_check(1)").fetchall()
        if found != "ok":
            raise StoreCorrupt(f"the copy is damaged ({found}); nothing was changed")
        connection.pragma("journal_mode", "wal")
        connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    finally:
        connection.close()
    file = os.open(copy, os.O_RDWR | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def _take_place(alone: apsw.Connection, copy: str, path: str) -> None:
    """Rename the copy over the store, then overwrite what the store was."""
    for companion in _BESIDE:
        # Empty by now, and no other process can open the store: none of it may be replayed onto the copy.
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path + companion)
    old = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        os.rename(copy, path)
        safety.sync_directory(os.path.dirname(path))
        # A file with another name is someone's copy. On many disks this overwrites the blocks; an SSD may keep them.
        facts = os.fstat(old)
        with contextlib.suppress(OSError):
            for place in range(0, 0 if facts.st_nlink else facts.st_size, _PIECE):
                os.pwrite(old, bytes(_PIECE), place)
            os.fsync(old)
    finally:
        alone.close()
        os.close(old)
