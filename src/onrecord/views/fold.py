"""The fold: how events become views.

A view holds JSON values only, so a snapshot of it loads without a change of meaning. `Whole` has the views that a
session keeps in memory; their size depends on the facts, never on the length of the transcript. A view of a snapshot
may stay undecoded until it is read; the events that follow wait for it.
"""

from __future__ import annotations

from onrecord import lean_json as json
from onrecord.errors import Conflict, DamagedLog
from onrecord.lean_typing import TYPE_CHECKING, Any, ClassVar
from onrecord.log.codec import open_header, open_record
from onrecord.log.events import DURABLE_KINDS, KINDS, Event
from onrecord.log.head import OPEN, QUIET, Head, after
from onrecord.log.shapes import UNREADABLE, misfit
from onrecord.views.attempts import Attempts
from onrecord.views.code import Code
from onrecord.views.effects import Effects
from onrecord.views.facts import Facts
from onrecord.views.findings import Findings
from onrecord.views.gates import Gates
from onrecord.views.lanes import Lanes
from onrecord.views.lifecycle import Lifecycle
from onrecord.views.phases import Phases
from onrecord.views.roster import Roster
from onrecord.views.snapshot import Parts, as_json, joined
from onrecord.views.spend import Spend

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from contextlib import AbstractContextManager

    from onrecord.log.events import Record
    from onrecord.views.values import Interruption
    from onrecord.views.view import View

VIEWS_VERSION = "whole.16"
"""Changes whenever a fold changes its meaning, so that older snapshots are not used."""

LOOKED = "code.changed"
"""The kind of what a look at the worktree found. It is no work of the session."""
BODIES = frozenset(DURABLE_KINDS)
"""The kinds that `Whole` reads the payload of; of the others it reads the header only."""


class Whole:
    """The views of one session, folded together up to a position."""

    VIEWS: ClassVar[dict[str, type[View]]] = {
        "lifecycle": Lifecycle,
        "roster": Roster,
        "lanes": Lanes,
        "effects": Effects,
        "facts": Facts,
        "findings": Findings,
        "attempts": Attempts,
        "phases": Phases,
        "gates": Gates,
        "code": Code,
        "spend": Spend,
    }

    lifecycle: Lifecycle
    roster: Roster
    lanes: Lanes
    effects: Effects
    facts: Facts
    findings: Findings
    attempts: Attempts
    phases: Phases
    gates: Gates
    code: Code
    spend: Spend

    def __init__(self, head: Head, misfits: list[int] | None = None, kept: _Kept | None = None) -> None:
        self.head = head
        self.active_at = 0
        """When something last happened in the session, besides looks at the worktree."""
        self._misfits = misfits or []
        self._kept = kept
        for name, view in self.VIEWS.items() if kept is None else ():
            setattr(self, name, view())

    def __getattr__(self, name: str) -> Any:
        """A view that is still undecoded."""
        if name not in Whole.VIEWS:
            raise AttributeError(f"{type(self).__name__!r} has no attribute {name!r}")
        return self._decode(name)

    def _decode(self, name: str) -> View:
        """Decode a view and fold in what waits for it. Whatever interrupts this, nothing is lost or folded twice."""
        kept = self._kept
        if kept is None:  # pragma: no cover - only a view of a snapshot is ever missing
            raise AttributeError(name)
        with kept.lock:
            if name in self.__dict__:
                view: View = getattr(self, name)  # another thread was faster
                return view
            view, misfits = kept.load(name), []
            for event in kept.waiting[name]:
                try:
                    view.apply(event)
                except UNREADABLE:
                    misfits.append(event.position)
            self._misfits = sorted(self._misfits + misfits)
            setattr(self, name, view)  # from here on events are folded into it and do not wait
            del kept.waiting[name]
            return view

    @property
    def misfits(self) -> list[int]:
        """Positions of events with a payload that no view could read."""
        for name in self._waiting():
            self._decode(name)
        return self._misfits

    def _waiting(self) -> list[str]:
        """The undecoded views that events wait for."""
        waiting = self._kept.waiting if self._kept else {}
        return [name for name, events in waiting.items() if events and name not in self.__dict__]

    @property
    def position(self) -> int:
        """The last event that is folded in."""
        return self.head.position

    def interruption(self) -> Interruption | None:
        """Why work stopped last; None after the session was resumed, or once that agent runs or works again."""
        stop = self.lifecycle.interruption
        agent = self.roster.agents.get(stop["by"]) if stop and stop.get("vendor") else None
        return None if stop and agent and agent["stop"] is None else stop

    def apply(self, event: Event) -> None:
        """Fold one more event in."""
        self._move_head(event)
        self._fold_into_views(event)

    def _move_head(self, event: Event) -> None:
        try:
            self.head = after(self.head, event, event.run, event.hash)
        except Conflict:
            # A newer version may know other lifecycles: an event on record counts even if this code would refuse it.
            self.head = self.head._replace(position=event.position, hash=event.hash)
            self._misfits.append(event.position)
        if event.kind == "session.forked":
            # Earlier events are the parent's; later ones are this session's own.
            parent = self.head
            self.head = parent._replace(session=event.session, parent=parent.session, forked_at=event.position - 1)
        if event.kind != LOOKED:
            self.active_at = self.head.at

    def _fold_into_views(self, event: Event) -> None:
        kind = event.kind
        if misfit(kind, event.data):
            self._misfits.append(event.position)
            return
        listeners = _LISTENERS.get(kind)
        for name in _listeners(kind) if listeners is None else listeners:
            if self._kept is not None and name not in self.__dict__:
                self._kept.waiting[name].append(event)
                continue
            try:
                getattr(self, name).apply(event)
            except UNREADABLE:
                self._misfits.append(event.position)

    def fold(self, events: Iterable[Event]) -> Whole:
        """Fold events in, in order."""
        for event in events:
            self.apply(event)
        return self

    def fold_records(self, records: Iterable[Record]) -> Whole:
        """The same for kept events. Many quiet ones in a row move the head once."""
        head, last, active = self.head, None, self.active_at
        quiet, run, at = QUIET[head.status], head.run, head.at
        for record in records:
            event = open_record(record) if record.kind in BODIES else open_header(record)
            if event.kind in quiet:
                last, run, at = event, max(run, event.run), max(at, event.at)
                if event.kind != LOOKED:
                    active = at
            else:
                self._move_past(last, run, at)
                self.active_at = active
                self._move_head(event)
                head, last, active = self.head, None, self.active_at
                quiet, run, at = QUIET[head.status], head.run, head.at
            self._fold_into_views(event)
        self._move_past(last, run, at)
        self.active_at = active
        return self

    def _move_past(self, last: Event | None, run: int, at: int) -> None:
        """Move the head past events that change nothing else of it."""
        if last is not None:
            self.head = self.head._replace(position=last.position, hash=last.hash, run=run, at=at)

    def dump(self) -> bytes:
        """The snapshot of all views."""
        head: dict[str, Any] = self.head._asdict() | {"hash": self.head.hash.hex()}
        about = {"head": head, "misfits": self.misfits, "active_at": self.active_at}
        return joined(about, {name: self.dumped(name) for name in self.VIEWS})

    def dumped(self, name: str) -> bytes:
        """One view, as a snapshot has it."""
        kept = self._kept
        if kept is not None and name not in self.__dict__ and not kept.waiting[name]:
            try:
                return kept.parts.raw(name)
            except DamagedLog:
                pass  # it is derived again below
        return as_json(getattr(self, name).dump())

    @classmethod
    def load(
        cls,
        body: bytes,
        *,
        lock: AbstractContextManager[object] | None = None,
        again: Callable[[], Whole] | None = None,
    ) -> Whole:
        """Load a snapshot; `DamagedLog` if it is not what was dumped.

        With `lock` and `again`, a view is decoded when it is first read. A caller that folds events in holds the lock.
        A part that turns out to be damaged is taken from what `again` derives from the log.
        """
        parts = Parts(body)
        head = parts.about["head"]
        late = lock is not None and again is not None
        kept = _Kept(parts, lock or _Alone(), again)
        whole = cls(Head(**(head | {"hash": bytes.fromhex(head["hash"])})), parts.about["misfits"], kept)
        whole.active_at = parts.about["active_at"]
        for name in () if late else cls.VIEWS:
            getattr(whole, name)
        return whole


_LISTENERS: dict[str, list[str]] = {}


def _listeners(kind: str) -> list[str]:
    """The names of the views that listen to a kind, in their order."""
    found = [name for name, view in Whole.VIEWS.items() if kind in view.KINDS]
    if kind in KINDS:  # An unknown kind from elsewhere is not remembered: there may be any number of them.
        _LISTENERS[kind] = found
    return found


class _Alone:
    """A lock for views that no other thread reads."""

    __slots__ = ()

    def __enter__(self) -> None:
        return

    def __exit__(self, *_problem: object) -> None:
        return


class _Kept:
    """The part of a snapshot that is still undecoded."""

    __slots__ = ("_again", "_derived", "lock", "parts", "waiting")

    def __init__(self, parts: Parts, lock: AbstractContextManager[object], again: Callable[[], Whole] | None) -> None:
        self.parts = parts
        self.lock = lock
        self._again = again
        self._derived: Whole | None = None
        self.waiting: dict[str, list[Event]] = {name: [] for name in Whole.VIEWS}
        """The undecoded views, each with the events that follow the snapshot and are not folded into it yet."""

    def load(self, name: str) -> View:
        """A view as of the snapshot."""
        try:
            return Whole.VIEWS[name].load(self.parts.decoded(name))
        except DamagedLog:
            if self._again is None:
                raise
            # Snapshots only save time. A copy, because an interrupted fold begins again with what this returns.
            self._derived = self._derived or self._again()
            view: View = getattr(self._derived, name)
            return type(view).load(json.loads(as_json(view.dump())))


def fold_whole(head: Head, records: Iterable[Record], whole: Whole | None = None) -> Whole:
    """Fold a log from its first event; `head` is its present head. With `whole`, continue that fold."""
    start = head._replace(
        position=0, hash=bytes(32), run=0, status=OPEN, title="", held=False, parent=None, forked_at=0
    )
    rest = iter(records)
    first = next(rest, None) if whole is None else None
    whole = whole or Whole(start)
    if first is not None:
        opening = open_record(first)
        if first.position == 1:
            # The oldest ancestor's name: a fork changes it further on. The project is where the log is kept now.
            name = (opening.data or {}).get("name", head.name)
            whole.head = start._replace(session=first.session, name=name, opened_at=first.at, at=first.at)
        whole.apply(opening)
    return whole.fold_records(rest)
