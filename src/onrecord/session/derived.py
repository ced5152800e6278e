"""Snapshots, derived again: a cache that would be believed must be what its log folds to.

A snapshot is believed if it names the hash of the event at its position. Who can write the store's file can give a
forged one that hash too, so verification folds the log again and compares.
"""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from onrecord.errors import DamagedLog
from onrecord.log.verify import Problem
from onrecord.session.listings import last_words
from onrecord.views.fold import BODIES, VIEWS_VERSION, Whole, fold_whole
from onrecord.views.listing import LISTING_VERSION, listing
from onrecord.views.present import PRESENT_VERSION, Present

if TYPE_CHECKING:
    from collections.abc import Iterator

    from onrecord.log.events import Record
    from onrecord.log.head import Head
    from onrecord.log.store import Snapshot
    from onrecord.session.handle import Session

FOLD_PAGE = 2_000
"""How many events are read at a time to fold a log again."""
_VIEWS = (VIEWS_VERSION, PRESENT_VERSION, LISTING_VERSION)


def snapshot_problems(session: Session, head: Head) -> list[Problem]:
    """The snapshots of a log that would be believed and are not what the log says. The log itself was verified."""
    found = []
    known: dict[int, Whole] = {}
    for kept in filter(None, (session.store.snapshot(session.id, view) for view in _VIEWS)):
        if kept.position > head.position or not _is_believed(session, kept):
            continue
        if kept.position not in known:
            known[kept.position] = fold_whole(head, _records(session, kept.position))
        if not _is_derived(session, kept, known[kept.position], head):
            what = kept.view.partition(".")[0]
            detail = f"the kept view {what!r} is not what the log says; delete the snapshots, they only save time"
            found.append(Problem(kept.position, "snapshot", detail))
    return found


def _is_believed(session: Session, kept: Snapshot) -> bool:
    end = session.store.read(session.id, after=kept.position - 1, upto=kept.position, bodies=())
    return bool(end) and end[0].hash == kept.hash


def _records(session: Session, upto: int) -> Iterator[Record]:
    after = 0
    while page := session.store.read(session.id, after=after, upto=upto, limit=FOLD_PAGE, bodies=BODIES):
        yield from page
        after = page[-1].position


def _is_derived(session: Session, kept: Snapshot, whole: Whole, head: Head) -> bool:
    """Whether it is what the log folds to; one that cannot be loaded is not used, so it deceives no reader."""
    with suppress(DamagedLog, ValueError, LookupError, TypeError, AttributeError):
        if kept.view == VIEWS_VERSION:
            return _content(Whole.load(kept.body)) == _content(whole)
        if kept.view == PRESENT_VERSION:
            return bool(json.loads(kept.body) == json.loads(Present.of(whole).dump()))
        if kept.position != head.position:
            return True  # a listing counts only at the end of the log
        said = last_words(session)
        return bool(json.loads(kept.body) == json.loads(json.dumps(listing(whole, said.prompt, said.question))))
    return True


def _content(whole: Whole) -> dict[str, Any]:
    """The views without name and project: those are the store's."""
    found: dict[str, Any] = {name: json.loads(json.dumps(getattr(whole, name).dump())) for name in Whole.VIEWS}
    return found | {"head": whole.head._replace(name="", project=""), "misfits": whole.misfits}
