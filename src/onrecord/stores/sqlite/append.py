"""New events on their way into the log, alone or together with those of other threads.

Payloads were packed before the request stood in the queue, so that nothing is compressed while others wait. Inside the
transaction everything that can refuse an append is found out before the first write.
"""

from __future__ import annotations

from itertools import chain
from json import dumps
from typing import TYPE_CHECKING, Any, NamedTuple

from onrecord.errors import Conflict, LeaseLost, OnrecordError
from onrecord.log.codec import link
from onrecord.log.events import DURABLE, KINDS
from onrecord.log.head import ACTIVE, STEPS, Head, after, run_of
from onrecord.log.store import Receipt
from onrecord.stores.refusals import log_moved, name_taken, not_found, refuse_other, refuse_twin
from onrecord.stores.sqlite.connection import QUERIES
from onrecord.stores.sqlite.writer import Request

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    import apsw

    from onrecord.log.events import Draft
    from onrecord.log.store import Lease
    from onrecord.stores.payloads import Packed

POSITION_BITS = 32
POSITION_MASK = 0xFFFFFFFF
MOMENT_BITS = 17
ROWS_AT_ONCE = (64, 32, 16, 8, 4, 2, 1)
"""How many events one statement may write: each statement lets other threads take the interpreter away."""

TIERS = {name: int(kind.tier == DURABLE) for name, kind in KINDS.items()}

_HEAD_AND_LEASE = QUERIES["head_and_lease"]
_ADD_EVENT = QUERIES["add_event"]
_ADD_NEW_EVENT = QUERIES["add_new_event"]
_ADD_NEW_EVENTS = {
    rows: _ADD_NEW_EVENT + (", " + _ADD_NEW_EVENT.rpartition("VALUES")[2]) * (rows - 1) for rows in ROWS_AT_ONCE
}
_ADD_BLOB = QUERIES["add_blob"]
_CHANGE_HEAD = QUERIES["change_head"]
_EXTEND_LEASE = QUERIES["extend_lease"]

Row = tuple[Any, ...]

_NO_LEASE: Row = (None, 0, 0, 0)


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


class Memory:
    """Where the last append of this process left an active session: steps of a turn go on from there without a look.

    It holds as long as nobody has changed the database since.
    """

    __slots__ = ("at", "connection", "extend_at", "hash", "key", "lease", "moment_ends", "run", "session", "version")

    def __init__(self) -> None:
        self.connection: apsw.Connection | None = None
        self.version = 0
        """SQLite's own counter of changes, by whichever connection of whichever process."""
        self.session = ""
        self.lease: Lease | None = None
        """The very one that was good for the last append."""
        self.extend_at = 0
        """From then on it needs more time (an append without a lease is at no time)."""
        self.run = 0
        self.key = 0
        self.hash = b""
        self.at = 0
        self.moment_ends = 0
        """From then on the head's row must be moved, for lists are sorted by it."""

    def keep(self, lease: Lease | None, standing: Row, number: int, head: Head) -> None:
        """Remember a session, if it is active."""
        self.session = head.session if head.status == ACTIVE else ""
        self.lease, self.run = lease, head.run
        self.extend_at = 0 if lease is None else standing[2] - standing[3] // 2
        self.key, self.hash, self.at = number << POSITION_BITS | head.position, head.hash, head.at
        self.moment_ends = (head.at >> MOMENT_BITS) + 1 << MOMENT_BITS


class Append(Request):
    """New events for one session. Many of these share a transaction."""

    __slots__ = (
        "_drafts", "_expect", "_lease", "_left", "_memory", "_now", "_packed", "_went_on", "_written", "session",
    )  # fmt: skip

    alone = False

    def __init__(  # noqa: PLR0917  # on the hottest path, where names cost time
        self,
        session: str,
        drafts: Sequence[Draft],
        packed: list[Packed],
        expect: int | None = None,
        lease: Lease | None = None,
        now: int = 0,
        memory: Memory | None = None,
    ) -> None:
        # What the writer keeps in every request; calling its constructor would be felt on this path.
        self.problem = self.waiter = None
        self.session = session
        self._drafts = drafts
        self._packed = packed
        self._expect = expect
        self._lease = lease
        self._now = now
        self._memory = memory
        self._left: tuple[Row, int, Head] | None = None
        self._went_on = False
        self._written: Sequence[Row] = ()

    @property
    def large(self) -> bool:
        return len(self._packed) != 1 or self._packed[0].body is not None

    @property
    def size(self) -> int:
        size = 0
        for _encoding, stored, body in self._packed:
            size += len(stored) if body is None else len(body)
        return size

    def work(self, cursor: apsw.Cursor) -> list[Receipt]:
        """Alone in its transaction."""
        return self._go_on(cursor) or self._look_and_go(cursor)

    def _go_on(self, cursor: apsw.Cursor) -> list[Receipt] | None:
        """One step of a turn right after the last append of this process: nothing but the log moves. None if it is not.

        The same as `_look_and_go` does, without what is known to come out of it. By far the most frequent case.
        """
        memory = self._memory
        if memory is None or memory.session != self.session or len(self._drafts) != 1:
            return None
        id_, kind, v, at, by, run, because, salt, _payload, payload_hash, _data = self._drafts[0]
        encoding, stored, body = self._packed[0]
        if (
            kind not in STEPS
            or not 0 < run <= memory.run
            or not memory.at <= at < memory.moment_ends
            or self._lease is not memory.lease
            or self._now > memory.extend_at
            or self._expect is not None
            or body is not None
            or memory.connection is not cursor.connection
            or memory.version != memory.connection.data_version()
        ):
            return None
        key = memory.key + 1
        position = key & POSITION_MASK
        digest = link(memory.hash, self.session, position, id_, kind, v, at, by, run, because, payload_hash)
        new = (key, id_, kind, v, at, by, run, because, TIERS[kind], salt, payload_hash, digest, encoding, stored)
        cursor.execute(_ADD_EVENT, new)
        if not memory.connection.changes():
            return None
        self._written, self._went_on = (new,), True
        return [Receipt(position, run, digest, True)]  # noqa: FBT003  # `new`, by its place

    def _look_and_go(self, cursor: apsw.Cursor) -> list[Receipt]:
        lane = self.lane()
        row = cursor.execute(_HEAD_AND_LEASE, (self.session, lane)).fetchone()
        if row is None:
            raise not_found(self.session)
        number, head, standing = row[0], head_of(row), row[14:]
        if len(self._drafts) != 1 or head.parent is not None:
            return self._carefully(cursor, number, head, standing)
        # One event for a session of its own: assume that its id is new, and let the index say so if it is not. A
        # refusal counts only if the event is not there already.
        try:
            moved, rows = self._place(cursor, number, head, standing, self._drafts, self._packed)
        except Conflict:
            return self._carefully(cursor, number, head, standing)
        (new,) = rows
        cursor.execute(_ADD_EVENT, new)
        if not cursor.connection.changes():
            return self._carefully(cursor, number, head, standing)
        move_head(cursor, number, head, moved, new)
        if not self.follow_up(cursor, number, standing, rows):
            self._left = standing, number, moved
        return [Receipt(moved.position, new[6], new[11], True)]  # noqa: FBT003  # `new`, by its place

    def committed(self, connection: apsw.Connection) -> None:
        """Remember where the session stands now, for the next step of its turn."""
        memory = self._memory
        if memory is None:
            return
        if self._went_on:
            last = self._written[0]
            memory.key, memory.at, memory.hash = last[0], last[4], last[11]
        elif self._left is not None:
            memory.keep(self._lease, *self._left)
            memory.connection = connection
        else:
            return
        memory.version = connection.data_version()

    @classmethod
    def work_together(cls, cursor: apsw.Cursor, batch: Sequence[Request]) -> None:
        """Many in one transaction: a handful of statements for all of them."""
        _together(cursor, [request for request in batch if isinstance(request, Append)])

    def recall(self, cursor: apsw.Cursor) -> bool:
        """The last event stands where it was put; then the others do too."""
        if not self._written:
            return True
        last = self._written[-1]
        return cursor.execute(QUERIES["hash_at"], (last[0],)).fetchone() == (last[11],)

    def lane(self) -> str | None:
        """The lane whose lease it needs."""
        return self._lease.lane if self._lease is not None else None

    def ids(self) -> list[str]:
        """The ids it wants on record."""
        return [draft.id for draft in self._drafts]

    def _carefully(self, cursor: apsw.Cursor, number: int, head: Head, standing: Row) -> list[Receipt]:
        """Look for ids that are on record, then place and write the others."""
        known = known_ids(cursor, number, head, self.ids())
        moved, rows = self.join(cursor, number, head, standing, known)
        if rows:
            add_events(cursor, rows)
            move_head(cursor, number, head, moved, rows[-1])
            self.follow_up(cursor, number, standing, rows)
        receipts: list[Receipt] = self.answer
        return receipts

    def join(
        self, cursor: apsw.Cursor, number: int, head: Head, standing: Row, known: dict[str, Known]
    ) -> tuple[Head, list[Row]]:
        """Answer it as if it were written; return the head afterwards and the rows to write. Writes nothing itself."""
        if len(self._drafts) == 1 and self._drafts[0].id not in known:  # by far the most frequent case
            head, rows = self._place(cursor, number, head, standing, self._drafts, self._packed)
            new = rows[0]
            known[new[1]] = Known(new[0], new[6], new[11], new[2], new[9], new[10])
            self.answer = [Receipt(new[0] & POSITION_MASK, new[6], new[11], True)]  # noqa: FBT003  # `new`, by its place
            return head, rows
        fresh: dict[str, int] = {}
        for index, draft in enumerate(self._drafts):
            if draft.id in known:
                key, _run, _hash, kind, salt, payload_hash = known[draft.id]
                refuse_other(draft, key & POSITION_MASK, kind, salt, payload_hash)
            elif draft.id in fresh:
                refuse_twin(draft, self._drafts[fresh[draft.id]])
            else:
                fresh[draft.id] = index
        chosen = list(fresh.values())
        rows = []
        if fresh:
            drafts, packed = [self._drafts[index] for index in chosen], [self._packed[index] for index in chosen]
            head, rows = self._place(cursor, number, head, standing, drafts, packed)
            for row in rows:
                known[row[1]] = Known(row[0], row[6], row[11], row[2], row[9], row[10])
        self.answer = [
            Receipt(known[draft.id].key & POSITION_MASK, *known[draft.id][1:3], new=fresh.get(draft.id) == index)
            for index, draft in enumerate(self._drafts)
        ]
        return head, rows

    def _place(  # noqa: PLR0917  # on the hottest path, where names cost time
        self,
        cursor: apsw.Cursor,
        number: int,
        head: Head,
        standing: Row,
        drafts: Sequence[Draft],
        packed: Sequence[Packed],
    ) -> tuple[Head, list[Row]]:
        """The head afterwards and the rows to write, or the reason why not. Writes nothing."""
        lease, expect = self._lease, self._expect
        if lease is not None and (standing[0] != lease.epoch or not standing[1]):
            raise LeaseLost(f"another process writes lane {lease.lane!r} of {head.name!r} now")
        if expect is not None and expect != head.position:
            raise log_moved(expect, head.position)
        moved, rows = head, []
        session, base = head.session, number << POSITION_BITS
        for draft, (encoding, stored, _body) in zip(drafts, packed, strict=True):
            id_, kind, v, at, by, _run, because, salt, _payload, payload_hash, _data = draft
            run, position = run_of(moved, draft), moved.position + 1
            digest = link(moved.hash, session, position, id_, kind, v, at, by, run, because, payload_hash)
            moved = after(moved, draft, run, digest)
            rows.append(
                (base | position, id_, kind, v, at, by, run, because, TIERS.get(kind, 1), salt, payload_hash, digest,
                 encoding, stored)
            )  # fmt: skip
        if moved.name != head.name or moved.project != head.project:
            refuse_taken(cursor, moved)
        return moved, rows

    def follow_up(self, cursor: apsw.Cursor, number: int, standing: Row, rows: list[Row]) -> bool:
        """What goes with new events: large payloads, more time for the lease. Whether the lease changed."""
        lease = self._lease
        extended = lease is not None and 2 * (standing[2] - self._now) < standing[3]
        if lease is not None and extended:
            cursor.execute(_EXTEND_LEASE, (number, lease.lane, self._now + standing[3], standing[3]))
        for _encoding, stored, body in self._packed:
            if body is not None:
                cursor.execute(_ADD_BLOB, (stored, body))
        self._written = rows
        return extended


def _together(cursor: apsw.Cursor, requests: Sequence[Append]) -> None:
    """Serve appends to any number of sessions, each session's in their order.

    Everything is looked up at once, decided in memory and written at once: every statement lets another thread take
    the interpreter away, so that few statements matter more than short ones.
    """
    heads = _heads(cursor, {request.session for request in requests})
    leases = _leases(cursor, {(request.session, lane) for request in requests if (lane := request.lane()) is not None})
    known = _known_in(cursor, heads, requests)
    moved = {session: head for session, (_number, head) in heads.items()}
    written: list[tuple[Append, int, Row, list[Row]]] = []
    for request in requests:
        if request.session not in heads:
            request.problem = not_found(request.session)
            continue
        session, number = request.session, heads[request.session][0]
        standing = leases.get((session, request.lane() or ""), _NO_LEASE)
        try:
            moved[session], rows = request.join(cursor, number, moved[session], standing, known[session])
        except OnrecordError as refusal:
            request.problem = refusal
            continue
        if rows:
            written.append((request, number, standing, rows))
    add_events(cursor, [row for _request, _number, _standing, rows in written for row in rows])
    ends = {number: rows[-1] for _request, number, _standing, rows in written}
    for session, (number, head) in heads.items():
        if number in ends:
            move_head(cursor, number, head, moved[session], ends[number])
    for request, number, standing, rows in written:
        request.follow_up(cursor, number, standing, rows)


def _heads(cursor: apsw.Cursor, sessions: Collection[str]) -> dict[str, tuple[int, Head]]:
    rows: list[Row] = cursor.execute(QUERIES["heads_together"], (dumps(list(sessions)),)).fetchall()
    return {row[1]: (row[0], head_of(row)) for row in rows}


def _leases(cursor: apsw.Cursor, wanted: Collection[tuple[str, str]]) -> dict[tuple[str, str], Row]:
    if not wanted:
        return {}
    rows: list[Row] = cursor.execute(QUERIES["leases_together"], (dumps(list(wanted), ensure_ascii=False),)).fetchall()
    return {(row[0], row[1]): row[2:] for row in rows}


def _known_in(
    cursor: apsw.Cursor, heads: dict[str, tuple[int, Head]], requests: Sequence[Append]
) -> dict[str, dict[str, Known]]:
    """Which of the wanted ids are on record, for each session."""
    known: dict[str, dict[str, Known]] = {session: {} for session in heads}
    wanted: list[tuple[int, str]] = []
    inherited: dict[str, list[str]] = {}
    for request in requests:
        if request.session in heads:
            number, head = heads[request.session]
            if head.parent is None:
                wanted += [(number, id_) for id_ in request.ids()]
            else:
                inherited.setdefault(request.session, []).extend(request.ids())
    rows: list[Row] = cursor.execute(QUERIES["known_together"], (dumps(wanted, ensure_ascii=False),)).fetchall()
    for session, id_, *rest in rows:
        known[session][id_] = Known(*rest)
    for session, ids in inherited.items():
        known[session] = known_ids(cursor, *heads[session], ids)
    return known


def add_events(cursor: apsw.Cursor, rows: Sequence[Row]) -> None:
    """New events, many at a time."""
    start = 0
    for size, statement in _ADD_NEW_EVENTS.items():
        while len(rows) - start >= size:
            cursor.execute(statement, list(chain.from_iterable(rows[start : start + size])))
            start += size


def move_head(cursor: apsw.Cursor, number: int, head: Head, moved: Head, last: Row | None = None) -> None:
    """Keep where the log stands, unless its `last` event says it all: a page less to write for each of many turns.

    What lists look at is always kept, and so is every fact: a log that lost its last fact is noticed.
    """
    if (
        last is not None
        and last[2] in STEPS
        and last[4] == moved.at
        and moved.at >> MOMENT_BITS == head.at >> MOMENT_BITS
        and moved.status == head.status
        and moved.run == head.run
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
