"""The readers: a few connections that are borrowed for one question each, and how rows become records again.

A question is answered completely before its connection goes back: a reader that stays inside a transaction would keep the
write-ahead log from ever being cut back.
"""

from __future__ import annotations

from json import dumps
from typing import TYPE_CHECKING, Any

import apsw

from onrecord.log.events import Record
from onrecord.stores.sqlite.connection import QUERIES, meaning, open_reader

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from onrecord.stores.sqlite.payloads import Payloads

READERS_KEPT = 4
"""The most idle connections that are kept for the next questions."""

_MASK = 0xFFFFFFFF
_ENCODING = 11

Row = tuple[Any, ...]


class Readers:
    """A pool of connections that cannot write."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._idle: list[apsw.Connection] = []
        self._closed = False

    def add(self, connection: apsw.Connection) -> None:
        """Take a connection into the pool, or close it if there is no place for it."""
        # One that was opened for reading only would keep this whole process from writing when the place can be written again.
        read_only = connection.open_flags & apsw.SQLITE_OPEN_READONLY
        if self._closed or read_only or len(self._idle) >= READERS_KEPT:
            connection.close()
        else:
            self._idle.append(connection)

    def ask(self, name: str, values: Sequence[Any] | Mapping[str, Any] = ()) -> list[Row]:
        """Every row of a named query's answer."""
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
                raise meaning(problem, self._path, system) from problem
            raise
        self.add(connection)
        return rows

    def close(self) -> None:
        """Close what is idle; what is lent is closed when it comes back."""
        self._closed = True
        while self._idle:
            self._idle.pop().close()

    def forget(self) -> list[object]:
        """In a forked child: what was inherited, which must neither be used nor closed."""
        inherited, self._idle = self._idle, []
        return list(inherited)

    def _open(self) -> apsw.Connection:
        try:
            connection = open_reader(self._path)
        except apsw.Error as problem:
            raise meaning(problem, self._path) from problem
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
    if not any(row[_ENCODING] for row in rows):
        # Short facts are kept as they are, and loading zstd would cost more than reading them.
        return [Record._make((session, row[0] & _MASK, *row[1:9], row[12], row[9], row[10])) for row in rows]
    found: list[Record] = []
    decompressor = payloads.borrow()
    decompress, make, add = decompressor.decompress, Record._make, found.append
    try:
        for key, id_, kind, v, at, by, run, because, salt, payload_hash, digest, encoding, payload in rows:
            if encoding and payload is not None:
                try:
                    payload = decompress(payload)  # noqa: PLW2901  # the row's own value, unpacked
                except Exception:  # noqa: BLE001, S110  # zstd's error class is not worth its import here; see above
                    pass
            add(make((session, key & _MASK, id_, kind, v, at, by, run, because, salt, payload, payload_hash, digest)))
    finally:
        payloads.give_back(decompressor)
    return found
