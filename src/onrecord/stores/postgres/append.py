"""Appending: one statement that moves the head from where it is expected and adds the events, or does nothing.

The store remembers where each log stood last, so the ordinary append is one round trip. If the log moved meanwhile, the
store looks where it stands and tries again; after some tries, or when there is more to write than events, it takes the
head row for itself first. Threads of one process take turns at a session instead of fighting for it.
"""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple

import psycopg

from onrecord.errors import Conflict
from onrecord.stores.placing import Known, Placed, new_among, place
from onrecord.stores.postgres.meanings import is_known_id
from onrecord.stores.postgres.rows import blobs_of, columns_of, head_of, pack, values_of
from onrecord.stores.refusals import lease_lost, log_moved, name_taken, not_found

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from onrecord.log.events import Draft, Record
    from onrecord.log.head import Head
    from onrecord.log.store import Lease, Receipt
    from onrecord.stores.payloads import Packed, Payloads
    from onrecord.stores.postgres.connections import Connection, Connections

SESSIONS_REMEMBERED = 1_000
"""Of so many sessions a store object remembers where their logs stood last."""
TRIES = 3
"""How often the store looks and tries again before it takes the head row for itself."""


class Request(NamedTuple):
    """What a caller wants appended, and under which conditions."""

    session: str
    drafts: Sequence[Draft]
    expect: int | None = None
    lease: Lease | None = None

    def check(self, head: Head, *, holds: bool) -> None:
        """Refuse what does not fit the log or the lane any more."""
        if self.lease is not None and not holds:
            raise lease_lost(self.lease.lane)
        if self.expect is not None and self.expect != head.position:
            raise log_moved(self.expect, head.position)

    def conditions(self) -> dict[str, Any]:
        """The lease as values of a statement."""
        return {
            "lane": self.lease.lane if self.lease else None,
            "epoch": self.lease.epoch if self.lease else None,
        }


class Standing:
    """What is remembered of one session. Its lock lets one thread at a time append to it."""

    __slots__ = ("head", "lines", "lock")

    def __init__(self) -> None:
        self.lock = Lock()
        self.head: Head | None = None
        self.lines: tuple[list[str], list[int]] | None = None
        """The ancestors of a fork and the positions up to which their events are its own: these never change."""


class Appender:
    """Brings events into logs."""

    def __init__(self, connections: Connections, payloads: Payloads, now: Callable[[], int | None]) -> None:
        self._connections = connections
        self._payloads = payloads
        self._now = now
        self._remembered: OrderedDict[str, Standing] = OrderedDict()
        self._lock = Lock()

    def append(self, request: Request) -> list[Receipt]:
        """Append all drafts or none."""
        if not request.drafts:
            if not self._connections.ask("head", session=request.session):
                raise not_found(request.session)
            return []
        standing = self._standing(request.session)
        with standing.lock:
            attempt = Attempt(self._connections, self._payloads, self._now(), request, standing)
            return self._connections.run(attempt.work, attempt.recall)

    def forget(self, session: str) -> None:
        """A log was changed otherwise."""
        with self._lock:
            self._remembered.pop(session, None)

    def start_anew(self) -> None:
        """In a forked child: locks of other threads are nobody's any more."""
        self._lock = Lock()
        self._remembered.clear()

    def _standing(self, session: str) -> Standing:
        with self._lock:
            standing = self._remembered.get(session)
            if standing is None:
                standing = self._remembered[session] = Standing()
                if len(self._remembered) > SESSIONS_REMEMBERED:
                    self._remembered.popitem(last=False)
            else:
                self._remembered.move_to_end(session)
            return standing


class Attempt:
    """One append on its way, which may take several tries."""

    def __init__(
        self,
        connections: Connections,
        payloads: Payloads,
        now: int | None,
        request: Request,
        standing: Standing,
    ) -> None:
        self._connections = connections
        self._payloads = payloads
        self._now = now
        self._request = request
        self._standing = standing
        self._sent: Placed | None = None
        self._holds = False

    def work(self, connection: Connection) -> list[Receipt]:
        """The ordinary way if possible, else the careful one."""
        standing, request = self._standing, self._request
        head, known = standing.head, dict[str, Known]()
        for _ in range(TRIES):
            placed = self._placed(head, known)
            if placed is None:
                head, known = self._look(connection)
                placed = self._decided(head, known)
                if not placed.records:
                    break  # all on record: answered under the head's lock, so that the answer is durable too
            packed = pack(self._payloads, placed.records)
            if head is None or _is_more(head, placed, packed):
                break
            if self._move(connection, head, placed, packed):
                standing.head = placed.head
                return placed.receipts
            head = standing.head = None
        with self._connections.transaction(connection):
            placed = self.under_lock(connection)
        standing.head = placed.head if placed.head.session == request.session else None
        return placed.receipts

    def recall(self, connection: Connection) -> list[Receipt] | None:
        """What came of an attempt that was lost: the last event stands where it was put, or nothing happened.

        Taking the head row for a moment makes the answer as durable as an append: its commit waits for the disk and the
        standby, and what was committed before it is there then too.
        """
        self._standing.head = None
        placed = self._sent
        if placed is None or not placed.records:
            return None
        last = placed.records[-1]
        values = {"session": last.session, "position": last.position}
        with self._connections.transaction(connection):
            self._connections.send(connection, "locked_head", values)
            rows = self._connections.send(connection, "hash_at", values).fetchall()
        return placed.receipts if rows == [(last.hash,)] else None

    def under_lock(self, connection: Connection) -> Placed:
        """The careful way, inside of a transaction: take the lane and the head row, decide, write."""
        send, request = self._connections.send, self._request
        with connection.pipeline():
            lane = send(connection, "locked_standing", {"session": request.session, **request.conditions()})
            locked = send(connection, "locked_head", {"session": request.session})
            on_record = send(connection, "known", {"session": request.session, "ids": self._ids()})
        head, known = self._read(locked, on_record)
        placed = self._decided(head, known, holds=bool(lane.fetchall()))
        if not placed.records:
            return placed
        if (placed.head.project, placed.head.name) != (head.project, head.name):
            rename(self._connections, connection, head, placed.head)
        packed = pack(self._payloads, placed.records)
        self._sent = placed
        blobs = blobs_of(packed)
        if blobs is not None:
            send(connection, "keep_blobs", blobs)
        values = self._values(head, placed.head, ([], [])) | columns_of(placed.records, packed)
        send(connection, "append_many", values)
        return placed

    def _placed(self, head: Head | None, known: dict[str, Known]) -> Placed | None:
        """The drafts in their places after a remembered head; None when only a look can tell."""
        request = self._request
        if head is None or (request.expect is not None and request.expect != head.position):
            return None
        if head.parent is not None and self._standing.lines is None:
            return None
        try:
            return place(head, request.drafts, known, new_among(request.drafts, known))
        except Conflict:
            return None  # the log may have gone on since, or the event may be on record: a refusal needs a look

    def _look(self, connection: Connection) -> tuple[Head, dict[str, Known]]:
        """Where the log stands now, and what is on record; an error if the lane is lost."""
        send, session, conditions = self._connections.send, self._request.session, self._request.conditions()
        with connection.pipeline():
            self._connections.begin(connection)
            lane = send(connection, "standing", {"session": session, **conditions})
            found = send(connection, "head", {"session": session})
            on_record = send(connection, "known", {"session": session, "ids": self._ids()})
            line = send(connection, "lineage", {"session": session})
        head, known = self._read(found, on_record)
        ancestors = line.fetchall()[1:]
        self._standing.lines = [of for of, _low, _high in ancestors], [high for _of, _low, high in ancestors]
        self._holds = bool(lane.fetchall())
        return head, known

    def _read(self, found: psycopg.Cursor[Any], on_record: psycopg.Cursor[Any]) -> tuple[Head, dict[str, Known]]:
        rows = found.fetchall()
        if not rows:
            raise not_found(self._request.session)
        return head_of(rows[0]), {row[0]: Known(*row[1:]) for row in on_record.fetchall()}

    def _decided(self, head: Head, known: dict[str, Known], *, holds: bool | None = None) -> Placed:
        """The drafts in their places, or the refusal."""
        drafts = self._request.drafts
        fresh = new_among(drafts, known)
        if fresh:
            self._request.check(head, holds=self._holds if holds is None else holds)
        return place(head, drafts, known, fresh)

    def _move(self, connection: Connection, head: Head, placed: Placed, packed: Sequence[Packed]) -> bool:
        """The one statement; False when the log is not where it was expected, the lane is lost or an id is known."""
        self._sent = placed
        values = self._values(head, placed.head, self._standing.lines or ([], []))
        if len(placed.records) == 1:
            name, event = "append_one", _one(placed.records[0], packed[0])
        else:
            name, event = "append_many", columns_of(placed.records, packed)
        try:
            return bool(self._connections.fetch(connection, name, values | event))
        except psycopg.errors.UniqueViolation as problem:
            if not is_known_id(problem):
                raise
            return False

    def _values(self, head: Head, moved: Head, lines: tuple[list[str], list[int]]) -> dict[str, Any]:
        """From where to where the head moves, and on which conditions."""
        return values_of(moved) | self._request.conditions() | {
            "last_run": moved.run, "last_at": moved.at, "from_position": head.position, "from_hash": head.hash,
            "now": self._now, "ancestors": lines[0], "upto": lines[1],
        }  # fmt: skip

    def _ids(self) -> list[str]:
        return [draft.id for draft in self._request.drafts]


def _one(record: Record, packed: Packed) -> dict[str, Any]:
    """One event, by its columns."""
    return {
        "id": record.id, "kind": record.kind, "v": record.v, "at": record.at, "by": record.by, "run": record.run,
        "because": record.because, "salt": record.salt, "payload_hash": record.payload_hash,
        "encoding": packed.encoding, "payload": packed.stored,
    }  # fmt: skip


def _is_more(head: Head, placed: Placed, packed: Sequence[Packed]) -> bool:
    """Whether there is more to write than events: another name, or payloads that are kept out of line."""
    return (placed.head.project, placed.head.name) != (head.project, head.name) or any(
        one.body is not None for one in packed
    )


def rename(connections: Connections, connection: Connection, head: Head, moved: Head) -> None:
    """The session's name is another one, if nobody has it."""
    take_name(connections, connection, moved)
    connections.send(
        connection, "give_name_back", {"session": head.session, "project": head.project, "name": head.name}
    )


def take_name(connections: Connections, connection: Connection, head: Head) -> None:
    """The name is the session's from here on, or the refusal."""
    wanted = {"session": head.session, "project": head.project, "name": head.name}
    if not connections.send(connection, "take_name", wanted).fetchall():
        rows = connections.send(connection, "has_name", wanted).fetchall()
        raise name_taken(head.name, rows[0][0] if rows else "being made")
