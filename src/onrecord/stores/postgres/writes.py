"""The other writes, each in one transaction: new sessions, erasures, copied logs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg

from onrecord.errors import Conflict, InvalidInput
from onrecord.log.store import Receipt
from onrecord.stores.postgres.append import Delivery, PendingAppend, Remembered, rename, take_name
from onrecord.stores.postgres.rows import blobs_of, columns_of, head_of, pack, values_of
from onrecord.stores.refusals import id_taken, not_found, nothing_at, refuse_erasure, refuse_gaps, unlike_parent

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from onrecord.log.events import Draft, Record
    from onrecord.log.head import Head
    from onrecord.stores.payloads import Payloads
    from onrecord.stores.postgres.connections import Connection, Connections
    from onrecord.stores.session_cipher import SessionCipher

EVENTS_AT_ONCE = 500
"""How many events of a copied log one statement sends."""


def create(
    connections: Connections, payloads: Payloads, head: Head, drafts: Sequence[Draft], cipher: SessionCipher | None
) -> list[Receipt]:
    """Create a session with its first events; `cipher` is for one that gets a key of its own."""
    pending = PendingAppend(head.session, drafts, cipher=cipher)
    delivery = Delivery(connections, payloads, None, pending, Remembered())

    def work(connection: Connection) -> list[Receipt]:
        with connections.transaction(connection):
            if head.parent is not None and _hash_in_history(connections, connection, head) != head.hash:
                raise unlike_parent()
            _add_session(connections, connection, head, cipher)
            return delivery.under_lock(connection).receipts

    return connections.run(work, delivery.recall)


def erase(
    connections: Connections, payloads: Payloads, session: str, positions: Collection[int], draft: Draft
) -> Receipt:
    """Erase payloads for good, and append the event that says so."""
    delivery = Delivery(connections, payloads, None, PendingAppend(session, [draft]), Remembered())
    chosen = sorted(set(positions))

    def work(connection: Connection) -> list[Receipt]:
        send = connections.send
        with connections.transaction(connection):
            rows = send(connection, "locked_head", {"session": session}).fetchall()
            if not rows:
                raise not_found(session)
            refuse_erasure(head_of(rows[0]), chosen)
            receipts = delivery.under_lock(connection).receipts
            which = {"session": session, "positions": chosen, "said_at": receipts[0].position}
            keys = [row[0] for row in send(connection, "blob_keys", which).fetchall()]
            ((erased,),) = send(connection, "erase", which).fetchall()
            if erased != len(chosen):
                raise InvalidInput("the erasure event does not name every position that it erases")
            send(connection, "drop_unused", {"keys": keys})
            send(connection, "drop_words", which)
            heirs = [row[0] for row in send(connection, "scrub", which).fetchall()]
            send(connection, "drop_snapshots", {"sessions": heirs})
        return receipts

    return connections.run(work, delivery.recall)[0]


def install(
    connections: Connections,
    payloads: Payloads,
    head: Head,
    records: Sequence[Record],
    cipher: SessionCipher | None,
    *,
    extend: bool,
) -> None:
    """Copy a log as it is, or the rest of one that is here in part."""
    if cipher is not None:
        head = cipher.head(head)

    def work(connection: Connection) -> bool:
        with connections.transaction(connection):
            if extend:
                start = _move_head(connections, connection, head, cipher)
            else:
                _add_session(connections, connection, head, cipher)
                start = head.forked_at
            refuse_gaps([record.position for record in records], start)
            _add_events(connections, payloads, connection, head.session, records)
            values = {"session": head.session, "position": head.position}
            if connections.send(connection, "hash_at", values).fetchall() != [(head.hash,)]:
                raise Conflict("the head does not match the events")
            connections.send(connection, "mark_arrived", values)
        return True

    def recall(connection: Connection) -> bool | None:
        with connections.transaction(connection):
            rows = connections.send(connection, "locked_head", {"session": head.session}).fetchall()
        return True if rows and head_of(rows[0]) == head else None

    connections.run(work, recall)


def _add_session(connections: Connections, connection: Connection, head: Head, cipher: SessionCipher | None) -> None:
    values = values_of(head, cipher) | {"key_id": None if cipher is None else cipher.key_id}
    if not connections.send(connection, "add_session", values).fetchall():
        raise id_taken(head.session)
    take_name(connections, connection, head)


def _move_head(connections: Connections, connection: Connection, head: Head, cipher: SessionCipher | None) -> int:
    """Move the head of a log that is here in part; return the position it had."""
    rows = connections.send(connection, "locked_head", {"session": head.session}).fetchall()
    if not rows:
        raise not_found(head.session)
    present = head_of(rows[0])
    if (present.project, present.name) != (head.project, head.name):
        rename(connections, connection, present, head)
    connections.send(connection, "change_head", values_of(head, cipher))
    return present.position


def _add_events(
    connections: Connections, payloads: Payloads, connection: Connection, session: str, records: Sequence[Record]
) -> None:
    for start in range(0, len(records), EVENTS_AT_ONCE):
        part = records[start : start + EVENTS_AT_ONCE]
        packed = pack(payloads, part)
        try:
            connections.send(connection, "add_events", {"session": session, **columns_of(part, packed)})
        except psycopg.errors.UniqueViolation:
            raise Conflict("one of the new event ids is already in the log") from None
        blobs = blobs_of(packed)
        if blobs is not None:
            connections.send(connection, "keep_blobs", blobs)


def _hash_in_history(connections: Connections, connection: Connection, head: Head) -> bytes:
    """The hash at the position a fork starts from, which may be an ancestor's event."""
    parent, position = str(head.parent), head.forked_at
    lines = connections.send(connection, "lineage", {"session": parent}).fetchall()
    if not lines:
        raise not_found(parent)
    for of, low, high in lines:
        if low < position <= high:
            rows = connections.send(connection, "hash_at", {"session": of, "position": position}).fetchall()
            if rows:
                return bytes(rows[0][0])
    raise nothing_at(position)
