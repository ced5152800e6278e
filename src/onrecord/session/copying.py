"""Copying: a log is copied as it is, to the last bit, from another store or from a bundle.

A copy has three steps. *Check*: the source's chain is derived again and folded, and compared with what the target has;
nothing is written before the whole lineage has passed. *Carry*: events are installed page by page, each page durable on
its own, so a killed copy leaves a valid beginning, and the next copy continues from it. *Confirm*: what arrived is read
back and derived once more. A log that grew in both places is refused, never merged.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, NamedTuple

from onrecord.errors import (
    Conflict,
    DamagedLog,
    LogMoved,
    NameTaken,
    OnrecordError,
    SessionHeld,
    SessionLocked,
    SessionNotFound,
)
from onrecord.log.codec import GENESIS, open_record
from onrecord.log.items import check_item
from onrecord.log.keyed import Keyed
from onrecord.log.names import check_name, is_ulid
from onrecord.log.ranges import within
from onrecord.log.shapes import UNREADABLE
from onrecord.log.verify import Verifier, advance, draft_of, erased_by
from onrecord.session.handle import Session
from onrecord.session.moment import excuse_inherited
from onrecord.session.retention import heirs_of, tell_heirs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from onrecord.log.events import Record
    from onrecord.log.head import Head
    from onrecord.log.store import Store
    from onrecord.log.verify import Problem

    Progress = Callable[[str, Head, int], None]
    """Called with the step (checking, copying, confirming), the session, and how many of its events are done."""

COPY_PAGE = 500
"""How many events of a copy become durable at a time."""
COPY_TRIES = 10
"""How often a copy is tried while another process erases parts of the log."""
COPIED, EXTENDED, ALREADY_THERE, AHEAD = "copied", "extended", "already_there", "ahead"
_NAMING = ("session.opened", "session.forked", "session.renamed")


class Copied(NamedTuple):
    """What became of one session."""

    session: str
    name: str
    """What it is called where it is now."""
    project: str
    state: str
    """copied, extended, already_there, or ahead: the copy has all of the source and more."""
    position: int
    events: int
    """How many events were carried."""


class _Plan(NamedTuple):
    """The work for one session, checked and not yet begun."""

    head: Head
    here: Head | None
    base: Head | None
    """The head of the log before the first event that is carried."""
    name: str
    project: str

    @property
    def after(self) -> int:
        return self.base.position if self.base else 0


def check_items(record: Record) -> None:
    """Check the items that a model may be given: a chain proves that nothing was changed, not that it is valid."""
    if record.kind not in ("turn.recorded", "item.added") or record.payload is None:
        return
    data = open_record(record).data
    try:
        for item in data["items"] if record.kind == "turn.recorded" else [data["item"]]:
            check_item(item)
    except (OnrecordError, KeyError, TypeError) as problem:
        raise DamagedLog(f"position {record.position} has an invalid item: {problem}") from None


def present(store: Store, session: str) -> Head | None:
    """The head of a session in a store, if it is there."""
    try:
        return store.head(session)
    except SessionNotFound:
        return None


def lineage_of(store: Store, head: Head) -> list[tuple[str, int]]:
    """The sessions that contribute to a log, oldest first, each with its last position in it."""
    chain = [(head.session, head.position)]
    while head.parent:
        chain.insert(0, (head.parent, head.forked_at))
        head = store.head(head.parent)
    return chain


def refuse_moved(store: Store, head: Head, verifier: Verifier) -> None:
    """`LogMoved` if a payload is missing, and events after `head` may say why: another process erased it meanwhile."""
    if verifier.unexplained():
        if isinstance(store, Keyed) and store.key_id(head.session) and store.key_state(head.session) == "destroyed":
            raise SessionLocked(
                f"the key of session {head.name!r} was destroyed: nothing of its content is left to copy",
                hint="this store is older than the erasure; copy the newer one",
                destroyed=True,
            )
        now = store.head(head.session).position
        if now > head.position:
            raise LogMoved(
                f"a part of {head.name!r} was erased while it was read", hint="read it again",
                expected=head.position, actual=now,
            )  # fmt: skip


def extend(target: Store, here: Head, steps: Iterable[tuple[Record, Head]], name: str) -> None:
    """Add what is new to a session that is here in part; payloads erased there are erased here in the same step.

    An erasure is carried out, not only copied: one step erases what it names and appends its event, so that both logs
    stay the same.
    """
    kept: list[int] | None = None
    ready: list[Record] = []
    head = here
    for record, after in steps:
        gone: list[int] = []
        if record.kind == "payload.erased" and record.payload is not None:
            if kept is None:
                kept = [weight.position for weight in target.weigh(here.session)]
            gone = within(kept, erased_by(record, record.position - 1) or ())
        if not gone:
            ready.append(record)
        else:
            if ready:
                target.install(head._replace(name=name), iter(ready), extend=True)
            _erase_too(target, head, record, gone)
            kept = sorted({*(kept or ())} - {*gone})
            ready = []
        head = after
    if ready:
        target.install(head._replace(name=name), iter(ready), extend=True)


def refuse_held(target: Store, here: Head, steps: Iterable[tuple[Record, Head]]) -> None:
    """Refuse an erasure from another store, before anything is written, if a hold protects what it would erase."""
    head = here
    kept: list[int] | None = None
    for record, after in steps:
        if record.kind == "payload.erased":
            if kept is None:
                kept = [weight.position for weight in target.weigh(here.session)]
            gone = within(kept, erased_by(record, record.position - 1) or ())
            kept = sorted({*kept} - {*gone}) if gone else kept
            if gone and head.held:
                raise SessionHeld(f"session {here.name!r} has a hold here, and the other store has erased part of it")
            if gone:
                heirs_of(target, here.session, gone)
        head = after


def _erase_too(target: Store, head: Head, record: Record, positions: list[int]) -> None:
    heirs = heirs_of(target, head.session, positions)
    where = target.erase(head.session, positions, draft_of(record))
    if where.hash != record.hash:
        raise LogMoved("the log grew while it was being extended", expected=record.position, actual=where.position)
    handle = Session(target, head.session, agent="copy")
    data = open_record(record).data
    tell_heirs(handle, heirs, positions, where.position, data)
    if data.get("scope") == "all" and isinstance(target, Keyed) and target.key_id(head.session) is not None:
        target.destroy_key(head.session)


class Copier:
    """Copies sessions from one store to another."""

    def __init__(self, source: Store, target: Store, *, progress: Progress | None = None) -> None:
        self._source = source
        self._target = target
        self._tell = progress or _tell_nobody

    def copy(self, session: str, *, name: str | None = None, project: str | None = None) -> list[Copied]:
        """Copy a session, and those it was forked from if they are missing; oldest first.

        It keeps its name and project unless others are given; an existing copy keeps the name it has there.
        Nothing is written if the source is damaged, the name is taken, or the log has other events in the target. If
        another process erases a part meanwhile, the copy begins again and continues from what has arrived.
        """
        for _again in range(COPY_TRIES - 1):
            try:
                return self._copied(session, name, project)
            except LogMoved:
                continue
        return self._copied(session, name, project)

    def _copied(self, session: str, name: str | None, project: str | None) -> list[Copied]:
        plans: list[_Plan] = []
        for head in self._lineage(self._source.head(session)):
            final = name if name and head.session == session else head.name
            plan = self._checked(head, final, head.project if project is None else project)
            if plan.here is None and any((plan.name, plan.project) == (one.name, one.project) for one in plans):
                raise _clash(plan.name)
            plans.append(plan)
        return [self._carried(plan) for plan in plans]

    def _lineage(self, head: Head) -> list[Head]:
        """The session and the ancestors that must be copied with it, oldest first."""
        wanted = [head]
        while head.parent:
            parent = self._source.head(head.parent)
            if not self._differ(parent.session, head.forked_at):
                break
            wanted.insert(0, parent)
            head = parent
        return wanted

    def _checked(self, head: Head, name: str, project: str) -> _Plan:
        """Find everything that can be wrong with a session, before anything is written."""
        if not is_ulid(head.session):
            raise DamagedLog(f"{head.session!r:.50} is not a session id")
        here = present(self._target, head.session)
        if here is None:
            if self._target.heads(project=project, name=check_name(name), limit=1):
                raise _clash(name)
            base = None
            for record, after in self._derived(head, None, "checking"):
                if record.position == head.forked_at:
                    base = after
            return _Plan(head, None, base, name, project)
        self._refuse_divergence(head, here)
        called = here.name
        if here.position < head.position:
            refuse_held(self._target, here, self._derived(head, here, "checking"))
            # A payload that was erased in one store may still be in the other.
            logs = (self._target, self._source)
            said = [_naming(log, head.session, upto=here.position) for log in logs]
            if here.name in said or not any(said):
                called = self._name_since(head, here.position) or here.name
        return _Plan(head, here, here, called, here.project)

    def _name_since(self, head: Head, position: int) -> str | None:
        """The name that the source gave the session after a position; None if there was none since."""
        found = self._source.read(head.session, after=position, upto=head.position, kinds=_NAMING, limit=1)
        return (_naming(self._source, head.session, upto=head.position) or head.name) if found else None

    def _derived(self, head: Head, base: Head | None, step: str) -> Iterator[tuple[Record, Head]]:
        """The events after `base` up to the head of the source, each checked, with the head of the log after it."""
        position, digest = (base.position, base.hash) if base else (0, GENESIS)
        verifier = Verifier(head.session, position, digest)
        folded, begun = base, position
        while page := self._source.read(head.session, after=position, upto=head.position, limit=COPY_PAGE):
            _refuse_damage(head, verifier.feed(page).problems)
            for record in page:
                check_items(record)
                try:
                    folded = advance(folded, record)
                except (Conflict, *UNREADABLE) as problem:
                    raise DamagedLog(f"{head.name!r}: position {record.position} is invalid: {problem}") from None
                yield record, folded
            position = page[-1].position
            self._tell(step, head, position - begun)
        if head.parent is not None:
            excuse_inherited(self._source, head, verifier)
        refuse_moved(self._source, head, verifier)
        _refuse_damage(head, verifier.finish(head.position, head.hash).problems)

    def _carried(self, plan: _Plan) -> Copied:
        head, here = plan.head, plan.here
        if here is not None and here.position >= head.position:
            state = ALREADY_THERE if here.position == head.position else AHEAD
            return Copied(head.session, here.name, here.project, state, here.position, 0)
        if here is not None:
            self._bring_heirs(here, head.position)
        began = here
        page: list[tuple[Record, Head]] = []
        for step in self._derived(head, plan.base, "copying"):
            page.append(step)
            if len(page) == COPY_PAGE:
                began = self._put(plan, began, page)
                page = []
        if page:
            self._put(plan, began, page)
        self._confirm(plan)
        state = COPIED if here is None else EXTENDED
        return Copied(head.session, plan.name, plan.project, state, head.position, head.position - plan.after)

    def _put(self, plan: _Plan, began: Head | None, page: list[tuple[Record, Head]]) -> Head:
        steps = [(record, head._replace(name=plan.name, project=plan.project)) for record, head in page]
        if began is None:
            self._target.install(steps[-1][1], iter([record for record, _head in steps]))
        else:
            extend(self._target, began, steps, plan.name)
        return steps[-1][1]

    def _bring_heirs(self, here: Head, upto: int) -> None:
        """Before an erasure, update the forks that both stores have: their logs already mention the erasure."""
        if not self._source.read(here.session, after=here.position, upto=upto, kinds=["payload.erased"], bodies=()):
            return
        for heir in self._target.children(here.session):
            known = present(self._source, heir.session)
            if known is None:
                continue
            try:
                plan = self._checked(known, known.name, known.project)
            except OnrecordError:
                continue  # it has other events here; the erasure is recorded in it as in any fork
            self._carried(plan)

    def _confirm(self, plan: _Plan) -> None:
        """Read back what arrived and derive it once more."""
        head, position = plan.head, plan.after
        verifier = Verifier(head.session, position, plan.base.hash if plan.base else GENESIS)
        while page := self._target.read(head.session, after=position, upto=head.position, limit=COPY_PAGE):
            verifier.feed(page)
            position = page[-1].position
            self._tell("confirming", head, position - plan.after)
        problems = verifier.finish(head.position, head.hash).problems
        if problems:
            first = problems[0]
            raise DamagedLog(
                f"{plan.name!r} was damaged on the way: position {first.position}, {first.cause}: {first.detail}",
                hint="copy it again; the copy continues where it stopped",
                step="check_target",
            )

    def _refuse_divergence(self, head: Head, here: Head) -> None:
        shared = min(head.position, here.position)
        if self._differ(head.session, shared):
            where = bisect_left(range(1, shared), 1, key=lambda position: self._differ(head.session, position))
            raise Conflict(
                f"session {here.name!r} has two different histories in the two stores after position {where}",
                hint="nothing was changed; fork one of the two at that position and copy the fork",
                position=where,
            )

    def _differ(self, session: str, position: int) -> bool:
        """Whether the two stores have another event, or none, at a position."""
        return _hash_at(self._source, session, position) != _hash_at(self._target, session, position)


def _hash_at(store: Store, session: str, position: int) -> bytes | None:
    try:
        found = store.read(session, after=position - 1, upto=position, bodies=())
    except SessionNotFound:
        return None
    return found[0].hash if found else None


def _naming(store: Store, session: str, *, upto: int) -> str | None:
    """The session's name at a position, from the log itself; None if it was erased."""
    found = store.read(session, upto=upto, kinds=_NAMING, limit=1, backwards=True)
    data = open_record(found[0]).data if found else None
    name = data.get("name") if isinstance(data, dict) else None
    return name if isinstance(name, str) else None


def _refuse_damage(head: Head, problems: list[Problem]) -> None:
    if problems:
        first = problems[0]
        raise DamagedLog(
            f"{head.name!r} is damaged in the source store: position {first.position}, {first.cause}: {first.detail}"
        )


def _clash(name: str) -> NameTaken:
    return NameTaken(
        f"the target store already has a different session named {name!r}",
        hint="nothing was changed; copy it under another name, or rename one of the two",
        step="copy_as",
        name=name,
    )


def _tell_nobody(_step: str, _head: Head, _done: int) -> None:
    """Ignore the progress."""
