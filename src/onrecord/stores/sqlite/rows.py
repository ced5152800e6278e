"""Events and heads as rows of the tables: how they are found, written and moved."""

from __future__ import annotations

from itertools import chain

from onrecord.lean_json import dumps
from onrecord.lean_typing import TYPE_CHECKING, Any, NamedTuple
from onrecord.log.events import DURABLE, KINDS, tuple_new
from onrecord.log.head import STEPS, Head
from onrecord.stores.placing import Known
from onrecord.stores.refusals import name_taken
from onrecord.stores.sqlite.connection import QUERIES

if TYPE_CHECKING:
    from collections.abc import Sequence

    import apsw

    from onrecord.log.events import Record
    from onrecord.log.tip import Placement, Tip
    from onrecord.stores.payloads import Packed
    from onrecord.stores.refusals import OnRecord
    from onrecord.stores.session_cipher import SessionCipher

POSITION_BITS = 32
POSITION_MASK = 0xFFFFFFFF
MOMENT_BITS = 17
ROWS_AT_ONCE = (64, 32, 16, 8, 4, 3, 2, 1)
"""How many rows one statement may write: at each statement another thread may take the GIL."""

TIERS = {name: int(kind.tier == DURABLE) for name, kind in KINDS.items()}


def _at_once(statement: str) -> dict[int, str]:
    """A statement that writes one row, and the same for more rows, by their number."""
    front, _, rest = statement.partition("VALUES ")
    row, _, back = rest.partition(")")
    return {rows: f"{front}VALUES {', '.join([f'{row})'] * rows)}{back}" for rows in ROWS_AT_ONCE}


_ADD_EVENTS = _at_once(QUERIES["add_event"])
_CHANGE_HEADS = _at_once(QUERIES["change_heads"]) | {1: QUERIES["change_head"]}
_MOVE_HEADS = _at_once(QUERIES["move_heads"]) | {1: QUERIES["move_head"]}
_GROW_HEADS = _at_once(QUERIES["grow_heads"]) | {1: QUERIES["grow_head"]}
_TAKE_LEASES = _at_once(QUERIES["take_lease"])

Row = tuple[Any, ...]
HeadRow = tuple[dict[int, str], Row]
"""What changes in the row of a session, and the statements that write it. SQLite updates every index on a column that a
statement names, also where the value stays: most appends name none that has one."""


class EventRow(NamedTuple):
    """One row of the table `events`, in the order of its columns."""

    key: int
    id: str
    kind: str
    v: int
    at: int
    by: str
    run: int
    because: int | None
    tier: int
    salt: bytes | None
    payload_hash: bytes
    hash: bytes
    encoding: int
    payload: bytes | None

    @property
    def position(self) -> int:
        """The position of the event in its log."""
        return self.key & POSITION_MASK


class LeaseRow(NamedTuple):
    """What an append compares its lease with."""

    epoch: int | None
    """None if it has no holder."""
    extend_at: int
    """From then on an append under it extends it: half of its time is over."""
    span: int
    """How many microseconds its holder asked for."""
    last: int = 0
    """The epoch of its holder, or of the last one if that has released it; only a join needs this and what follows."""
    holder: str | None = None
    since: int = 0
    until: int = 0


NO_LEASE = LeaseRow(None, 0, 0)


def row_of(number: int, placement: Placement, packed: Packed) -> EventRow:
    """The row of an event that was placed in a session's log."""
    draft, position, run, digest, _tip = placement
    id_, kind, v, at, by, _run, because, salt, _payload, payload_hash, _data = draft
    encoding, stored, _body = packed
    return tuple_new(
        EventRow,
        (number << POSITION_BITS | position, id_, kind, v, at, by, run, because, TIERS.get(kind, 1), salt, payload_hash,
         digest, encoding, stored),
    )  # fmt: skip


def row_of_record(number: int, record: Record, packed: Packed) -> EventRow:
    """The row of an event that was placed elsewhere and is copied as it is."""
    _session, position, id_, kind, v, at, by, run, because, salt, payload, payload_hash, digest = record
    return EventRow(
        number << POSITION_BITS | position, id_, kind, v, at, by, run, because, TIERS.get(kind, 1), salt, payload_hash,
        digest, packed.encoding, None if payload is None else packed.stored,
    )  # fmt: skip


def head_of(row: Row) -> Head:
    """A head from the columns of the `head` queries, which begin with the session's number."""
    _number, id_, project, name, position, digest, run, status, title, opened_at, at, held, parent, forked_at = row
    return Head(id_, project, name, position, digest, run, status, title, opened_at, at, held == 1, parent, forked_at)


def _write_rows(cursor: apsw.Cursor, statements: dict[int, str], rows: Sequence[Row]) -> None:
    start = 0
    for size, statement in statements.items():
        while len(rows) - start >= size:
            cursor.execute(statement, list(chain.from_iterable(rows[start : start + size])))
            start += size


def add_events(cursor: apsw.Cursor, rows: Sequence[EventRow]) -> None:
    """New events, many at a time."""
    _write_rows(cursor, _ADD_EVENTS, rows)


def write_heads(cursor: apsw.Cursor, heads: Sequence[HeadRow]) -> None:
    """Update the rows of sessions, many at a time."""
    if len(heads) == 1:
        ((statements, row),) = heads
        cursor.execute(statements[1], row)
        return
    for one in (_CHANGE_HEADS, _MOVE_HEADS, _GROW_HEADS) if heads else ():
        _write_rows(cursor, one, [row for statements, row in heads if statements is one])


def take_leases(cursor: apsw.Cursor, rows: Sequence[Row]) -> None:
    """New holders of lanes, many at a time: number of the session, lane, epoch, holder, since, until and span."""
    _write_rows(cursor, _TAKE_LEASES, rows)


def head_row(
    number: int, before: Tip, tip: Tip, rows: Sequence[EventRow], cipher: SessionCipher | None
) -> HeadRow | None:
    """What changes in the row of a session with new events; None if they say it all: then a page less is written.

    The row always keeps what lists are sorted and filtered by. It keeps every fact too, so that a log that lost its
    last fact is noticed. `cipher` is that of a session with a key of its own.
    """
    position, digest, run, at, base = tip
    if base is not before.base:
        return whole_head_row(number, tip.head, cipher)
    moment = at >> MOMENT_BITS
    if moment != before.at >> MOMENT_BITS:
        return _MOVE_HEADS, (number, position, digest, run, at, moment)
    if run == before.run and rows[-1].at == at and all(row.kind in STEPS for row in rows):
        return None
    return _GROW_HEADS, (number, position, digest, run, at)


def whole_head_row(number: int, head: Head, cipher: SessionCipher | None) -> HeadRow:
    """The same where everything may have changed."""
    if cipher is not None:
        head = cipher.head(head)
    _id, project, name, position, digest, run, status, title, opened_at, at, held, _parent, _forked_at = head
    changed = (project, name, title, opened_at, int(held), at >> MOMENT_BITS)
    return _CHANGE_HEADS, (number, position, digest, run, status, at, *changed)


def known_ids(cursor: apsw.Cursor, number: int, head: Head, ids: list[str]) -> dict[str, OnRecord]:
    """Which ids are on record, the inherited history included."""
    lines = [(number, head.position)]
    if head.parent is not None:
        ancestors: list[Row] = cursor.execute(QUERIES["lineage"], (head.session,)).fetchall()
        lines = [(row[0], row[3]) for row in ancestors]
    found: dict[str, OnRecord] = {}
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
