"""The readers: a few connections, each borrowed for one query, and how rows become records again.

A query is read to its end before its connection is returned: a reader that stays inside a transaction would keep the
write-ahead log from ever being truncated.
"""

from __future__ import annotations

import time

import apsw

from onrecord.errors import InvalidInput, StoreCorrupt
from onrecord.lean_json import dumps
from onrecord.lean_typing import TYPE_CHECKING, Any
from onrecord.log.events import Record
from onrecord.stores.sqlite.connection import QUERIES, open_reader, store_error

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from threading import Event

    from onrecord.stores.payloads import Payloads

READERS_KEPT = 4
"""The most idle connections that are kept for later queries."""
HISTORIES_KEPT = 1_024
"""Of how many sessions it is remembered where their history is."""

_MASK = 0xFFFFFFFF
_ENCODING, _PAYLOAD = 11, 12
_COMPRESSED = 1

Row = tuple[Any, ...]


class Readers:
    """A pool of connections that cannot write."""

    def __init__(self, path: str, key: bytes | None) -> None:
        self._path = path
        self._key = key
        self._closed = False
        self._start()

    def _start(self) -> None:
        self._idle: list[apsw.Connection] = []
        self._asking: list[None] = []
        """One entry for each running query. Changing a list is atomic, so this needs no lock."""
        self._pause: Event | None = None
        self._histories: dict[str, list[Row]] = {}

    def add(self, connection: apsw.Connection) -> None:
        """Add a connection to the pool, or close it if the pool is full."""
        # A connection opened read-only would keep this process from writing when the store becomes writable again.
        read_only = connection.open_flags & apsw.SQLITE_OPEN_READONLY
        if self._closed or read_only or len(self._idle) >= READERS_KEPT:
            connection.close()
        else:
            self._idle.append(connection)

    def ask(self, name: str, values: Sequence[Any] | Mapping[str, Any] = ()) -> list[Row]:
        """All rows that a named query returns."""
        self._asking.append(None)
        try:
            while self._pause is not None:
                self._wait(self._pause)
            return self._answer(name, values)
        finally:
            self._asking.pop()

    def _answer(self, name: str, values: Sequence[Any] | Mapping[str, Any]) -> list[Row]:
        try:
            connection = self._idle.pop()
        except IndexError:
            connection = self._open()
        try:
            rows = connection.execute(QUERIES[name], values).fetchall()
        except BaseException as problem:
            system = connection.system_errno
            connection.close(force=True)
            if isinstance(problem, apsw.Error):
                raise store_error(problem, self._path, system) from problem
            if isinstance(problem, UnicodeDecodeError):
                raise StoreCorrupt(
                    f"{self._path} is damaged: it contains text that is not valid ({problem})"
                ) from problem
            if isinstance(problem, UnicodeEncodeError):
                raise InvalidInput("the query contains a lone surrogate, which is not valid Unicode") from None
            raise
        self.add(connection)
        return rows

    def history(self, session: str) -> list[Row]:
        """(number, id, low, high) of the session and its ancestors: each contributes low < position <= high.

        None of it ever changes, apart from the end of the session itself, which is left open. So a process that reads
        on in the same sessions queries it once. Empty if there is no such session; the caller does not change it.
        """
        known = self._histories.get(session)
        if known is None:
            known = self.ask("lineage", (session,))
            if known:
                known[0] = (*known[0][:3], _MASK)
                if len(self._histories) >= HISTORIES_KEPT:
                    self._histories.clear()
                if not self._closed:  # a closed store may be another file the next time it is read
                    self._histories[session] = known
        return known

    def close(self) -> None:
        """Close idle connections; borrowed ones are closed when they are returned."""
        self._closed = True
        self._histories.clear()
        while self._idle:
            self._idle.pop().close()

    def pause(self, seconds: float) -> None:
        """Before a fork: let no query begin, wait for the running ones, and close every connection."""
        from threading import Event

        self._pause = Event()
        deadline = time.monotonic() + seconds
        while self._asking and time.monotonic() < deadline:
            time.sleep(0.0005)
        if not self._asking:
            while self._idle:
                self._idle.pop().close()

    def go_on(self) -> None:
        """After a fork, in the parent."""
        pause, self._pause = self._pause, None
        if pause is not None:
            pause.set()

    def _wait(self, pause: Event) -> None:
        self._asking.pop()
        try:
            pause.wait()
        finally:
            self._asking.append(None)

    def forget(self) -> list[object]:
        """In a forked child: the inherited connections, which must be neither used nor closed."""
        inherited: list[object] = list(self._idle)
        self._start()
        return inherited

    def _open(self) -> apsw.Connection:
        try:
            connection = open_reader(self._path, self._key)
        except apsw.Error as problem:
            raise store_error(problem, self._path) from problem
        self._closed = False
        return connection


def as_json(values: Collection[str] | None) -> str | None:
    """A set of values in the form that queries take."""
    return None if values is None else dumps(list(values))


def records_of(session: str, rows: list[Row], payloads: Payloads) -> list[Record]:
    """Records from the rows of the `events` queries of one session.

    A payload that does not unpack is returned as its stored bytes: decoding it reports where the damage is, and
    verification can continue with the next event.
    """
    if any(row[_ENCODING] > _COMPRESSED for row in rows):
        rows = payloads.decrypted(session, rows)
    unpacked = iter(payloads.unpack([row[_PAYLOAD] for row in rows if row[_ENCODING] and row[_PAYLOAD] is not None]))
    # What Record._make does, without its call: reading a long log spends its time in this loop.
    make = tuple.__new__
    return [
        make(
            Record,
            (session, key & _MASK, id_, kind, v, at, by, run, because, salt,
             next(unpacked) if encoding and payload is not None else payload, payload_hash, digest),
        )
        for key, id_, kind, v, at, by, run, because, salt, payload_hash, digest, encoding, payload in rows
    ]  # fmt: skip
