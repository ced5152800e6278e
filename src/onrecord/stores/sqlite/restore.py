"""Restoring: a copy replaces a store that is not in use. The old store is moved aside, never deleted.

The copy is made and checked beside the store under a name of its own. The old store gets a second name, then the copy
is renamed over it. So a power cut leaves either the old store or the copy under the store's name.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING

import apsw

from onrecord.errors import StoreBusy, StoreCorrupt, StoreError
from onrecord.stores.sqlite import safety
from onrecord.stores.sqlite.cipher import key_of
from onrecord.stores.sqlite.connection import QUERIES, open_writer, store_error
from onrecord.stores.sqlite.upkeep import back_up

if TYPE_CHECKING:
    from collections.abc import Callable

_BESIDE = ("-wal", "-shm", "-journal")


def restore(
    backup: str, path: str, check: Callable[[str], None], key: Callable[[], bytes | None] | None = None
) -> str | None:
    """Replace the store at `path` by a copy of `backup`; return where the old store is now.

    `check` gets the path of the copy and raises if the copy is damaged; nothing has changed then. `key` returns the key
    of encrypted files: the backup, the store, or both.
    """
    real = safety.resolve(path)
    copy = f"{real}.restoring-{os.getpid()}"
    try:
        _copy(Path(backup).expanduser().resolve(), copy, key)
        check(copy)
        _settle(copy, key_of(copy, key))
        return _take_place(copy, real, key_of(real, key) if os.path.exists(real) else None)
    finally:
        for companion in safety.COMPANIONS:
            Path(copy + companion).unlink(missing_ok=True)


def _copy(backup: Path, copy: str, key: Callable[[], bytes | None] | None) -> None:
    """Copy a backup; one that is a single file is copied as a file, so that SQLite leaves nothing beside it."""
    if backup.stat().st_size == 0:
        raise StoreCorrupt(f"{backup} is empty", hint="nothing was changed; try an older backup")
    if any(Path(f"{backup}{companion}").exists() for companion in ("-wal", "-journal")):
        back_up(str(backup), copy, key_of(str(backup), key))
        return
    file = os.open(copy, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(file, "wb") as target, backup.open("rb") as source:
        shutil.copyfileobj(source, target)
        target.flush()
        os.fsync(target.fileno())


def _settle(copy: str, key: bytes | None) -> None:
    """Move what the check left in the copy's write-ahead log into the copy: only one file will be renamed.

    A backup is a file that anyone may have written: its logs count as arrived, and its snapshots are not kept.
    """
    try:
        connection = open_writer(copy, "full", key)
        try:
            connection.execute(QUERIES["mark_all_arrived"])
            connection.execute(QUERIES["drop_every_snapshot"])
            connection.pragma("journal_mode", "delete")
            connection.pragma("journal_mode", "wal")
            connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        finally:
            connection.close()
    except apsw.Error as problem:
        raise store_error(problem, copy) from problem


def _take_place(copy: str, path: str, key: bytes | None) -> str | None:
    aside = None
    connection = _alone(path, key) if os.path.lexists(path) else None
    try:
        if os.path.lexists(path):
            aside = _free_name(path)
            _name_also(path, aside)
            for companion in _BESIDE:
                # The old write-ahead log must never be replayed onto the copy.
                with contextlib.suppress(FileNotFoundError):
                    Path(path + companion).rename(aside + companion)
        Path(copy).rename(path)
        safety.sync_directory(str(Path(path).parent))
    finally:
        if connection is not None:
            connection.close()
    return aside


def _alone(path: str, key: bytes | None) -> apsw.Connection | None:
    """A connection that shuts out all others; None for a file so damaged that no process can be using it."""
    try:
        connection = open_writer(path, "full", key)
        connection.set_busy_timeout(0)
        # Leaving WAL mode needs exclusive access, and makes the file complete without -wal and -shm.
        if connection.pragma("journal_mode", "delete") != "delete":
            raise apsw.BusyError("in use")
        connection.execute("BEGIN EXCLUSIVE").fetchall()
    except (apsw.NotADBError, apsw.CorruptError):
        return None
    except (apsw.BusyError, apsw.LockedError):
        raise StoreBusy(f"another process uses {path}", hint="stop that process first; nothing was changed") from None
    except apsw.Error as problem:
        raise store_error(problem, path) from problem
    return connection


def _free_name(path: str) -> str:
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    for number in range(1, 1_000):
        name = f"{path}.before-restore-{stamp}" + (f"-{number}" if number > 1 else "")
        if not os.path.lexists(name):
            return name
    raise StoreError(f"no free name is left beside {path}", hint="delete or move older .before-restore files")


def _name_also(path: str, aside: str) -> None:
    try:
        os.link(path, aside)
    except OSError:
        # No hard links on this file system: for a moment the store has no name.
        Path(path).rename(aside)
