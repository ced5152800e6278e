"""A glance: what the gate needs of one session, over one connection, without writing anything.

It reads less than the store does and takes no lock. Wherever it is not sure (another schema, an erasure, a fork, a
name that is only a prefix), it returns None, and the caller opens the store and folds the log.
"""

from __future__ import annotations

import os

import apsw

from onrecord import lean_json as json
from onrecord.errors import StoreError
from onrecord.stores.sqlite import safety
from onrecord.stores.sqlite.cipher import key_of
from onrecord.stores.sqlite.connection import QUERIES, is_current, open_reader, refuse_old_library
from onrecord.views.present import BODIES, KINDS, PRESENT_VERSION, STARTS_ANEW, Present, Seen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    Key = Callable[[], bytes | None] | None

TAIL_LIMIT = 1_000
"""The most events of a session without a snapshot that are folded here."""

_POSITION_BITS = 32
_PLAIN, _COMPRESSED = 0, 1
_MARK = b"="
_ENCRYPTED = b"#"
_ID_LENGTH = 26


def look(path: str, projects: tuple[str, ...], name: str | None, key: Key = None) -> Present | None:
    """What the gate needs of a session, or None where a glance is not sure."""
    found: Present | None = _at(path, key, lambda connection: _look(connection, projects, name))
    return found


def look_linked(path: str, link: str, key: Key = None, kinds: Iterable[str] | None = None) -> Linked | None:
    """The owner of a linked conversation, and what the gate needs of its session; None where a glance is not sure.

    What others than the `kinds` say since the last snapshot is left out.
    """
    found: Linked | None = _at(path, key, lambda connection: _look_linked(connection, link, kinds))
    return found


class Linked:
    """The owner of a conversation. Without a session, it certainly has none."""

    __slots__ = ("agent", "present", "session")

    def __init__(self, session: str = "", agent: str = "", present: Present | None = None) -> None:
        self.session = session
        self.agent = agent
        self.present = present
        """None where a glance is not sure."""


def _at(path: str, key: Key, look: Callable[[apsw.Connection], Any]) -> Any:
    """One query over one connection, or None."""
    refuse_old_library()
    path = os.path.realpath(path)
    if not os.access(path, os.F_OK):
        return None
    safety.check(path)
    try:
        connection = open_reader(path, key_of(path, key))
        try:
            if not is_current(connection, path):
                return None
            # One transaction, so that head, snapshot and tail are of one moment.
            connection.execute("BEGIN")
            return look(connection)
        finally:
            connection.close()
    except (apsw.Error, StoreError, ValueError, KeyError, TypeError):
        return None  # the caller opens the store, which reports what is wrong


def _look_linked(connection: apsw.Connection, link: str, kinds: Iterable[str] | None) -> Linked:
    rows: list[Any] = connection.execute(QUERIES["glance_by_link"], (link, PRESENT_VERSION)).fetchall()
    if not rows:
        return Linked()
    *row, session, agent = rows[0]
    return Linked(session, agent, _present(connection, row, kinds or KINDS))


def _look(connection: apsw.Connection, projects: tuple[str, ...], name: str | None) -> Present | None:
    query = QUERIES["glance_by_name"] if name else QUERIES["glance_at_live"]
    rows: list[Any] = []
    for project in projects:
        rows += connection.execute(query, (project, name, PRESENT_VERSION)).fetchall()
    if not rows and name and len(name) == _ID_LENGTH:
        rows = connection.execute(QUERIES["glance_by_id"], (None, name.upper(), PRESENT_VERSION)).fetchall()
    if len(rows) != 1:
        return None
    return _present(connection, rows[0])


def _present(connection: apsw.Connection, row: Any, kinds: Iterable[str] = KINDS) -> Present | None:
    number, called, status, position, forked_at, kept, digest, body = row
    if kept is None:
        if forked_at or position > TAIL_LIMIT:
            return None
        kept, present = 0, Present(called, status)
    elif kept <= forked_at or body[:1] == _ENCRYPTED:
        return None
    else:
        present = Present.load(body[1:] if body[:1] == _MARK else _unpacked(body), called, status)
    base = number << _POSITION_BITS
    tail: list[Any] = connection.execute(
        QUERIES["glance_at_tail"], (base + kept, base + position, json.dumps([*kinds, *STARTS_ANEW]), _BODIES)
    ).fetchall()
    if kept and (not tail or tail[0][6] != digest):
        return None
    tail = [row for row in tail if row[0] > kept]
    if any(row[1] in STARTS_ANEW for row in tail):
        return None
    return present.fold(map(_seen, tail))


def _seen(row: Any) -> Seen:
    position, kind, at, by, run, because, _hash, encoding, payload = row
    return Seen(position, kind, at, by, run, because, _data(encoding, payload))


def _data(encoding: int, payload: bytes | None) -> Any:
    if payload is None:
        return None
    if encoding == _PLAIN:
        return json.loads(payload)
    if encoding != _COMPRESSED:
        raise ValueError("kept out of line")
    return json.loads(_unpacked(payload))


def _unpacked(frame: bytes) -> bytes:
    from onrecord.stores.zstd import zstd

    body: bytes = zstd().ZstdDecompressor().decompress(frame)
    return body


_BODIES = json.dumps([*BODIES])
