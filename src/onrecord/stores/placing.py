"""Placing: what an append comes to, given where the log stands and what is on record. Decides, and writes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from onrecord.log.codec import link
from onrecord.log.events import Record
from onrecord.log.head import Head, after, run_of
from onrecord.log.store import Receipt
from onrecord.stores.refusals import refuse_other, refuse_twin

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from onrecord.log.events import Draft


class Known(NamedTuple):
    """What is on record under an id."""

    position: int
    run: int
    hash: bytes
    kind: str
    salt: bytes | None
    payload_hash: bytes


class Placed(NamedTuple):
    """What an append comes to."""

    head: Head
    """Where the log stands afterwards."""
    records: list[Record]
    """The events to write, in order."""
    receipts: list[Receipt]
    """One for every draft."""


def new_among(drafts: Sequence[Draft], known: Mapping[str, Known]) -> list[Draft]:
    """The drafts that are not on record, each id once; an id that stands for something else is refused."""
    fresh: dict[str, Draft] = {}
    for draft in drafts:
        if draft.id in known:
            position, _run, _hash, kind, salt, payload_hash = known[draft.id]
            refuse_other(draft, position, kind, salt, payload_hash)
        elif draft.id in fresh:
            refuse_twin(draft, fresh[draft.id])
        else:
            fresh[draft.id] = draft
    return list(fresh.values())


def place(head: Head, drafts: Sequence[Draft], known: Mapping[str, Known], fresh: Sequence[Draft]) -> Placed:
    """Give every new draft its place after the head; `head.after` may refuse it."""
    records: list[Record] = []
    moved, session = head, head.session
    for draft in fresh:
        id_, kind, v, at, by, _run, because, salt, payload, payload_hash, _data = draft
        run = run_of(moved, draft)
        digest = link(moved.hash, session, moved.position + 1, id_, kind, v, at, by, run, because, payload_hash)
        moved = after(moved, draft, run, digest)
        records.append(
            Record(session, moved.position, id_, kind, v, at, by, run, because, salt, payload, payload_hash, digest)
        )
    if len(records) == len(drafts):
        receipts = [Receipt(record.position, record.run, record.hash, new=True) for record in records]
    else:
        placed = {record.id: record for record in records}
        receipts = []
        for draft in drafts:
            there = placed.pop(draft.id, None)
            if there is not None:
                receipts.append(Receipt(there.position, there.run, there.hash, new=True))
            else:
                receipts.append(_answered(draft, known, records))
    return Placed(moved, records, receipts)


def _answered(draft: Draft, known: Mapping[str, Known], records: list[Record]) -> Receipt:
    """Where an event stands that was on record before, or that comes twice in one append."""
    if draft.id in known:
        return Receipt(*known[draft.id][:3], new=False)
    first = next(record for record in records if record.id == draft.id)
    return Receipt(first.position, first.run, first.hash, new=False)
