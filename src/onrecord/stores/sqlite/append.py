"""Appending: new events of one session, alone in a transaction or in a batch with the appends of other threads.

Payloads are packed before an append joins the queue, so that nothing is compressed while others wait. The exception are
short facts: the batch leader seals and packs them (`LateAppend`). Inside the transaction, every check that can refuse
an append comes before its first write.
"""

from __future__ import annotations

import apsw

from onrecord.errors import Conflict, LeaseLost
from onrecord.lean_json import dumps
from onrecord.lean_typing import TYPE_CHECKING
from onrecord.log.events import tuple_new
from onrecord.log.store import Receipt
from onrecord.log.tip import Tip
from onrecord.stores.payloads import INLINE_LIMIT
from onrecord.stores.placing import new_among, place
from onrecord.stores.refusals import log_moved, not_found
from onrecord.stores.sqlite.connection import QUERIES
from onrecord.stores.sqlite.rows import (
    NO_LEASE,
    EventRow,
    HeadRow,
    LeaseRow,
    Row,
    add_events,
    head_of,
    head_row,
    known_ids,
    refuse_taken,
    row_of,
    take_leases,
    write_heads,
)
from onrecord.stores.sqlite.writer import PendingWrite, TooLargeForLeader

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from onrecord.log.events import Draft
    from onrecord.log.head import Head
    from onrecord.log.store import Lease
    from onrecord.stores.payloads import Packed
    from onrecord.stores.refusals import OnRecord
    from onrecord.stores.session_cipher import SessionCipher

    StartingPoint = tuple[int, Tip, LeaseRow]
    """What an append must know: the session's number, its tip and the lease of the lane."""

_HEAD_AND_LEASE = QUERIES["head_and_lease"]
_ADD_EVENT = QUERIES["add_event"]
_ADD_BLOB = QUERIES["add_blob"]
_EXTEND_LEASE = QUERIES["extend_lease"]


REMEMBERED = 1_024
"""For how many sessions an append remembers where the next one starts."""


class Remembered:
    """What the last appends of this process have read and written: the next to the same session need not query it."""

    __slots__ = ("last",)

    def __init__(self) -> None:
        self.last: tuple[apsw.Connection | None, int, dict[str, tuple[Lease | None, StartingPoint]]] = None, 0, {}
        """The connection, SQLite's counter of changes after the last append (by any connection of any process, this one
        included), and by session the lease of its last append and where the next one starts. All of it is valid as long
        as the counter stays. One value, so that no signal leaves half of it."""

    def starting_point(self, connection: apsw.Connection, session: str, lease: Lease | None) -> StartingPoint | None:
        """Where the last append to this session ended, if nothing else has changed since and the lease is the same."""
        last_connection, version, ends = self.last
        if last_connection is not connection or version != connection.data_version():
            self.last = connection, 0, {}
            return None
        last_lease, start = ends.get(session, (None, None))
        return start if last_lease is lease else None

    def keep(self, connection: apsw.Connection, session: str, lease: Lease | None, start: StartingPoint | None) -> None:
        """Remember where an append ended that was alone in its transaction, after its commit; None: nowhere certain.

        What was valid when the transaction began is valid still: nothing else was written.
        """
        ends = self.last[2] if len(self.last[2]) < REMEMBERED else {}
        if start is not None:
            ends[session] = lease, start
        else:
            ends.pop(session, None)
        self.last = connection, connection.data_version(), ends

    def forget(self) -> None:
        """Another transaction began: what was valid in the first one may not be valid any more."""
        self.last = None, 0, {}


class StagedSession:
    """One session within a batch: its tip as far as the batch has extended it, and the rows to insert."""

    __slots__ = ("before", "cipher", "known", "number", "rows", "tip")

    def __init__(self, number: int, head: Head) -> None:
        self.number = number
        self.before = self.tip = Tip.of(head)
        self.known: dict[str, OnRecord] = {}
        """The wanted ids that were on record before the batch."""
        self.rows: dict[str, EventRow] = {}
        """The rows to insert, in order, by id."""
        self.cipher: SessionCipher | None = None
        """That of a session with a key of its own, once an append to it is staged."""

    def find(self, id: str) -> OnRecord | None:
        """The event on record under an id, or staged under it."""
        return self.rows.get(id) or self.known.get(id)

    def head_row(self) -> HeadRow | None:
        """What changes in the row of the session, if anything does."""
        rows = list(self.rows.values())
        return head_row(self.number, self.before, self.tip, rows, self.cipher) if rows else None


class Append(PendingWrite):
    """New events for one session. Many of these share a transaction."""

    __slots__ = (
        "_drafts", "_expect", "_lease", "_left", "_now", "_packed", "_remembered", "_rows", "cipher", "large",
        "session",
    )  # fmt: skip

    alone = False
    taken: LeaseRow | None = None
    """The lease that it acquired itself, once it is staged."""

    def __init__(  # noqa: PLR0917  # on the hottest path, where names cost time
        self,
        session: str,
        drafts: Sequence[Draft],
        packed: list[Packed],
        remembered: Remembered,
        expect: int | None = None,
        lease: Lease | None = None,
        now: int = 0,
    ) -> None:
        # The fields of `Pending`: calling its constructor would be measurable on this path.
        self.problem = self.waiter = None
        self.cipher: SessionCipher | None = None
        """That of a session with a key of its own."""
        self.session = session
        self._drafts = drafts
        self._packed = packed
        self.large = len(packed) != 1 or packed[0].body is not None
        self._expect = expect
        self._lease = lease
        self._now = now
        self._remembered = remembered
        self._left: StartingPoint | None = None
        """What the next append may remember once this one is committed."""
        self._rows: Sequence[EventRow] = ()
        """The rows it wrote, or will write with its batch."""

    @property
    def size(self) -> int:
        size = 0
        for _encoding, stored, body in self._packed:
            size += len(stored) if body is None else len(body)
        return size

    def work(self, cursor: apsw.Cursor) -> list[Receipt]:
        """Alone in its transaction."""
        start = self._remembered.starting_point(cursor.connection, self.session, self._lease) or self._query(cursor)
        return self._insert_as_new(cursor, start) or self._insert_all_as_new(cursor, start)

    def _query(self, cursor: apsw.Cursor) -> StartingPoint:
        """The same from the database."""
        row = cursor.execute(_HEAD_AND_LEASE, (self.session, self.lane())).fetchone()
        if row is None:
            raise not_found(self.session)
        number, *_rest, epoch, extend_at, span = row
        return number, Tip.of(head_of(row[:-3])), LeaseRow(epoch, extend_at, span)

    def _insert_as_new(self, cursor: apsw.Cursor, start: StartingPoint) -> list[Receipt] | None:
        """Insert a single event without a query for its id; None if ids must be looked up after all.

        The unique index reports an id that is on record; it does not cover what a fork inherits. A refusal counts
        only if the id is not on record.
        """
        number, tip, lease_row = start
        if len(self._drafts) != 1 or tip.base.parent is not None:
            return None
        try:
            row, moved, receipt = self._place_new(cursor, number, tip, lease_row)
            cursor.execute(_ADD_EVENT, row)
        except (Conflict, apsw.ConstraintError):
            return None
        head = head_row(number, tip, moved, self._rows, self.cipher)
        if head is not None:
            write_heads(cursor, (head,))
        if not self.follow_up(cursor, number, lease_row):
            self._left = number, moved, lease_row
        return [receipt]

    def _place_new(
        self, cursor: apsw.Cursor, number: int, tip: Tip, lease_row: LeaseRow
    ) -> tuple[EventRow, Tip, Receipt]:
        """Place its only event, which is not on record. Writes nothing."""
        lease = self._lease
        if self._expect is not None or (lease is not None and lease_row.epoch != lease.epoch):
            self._check(tip, lease_row)  # not called for nothing: a call is measurable on this path
        placement = tip.extend(self._drafts[0])
        _draft, position, run, digest, moved = placement
        if moved.base is not tip.base:
            _refuse_taken_name(cursor, tip, moved)
        row = row_of(number, placement, self._packed[0])
        self._rows = (row,)
        return row, moved, tuple_new(Receipt, (position, run, digest, True))

    def _insert_all_as_new(self, cursor: apsw.Cursor, start: StartingPoint) -> list[Receipt]:
        """The same with several events: only if one of their ids is on record are all of them looked up."""
        if len(self._drafts) > 1 and start[1].base.parent is None:
            try:
                return self._insert_what_is_new(cursor, start, trusting=True)
            except Conflict:
                pass  # a refusal counts only if the events are not on record already; nothing was written
            except apsw.ConstraintError:
                cursor.execute("ROLLBACK")
                cursor.execute("BEGIN IMMEDIATE")
                self._remembered.forget()
                start = self._query(cursor)  # another process may have written in between
        return self._insert_what_is_new(cursor, start)

    def _insert_what_is_new(
        self, cursor: apsw.Cursor, start: StartingPoint, *, trusting: bool = False
    ) -> list[Receipt]:
        """Place and insert the events that are new; `trusting` that all are, their ids are not looked up."""
        number, tip, lease_row = start
        self._rows = ()
        session = StagedSession(number, tip.head)
        if not trusting:
            session.known = known_ids(cursor, number, session.tip.base, self.ids())
        self.stage(cursor, session, lease_row)
        if session.rows:
            rows = list(session.rows.values())
            add_events(cursor, rows)
            head = head_row(number, session.before, session.tip, rows, self.cipher)
            if head is not None:
                write_heads(cursor, (head,))
            if not self.follow_up(cursor, number, lease_row) and trusting:
                self._left = number, session.tip, lease_row
        receipts: list[Receipt] = self.answer
        return receipts

    def committed(self, connection: apsw.Connection) -> None:
        self._remembered.keep(connection, self.session, self._lease, self._left)

    @classmethod
    def work_together(cls, cursor: apsw.Cursor, batch: Sequence[PendingWrite]) -> None:
        """Many in one transaction: a handful of statements for all of them."""
        appends = [pending for pending in batch if isinstance(pending, Append)]
        try:
            _write_batch(cursor, appends, trusting=True)
        except apsw.ConstraintError:
            # An id is already on record: undo everything, and look up every id.
            cursor.execute("ROLLBACK")
            cursor.execute("BEGIN IMMEDIATE")
            for append in appends:
                append.answer, append.problem, append._rows = None, None, ()  # noqa: SLF001 - its own kind
            _write_batch(cursor, appends, trusting=False)

    def recall(self, cursor: apsw.Cursor) -> bool:
        """Whether its last event is on record; then the others are too."""
        if not self._rows:
            return True
        last = self._rows[-1]
        return cursor.execute(QUERIES["hash_at"], (last.key,)).fetchone() == (last.hash,)

    def lane(self) -> str | None:
        """The lane of its lease."""
        return self._lease.lane if self._lease is not None else None

    def ids(self) -> list[str]:
        """The ids of its events."""
        return [draft.id for draft in self._drafts]

    def stage(self, cursor: apsw.Cursor, session: StagedSession, lease_row: LeaseRow) -> bool:
        """Stage its rows and receipts; the rows are inserted with the batch. True if `follow_up` is needed then."""
        drafts = self._drafts
        session.cipher = self.cipher
        if len(drafts) == 1 and session.find(drafts[0].id) is None:
            row, session.tip, receipt = self._place_new(cursor, session.number, session.tip, lease_row)
            session.rows[row.id] = row
            self.answer = [receipt]
            return self._lease is not None or self.large
        known = {draft.id: found for draft in drafts if (found := session.find(draft.id)) is not None}
        fresh = new_among(drafts, known)
        if fresh:
            self._check(session.tip, lease_row)
        placed = place(session.tip, drafts, known, fresh)
        if placed.tip.base is not session.tip.base:
            _refuse_taken_name(cursor, session.tip, placed.tip)
        packed = self._packed if len(fresh) == len(drafts) else self._packed_of(fresh)
        self._rows = rows = [
            row_of(session.number, placement, one) for placement, one in zip(placed.placements, packed, strict=True)
        ]
        for row in rows:
            session.rows[row.id] = row
        session.tip = placed.tip
        self.answer = placed.receipts
        return bool(fresh) and (self._lease is not None or self.large)

    def _packed_of(self, fresh: Sequence[Draft]) -> list[Packed]:
        """The packed payloads of some of the drafts."""
        packed = dict(zip(self.ids(), self._packed, strict=True))
        return [packed[draft.id] for draft in fresh]

    def _check(self, tip: Tip, lease_row: LeaseRow) -> None:
        """Refuse an append under a lost lease, or to a log that is not where the caller expects it."""
        lease, expect = self._lease, self._expect
        if lease is not None and lease_row.epoch != lease.epoch:
            raise LeaseLost(f"another process has taken the lease of lane {lease.lane!r} of {tip.base.name!r}")
        if expect is not None and expect != tip.position:
            raise log_moved(expect, tip.position)

    def follow_up(self, cursor: apsw.Cursor, number: int, lease_row: LeaseRow) -> bool:
        """Write what goes with new events: large payloads, and more time for the lease. Whether the lease changed."""
        if self.large:
            for _encoding, stored, body in self._packed:
                if body is not None:
                    cursor.execute(_ADD_BLOB, (stored, body))
        lease = self._lease
        if lease is None or self._now <= lease_row.extend_at:
            return False
        cursor.execute(_EXTEND_LEASE, (number, lease.lane, lease.epoch, self._now + lease_row.span, lease_row.span))
        return True


class LateAppend(Append):
    """One event that the batch leader seals and packs, before the transaction, if it is short enough."""

    __slots__ = ("pack",)

    late = True
    size = INLINE_LIMIT
    pack: Callable[[Draft], Packed]

    def prepare(self) -> None:
        if not self._packed:
            draft = self._drafts[0]
            if len(draft.payload) > INLINE_LIMIT:
                raise TooLargeForLeader
            self._drafts, self._packed, self.large = (draft,), [self.pack(draft)], False


def _refuse_taken_name(cursor: apsw.Cursor, before: Tip, tip: Tip) -> None:
    if (tip.base.project, tip.base.name) != (before.base.project, before.base.name):
        refuse_taken(cursor, tip.base)


def _write_batch(cursor: apsw.Cursor, appends: Sequence[Append], *, trusting: bool) -> None:
    """Write appends to any number of sessions, in order for each session; `trusting` that all ids are new.

    One query for everything, decisions in memory, one insert for everything: at every statement another thread may take
    the GIL, so few statements matter more than short ones.
    """
    sessions = _sessions(cursor, appends, trusting=trusting)
    leases = _leases(cursor, {(append.session, lane) for append in appends if (lane := append.lane()) is not None})
    followed: list[tuple[Append, int, LeaseRow]] = []
    taken: list[Row] = []
    for append in appends:
        session = sessions.get(append.session)
        if session is None:
            append.problem = not_found(append.session)
            continue
        lease_row = leases.get((append.session, append.lane() or ""), NO_LEASE) if leases else NO_LEASE
        try:
            try:
                follows = append.stage(cursor, session, lease_row)
            except Conflict:  # a refusal counts only if the events are not on record already
                session.known |= known_ids(cursor, session.number, session.before.base, append.ids())
                follows = append.stage(cursor, session, lease_row)
            if append.taken is not None:
                leases[append.session, append.lane() or ""] = lease_row = append.taken
                _epoch, _extend_at, span, epoch, holder, since, until = lease_row
                taken.append((session.number, append.lane(), epoch, holder, since, until, span))
            if follows:
                followed.append((append, session.number, lease_row))
        except Conflict as refusal:
            append.problem = refusal
    add_events(cursor, [row for session in sessions.values() for row in session.rows.values()])
    write_heads(cursor, [head for session in sessions.values() if (head := session.head_row()) is not None])
    take_leases(cursor, taken)
    for append, number, lease_row in followed:
        append.follow_up(cursor, number, lease_row)


def _sessions(cursor: apsw.Cursor, appends: Sequence[Append], *, trusting: bool) -> dict[str, StagedSession]:
    """The sessions the appends go to, each with the wanted ids that are known to be on record."""
    wanted = list({append.session for append in appends})
    rows: list[Row] = cursor.execute(QUERIES["heads_together"], (dumps(wanted),)).fetchall()
    sessions = {row[1]: StagedSession(row[0], head_of(row)) for row in rows}
    for id_, session in sessions.items():
        if not trusting or session.before.base.parent is not None:  # the index does not cover what a fork inherits
            ids = [wanted for append in appends if append.session == id_ for wanted in append.ids()]
            session.known = known_ids(cursor, session.number, session.before.base, ids)
    return sessions


def _leases(cursor: apsw.Cursor, wanted: Collection[tuple[str, str]]) -> dict[tuple[str, str], LeaseRow]:
    if not wanted:
        return {}
    rows: list[Row] = cursor.execute(QUERIES["leases_together"], (dumps(list(wanted), ensure_ascii=False),)).fetchall()
    return {(session, lane): LeaseRow(*lease) for session, lane, *lease in rows}
