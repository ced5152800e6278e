"""Rows: heads, events and payloads as values of a statement, and rows as heads and records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from onrecord.log.events import DURABLE, Record, tier_of
from onrecord.log.head import Head
from onrecord.log.names import MIRROR_PREFIX
from onrecord.stores.payloads import COMPRESSED, FACTS_FROM, OUT_OF_LINE, PLAIN, Packed, Payloads

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from onrecord.log.events import Draft
    from onrecord.stores.postgres.connections import Row
    from onrecord.stores.session_cipher import SessionCipher

MOMENT_BITS = 20
"""Lists are sorted by time without its lowest bits, this many of microseconds: in steps of about a second."""

_ENCODING, _PAYLOAD = 11, 12


def head_of(row: Row) -> Head:
    """A head from the columns of the `head` queries."""
    session, project, name, position, digest, run, status, title, opened_at, at, held, parent, forked_at = row
    return Head(
        session, project, name, position, digest, run, status, title.decode(), opened_at, at, held, parent, forked_at
    )


def values_of(head: Head, cipher: SessionCipher | None) -> dict[str, Any]:
    """The columns of a head, by name; `cipher` is that of a session with a key of its own."""
    if cipher is not None:
        head = cipher.head(head)
    return head._asdict() | {"title": head.title.encode(), "moment": head.at >> MOMENT_BITS}


def pack(payloads: Payloads, events: Iterable[Draft | Record]) -> list[Packed]:
    """The form in which each payload is kept; an erased one is nothing."""
    return [
        Packed(PLAIN, event.payload or b"", None)
        if event.payload is None or event.kind == "payload.erased"  # the database reads what an erasure names
        else getattr(event, "packed", None) or pack_plain(payloads, event)
        for event in events
    ]


def pack_plain(payloads: Payloads, event: Draft | Record) -> Packed:
    """The form in which the payload of an event is kept that is not encrypted."""
    payload = event.payload or b""
    if tier_of(event.kind) == DURABLE:
        return payloads.pack(payload, FACTS_FROM)
    return payloads.pack(payload, conversation=event.id.startswith(MIRROR_PREFIX))


def columns_of(records: Sequence[Record], packed: Sequence[Packed]) -> dict[str, Any]:
    """Many events as one array for each column."""
    return {
        "positions": [record.position for record in records],
        "ids": [record.id for record in records],
        "kinds": [record.kind for record in records],
        "vs": [record.v for record in records],
        "ats": [record.at for record in records],
        "bys": [record.by for record in records],
        "runs": [record.run for record in records],
        "becauses": [record.because for record in records],
        "salts": [record.salt for record in records],
        "payload_hashes": [record.payload_hash for record in records],
        "hashes": [record.hash for record in records],
        "encodings": [one.encoding for one in packed],
        "payloads": [
            None if record.payload is None else one.stored for record, one in zip(records, packed, strict=True)
        ],
    }


def blobs_of(packed: Sequence[Packed]) -> dict[str, Any] | None:
    """Large payloads, each once with the number of its uses; None when there is none."""
    bodies: dict[bytes, bytes] = {}
    uses: dict[bytes, int] = {}
    for encoding, stored, body in packed:
        if encoding == OUT_OF_LINE and body is not None:
            bodies[stored] = body
            uses[stored] = uses.get(stored, 0) + 1
    if not bodies:
        return None
    return {"keys": list(bodies), "uses": [uses[key] for key in bodies], "bodies": list(bodies.values())}


def records_of(session: str, rows: Sequence[Row], payloads: Payloads) -> list[Record]:
    """Records from the rows of the `events` queries; a payload that does not unpack comes as the bytes kept."""
    if any(row[_ENCODING] > COMPRESSED for row in rows):
        rows = payloads.decrypted(session, list(rows))
    unpacked = iter(payloads.unpack([row[_PAYLOAD] for row in rows if row[_ENCODING] and row[_PAYLOAD] is not None]))
    make = tuple.__new__
    return [
        make(
            Record,
            (session, position, id_, kind, v, at, by, run, because, salt,
             next(unpacked) if encoding and payload is not None else payload, payload_hash, digest),
        )
        for position, id_, kind, v, at, by, run, because, salt, payload_hash, digest, encoding, payload in rows
    ]  # fmt: skip
