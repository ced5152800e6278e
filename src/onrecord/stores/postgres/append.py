"""Appending: one statement that moves the head from where it is expected and adds the events, or does nothing.

The store remembers the last known head of each log, so the ordinary append is one round trip. If the log has moved, the
store reads its head and tries again; after some tries, or when there is more to write than events, it locks the head
row first. `appender.py` decides what is appended together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg

from onrecord.errors import Conflict
from onrecord.log.tip import Tip
from onrecord.stores.group_commit import Pending
from onrecord.stores.placing import Known, Placed, new_among, place
from onrecord.stores.postgres.rows import blobs_of, columns_of, head_of, pack, values_of
from onrecord.stores.postgres.sqlstates import is_known_id
from onrecord.stores.refusals import lease_lost, log_moved, name_taken, not_found

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onrecord.log.events import Draft, Record
    from onrecord.log.head import Head
    from onrecord.log.store import Lease, Receipt
    from onrecord.stores.payloads import Packed, Payloads
    from onrecord.stores.postgres.connections import Connection, Connections, Row
    from onrecord.stores.postgres.leases import Taking
    from onrecord.stores.session_cipher import SessionCipher

TRIES = 2
"""How often the store tries, reading the head in between, before it locks the head row."""
EVENT_BYTES = 420
"""The bytes that an event adds to a batch besides its payload, so that a batch stays below ten thousand events."""


class PendingAppend(Pending):
    """Drafts to append to one session, and under which conditions."""

    __slots__ = ("cipher", "drafts", "expect", "lease", "session")

    alone = False

    def __init__(
        self,
        session: str,
        drafts: Sequence[Draft],
        expect: int | None = None,
        lease: Lease | None = None,
        cipher: SessionCipher | None = None,
    ) -> None:
        super().__init__()
        self.cipher = cipher
        self.session = session
        self.drafts = drafts
        self.expect = expect
        self.lease = lease

    @property
    def size(self) -> int:
        return sum(len(draft.payload) + EVENT_BYTES for draft in self.drafts)

    def admits(self, other: PendingAppend) -> bool:
        """Two appends share a statement if they have the same conditions, and the second expects no position."""
        return not other.alone and other.expect is None and other.lease == self.lease

    def check(self, head: Head, *, holds: bool) -> None:
        """Refuse an append under a lost lease, or to a log that is not where the caller expects it."""
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


class PendingJoin(PendingAppend):
    """Drafts to append under a lease that is acquired in the same transaction."""

    __slots__ = ("taking",)

    alone = True

    def __init__(self, session: str, drafts: Sequence[Draft], expect: int | None, taking: Taking) -> None:
        super().__init__(session, drafts, expect)
        self.taking = taking

    def admits(self, other: PendingAppend) -> bool:
        """It has a transaction of its own."""
        return False


class Remembered:
    """What a store object remembers of one session."""

    __slots__ = ("contended", "head", "lines")

    def __init__(self) -> None:
        self.head: Head | None = None
        self.contended = False
        """Whether other processes have been quicker at every recent try: then an append locks the head row at once."""
        self.lines: tuple[list[str], list[int]] | None = None
        """The ancestors of a fork, and up to which position each one's events are its own: these never change."""


class Delivery:
    """One append on its way to the server, which may take several tries."""

    def __init__(
        self,
        connections: Connections,
        payloads: Payloads,
        now: int | None,
        pending: PendingAppend,
        remembered: Remembered,
    ) -> None:
        self._connections = connections
        self._payloads = payloads
        self._now = now
        self._pending = pending
        self._remembered = remembered
        self._sent: Placed | None = None
        self._holds = False

    def work(self, connection: Connection) -> list[Receipt]:
        """One statement if possible, else a transaction that locks the head row."""
        remembered = self._remembered
        before = head = remembered.head
        known: dict[str, Known] = {}
        for _ in range(0 if remembered.contended else TRIES):
            placed = self._placed(head, known)
            if placed is None:
                head, known = self._look(connection)
                placed = self._decided(head, known)
                if not placed.placements:
                    break  # all on record: answered under the lock of the head row, so that the answer is durable too
            packed = pack(self._payloads, [placement.draft for placement in placed.placements])
            if head is None or _is_more(head, placed, packed):
                break
            if self._move(connection, head, placed, packed):
                remembered.head = placed.tip.head
                return placed.receipts
            head = remembered.head = None
        with self._connections.transaction(connection):
            placed = self.under_lock(connection)
        remembered.head = placed.tip.head
        remembered.contended = before is not None and before.position != placed.tip.position - len(placed.placements)
        return placed.receipts

    def recall(self, connection: Connection) -> list[Receipt] | None:
        """The receipts of an append with a lost outcome, if its last event is on record; if not, nothing was written.

        Locking the head row for a moment makes the answer as durable as an append: its commit waits for the disk and
        the standby, and so for everything that was committed before.
        """
        self._remembered.head = None
        placed = self._sent
        if placed is None or not placed.placements:
            return None
        last = placed.placements[-1]
        values = {"session": self._pending.session, "position": last.position}
        with self._connections.transaction(connection):
            self._connections.send(connection, "locked_head", values)
            rows = self._connections.send(connection, "hash_at", values).fetchall()
        return placed.receipts if rows == [(last.hash,)] else None

    def under_lock(self, connection: Connection) -> Placed:
        """Inside a transaction: lock the lane and the head row, decide, write."""
        send, pending = self._connections.send, self._pending
        with connection.pipeline():
            lane = send(connection, "locked_standing", {"session": pending.session, **pending.conditions()})
            locked = send(connection, "locked_head", {"session": pending.session})
            on_record = send(connection, "known", {"session": pending.session, "ids": self._ids()})
        head, known = self._read(locked, on_record)
        placed = self._decided(head, known, holds=bool(lane.fetchall()))
        if not placed.placements:
            return placed
        base = placed.tip.base
        if (base.project, base.name) != (head.project, head.name):
            rename(self._connections, connection, head, base)
        packed = pack(self._payloads, [placement.draft for placement in placed.placements])
        self._sent = placed
        blobs = blobs_of(packed)
        if blobs is not None:
            send(connection, "keep_blobs", blobs)
        records = placed.records
        values = self._values(head, placed.tip, ([], [])) | columns_of(records, packed)
        send(connection, "append_many", values)
        return placed

    def _placed(self, head: Head | None, known: dict[str, Known]) -> Placed | None:
        """The drafts placed after a remembered head; None when it takes a query."""
        pending = self._pending
        if head is None or (pending.expect is not None and pending.expect != head.position):
            return None
        if head.parent is not None and self._remembered.lines is None:
            return None
        try:
            return place(Tip.of(head), pending.drafts, known, new_among(pending.drafts, known))
        except Conflict:
            return None  # the log may have moved since, or the event may be on record: a refusal needs a query

    def _look(self, connection: Connection) -> tuple[Head, dict[str, Known]]:
        """The present head of the log, and which of the ids are on record."""
        send, session, conditions = self._connections.send, self._pending.session, self._pending.conditions()
        with connection.pipeline():
            self._connections.begin(connection)
            lane = send(connection, "standing", {"session": session, **conditions})
            found = send(connection, "head", {"session": session})
            on_record = send(connection, "known", {"session": session, "ids": self._ids()})
            line = send(connection, "lineage", {"session": session})
        head, known = self._read(found, on_record)
        ancestors = line.fetchall()[1:]
        self._remembered.lines = [of for of, _low, _high in ancestors], [high for _of, _low, high in ancestors]
        self._holds = bool(lane.fetchall())
        return head, known

    def _read(self, found: psycopg.Cursor[Any], on_record: psycopg.Cursor[Any]) -> tuple[Head, dict[str, Known]]:
        rows = found.fetchall()
        if not rows:
            raise not_found(self._pending.session)
        return head_of(rows[0]), {row[0]: Known(*row[1:]) for row in on_record.fetchall()}

    def _decided(self, head: Head, known: dict[str, Known], *, holds: bool | None = None) -> Placed:
        """The drafts placed after the present head, or the refusal."""
        drafts = self._pending.drafts
        fresh = new_among(drafts, known)
        if fresh:
            self._pending.check(head, holds=self._holds if holds is None else holds)
        return place(Tip.of(head), drafts, known, fresh)

    def _move(self, connection: Connection, head: Head, placed: Placed, packed: Sequence[Packed]) -> bool:
        """The one statement; False when the log has moved, the lane is lost or an id is on record."""
        self._sent = placed
        values = self._values(head, placed.tip, self._remembered.lines or ([], []))
        records = placed.records
        if len(records) == 1:
            name, event = "append_one", _one(records[0], packed[0])
        else:
            name, event = "append_many", columns_of(records, packed)
        try:
            return bool(self._connections.fetch(connection, name, values | event))
        except psycopg.errors.UniqueViolation as problem:
            if not is_known_id(problem):
                raise
            return False

    def _values(self, head: Head, moved: Tip, lines: tuple[list[str], list[int]]) -> dict[str, Any]:
        """The values of a statement that moves the head: from where, to where, on which conditions."""
        return values_of(moved.head, self._pending.cipher) | self._pending.conditions() | {
            "last_run": moved.run, "last_at": moved.at, "from_position": head.position, "from_hash": head.hash,
            "now": self._now, "ancestors": lines[0], "upto": lines[1],
        }  # fmt: skip

    def _ids(self) -> list[str]:
        return [draft.id for draft in self._pending.drafts]


class Joining(Delivery):
    """An append that acquires the lease first: one transaction, so a refusal leaves the lane with its holder."""

    def __init__(
        self, connections: Connections, payloads: Payloads, pending: PendingJoin, remembered: Remembered
    ) -> None:
        super().__init__(connections, payloads, pending.taking.where["now"], pending, remembered)
        self._taking = pending.taking

    def work(self, connection: Connection) -> list[Receipt]:
        """Take the lane, which locks it, then append."""

        def ask(name: str, values: dict[str, Any]) -> list[Row]:
            return self._connections.send(connection, name, values).fetchall()

        while True:
            with self._connections.transaction(connection):
                lease = self._pending.lease = self._taking.once(ask)
                placed = self.under_lock(connection) if lease is not None else None
            if placed is not None:
                self._remembered.head = placed.tip.head
                return placed.receipts


def _one(record: Record, packed: Packed) -> dict[str, Any]:
    """One event, by its columns."""
    return {
        "id": record.id, "kind": record.kind, "v": record.v, "at": record.at, "by": record.by, "run": record.run,
        "because": record.because, "salt": record.salt, "payload_hash": record.payload_hash,
        "encoding": packed.encoding, "payload": packed.stored,
    }  # fmt: skip


def _is_more(head: Head, placed: Placed, packed: Sequence[Packed]) -> bool:
    """Whether there is more to write than events: another name, or payloads that are kept out of line."""
    base = placed.tip.base
    return (base.project, base.name) != (head.project, head.name) or any(one.body is not None for one in packed)


def rename(connections: Connections, connection: Connection, head: Head, moved: Head) -> None:
    """Give the session another name, if it is free."""
    take_name(connections, connection, moved)
    connections.send(
        connection, "give_name_back", {"session": head.session, "project": head.project, "name": head.name}
    )


def take_name(connections: Connections, connection: Connection, head: Head) -> None:
    """Reserve the name for the session, or refuse."""
    wanted = {"session": head.session, "project": head.project, "name": head.name}
    if not connections.send(connection, "take_name", wanted).fetchall():
        rows = connections.send(connection, "has_name", wanted).fetchall()
        raise name_taken(head.name, rows[0][0] if rows else "being made")
