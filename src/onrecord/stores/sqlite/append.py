"""New events on their way into the log, alone or together with those of other threads.

Payloads were packed before the request stood in the queue, so that nothing is compressed while others wait; those of
facts, which are short, are packed by whoever leads. Inside the transaction everything that can
refuse an append is found out before the first write.
"""

from __future__ import annotations

from json import dumps
from typing import TYPE_CHECKING

import apsw

from onrecord.errors import Conflict, LeaseLost
from onrecord.log.codec import link
from onrecord.log.events import NEW_RUN
from onrecord.log.head import ACTIVE, QUIET, STEPS, Head, after, run_of
from onrecord.log.store import Receipt
from onrecord.stores.payloads import INLINE_LIMIT
from onrecord.stores.refusals import log_moved, not_found, refuse_other, refuse_twin
from onrecord.stores.sqlite.connection import QUERIES
from onrecord.stores.sqlite.rows import (
    MOMENT_BITS,
    POSITION_BITS,
    POSITION_MASK,
    TIERS,
    Known,
    Row,
    add_events,
    head_of,
    known_ids,
    move_head,
    refuse_taken,
)
from onrecord.stores.sqlite.writer import Request, TooLongForOthers

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from onrecord.log.events import Draft
    from onrecord.log.store import Lease
    from onrecord.stores.payloads import Packed

_HEAD_AND_LEASE = QUERIES["head_and_lease"]
_ADD_EVENT = QUERIES["add_event"]
_ADD_BLOB = QUERIES["add_blob"]
_EXTEND_LEASE = QUERIES["extend_lease"]

_NO_LEASE: Row = (None, 0, 0, 0)
_NOTHING = frozenset[str]()


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


class Site:
    """A session that appends go to: where its log stands, as far as they have moved it."""

    __slots__ = ("_base", "at", "found", "hash", "known", "number", "position", "quiet", "rows", "run")

    def __init__(self, number: int, head: Head) -> None:
        self.number = number
        self.found = head
        """Where it stood before."""
        self.known: dict[str, Known] = {}
        """Which of the ids that are wanted were on record before."""
        self.rows: dict[str, Row] = {}
        """What is to be written, in order, by id."""
        self.move(head)

    def move(self, head: Head) -> None:
        """It stands here now."""
        self._base = head
        self.position, self.hash, self.run, self.at = head.position, head.hash, head.run, head.at
        self.quiet = QUIET.get(head.status, _NOTHING)
        """What changes nothing of the head but these four."""

    def head(self) -> Head:
        """Where it stands."""
        return self._base._replace(position=self.position, hash=self.hash, run=self.run, at=self.at)

    def find(self, id: str) -> Known | None:
        """What is on record under an id, or about to be."""
        row = self.rows.get(id)
        return self.known.get(id) if row is None else Known(row[0], row[6], row[11], row[2], row[9], row[10])


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
        self._written = rows
        move_head(cursor, number, head, moved, rows)
        if not self.follow_up(cursor, number, standing):
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
        requests = [request for request in batch if isinstance(request, Append)]
        try:
            _together(cursor, requests, trusting=True)
        except apsw.ConstraintError:
            # Some id is on record already: nothing of this counts, and everything is looked up.
            cursor.execute("ROLLBACK")
            cursor.execute("BEGIN IMMEDIATE")
            for request in requests:
                request.answer, request.problem, request._written = None, None, ()  # noqa: SLF001 - its own kind
            _together(cursor, requests, trusting=False)

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
        self._written = ()
        site = Site(number, head)
        site.known = known_ids(cursor, number, head, self.ids())
        self.join(cursor, site, standing)
        if site.rows:
            rows = list(site.rows.values())
            add_events(cursor, rows)
            move_head(cursor, number, head, site.head(), rows)
            self.follow_up(cursor, number, standing)
        receipts: list[Receipt] = self.answer
        return receipts

    def join(self, cursor: apsw.Cursor, site: Site, standing: Row) -> bool:
        """Answer it as if it were written, which it is later. Whether something goes with its events."""
        if len(self._drafts) == 1 and self._goes_along(site, standing):
            return self._lease is not None or self._packed[0].body is not None
        fresh: dict[str, int] = {}
        for index, draft in enumerate(self._drafts):
            known = site.find(draft.id)
            if known is not None:
                refuse_other(draft, known.key & POSITION_MASK, known.kind, known.salt, known.payload_hash)
            elif draft.id in fresh:
                refuse_twin(draft, self._drafts[fresh[draft.id]])
            else:
                fresh[draft.id] = index
        if fresh:
            chosen = list(fresh.values())
            drafts, packed = [self._drafts[index] for index in chosen], [self._packed[index] for index in chosen]
            head, rows = self._place(cursor, site.number, site.head(), standing, drafts, packed)
            site.move(head)
            site.rows.update((row[1], row) for row in rows)
            self._written = rows
        self.answer = [
            Receipt(known.key & POSITION_MASK, known.run, known.hash, new=fresh.get(draft.id) == index)
            for index, draft in enumerate(self._drafts)
            if (known := site.find(draft.id)) is not None
        ]
        return bool(fresh)

    def _goes_along(self, site: Site, standing: Row) -> bool:
        """One new event that changes little: the same as below, the short way. By far the most frequent case."""
        id_, kind, v, at, by, run, because, salt, _payload, payload_hash, _data = self._drafts[0]
        lease = self._lease
        if (
            kind not in site.quiet
            or run == NEW_RUN
            or id_ in site.known
            or id_ in site.rows
            or self._expect is not None
            or (lease is not None and (standing[0] != lease.epoch or not standing[1]))
        ):
            return False
        position = site.position + 1
        digest = link(site.hash, self.session, position, id_, kind, v, at, by, run, because, payload_hash)
        encoding, stored, _body = self._packed[0]
        new = (site.number << POSITION_BITS | position, id_, kind, v, at, by, run, because, TIERS[kind], salt,
               payload_hash, digest, encoding, stored)  # fmt: skip
        site.rows[id_] = new
        site.position, site.hash, site.run, site.at = position, digest, max(site.run, run), max(site.at, at)
        self._written = (new,)
        self.answer = [Receipt(position, run, digest, True)]  # noqa: FBT003  # `new`, by its place
        return True

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
            raise LeaseLost(f"another process has taken the lease of lane {lease.lane!r} of {head.name!r}")
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

    def follow_up(self, cursor: apsw.Cursor, number: int, standing: Row) -> bool:
        """What goes with new events: large payloads, more time for the lease. Whether the lease changed."""
        lease = self._lease
        extended = lease is not None and 2 * (standing[2] - self._now) < standing[3]
        if lease is not None and extended:
            cursor.execute(_EXTEND_LEASE, (number, lease.lane, self._now + standing[3], standing[3]))
        for _encoding, stored, body in self._packed:
            if body is not None:
                cursor.execute(_ADD_BLOB, (stored, body))
        return extended


class LateAppend(Append):
    """An event that is sealed and packed by whoever leads, before the transaction, if it is short enough."""

    __slots__ = ("pack",)

    late = True
    size = INLINE_LIMIT
    pack: Callable[[Draft], Packed]

    def prepare(self) -> None:
        if not self._packed:
            draft = self._drafts[0]
            if len(draft.payload) > INLINE_LIMIT:
                raise TooLongForOthers
            self._drafts, self._packed = (draft,), [self.pack(draft)]


def _together(cursor: apsw.Cursor, requests: Sequence[Append], *, trusting: bool) -> None:
    """Serve appends to any number of sessions, each session's in their order; `trusting` that all ids are new.

    Everything is looked up at once, decided in memory and written at once: every statement lets another thread take
    the interpreter away, so that few statements matter more than short ones.
    """
    sites = _sites(cursor, requests, trusting=trusting)
    leases = _leases(cursor, {(request.session, lane) for request in requests if (lane := request.lane()) is not None})
    followed: list[tuple[Append, int, Row]] = []
    for request in requests:
        site = sites.get(request.session)
        if site is None:
            request.problem = not_found(request.session)
            continue
        standing = leases.get((request.session, request.lane() or ""), _NO_LEASE) if leases else _NO_LEASE
        try:
            try:
                trails = request.join(cursor, site, standing)
            except Conflict:  # a refusal counts only if the events are not on record already
                site.known |= known_ids(cursor, site.number, site.found, request.ids())
                trails = request.join(cursor, site, standing)
            if trails:
                followed.append((request, site.number, standing))
        except Conflict as refusal:
            request.problem = refusal
    add_events(cursor, [row for site in sites.values() for row in site.rows.values()])
    for site in sites.values():
        if site.rows:
            move_head(cursor, site.number, site.found, site.head(), list(site.rows.values()))
    for request, number, standing in followed:
        request.follow_up(cursor, number, standing)


def _sites(cursor: apsw.Cursor, requests: Sequence[Append], *, trusting: bool) -> dict[str, Site]:
    """The sessions they go to, each with those of the wanted ids that are known to be on record."""
    sessions = list({request.session for request in requests})
    rows: list[Row] = cursor.execute(QUERIES["heads_together"], (dumps(sessions),)).fetchall()
    sites = {row[1]: Site(row[0], head_of(row)) for row in rows}
    for session, site in sites.items():
        if not trusting or site.found.parent is not None:  # an index knows nothing of what a fork inherits
            ids = [id_ for request in requests if request.session == session for id_ in request.ids()]
            site.known = known_ids(cursor, site.number, site.found, ids)
    return sites


def _leases(cursor: apsw.Cursor, wanted: Collection[tuple[str, str]]) -> dict[tuple[str, str], Row]:
    if not wanted:
        return {}
    rows: list[Row] = cursor.execute(QUERIES["leases_together"], (dumps(list(wanted), ensure_ascii=False),)).fetchall()
    return {(row[0], row[1]): row[2:] for row in rows}
