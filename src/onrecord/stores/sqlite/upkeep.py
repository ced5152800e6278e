"""Upkeep: an online copy of the store, and what `onrecord doctor` reports about it."""

from __future__ import annotations

import contextlib
import os
import stat
from typing import TYPE_CHECKING, Any

import apsw

from onrecord.errors import InvalidInput, StoreError
from onrecord.machine.files import remove_left_over
from onrecord.stores.sqlite import safety
from onrecord.stores.sqlite.cipher import unlock
from onrecord.stores.sqlite.connection import open_reader, open_writer, store_error, versions

if TYPE_CHECKING:
    from onrecord.stores.sqlite.readers import Readers

_SYNCHRONOUS = ("off", "normal", "full", "extra")
IN_MEMORY = ("tmpfs", "ramfs", "devtmpfs", "zram")
"""File systems that forget everything without power."""
_POWER_CUT = {
    "off": "recent commits, or the whole file",
    "normal": "the commits since the last WAL checkpoint; nothing is damaged",
    "full": "nothing that was acknowledged",
    "extra": "nothing that was acknowledged",
}


def back_up(path: str, target: str, key: bytes | None) -> str:
    """Copy a store that may be in use to a new file, as it is at one moment; return the file's real path.

    The copy appears under its name only when it is complete and on the disk. An existing file is never replaced.
    The copy of an encrypted store is encrypted with the same key.
    """
    real = safety.resolve(target)
    _refuse_existing(real)
    part = f"{real}.part-{os.getpid()}"
    remove_left_over(os.path.dirname(real), f"{os.path.basename(real)}.part-")
    try:
        _make_empty(part)
        _copy(path, part, key)
        _sync(part)
        _name(part, real)
        safety.sync_directory(os.path.dirname(real))
    except OSError as problem:
        raise safety.unwritable(real, problem) from None
    finally:
        for companion in ("", "-wal", "-shm", "-journal"):
            with contextlib.suppress(OSError):
                os.unlink(part + companion)
    return real


def _make_empty(part: str) -> None:
    file = os.open(part, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        os.fchmod(file, 0o600)
    finally:
        os.close(file)


def _name(part: str, real: str) -> None:
    """Give the complete copy its name, unless a file has that name by now."""
    try:
        os.link(part, real)
    except FileExistsError:
        _refuse_existing(real)
    except OSError:
        # No hard links on this file system; a rename could replace only a file that was created at this very moment.
        _refuse_existing(real)
        os.rename(part, real)


def _refuse_existing(path: str) -> None:
    if os.path.lexists(path):
        raise InvalidInput(f"{path} exists; a backup never replaces a file", hint="choose a new name")
    for companion in ("-wal", "-journal"):
        if os.path.lexists(path + companion):
            raise InvalidInput(
                f"{path + companion} is left over from another database, and SQLite would replay it onto the backup",
                hint=f"choose a new name, or delete it: {path + companion}",
            )


def _copy(path: str, part: str, key: bytes | None) -> None:
    try:
        with contextlib.closing(open_reader(path, key)) as source:
            copy = apsw.Connection(part, flags=apsw.SQLITE_OPEN_READWRITE)
            with contextlib.closing(copy):
                if key is not None:
                    unlock(copy, key)
                    copy.pragma("page_size", source.pragma("page_size"))
                backup = copy.backup("main", source, "main")
                try:
                    backup.step()  # all pages in one read transaction: writers continue, and the copy is of one moment
                finally:
                    backup.close(force=True)
    except apsw.Error as problem:
        raise store_error(problem, part) from problem
    except SystemError as problem:  # apsw raises this for a second error while it closes after the first
        raise StoreError(f"the copy {part} could not be completed") from problem


def _sync(path: str) -> None:
    file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def describe(path: str, durability: str, readers: Readers, key: bytes | None, *, check: bool) -> dict[str, Any]:
    """The facts about a store; with `check`, the database is read through and its structure checked."""
    files = _files(path)
    counts = readers.ask("counts")[0]
    facts: dict[str, Any] = {
        "path": path,
        "sqlite": apsw.sqlite_lib_version(),
        "apsw": apsw.apsw_version(),
        "file_system": safety.file_system_of(os.path.dirname(path)),
        "encrypted": key is not None,
        "durability": durability,
        "files": files,
        "wal_bytes": files.get(os.path.basename(path) + "-wal", {}).get("bytes", 0),
        "directory_mode": _mode(os.path.dirname(path)),
    }
    facts |= dict(zip(("sessions", "events", "blobs", "snapshots", "leases"), counts, strict=True))
    facts["search_behind"] = sum(row[3] - row[2] for row in readers.ask("behind", (None, None)) if not row[4])
    facts |= _settings(path, durability, key)
    facts["writable"] = os.access(path, os.W_OK) and os.access(os.path.dirname(path), os.W_OK)
    facts["power_cut_can_lose"] = _power_cut(facts)
    if check:
        facts["integrity"] = _integrity(path, key)
    return facts


def _power_cut(facts: dict[str, Any]) -> str:
    """What a power cut can lose here, whatever SQLite was asked to do."""
    if facts["file_system"] in IN_MEMORY:
        return f"everything: {facts['file_system']} is in memory"
    if not facts["writable"]:
        return "nothing: the store can only be read here"
    return _POWER_CUT.get(facts["synchronous"], "unknown")


def _settings(path: str, durability: str, key: bytes | None) -> dict[str, Any]:
    """What SQLite says about a connection opened the way the store opens its own."""
    try:
        try:
            connection = open_writer(path, durability, key)
            connection.execute("PRAGMA journal_mode").fetchall()
        except (apsw.CantOpenError, apsw.ReadOnlyError):
            connection = open_reader(path, key)
        try:
            application, version = versions(connection)
            return {
                "journal_mode": connection.pragma("journal_mode"),
                "synchronous": _SYNCHRONOUS[int(connection.pragma("synchronous"))],
                "page_size": connection.pragma("page_size"),
                "secure_delete": bool(connection.pragma("secure_delete")),
                "application_id": application,
                "schema_version": version,
            }
        finally:
            connection.close()
    except apsw.Error as problem:
        raise store_error(problem, path) from problem


def _integrity(path: str, key: bytes | None) -> str:
    """`ok`, or the first problems that SQLite finds."""
    try:
        connection = open_reader(path, key)
        try:
            rows = connection.execute("PRAGMA quick_check(10)").fetchall()
        finally:
            connection.close()
    except (apsw.Error, StoreError) as problem:
        return str(problem)
    return "; ".join(str(row[0]) for row in rows)


def _files(path: str) -> dict[str, dict[str, Any]]:
    found = {}
    for companion in safety.COMPANIONS:
        with contextlib.suppress(OSError):
            found[os.path.basename(path) + companion] = {
                "bytes": os.stat(path + companion).st_size,
                "mode": _mode(path + companion),
            }
    return found


def _mode(path: str) -> str:
    return f"{stat.S_IMODE(os.stat(path).st_mode):04o}"
