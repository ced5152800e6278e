"""What is written, as requests to the writer: new events, new sessions, erasures and whole logs.

Each request packs its payloads before it stands in the queue, so that nothing is compressed while others wait. Inside the
transaction it first finds out everything that can refuse it and only then writes.
"""

from __future__ import annotations

from json import dumps
from typing import TYPE_CHECKING, Any

import apsw

from onrecord.errors import (
    Conflict,
    EventNotFound,
    IdReused,
    InvalidInput,
    LeaseLost,
    LogMoved,
    NameTaken,
    SessionHeld,
    SessionNotFound,
    StoreCorrupt,
)
from onrecord.log.codec import commit_to, link
from onrecord.log.events import DURABLE, KINDS
from onrecord.log.head import Head, after
from onrecord.log.store import Receipt
from onrecord.stores.sqlite.connection import QUERIES
from onrecord.stores.sqlite.payloads import OUT_OF_LINE, PLAIN, Packed
from onrecord.stores.sqlite.writer import Request

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from onrecord.log.events import Draft, Record
    from onrecord.log.store import Lease

POSITION_BITS = 32
POSITION_MASK = 0xFFFFFFFF
MOMENT_BITS = 17

_TIERS = {name: int(kind.tier == DURABLE) for name, kind in KINDS.items()}

_HEAD_AND_LEASE = QUERIES["head_and_lease"]
_ADD_EVENT = QUERIES["add_event"]
_ADD_NEW_EVENT = QUERIES["add_new_event"]
_ADD_BLOB = QUERIES["add_blob"]
_MOVE_HEAD = QUERIES["move_head"]
_CHANGE_HEAD = QUERIES["change_head"]
_EXTEND_LEASE = QUERIES["extend_lease"]

Row = tuple[Any, ...]
Known = tuple[int, int, bytes, str, bytes | None, bytes]
"""What is on record under an id: key, run, hash, kind, salt, payload hash."""


def head_of(row: Row) -> Head:
    """A head from the columns of the `head` queries, which begin with the session's number."""
    _number, id_, project, name, position, digest, run, status, title, opened_at, at, held, parent, forked_at = row[:14]
    return Head(id_, project, name, position, digest, run, status, title, opened_at, at, held == 1, parent, forked_at)


def not_found(session: str) -> SessionNotFound:
    """The error for an id that nobody has."""
    return SessionNotFound(f"no session has the id {session!r}")


class Append(Request):
    """New events for one session. Many of these share a transaction."""

    __slots__ = ("_bodies", "_drafts", "_expect", "_lease", "_now", "_packed", "_session", "_written", "size")

    alone = False

    def __init__(
        self,
        session: str,
        drafts: Sequence[Draft],
        packed: list[Packed],
        *,
        expect: int | None = None,
        lease: Lease | None = None,
        now: int = 0,
    ) -> None:
        self.problem = None
        self.given_up = self.leads = False
        self._session = session
        self._drafts = drafts
        self._packed = packed
        self._expect = expect
        self._lease = lease
        self._now = now
        self._written: Sequence[Row] = ()
        self.size = 0
        self._bodies = False
        for one in packed:
            self.size += len(one.stored)
            if one.body is not None:
                self.size += len(one.body)
                self._bodies = True

    def work(self, cursor: apsw.Cursor) -> list[Receipt]:
        lease = self._lease
        row = cursor.execute(_HEAD_AND_LEASE, (self._session, lease.lane if lease else None)).fetchone()
        if row is None:
            raise not_found(self._session)
        head = head_of(row)
        if len(self._drafts) != 1 or head.parent is not None:
            return self._carefully(cursor, head, row)
        # One event for a session of its own, by far the most frequent case: assume that its id is new, and let the index
        # say so if it is not. A refusal counts only if the event is not there already.
        try:
            moved, rows = self._place(cursor, head, row, self._drafts, self._packed)
        except Conflict:
            return self._carefully(cursor, head, row)
        (new,) = rows
        cursor.execute(_ADD_EVENT, new)
        if not cursor.connection.changes():
            return self._carefully(cursor, head, row)
        self._follow_up(cursor, head, moved, row, rows)
        return [Receipt(moved.position, new[6], new[11], True)]  # noqa: FBT003  # `new`, by its place

    def recall(self, cursor: apsw.Cursor) -> bool:
        """The last event stands where it was put; then the others do too."""
        if not self._written:
            return True
        last = self._written[-1]
        return cursor.execute(QUERIES["hash_at"], (last[0],)).fetchone() == (last[11],)

    def _carefully(self, cursor: apsw.Cursor, head: Head, row: Row) -> list[Receipt]:
        """Look for ids that are on record, then place the others."""
        known = known_ids(cursor, row[0], head, [draft.id for draft in self._drafts])
        fresh: dict[str, int] = {}
        for index, draft in enumerate(self._drafts):
            if draft.id in known:
                refuse_other(draft, known[draft.id])
            elif draft.id in fresh:
                _refuse_twin(draft, self._drafts[fresh[draft.id]])
            else:
                fresh[draft.id] = index
        receipts = {
            id_: Receipt(key & POSITION_MASK, run, digest, new=False)
            for id_, (key, run, digest, *_rest) in known.items()
        }
        if fresh:
            chosen = list(fresh.values())
            drafts, packed = [self._drafts[index] for index in chosen], [self._packed[index] for index in chosen]
            moved, rows = self._place(cursor, head, row, drafts, packed)
            cursor.executemany(_ADD_NEW_EVENT, rows)
            self._follow_up(cursor, head, moved, row, rows)
            receipts |= {one[1]: Receipt(one[0] & POSITION_MASK, one[6], one[11], new=True) for one in rows}
        return [
            receipts[draft.id] if fresh.get(draft.id) == index else receipts[draft.id]._replace(new=False)
            for index, draft in enumerate(self._drafts)
        ]

    def _place(
        self, cursor: apsw.Cursor, head: Head, row: Row, drafts: Sequence[Draft], packed: Sequence[Packed]
    ) -> tuple[Head, list[Row]]:
        """The head afterwards (but for its hash) and the rows to add, or the reason why not. Writes nothing."""
        lease, expect = self._lease, self._expect
        if lease is not None and (row[14] != lease.epoch or not row[15]):
            raise LeaseLost(f"another process writes lane {lease.lane!r} of {head.name!r} now")
        if expect is not None and expect != head.position:
            raise LogMoved(
                f"the log stands at {head.position}, not at {expect}", expected=expect, actual=head.position
            )
        moved, rows = head, []
        session, digest, base = head.session, head.hash, row[0] << POSITION_BITS
        for draft, (encoding, stored, _body) in zip(drafts, packed, strict=True):
            id_, kind, v, at, by, _run, because, salt, _payload, payload_hash, _data = draft
            moved, run = after(moved, draft)
            position = moved.position
            digest = link(digest, session, position, id_, kind, v, at, by, run, because, payload_hash)
            rows.append(
                (base | position, id_, kind, v, at, by, run, because, _TIERS.get(kind, 1), salt, payload_hash, digest,
                 encoding, stored)
            )  # fmt: skip
        if moved.name != head.name or moved.project != head.project:
            refuse_taken(cursor, moved)
        return moved, rows

    def _follow_up(self, cursor: apsw.Cursor, head: Head, moved: Head, row: Row, rows: list[Row]) -> None:
        """Everything that goes with new events: large payloads, the head, more time for the lease."""
        move_head(cursor, row[0], head, moved, rows[-1][11])
        lease = self._lease
        if lease is not None and 2 * (row[16] - self._now) < row[17]:
            cursor.execute(_EXTEND_LEASE, (row[0], lease.lane, self._now + row[17], row[17]))
        if self._bodies:
            for packed in self._packed:
                if packed.encoding == OUT_OF_LINE:
                    cursor.execute(_ADD_BLOB, (packed.stored, packed.body))
        self._written = rows


def move_head(cursor: apsw.Cursor, number: int, head: Head, moved: Head, digest: bytes) -> None:
    """Keep the head where the log stands now, touching the indexes of lists only where they change."""
    _id, project, name, position, _hash, run, status, title, opened_at, at, held, _parent, _forked_at = moved
    if (
        at >> MOMENT_BITS == head.at >> MOMENT_BITS
        and title == head.title
        and held == head.held
        and name == head.name
        and project == head.project
        and opened_at == head.opened_at
    ):
        cursor.execute(_MOVE_HEAD, (number, position, digest, run, status, at))
    else:
        changed = (project, name, title, opened_at, int(held), at >> MOMENT_BITS)
        cursor.execute(_CHANGE_HEAD, (number, position, digest, run, status, at, *changed))


def known_ids(cursor: apsw.Cursor, number: int, head: Head, ids: list[str]) -> dict[str, Known]:
    """Which ids are on record, the inherited history included."""
    lines = [(number, head.position)]
    if head.parent is not None:
        lines = [(row[0], row[3]) for row in cursor.execute(QUERIES["lineage"], (head.session,)).fetchall()]
    found: dict[str, Known] = {}
    if len(ids) == 1:
        for of, upto in lines:
            row = cursor.execute(QUERIES["known_event"], (of, ids[0], of << POSITION_BITS | upto)).fetchone()
            if row is not None:
                found[ids[0]] = row
        return found
    wanted = dumps(ids, ensure_ascii=False)
    for of, upto in lines:
        for id_, *rest in cursor.execute(QUERIES["known_events"], (of, wanted, of << POSITION_BITS | upto)):
            found[id_] = tuple(rest)  # type: ignore[assignment]  # the columns of Known
    return found


def refuse_other(draft: Draft, known: Known) -> None:
    """An id stands for one event for ever. An erased payload cannot be compared any more: the id alone decides then."""
    key, _run, _digest, kind, salt, payload_hash = known
    if kind != draft.kind or (salt is not None and commit_to(salt, draft.payload) != payload_hash):
        raise IdReused(f"the id {draft.id!r} stands for another event, at position {key & POSITION_MASK}")


def _refuse_twin(draft: Draft, first: Draft) -> None:
    if (draft.kind, draft.payload) != (first.kind, first.payload):
        raise IdReused(f"the id {draft.id!r} stands for two different events of one append")


def refuse_taken(cursor: apsw.Cursor, head: Head) -> None:
    """A name belongs to one session of a project."""
    row = cursor.execute(QUERIES["name_taken"], (head.project, head.name)).fetchone()
    if row is not None and row[0] != head.session:
        raise NameTaken(f"a session named {head.name!r} exists in this project (it is {row[1]})")


def add_session(cursor: apsw.Cursor, head: Head) -> int:
    """A new row for a session; its number."""
    refuse_taken(cursor, head)
    row = cursor.execute(
        QUERIES["add_session"], (*head[:10], int(head.held), head.parent, head.forked_at, head.at >> MOMENT_BITS)
    ).fetchone()
    return int(row[0])


class Create(Append):
    """A new session with its first events."""

    __slots__ = ("_head",)

    alone = True

    def __init__(self, head: Head, drafts: Sequence[Draft], packed: list[Packed]) -> None:
        super().__init__(head.session, drafts, packed)
        self._head = head

    def work(self, cursor: apsw.Cursor) -> list[Receipt]:
        head = self._head
        refuse_present(cursor, head.session)
        if head.parent is not None and hash_in_history(cursor, head.parent, head.forked_at) != head.hash:
            raise LogMoved("the parent's history is not what the fork was made from", expected=0, actual=0)
        add_session(cursor, head)
        return super().work(cursor)

    def recall(self, cursor: apsw.Cursor) -> bool:
        return cursor.execute(QUERIES["head"], (self._session,)).fetchone() is not None and super().recall(cursor)


def refuse_present(cursor: apsw.Cursor, session: str) -> None:
    """A session's id is never given twice."""
    if cursor.execute(QUERIES["head"], (session,)).fetchone() is not None:
        raise Conflict(f"the id {session} is taken")


def hash_in_history(cursor: apsw.Cursor, session: str, position: int) -> bytes:
    """The hash at a position of a session's history, which may be an ancestor's event."""
    lines = cursor.execute(QUERIES["lineage"], (session,)).fetchall()
    if not lines:
        raise not_found(session)
    for number, _id, forked_at, upto in lines:
        if forked_at < position <= upto:
            row = cursor.execute(QUERIES["hash_at"], (number << POSITION_BITS | position,)).fetchone()
            if row is None:
                raise StoreCorrupt(f"the event at position {position} of {session} is missing")
            return bytes(row[0])
    raise EventNotFound(f"no event stands at position {position}")


class Erase(Append):
    """Payloads that go for good, and the event that says so."""

    __slots__ = ("_positions",)

    alone = True

    def __init__(self, session: str, positions: Collection[int], draft: Draft, packed: list[Packed]) -> None:
        super().__init__(session, [draft], packed)
        self._positions = sorted(set(positions))

    def work(self, cursor: apsw.Cursor) -> list[Receipt]:
        row = cursor.execute(QUERIES["head"], (self._session,)).fetchone()
        if row is None:
            raise not_found(self._session)
        number, head = row[0], head_of(row)
        if head.held:
            raise SessionHeld(f"session {head.name!r} is held: nothing of it may be erased")
        for position in self._positions:
            if 1 <= position <= head.forked_at:
                raise InvalidInput(f"position {position} belongs to the session this one was forked from")
            if not 1 <= position <= head.position:
                raise EventNotFound(f"no event stands at position {position}")
        receipts = super().work(cursor)
        self._scrub(cursor, number)
        return receipts

    def _scrub(self, cursor: apsw.Cursor, number: int) -> None:
        indexed = cursor.execute(QUERIES["progress"], (number,)).fetchone()
        for position in self._positions:
            key = number << POSITION_BITS | position
            blob = cursor.execute(QUERIES["blob_of"], (key,)).fetchone()
            if indexed is not None and position <= indexed[0]:
                cursor.execute(QUERIES["drop_words"], (key,))
            cursor.execute(QUERIES["erase_payload"], (key,))
            if blob is not None:
                cursor.execute(QUERIES["drop_blob"], (blob[0],))
        for (heir,) in cursor.execute(QUERIES["descendants"], (self._session,)).fetchall():
            cursor.execute(QUERIES["drop_snapshots"], (heir,))
            cursor.execute(QUERIES["scrub_session"], (heir, int(heir != number)))


class Install(Request):
    """A log taken over as it is, or the rest of one that is here in part."""

    __slots__ = ("_extend", "_head", "_packed", "_records")

    def __init__(self, head: Head, records: list[Record], pack: Callable[[bytes], Packed], *, extend: bool) -> None:
        super().__init__()
        self._head = head
        self._extend = extend
        self._records = records
        self._packed = [
            Packed(PLAIN, b"", None) if record.payload is None else pack(record.payload) for record in records
        ]

    def work(self, cursor: apsw.Cursor) -> None:
        head = self._head
        if self._extend:
            number, start = self._continued(cursor)
        else:
            refuse_present(cursor, head.session)
            number, start = add_session(cursor, head), head.forked_at
        self._refuse_gaps(start)
        base = number << POSITION_BITS
        rows = [
            (base | record.position, *record[2:9], _TIERS.get(record.kind, 1), record.salt, record.payload_hash,
             record.hash, packed.encoding, packed.stored if record.payload is not None else None)
            for record, packed in zip(self._records, self._packed, strict=True)
        ]  # fmt: skip
        try:
            cursor.executemany(_ADD_NEW_EVENT, rows)
        except apsw.ConstraintError:
            raise Conflict("an id of the new events is on record already") from None
        for packed in self._packed:
            if packed.encoding == OUT_OF_LINE:
                cursor.execute(_ADD_BLOB, (packed.stored, packed.body))
        if cursor.execute(QUERIES["hash_at"], (base | head.position,)).fetchone() != (head.hash,):
            raise Conflict("the head does not fit the events")

    def recall(self, cursor: apsw.Cursor) -> bool:
        row = cursor.execute(QUERIES["head"], (self._head.session,)).fetchone()
        return row is not None and head_of(row) == self._head

    def _continued(self, cursor: apsw.Cursor) -> tuple[int, int]:
        row = cursor.execute(QUERIES["head"], (self._head.session,)).fetchone()
        if row is None:
            raise not_found(self._head.session)
        present = head_of(row)
        if (present.name, present.project) != (self._head.name, self._head.project):
            refuse_taken(cursor, self._head)
        move_head(cursor, row[0], present, self._head, self._head.hash)
        return row[0], present.position

    def _refuse_gaps(self, start: int) -> None:
        positions = [record.position for record in self._records]
        if positions != list(range(start + 1, start + 1 + len(positions))):
            raise LogMoved(
                f"the new events do not go on from position {start}",
                expected=positions[0] - 1 if positions else start,
                actual=start,
            )
