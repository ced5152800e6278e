"""Snapshots, derived again: a cache that would be believed must be what its log folds to.

A snapshot is believed if it names the hash of the event at its position. Who can write the store's file can give a
forged one that hash too, so verification folds the events that it reads and compares.
"""

from __future__ import annotations

import json
from collections import deque
from contextlib import suppress
from operator import attrgetter
from typing import TYPE_CHECKING

from onrecord.errors import DamagedLog
from onrecord.log.head import Head
from onrecord.log.verify import Problem
from onrecord.session.listings import last_words
from onrecord.views.fold import BODIES, VIEWS_VERSION, Whole, fold_whole
from onrecord.views.listing import LISTING_VERSION, listing
from onrecord.views.present import PRESENT_VERSION, Present
from onrecord.views.snapshot import Parts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onrecord.log.events import Record
    from onrecord.log.store import Snapshot
    from onrecord.session.handle import Session

FOLD_PAGE = 2_000
"""How many events are read at a time to fold a log again."""
_VIEWS = (VIEWS_VERSION, PRESENT_VERSION, LISTING_VERSION)


class Rederived:
    """The believed snapshots of a log, compared with its events in the pass that verifies these.

    One fold for all of them: it stops where each snapshot was made, and ends with the last one.
    """

    def __init__(self, session: Session, head: Head) -> None:
        self._session, self._head = session, head
        saved = filter(None, (session.store.snapshot(session.id, view) for view in _VIEWS))
        believed = [kept for kept in saved if kept.position <= head.position and _is_believed(session, kept)]
        self._ahead = deque(sorted(believed, key=attrgetter("position")))
        """The snapshots that the fold has not reached."""
        self._whole: Whole | None = None
        self.problems: list[Problem] = []

    def feed(self, records: Sequence[Record]) -> None:
        """Fold more events in, in order, from the first one."""
        while self._ahead and records:
            kept = self._ahead[0]
            count = max(0, kept.position + 1 - records[0].position)
            self._whole = fold_whole(self._head, records[:count], self._whole)
            records = records[count:]
            if self._whole.position >= kept.position:
                self._compare(self._ahead.popleft(), self._whole)

    def read_again(self) -> list[Problem]:
        """The problems, if they are still there: another process may have erased something while this one read."""
        if not self.problems:
            return []
        session, after = self._session, 0
        again = Rederived(session, session.store.head(session.id))
        while again._ahead and (page := session.store.read(session.id, after=after, limit=FOLD_PAGE, bodies=BODIES)):
            again.feed(page)
            after = page[-1].position
        return again.problems

    def _compare(self, kept: Snapshot, whole: Whole) -> None:
        if not _is_derived(self._session, kept, whole, self._head):
            what = kept.view.partition(".")[0]
            detail = f"the kept view {what!r} is not what the log says; delete the snapshots, they only save time"
            self.problems.append(Problem(kept.position, "snapshot", detail))


def _is_believed(session: Session, kept: Snapshot) -> bool:
    end = session.store.read(session.id, after=kept.position - 1, upto=kept.position, bodies=())
    return bool(end) and end[0].hash == kept.hash


def _is_derived(session: Session, kept: Snapshot, whole: Whole, head: Head) -> bool:
    """Whether it is what the log folds to; one that cannot be loaded is not used, so it deceives no reader."""
    with suppress(DamagedLog, ValueError, LookupError, TypeError, AttributeError):
        if kept.view == VIEWS_VERSION:
            return _are_derived(Parts(kept.body), whole)
        if kept.view == PRESENT_VERSION:
            derived = Present.of(whole).dump()
            return kept.body == derived or _lines(kept.body) == _lines(derived)
        if kept.position != head.position:
            return True  # a listing counts only at the end of the log
        return bool(json.loads(kept.body) == json.loads(json.dumps(listing(whole, last_words(session)))))
    return True


def _lines(body: bytes) -> list[object]:
    return [json.loads(line) for line in body.split(b"\n")]


def _are_derived(parts: Parts, whole: Whole) -> bool:
    """Whether each view of a snapshot is what the log folds to, and the head too, without name and project."""
    about = parts.about["head"]
    head = Head(**(about | {"hash": bytes.fromhex(about["hash"]), "name": "", "project": ""}))
    if head != whole.head._replace(name="", project="") or parts.about["misfits"] != whole.misfits:
        return False
    if parts.about["active_at"] != whole.active_at:
        return False
    return all(_is_part_derived(parts, name, whole.dumped(name)) for name in Whole.VIEWS)


def _is_part_derived(parts: Parts, name: str, derived: bytes) -> bool:
    """Whether one view is what the log folds to; a damaged one is not used, whatever the others are."""
    try:
        kept = parts.raw(name)
    except DamagedLog:
        return True
    return kept == derived or bool(json.loads(kept) == json.loads(derived))
