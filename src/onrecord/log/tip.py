"""The tip of a log: where its last event is, and where the next one goes.

Every store places events with `Tip.extend`; nothing else computes a position, a run or a hash. A tip is a value: an
append that is refused, rolled back or interrupted leaves the tip it started from as it was.
"""

from __future__ import annotations

from onrecord.lean_typing import TYPE_CHECKING, NamedTuple
from onrecord.log.codec import check_header, link
from onrecord.log.events import NEW_RUN, Record, tuple_new
from onrecord.log.head import QUIET, Head, after

if TYPE_CHECKING:
    from onrecord.log.events import Draft

_NOTHING = frozenset[str]()


class Tip(NamedTuple):
    """The end of a log. Most events change only these four fields of its head."""

    position: int
    hash: bytes
    run: int
    at: int
    base: Head
    """The head as of the last event that changed more than the four fields above."""

    @classmethod
    def of(cls, head: Head) -> Tip:
        """The tip of a log with this head."""
        return cls(head.position, head.hash, head.run, head.at, head)

    @property
    def head(self) -> Head:
        """The whole head of the log."""
        position, digest, run, at, base = self
        return base._replace(position=position, hash=digest, run=run, at=at)

    def extend(self, draft: Draft) -> Placement:
        """Place one more event: next position, next hash, next tip. `head.after` may refuse the event."""
        id_, kind, v, at, by, run, because, _salt, _payload, payload_hash, _data = draft
        position, previous, last_run, last_at, base = self
        position += 1
        if run == NEW_RUN:
            run = last_run + 1
        header = (base.session, position, id_, kind, v, at, by, run, because)
        check_header(header)
        digest = link(previous, header, payload_hash)
        if kind in QUIET.get(base.status, _NOTHING):
            tip = tuple_new(
                Tip,
                (
                    position,
                    digest,
                    run if run > last_run else last_run,  # noqa: FURB136  # a call of `max` costs time here
                    at if at > last_at else last_at,  # noqa: FURB136  # as above
                    base,
                ),
            )
        else:
            tip = Tip.of(after(self.head, draft, run, digest))
        return tuple_new(Placement, (draft, position, run, digest, tip))


class Placement(NamedTuple):
    """Where a draft goes in its log. Nothing is written yet."""

    draft: Draft
    position: int
    run: int
    hash: bytes
    tip: Tip
    """The tip of the log once this event is written."""

    @property
    def record(self) -> Record:
        """The event as a store keeps it."""
        id_, kind, v, at, by, _run, because, salt, payload, payload_hash, _data = self.draft
        return Record(
            self.tip.base.session, self.position, id_, kind, v, at, by, self.run, because,
            salt, payload, payload_hash, self.hash,
        )  # fmt: skip
