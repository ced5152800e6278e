"""Encryption at rest: the whole file, its write-ahead log included, by the SQLite build of `apsw-sqlite3mc`.

That package replaces `apsw` under the same module name. Whether a store is encrypted is a fact about its file, not a
setting: the header says so, and only the header is read for that.
"""

from __future__ import annotations

import os
import stat

import apsw

from onrecord.errors import StoreLocked

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

CIPHER = "aegis"
"""AEGIS-256: authenticated, and a third of the cost of ChaCha20-Poly1305 on processors with AES instructions."""
PURPOSE = "sqlite file"
KEY_BYTES = 32
TRIES = 3
"""How often the first page is read before the key is called wrong: another process may be writing it."""
REPLACE_APSW = "pip uninstall -y apsw, then pip install apsw-sqlite3mc"

_HEADER_BYTES = 24
SQLITE_MARK = b"SQLite format 3\0"
"""How every database begins that is not encrypted."""
_FRACTIONS = bytes((64, 32, 32))
"""Three constants of every SQLite header. The cipher leaves these bytes, page size and modes readable."""
_MODES = (1, 2)


def can_encrypt() -> bool:
    """Whether the installed apsw has ciphers."""
    return hasattr(apsw, "mc_version")


def header_of(path: str, size: int) -> bytes:
    """The first bytes of a regular file; empty if it has fewer, or cannot be read.

    It reads through SQLite, which keeps this process's locks on the file; to close a descriptor of our own would not.
    """
    try:
        facts = os.stat(path)
        if not stat.S_ISREG(facts.st_mode) or facts.st_size < size:
            return b""
        file = apsw.VFSFile("unix", path, [apsw.SQLITE_OPEN_MAIN_DB | apsw.SQLITE_OPEN_READONLY, 0])
    except (OSError, apsw.Error):
        return b""
    try:
        return file.xRead(size, 0)
    except apsw.Error:
        return b""
    finally:
        file.xClose()


def is_encrypted(path: str) -> bool:
    """Whether a file may be an encrypted database: its header has the shape of one, without SQLite's own mark."""
    header = header_of(path, _HEADER_BYTES)
    if not header:
        return False
    size = int.from_bytes(header[16:18], "big")
    shaped = size == 1 or (size >= 512 and size & (size - 1) == 0)  # noqa: PLR2004 - page sizes; 1 means 65,536
    return (
        header[:16] != SQLITE_MARK
        and shaped
        and header[18] in _MODES
        and header[19] in _MODES
        and header[21:24] == _FRACTIONS
    )


def key_of(path: str, key: Callable[[], bytes | None] | None) -> bytes | None:
    """The key to open a file with; None for one that is not encrypted. A file that is not there yet may become it."""
    encrypted = is_encrypted(path)
    if not encrypted and os.path.exists(path) and os.path.getsize(path):
        return None
    if encrypted and not can_encrypt():
        raise StoreLocked(f"{path} is encrypted, and the installed apsw has no ciphers", hint=REPLACE_APSW)
    found = key() if key is not None else None
    if found is None:
        if encrypted:
            raise StoreLocked(f"{path} is encrypted, and no key is configured")
        return None
    if not can_encrypt():
        raise StoreLocked(
            f"a key is configured, so {path} should be encrypted, and the installed apsw has no ciphers",
            hint=REPLACE_APSW,
        )
    made = file_key(found)
    if encrypted and not any(_opens(path, made) for _again in range(TRIES)):
        raise wrong_key(path)
    return made


def wrong_key(path: str) -> StoreLocked:
    """The error for a key that does not fit."""
    return StoreLocked(
        f"the key does not open {path}: it is the key of another store, or the file is not a store of onrecord",
        hint="nothing was changed; use the key that this store was encrypted with",
    )


def _opens(path: str, key: bytes) -> bool:
    """Whether the key fits the first page. Only the file is read; an ordinary connection writes an index of its log."""
    quoted = path.replace("%", "%25").replace("?", "%3f").replace("#", "%23")
    flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
    try:
        connection = apsw.Connection(f"file:{quoted}?immutable=1", flags=flags)
        try:
            unlock(connection, key)
            connection.pragma("schema_version")
        finally:
            connection.close()
    except apsw.NotADBError:
        return False
    except apsw.Error:
        return True  # not for the key to say
    return True


def file_key(key: bytes) -> bytes:
    """The key of the file, derived from the key that a person keeps."""
    if len(key) != KEY_BYTES:
        raise StoreLocked(f"a key has {KEY_BYTES} bytes, this one has {len(key)}")
    from onrecord.stores.payloads import key_for

    return key_for(key, PURPOSE)


def unlock(connection: apsw.Connection, key: bytes) -> None:
    """Give a new connection its key, before anything is read."""
    connection.pragma("cipher", CIPHER)
    connection.pragma("key", f"raw:{key.hex()}")
