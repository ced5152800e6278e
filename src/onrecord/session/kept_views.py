"""The folded views of a handle, kept up to date with what it and others append.

Events that the handle appends itself are folded on the next read, so that an append need not wait for it.
"""

from __future__ import annotations

from _thread import RLock

from onrecord.errors import DamagedLog, StoreError
from onrecord.lean_typing import TYPE_CHECKING, Self
from onrecord.log.codec import open_records
from onrecord.log.store import Snapshot
from onrecord.session.lane_end import LaneEnd
from onrecord.views.fold import BODIES, VIEWS_VERSION, Whole, fold_whole
from onrecord.views.present import PRESENT_VERSION, Present

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from onrecord.log.events import Draft, Event
    from onrecord.log.store import Store
    from onrecord.session.loop import Loop

SNAPSHOT_EVERY = 256
"""How many events may follow a snapshot before the next one is made."""
FOLD_LATER = 16
"""How many of its own events a handle may keep unfolded until the next read."""
FOLD_LATER_BYTES = 32 * 1024
"""The most bytes of one append that may stay unfolded."""


class KeptViews:
    """The views of one session, as far as this handle has read. Threads may share them."""

    def __init__(self, store: Store, id: str) -> None:
        self.store = store
        self.id = id
        self._behind = False
        """Whether events may have been appended that were not read yet."""
        self._lane_end = LaneEnd()
        self._lock = RLock()
        self._views: Whole | None = None
        self._fresh: list[Event] = []
        """Events that this handle appended and has not folded yet; the next read folds them."""
        self._snapshot_at = 0
        self._open_turn: Loop | None = None
        """The last turn that this handle began."""

    @property
    def _whole(self) -> Whole:
        """All views, folded on first use: a damaged log can be verified even if it cannot be folded."""
        return self._caught_up() if self._views is None or self._fresh else self._views

    def _newest_run(self) -> int:
        """The newest run of the session, as far as this handle has read. It folds nothing: every draft asks."""
        with self._lock:
            known = self._views.head.run if self._views is not None else self._whole.head.run
            return max([known, *[event.run for event in self._fresh]])

    def refresh(self) -> Self:
        """Fold in what others appended."""
        self._read_on(BODIES)
        return self

    def _read_on(self, bodies: Collection[str] | None) -> list[Event]:
        """Fold in what others appended, and return it, with the payloads of these kinds (None: of all)."""
        with self._lock:
            after = self._whole.position
            # Before the read: another thread that appends from here on adds its events to the views itself.
            self._behind = self._lane_end.known = False
            try:
                records = self.store.read(self.id, after=after, bodies=bodies)
            except BaseException:
                self._behind = True
                raise
            events = open_records(records)
            if any(record.kind == "payload.erased" for record in records):
                # These views still contain what has been erased since; a snapshot of them would bring it back.
                self._views = self._load()
            else:
                self._fold(self._whole, events)
        self._keep_snapshot()
        return events

    def _reload(self) -> Self:
        """Fold the whole log again, for instance after an erasure."""
        with self._lock:
            self._views, self._fresh, self._lane_end.known = self._load(), [], False
            self._snapshot_at = 0
        return self

    def _fall_behind(self) -> None:
        """Note that there may be unread events: the next turn reads them before it begins."""
        self._behind, self._lane_end.known = True, False

    def _absorb(self, drafts: Sequence[Draft], events: list[Event]) -> None:
        """Add what this handle appended to its views, at once or later."""
        if self._behind:
            return  # the next refresh reads all of it, in order
        with self._lock:
            fresh = self._fresh
            known = fresh[-1].position if fresh else self._whole.position
            for event in events:
                if event.position == known + 1:
                    known = event.position
                    fresh.append(event)
                    self._lane_end.follow(event)
                elif event.position > known:
                    self._fall_behind()  # another writer's events are in between
        if (
            len(fresh) >= FOLD_LATER
            or sum([len(draft.payload) for draft in drafts]) > FOLD_LATER_BYTES
            or known - self._snapshot_at >= SNAPSHOT_EVERY
        ):
            self._caught_up()
            self._keep_snapshot()

    def _caught_up(self) -> Whole:
        """The views with all this handle has appended."""
        with self._lock:
            whole = self._views = self._views or self._load()
            fresh, self._fresh = self._fresh, []
            self._fold(whole, fresh)
            return whole

    def _fold(self, whole: Whole, events: Iterable[Event]) -> None:
        """Fold events in, each once: a signal handler may have folded some of them meanwhile."""
        try:
            for event in events:
                if event.position == whole.position + 1:
                    whole.apply(event)
        except BaseException:
            self._views = None  # an exception interrupted the fold half-way: the log is read again
            raise

    def _keep_snapshot(self) -> None:
        with self._lock:
            whole = self._whole
            if whole.position - self._snapshot_at < SNAPSHOT_EVERY:
                return
            self._snapshot_at = whole.position
            body, present = whole.dump(), Present.of(whole).dump()
            position, digest = whole.position, whole.head.hash
        try:
            self.store.save(self.id, Snapshot(VIEWS_VERSION, position, digest, body))
            self.store.save(self.id, Snapshot(PRESENT_VERSION, position, digest, present))
        except StoreError:
            return  # snapshots only save time; one that could not be saved is folded again

    def _load(self) -> Whole:
        whole, head = self._folded(), self.store.head(self.id)
        # The store decides the session's name here: its log may have been written elsewhere, or partly erased.
        whole.head = whole.head._replace(name=head.name, project=head.project)
        return whole

    def _folded(self) -> Whole:
        kept = self.store.snapshot(self.id, VIEWS_VERSION)
        if kept is not None:
            tail = self.store.read(self.id, after=kept.position - 1, bodies=BODIES)
            intact = tail and (tail[0].position, tail[0].hash) == (kept.position, kept.hash)
            if intact and all(record.kind != "payload.erased" for record in tail[1:]):
                try:
                    whole = Whole.load(kept.body, lock=self._lock, again=lambda: self._from_log(kept.position))
                    whole.fold(open_records(tail[1:]))
                except DamagedLog:
                    pass  # snapshots only save time; a damaged one is folded again
                else:
                    self._snapshot_at = kept.position
                    return whole
        return self._from_log()

    def _from_log(self, upto: int | None = None) -> Whole:
        """The views, folded from the first event."""
        records = self.store.read(self.id, upto=upto, bodies=BODIES)
        return fold_whole(self.store.head(self.id), records)
