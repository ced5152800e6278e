"""Events and heads the way the tables hold them: how they are found, written and moved."""

from __future__ import annotations

from itertools import chain
from json import dumps
from typing import TYPE_CHECKING, Any, NamedTuple

from onrecord.log.events import DURABLE, KINDS
from onrecord.log.head import STEPS, Head
from onrecord.stores.refusals import name_taken
from onrecord.stores.sqlite.connection import QUERIES

if TYPE_CHECKING:
    from collections.abc import Sequence

    import apsw

POSITION_BITS = 32
POSITION_MASK = 0xFFFFFFFF
MOMENT_BITS = 17
ROWS_AT_ONCE = (64, 32, 16, 8, 4, 2, 1)
"""How many events one statement may write: each statement lets other threads take the interpreter away."""

TIERS = {name: int(kind.tier == DURABLE) for name, kind in KINDS.items()}

_ADD_NEW_EVENT = QUERIES["add_new_event"]
_ADD_NEW_EVENTS = {
    rows: _ADD_NEW_EVENT + (", " + _ADD_NEW_EVENT.rpartition("VALUES")[2]) * (rows - 1) for rows in ROWS_AT_ONCE
}
_CHANGE_HEAD = QUERIES["change_head"]

Row = tuple[Any, ...]


class Known(NamedTuple):
    """What is on record under an id, or about to be."""

    key: int
    run: int
    hash: bytes
    kind: str
    salt: bytes | None
    payload_hash: bytes


def head_of(row: Row) -> Head:
    """A head from the columns of the `head` queries, which begin with the session's number."""
    _number, id_, project, name, position, digest, run, status, title, opened_at, at, held, parent, forked_at = row[:14]
    return Head(id_, project, name, position, digest, run, status, title, opened_at, at, held == 1, parent, forked_at)


def add_events(cursor: apsw.Cursor, rows: Sequence[Row]) -> None:
    """New events, many at a time."""
    start = 0
    for size, statement in _ADD_NEW_EVENTS.items():
        while len(rows) - start >= size:
            cursor.execute(statement, list(chain.from_iterable(rows[start : start + size])))
            start += size


def move_head(cursor: apsw.Cursor, number: int, head: Head, moved: Head, rows: Sequence[Row] = ()) -> None:
    """Keep where the log stands, unless its new `rows` say it all: a page less to write for each of many turns.

    What lists look at is always kept, and so is every fact: a log that lost its last fact is noticed.
    """
    if (
        rows
        and rows[-1][2] in STEPS
        and rows[-1][4] == moved.at
        and moved.at >> MOMENT_BITS == head.at >> MOMENT_BITS
        and moved.status == head.status
        and moved.run == head.run
        and (len(rows) == 1 or all(row[2] in STEPS for row in rows))
    ):
        return
    _id, project, name, position, digest, run, status, title, opened_at, at, held, _parent, _forked_at = moved
    changed = (project, name, title, opened_at, int(held), at >> MOMENT_BITS)
    cursor.execute(_CHANGE_HEAD, (number, position, digest, run, status, at, *changed))


def known_ids(cursor: apsw.Cursor, number: int, head: Head, ids: list[str]) -> dict[str, Known]:
    """Which ids are on record, the inherited history included."""
    lines = [(number, head.position)]
    if head.parent is not None:
        ancestors: list[Row] = cursor.execute(QUERIES["lineage"], (head.session,)).fetchall()
        lines = [(row[0], row[3]) for row in ancestors]
    found: dict[str, Known] = {}
    if len(ids) == 1:
        for of, upto in lines:
            row = cursor.execute(QUERIES["known_event"], (of, ids[0], of << POSITION_BITS | upto)).fetchone()
            if row is not None:
                found[ids[0]] = Known(*row)
        return found
    wanted = dumps(ids, ensure_ascii=False)
    for of, upto in lines:
        for id_, *rest in cursor.execute(QUERIES["known_events"], (of, wanted, of << POSITION_BITS | upto)):
            found[id_] = Known(*rest)
    return found


def refuse_taken(cursor: apsw.Cursor, head: Head) -> None:
    """A name belongs to one session of a project."""
    row = cursor.execute(QUERIES["name_taken"], (head.project, head.name)).fetchone()
    if row is not None and row[0] != head.session:
        raise name_taken(head.name, row[1])
