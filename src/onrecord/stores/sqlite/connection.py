"""Connections to a SQLite file: how they are opened, checked and upgraded, and how their errors become ours.

Only apsw is used. The SQLite inside many Pythons loses committed rows when a WAL checkpoint races a writer (3.7.0 to
3.51.2), and two SQLite libraries on one file in one process drop each other's locks.
"""

from __future__ import annotations

import errno
import os
import sys
import time

import apsw

from onrecord.errors import (
    StoreBusy,
    StoreCorrupt,
    StoreError,
    StoreFull,
    StoreMoved,
    StoreReadOnly,
    StoreTooNew,
)
from onrecord.stores.sqlite.cipher import SQLITE_MARK, header_of, is_encrypted, unlock, wrong_key
from onrecord.stores.statements import load, migration, queries

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from onrecord.stores.sqlite.write_lock import WriteLock

SQLITE_AT_LEAST = (3, 51, 3)
"""The first SQLite without the bug that reverts committed rows."""
APPLICATION_ID = 0x4F6E5265
"""`OnRe`: marks a database file as ours."""
SCHEMA_VERSION = 5
"""The number of the last migration."""
PAGE_SIZE = 2048
"""Of new stores. A commit writes every page it changes, and most events are small."""
BUSY_SECONDS = 5.0
"""How long a writer that has the write lock waits for SQLite's own lock."""
OPEN_SECONDS = 30.0
"""How long an opener waits while others create or upgrade the store."""
WAL_BYTES = 16 * 1024 * 1024
"""The write-ahead log is truncated when it has grown beyond this."""

_PROBE_BYTES = 1024 * 1024
_OUR_MARK_ENDS = 72
"""Where the application id ends in SQLite's header."""
_FIRST_PAGE_IN_LOG = 32 + 24
"""A write-ahead log begins with its header and that of its first frame."""

_BEGUN = "BEGIN IMMEDIATE"


QUERIES = queries("sqlite")

_PRAGMAS = (
    "PRAGMA secure_delete = ON; PRAGMA cell_size_check = ON; PRAGMA mmap_size = 0; PRAGMA temp_store = MEMORY; "
    f"PRAGMA wal_autocheckpoint = 0; PRAGMA journal_size_limit = {WAL_BYTES}; "
)
_DURABILITY = {"full": "PRAGMA synchronous = FULL; ", "fast": "PRAGMA synchronous = NORMAL; "}
_DARWIN = "PRAGMA fullfsync = ON; PRAGMA checkpoint_fullfsync = ON; " if sys.platform == "darwin" else ""
DURABILITIES = tuple(_DURABILITY)


def refuse_old_library() -> None:
    """Refuse a SQLite that is known to lose committed rows."""
    version = apsw.sqlitelibversion()
    if tuple(int(part) for part in version.split(".")[:3]) < SQLITE_AT_LEAST:
        raise StoreError(
            f"the SQLite inside apsw is {version}, which can lose committed events",
            hint="install an apsw with SQLite 3.51.3 or newer: pip install --upgrade apsw",
        )


def open_writer(path: str, durability: str, key: bytes | None = None) -> apsw.Connection:
    """A connection that writes; `key` is that of an encrypted store."""
    connection = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READWRITE)
    _prepare(connection, _PRAGMAS + _DURABILITY[durability] + _DARWIN, key)
    return connection


def open_reader(path: str, key: bytes | None = None) -> apsw.Connection:
    """A connection that only reads, even from a directory that cannot be written."""
    if os.access(path, os.W_OK) and os.access(os.path.dirname(path), os.W_OK):
        return _reader(path, apsw.SQLITE_OPEN_READWRITE, key)
    try:
        connection = _reader(path, apsw.SQLITE_OPEN_READONLY, key)
        connection.execute(QUERIES["tables"]).fetchall()
    except (apsw.CantOpenError, apsw.ReadOnlyError) as problem:
        # In WAL mode a database cannot be read without its -shm file. Where none can be created, a database that is not
        # in use is read without one.
        if os.path.exists(path + "-wal") and os.path.getsize(path + "-wal"):
            raise StoreReadOnly(
                f"{path} has a write-ahead log beside it and its directory cannot be written",
                hint="copy it together with its -wal file to a writable directory and open it there",
            ) from problem
        return _reader(f"file:{_quoted(path)}?immutable=1", apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI, key)
    return connection


def _reader(place: str, flags: int, key: bytes | None) -> apsw.Connection:
    connection = apsw.Connection(place, flags=flags)
    _prepare(connection, _PRAGMAS + "PRAGMA query_only = ON; ", key)
    return connection


def _prepare(connection: apsw.Connection, pragmas: str, key: bytes | None) -> None:
    if key is not None:
        unlock(connection, key)
    # First, because some of the pragmas read the file and must wait for the process that creates it.
    connection.set_busy_timeout(int(BUSY_SECONDS * 1000))
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_FKEY, 1)
    connection.config(apsw.SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0)
    # Without this, SQLite compiles a join again whenever another value is bound: ten times the cost of running it.
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
    # The last connection to close would make a WAL checkpoint without the write lock; the store makes one with it.
    connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    # apsw stops at the first statement that returns a row until the row is fetched.
    connection.execute(pragmas).fetchall()


def _quoted(path: str) -> str:
    return path.replace("%", "%25").replace("?", "%3f").replace("#", "%23")


def versions(connection: apsw.Connection) -> tuple[int, int]:
    """The application id and the schema version of a file."""
    rows: list[Any] = connection.execute("PRAGMA application_id; PRAGMA user_version").fetchall()
    return int(rows[0][0]), int(rows[1][0])


def prepare(path: str, lock: WriteLock, durability: str, key: bytes | None) -> apsw.Connection:
    """A first reader, after making sure that the file is a store of ours with the present schema."""
    while True:
        connection = open_reader(path, key)
        try:
            if is_current(connection, path):
                return connection
        except BaseException:
            connection.close()
            raise
        connection.close()
        _upgrade(path, lock, durability, key)


def is_store(path: str) -> bool:
    """Whether a file is a store: encrypted, or with our mark in its header or, before a checkpoint, in its first page.

    That page is the first frame of the write-ahead log of a new store.
    """
    mark = APPLICATION_ID.to_bytes(4, "big")
    header, log = header_of(path, _OUR_MARK_ENDS), header_of(f"{path}-wal", _FIRST_PAGE_IN_LOG + _OUR_MARK_ENDS)
    marked = header[:16] == SQLITE_MARK and mark in (header[-4:], log[-4:])
    return marked or is_encrypted(path)


def no_store(path: str) -> StoreCorrupt:
    """What to say about a file that is no store."""
    return another_programs(path) if header_of(path, len(SQLITE_MARK)) == SQLITE_MARK else no_database(path)


def another_programs(path: str) -> StoreCorrupt:
    """What to say about a database without our mark."""
    hint = "set ONRECORD_STORE to another path; the file was not changed"
    return StoreCorrupt(f"{path} is another program's database", hint=hint)


def no_database(path: str) -> StoreCorrupt:
    """What to say about a file that does not begin as a database does."""
    return StoreCorrupt(
        f"{path} is not a database, or its beginning is damaged; it was not changed",
        hint="set ONRECORD_STORE to another path, or restore a backup",
        step="foreign_file",
    )


def is_current(connection: apsw.Connection, path: str) -> bool:
    """Whether the schema is the present one; False for an empty file or an older schema, an error for anything else."""
    application, version = versions(connection)
    if application == APPLICATION_ID:
        if version > SCHEMA_VERSION:
            raise StoreTooNew(f"{path} has schema {version}; this onrecord knows up to {SCHEMA_VERSION}")
        return version == SCHEMA_VERSION
    foreign = application or version or connection.execute(QUERIES["tables"]).fetchall() != [(0,)]
    # Another process may have created the store between these checks: then the next check sees it.
    if foreign and versions(connection) == (application, version):
        raise another_programs(path)
    return False


def _upgrade(path: str, lock: WriteLock, durability: str, key: bytes | None) -> None:
    """Create or migrate under the write lock: of many processes that open the store first, one does it."""
    deadline = time.monotonic() + OPEN_SECONDS
    passed = lock.acquire(OPEN_SECONDS)
    try:
        connection = open_writer(path, durability, key)
        try:
            while not is_current(connection, path):
                try:
                    connection.execute(f"PRAGMA page_size = {PAGE_SIZE}; PRAGMA journal_mode = WAL").fetchall()
                    _migrate(connection, path)
                except apsw.BusyError:
                    # Another process read the file while it was being switched to WAL mode; SQLite does not wait then.
                    if time.monotonic() > deadline:
                        raise
                    time.sleep(0.005)
        finally:
            connection.close()
    finally:
        if passed:
            lock.release()


def _migrate(connection: apsw.Connection, path: str) -> None:
    """One step forward: a fresh file gets the whole schema, an older one its next migration, in one transaction."""
    connection.execute(_BEGUN)
    try:
        if not is_current(connection, path):
            _application, version = versions(connection)
            if version == 0:
                connection.execute(load("sqlite", "schema.sql")).fetchall()
                connection.execute(QUERIES["add_meta"], ("secret", os.urandom(32)))
                connection.execute(QUERIES["add_meta"], ("made_at", str(int(time.time())).encode()))
                reached = SCHEMA_VERSION
            else:
                reached = version + 1
                connection.execute(migration("sqlite", reached)).fetchall()
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {reached}")
        connection.execute("COMMIT")
    except BaseException:
        roll_back(connection)
        raise


def roll_back(connection: apsw.Connection) -> None:
    """End whatever transaction is open: a read-only remount, for one, leaves it open after the error."""
    if connection.in_transaction:
        try:
            connection.execute("ROLLBACK")
        except apsw.Error:
            connection.close()


class Moved(apsw.Error):
    """The file at the store's path is not the one that is open."""


def store_error(problem: apsw.Error, path: str, system: int = 0) -> StoreError:
    """What an error of SQLite means to a caller."""
    if isinstance(problem, Moved):
        return StoreMoved(f"the store {path} was deleted, moved or replaced while it was open; nothing was written")
    if isinstance(problem, apsw.FullError) or system in (errno.ENOSPC, errno.EDQUOT):
        return StoreFull(f"no space left for the store {path}; nothing was written")
    if isinstance(problem, apsw.NotADBError) and is_encrypted(path):
        return wrong_key(path)
    damaged = isinstance(problem, (apsw.CorruptError, apsw.NotADBError))
    if (damaged or isinstance(problem, apsw.IOError)) and _cannot_be_read(path):
        return StoreError(
            f"the disk returned an input/output error for the store {path}; what is on it may be sound",
            hint="check the disk, then the store; restore a backup only if the store is damaged",
            step="check_store",
        )
    if isinstance(problem, apsw.NotADBError):
        return no_database(path)
    if damaged:
        return StoreCorrupt(f"{path} is damaged: {problem}")
    if isinstance(problem, (apsw.BusyError, apsw.LockedError)):
        return StoreBusy(
            f"another process kept the store {path} busy for {BUSY_SECONDS:g} seconds; nothing was written"
        )
    if isinstance(problem, (apsw.ReadOnlyError, apsw.PermissionsError)) or system in (
        errno.EROFS, errno.EACCES, errno.EPERM,
    ):  # fmt: skip
        return StoreReadOnly(f"the store {path} cannot be written: {problem}")
    if isinstance(problem, apsw.CantOpenError):
        return StoreError(
            f"the store {path} cannot be opened: {problem}", hint="check the store and its disk", step="check_store"
        )
    return StoreError(f"SQLite failed on {path}: {problem}", hint="check the store and its disk", step="check_store")


def _cannot_be_read(path: str) -> bool:
    """Whether the disk refuses to return the file: SQLite calls a read that fails with EIO a damaged database.

    It reads through SQLite, which keeps this process's locks on the file; to close a descriptor of our own would not.
    """
    deadline = time.monotonic() + BUSY_SECONDS
    for name in (path, path + "-wal"):
        if not os.path.isfile(name):
            continue
        try:
            file = apsw.VFSFile("", name, [apsw.SQLITE_OPEN_MAIN_DB | apsw.SQLITE_OPEN_READONLY, 0])
        except apsw.Error:
            continue
        try:
            for offset in range(0, file.xFileSize(), _PROBE_BYTES):
                file.xRead(_PROBE_BYTES, offset)
                if time.monotonic() > deadline:
                    return False
        except apsw.IOError:
            return True
        finally:
            file.xClose()
    return False
