"""The write-ahead log, as its one writer in this process sees it: its length, its allocated space, and when it is
copied.

SQLite can report the length with every commit. That takes time, so it does so only now and then.
"""

from __future__ import annotations

import os
import sys

import apsw

from onrecord.stores.sqlite.connection import BUSY_SECONDS, PAGE_SIZE, WAL_BYTES

CHECKPOINT_BYTES = 4 * 1024 * 1024
"""The write-ahead log is copied into the database whenever it has grown by so much."""
CHECKPOINT_PATIENCE_MS = 20
"""How long the truncation of an overgrown write-ahead log may wait for readers: writers wait with it."""
LEFT_BEHIND_BYTES = 1024 * 1024
"""The most that a closing store leaves in the write-ahead log: the next opener may have to read through it."""
LOOK_EVERY = 8
"""After so many small transactions the length of the write-ahead log is checked again."""
FIRST_ROOM = 512 * 1024
"""How much space the write-ahead log gets at first; whenever it is used up, twice as much."""
ROOM_PIECE = 4096
"""How many bytes one write allocates. Linux may cache a large write in large pieces, and later sync a whole piece when
a small part of it has changed."""
FRAME_HEADER_BYTES = 24
"""What a page occupies in the write-ahead log besides itself."""

_ZEROS = bytes(ROOM_PIECE)


class WriteAheadLog:
    """The log of one store."""

    __slots__ = ("_due", "_frame", "_path", "_unseen", "length", "room")

    def __init__(self, path: str) -> None:
        self._path = path + "-wal"
        self._frame = PAGE_SIZE + FRAME_HEADER_BYTES
        """What a page occupies: older stores have larger pages."""
        self.length = 0
        """Its length at the last check, in bytes."""
        self._unseen = 0
        """How many small transactions were made since the last check."""
        self._due = CHECKPOINT_BYTES
        self.room = 0
        """Up to here space is allocated in its file."""

    def watch(self, connection: apsw.Connection) -> None:
        """Follow a new connection, which writes to it from now on."""
        connection.set_wal_hook(self._grown)
        self._frame = connection.pragma("page_size") + FRAME_HEADER_BYTES

    def written(self, connection: apsw.Connection, *, small: bool) -> None:
        """After a transaction: check the length now and then, and make a WAL checkpoint when it is due."""
        if small and 0 < self._unseen < LOOK_EVERY:
            self._unseen += 1
            return
        again = not small or self._unseen > 0
        connection.set_wal_hook(self._grown if again else None)
        self._unseen = LOOK_EVERY if again else 1
        if self.length >= self._due:
            self._copy(connection)

    def is_long(self) -> bool:
        """Whether it is longer than a closing store should leave it."""
        return self.length > LEFT_BEHIND_BYTES

    def make_room(self) -> None:
        """Fill the write-ahead log's file with zeros beyond its last page.

        Syncing a file that grows takes twice as long as syncing one that is written over. SQLite stops reading the log
        at the first page that is not its own, so the zeros mean nothing to it. The caller has the write lock, so no
        other process adds pages at this moment.
        """
        most = CHECKPOINT_BYTES + FIRST_ROOM
        wanted = FIRST_ROOM
        while wanted < min(self.length + FIRST_ROOM, most):
            wanted *= 2
        wanted = min(wanted, most)
        self.room = sys.maxsize
        try:
            file = os.open(self._path, os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
            try:
                size = os.fstat(file).st_size
                for place in range(size, wanted, ROOM_PIECE):
                    os.pwrite(file, _ZEROS[: wanted - place], place)  # only ever beyond the end
            finally:
                os.close(file)
        except OSError:
            return  # the space is only for speed
        if self.length < most - FIRST_ROOM // 2:
            self.room = max(wanted, min(size, most)) - FIRST_ROOM // 2

    def _grown(self, connection: apsw.Connection, database: str, pages: int) -> int:
        length = pages * self._frame
        if length < self.length:  # it started again at its first page, or was truncated
            self._due = CHECKPOINT_BYTES
            self.room = 0
        self.length = length
        self._unseen = 0
        return apsw.SQLITE_OK

    def _copy(self, connection: apsw.Connection) -> None:
        """Copy it into the database. Best effort: what a reader still needs stays for next time."""
        overgrown = self.length > WAL_BYTES
        self._due = self.length + CHECKPOINT_BYTES
        mode = apsw.SQLITE_CHECKPOINT_TRUNCATE if overgrown else apsw.SQLITE_CHECKPOINT_PASSIVE
        copied(connection, mode, CHECKPOINT_PATIENCE_MS)


def synced(path: str) -> bool:
    """Make a file's new size durable: SQLite does not, and a power cut would bring back the truncated part."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            os.fsync(file)
        finally:
            os.close(file)
    except OSError:
        return False
    return True


def copied(connection: apsw.Connection, mode: int, patience: int) -> bool:
    """Whether a WAL checkpoint copied everything, waiting for readers no longer than `patience` milliseconds."""
    connection.set_busy_timeout(patience)
    try:
        total, done = connection.wal_checkpoint(mode=mode)
    except apsw.Error:
        return False
    finally:
        connection.set_busy_timeout(int(BUSY_SECONDS * 1000))
    return total == done
