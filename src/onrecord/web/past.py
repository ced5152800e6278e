"""The past: what a log meant at any position, without folding it from the beginning for every step of the slider.

While a log is folded, snapshots of the fold are kept in memory every so many events; a later question starts from the
nearest one before it. An erasure drops them all: they might still have what was erased.
"""

from __future__ import annotations

from collections import OrderedDict
from threading import RLock
from typing import TYPE_CHECKING

from onrecord.errors import EventNotFound
from onrecord.log.codec import open_records
from onrecord.views.fold import BODIES, Whole, fold_whole

if TYPE_CHECKING:
    from onrecord.log.store import Store

SNAPSHOT_EVERY = 1_000
"""How many events are folded between two snapshots."""
SESSIONS_KEPT = 8
"""Of how many sessions snapshots are kept: those that were looked at last."""
SNAPSHOTS_KEPT = 100
"""How many snapshots one session has; the others are folded again."""


class _Kept:
    def __init__(self, erased: int) -> None:
        self.erased = erased
        self.snapshots: dict[int, bytes] = {}
        self.last: tuple[int, bytes] = (0, b"")


class Past:
    """The views of sessions at earlier positions."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._kept: OrderedDict[str, _Kept] = OrderedDict()
        self._lock = RLock()

    def at(self, session: str, position: int) -> Whole:
        """The views after the event at `position`."""
        head = self._store.head(session)
        if not 1 <= position <= head.position:
            raise EventNotFound(
                f"session {head.name!r} has positions 1 to {head.position}, not {position}", name=head.name
            )
        kept = self._of(session)
        start = max((place for place in (*kept.snapshots, kept.last[0]) if place <= position), default=0)
        if start:
            whole = Whole.load(kept.last[1] if start == kept.last[0] else kept.snapshots[start])
        else:
            start = min(SNAPSHOT_EVERY, position)
            whole = fold_whole(head, self._store.read(session, upto=start, bodies=BODIES))
            self._keep(kept, whole)
        while start < position:
            end = min(position, start + SNAPSHOT_EVERY)
            whole.fold(open_records(self._store.read(session, after=start, upto=end, bodies=BODIES)))
            self._keep(kept, whole)
            start = end
        kept.last = position, whole.dump()
        return whole

    def _of(self, session: str) -> _Kept:
        """The snapshots of a session, none of them older than its last erasure."""
        found = self._store.read(session, kinds=["payload.erased"], limit=1, backwards=True, bodies=())
        erased = found[0].position if found else 0
        with self._lock:
            kept = self._kept.get(session)
            if kept is None or kept.erased != erased:
                kept = self._kept[session] = _Kept(erased)
            self._kept.move_to_end(session)
            while len(self._kept) > SESSIONS_KEPT:
                self._kept.popitem(last=False)
            return kept

    @staticmethod
    def _keep(kept: _Kept, whole: Whole) -> None:
        if len(kept.snapshots) < SNAPSHOTS_KEPT and whole.position % SNAPSHOT_EVERY == 0:
            kept.snapshots[whole.position] = whole.dump()
