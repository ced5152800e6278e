"""What the sessions of a store used: read from snapshots and the usage events after them, never from whole logs."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from onrecord.errors import DamagedLog
from onrecord.log.codec import open_records
from onrecord.log.store import PAGE_LIMIT
from onrecord.session.kept_views import SNAPSHOT_EVERY
from onrecord.views.fold import VIEWS_VERSION
from onrecord.views.snapshot import Parts
from onrecord.views.spend import Spend

if TYPE_CHECKING:
    from collections.abc import Iterator

    from onrecord.log.head import Head
    from onrecord.log.store import Store
    from onrecord.views.values import DayUsage

KINDS = ("usage.recorded", "session.forked", "payload.erased")
SLACK_DAYS = 2
"""By how many days the local day of a call may be later than its session's last activity."""
_DAY = 86_400_000_000


class Used(NamedTuple):
    """What one agent of a session used of one model on one day."""

    session: Head
    day: int
    """The number of the day since 1970; 0: long ago."""
    agent: str
    model: str
    usage: DayUsage


def usage(store: Store, project: str | None, since: int) -> Iterator[Used]:
    """What all sessions used since a day, those with the last activity first."""
    before = None
    while page := store.heads(project=project, limit=PAGE_LIMIT, before=before):
        for head in page:
            if head.at // _DAY + SLACK_DAYS < since:
                return  # every further one ended earlier
            yield from used_by(store, head, since)
        before = (page[-1].at, page[-1].session)


def used_by(store: Store, head: Head, since: int = 0) -> Iterator[Used]:
    """What one session used since a day."""
    for day, agents in spend_of(store, head).days.items():
        if int(day) >= since:
            for agent, models in agents.items():
                for model, cell in models.items():
                    yield Used(head, int(day), agent, model, cell)


def spend_of(store: Store, head: Head) -> Spend:
    """What a session used. A fork does not pay for its parent: what is before it need not be read."""
    spend, after = _kept(store, head)
    records = store.read(head.session, after=after, kinds=KINDS)
    if after > head.forked_at and any(record.kind == "payload.erased" for record in records):
        spend, after = Spend(), head.forked_at
        records = store.read(head.session, after=after, kinds=KINDS)
    for event in open_records(records):
        with suppress(KeyError, TypeError, ValueError, AttributeError):  # as in `Whole`
            spend.apply(event)
    return spend


def _kept(store: Store, head: Head) -> tuple[Spend, int]:
    """The snapshot's part, and its position; nothing if it does not belong to this log."""
    kept = store.snapshot(head.session, VIEWS_VERSION) if head.position >= SNAPSHOT_EVERY else None
    if kept is not None and kept.position > head.forked_at:
        end = store.read(head.session, after=kept.position - 1, upto=kept.position, bodies=())
        if end and end[0].hash == kept.hash:
            with suppress(DamagedLog):
                return Spend.load(Parts(kept.body).decoded("spend")), kept.position
    return Spend(), head.forked_at
