"""The readers: a few connections that are borrowed for one question each, and how rows become records again.

A question is answered completely before its connection goes back: a reader that stays inside a transaction would keep
the write-ahead log from ever being cut back.
"""

from __future__ import annotations

import time
from json import dumps
from threading import Event
from typing import TYPE_CHECKING, Any

import apsw

from onrecord.errors import InvalidInput, StoreCorrupt
from onrecord.log.events import Record
from onrecord.stores.sqlite.connection import QUERIES, open_reader, store_error

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from onrecord.stores.payloads import Payloads

READERS_KEPT = 4
"""The most idle connections that are kept for the next questions."""

_MASK = 0xFFFFFFFF
_ENCODING, _PAYLOAD = 11, 12

Row = tuple[Any, ...]


class Readers:
    """A pool of connections that cannot write."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._closed = False
        self._start()

    def _start(self) -> None:
        self._idle: list[apsw.Connection] = []
        self._asking: list[None] = []
        """One entry for each question that is being answered. Lists are changed in one step, so this needs no lock."""
        self._pause: Event | None = None

    def add(self, connection: apsw.Connection) -> None:
        """Take a connection into the pool, or close it if there is no place for it."""
        # One that was opened for reading only would keep this whole process from writing when that is possible again.
        read_only = connection.open_flags & apsw.SQLITE_OPEN_READONLY
        if self._closed or read_only or len(self._idle) >= READERS_KEPT:
            connection.close()
        else:
            self._idle.append(connection)

    def ask(self, name: str, values: Sequence[Any] | Mapping[str, Any] = ()) -> list[Row]:
        """Every row of a named query's answer."""
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

    def close(self) -> None:
        """Close what is idle; what is lent is closed when it comes back."""
        self._closed = True
        while self._idle:
            self._idle.pop().close()

    def pause(self, seconds: float) -> None:
        """Before a fork: let no question begin, wait for those under way, and close every connection."""
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
        """In a forked child: what was inherited, which must neither be used nor closed."""
        inherited: list[object] = list(self._idle)
        self._start()
        return inherited

    def _open(self) -> apsw.Connection:
        try:
            connection = open_reader(self._path)
        except apsw.Error as problem:
            raise store_error(problem, self._path) from problem
        self._closed = False
        return connection


def as_json(values: Collection[str] | None) -> str | None:
    """A set of values the way queries take them."""
    return None if values is None else dumps(list(values))


def records_of(session: str, rows: list[Row], payloads: Payloads) -> list[Record]:
    """Records from the rows of the `events` queries of one session.

    A payload that does not unpack comes as the bytes that are kept: whoever decodes it hears where the damage is, and
    verification can go on to the next event.
    """
    unpacked = iter(payloads.unpack([row[_PAYLOAD] for row in rows if row[_ENCODING] and row[_PAYLOAD] is not None]))
    # What Record._make does, without the call in between: this is the loop that long logs wait for.
    make = tuple.__new__
    return [
        make(
            Record,
            (session, key & _MASK, id_, kind, v, at, by, run, because, salt,
             next(unpacked) if encoding and payload is not None else payload, payload_hash, digest),
        )
        for key, id_, kind, v, at, by, run, because, salt, payload_hash, digest, encoding, payload in rows
    ]  # fmt: skip
