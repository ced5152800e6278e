"""Placing an append: which of its drafts are new, where each goes, and the receipts. Decides; writes nothing."""

from __future__ import annotations

from onrecord.lean_typing import TYPE_CHECKING, NamedTuple
from onrecord.log.store import Receipt
from onrecord.stores.refusals import refuse_other, refuse_twin

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from onrecord.log.events import Draft, Record
    from onrecord.log.tip import Placement, Tip
    from onrecord.stores.refusals import OnRecord


class Known(NamedTuple):
    """The columns of an event on record that a retry is compared with."""

    position: int
    run: int
    hash: bytes
    kind: str
    salt: bytes | None
    payload_hash: bytes


class Placed(NamedTuple):
    """The outcome of an append, before it is written."""

    tip: Tip
    """The tip of the log afterwards."""
    placements: list[Placement]
    """The events to write, in order."""
    receipts: list[Receipt]
    """One for every draft."""

    @property
    def records(self) -> list[Record]:
        """The events to write, as a store keeps them."""
        return [placement.record for placement in self.placements]


def new_among(drafts: Sequence[Draft], known: Mapping[str, OnRecord]) -> list[Draft]:
    """The drafts that are not on record, each id once. Refuses an idempotency key already used for another event."""
    fresh: dict[str, Draft] = {}
    for draft in drafts:
        if draft.id in known:
            refuse_other(draft, known[draft.id])
        elif draft.id in fresh:
            refuse_twin(draft, fresh[draft.id])
        else:
            fresh[draft.id] = draft
    return list(fresh.values())


def place(tip: Tip, drafts: Sequence[Draft], known: Mapping[str, OnRecord], fresh: Sequence[Draft]) -> Placed:
    """Extend the tip by every new draft, and write the receipts of all; the tip may refuse a draft."""
    placements: list[Placement] = []
    for draft in fresh:
        placement = tip.extend(draft)
        placements.append(placement)
        tip = placement.tip
    if len(placements) == len(drafts):
        receipts = [Receipt(placed.position, placed.run, placed.hash, new=True) for placed in placements]
    else:
        receipts = _receipts(drafts, known, placements)
    return Placed(tip, placements, receipts)


def _receipts(drafts: Sequence[Draft], known: Mapping[str, OnRecord], placements: Sequence[Placement]) -> list[Receipt]:
    """The same where some drafts were already on record, or occur twice in one append: `new` is true once."""
    placed = {placement.draft.id: placement for placement in placements}
    unseen = set(placed)
    receipts = []
    for draft in drafts:
        there = placed[draft.id] if draft.id in placed else known[draft.id]
        receipts.append(Receipt(there.position, there.run, there.hash, new=draft.id in unseen))
        unseen.discard(draft.id)
    return receipts
