"""Retention: what may be erased, when and by which rule. Facts outlive transcripts; every erasure is an event."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from onrecord.errors import InvalidInput, SessionErased, SessionHeld
from onrecord.log.codec import open_record
from onrecord.log.events import TRANSCRIPT_KINDS
from onrecord.log.head import ARCHIVED, CLOSED, ERASED, LIVE, PAUSED, TITLE_KINDS
from onrecord.log.keyed import Keyed
from onrecord.log.verify import ranges_of
from onrecord.session.chapter import checked_text

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    from onrecord.log.events import Event
    from onrecord.log.head import Head
    from onrecord.log.store import Store, Weight
    from onrecord.session.handle import Session

DAY = 86_400 * 1_000_000


class Policy(NamedTuple):
    """After how many days without activity a session in each state is archived or erased; None: never."""

    archive_closed_after: float | None = 30
    erase_closed_after: float | None = 180
    erase_archived_after: float | None = 90
    erase_paused_after: float | None = None
    erase_idle_after: float | None = None
    """For sessions that are open, active or resumed; never, unless it is set."""
    tell_idle_after: float | None = 60
    """After how many days a sweep names a session that is neither closed nor paused."""
    erase_retired_after: float | None = 30
    """For rollouts that were handed to a trainer or deleted: their token ids go, and requests still get 410."""

    def erase_after(self, status: str) -> float | None:
        """The days after which the transcript of a session in this state is erased."""
        if status in LIVE and status != PAUSED:
            return self.erase_idle_after
        days = {CLOSED: self.erase_closed_after, ARCHIVED: self.erase_archived_after, PAUSED: self.erase_paused_after}
        return days.get(status)


def policy_of(days: Mapping[str, Any]) -> Policy:
    """A policy from days by name, with defaults for the rest. A negative number means never."""
    for name, number in days.items():
        if name not in Policy._fields or isinstance(number, bool) or not isinstance(number, int | float):
            raise InvalidInput(
                f"retention: {name!r} is not a setting, or not a number of days",
                hint=f"use {', '.join(Policy._fields)}",
            )
    return Policy(**{name: None if number < 0 else number for name, number in days.items()})


class Swept(NamedTuple):
    """What a sweep did, or would do, to one session."""

    session: str
    name: str
    action: str
    """archive, erase, kept (with the reason why not), or idle (nothing is done; a person should close it)."""
    reason: str
    events: int
    size: int


def erase(session: Session, reason: str, positions: Collection[int] | None) -> Event:
    """Erase the payloads at `positions`, or of the whole session."""
    checked_text(reason, "an erasure", 1_000)
    scope = "all" if positions is None else "positions"
    head = session.store.head(session.id)
    if head.status == ERASED:
        key_id = key_of(session.store, session.id) if positions is None else None
        if key_id is not None and session.store.find(session.id, _destruction(key_id)) is None:
            return shred(session, reason)  # an earlier erasure was interrupted before it ended with that
        raise SessionErased(f"session {head.name!r} is already erased")
    if positions is None:
        positions = _erasable(session.store, session.id)
        needed = [child.name for child in session.store.children(session.id) if child.status != ERASED]
        if needed:
            raise InvalidInput(
                f"{', '.join(needed)} shares the history of {head.name!r}",
                hint="erase the forks first, or erase single positions",
            )
    elif not positions:
        raise InvalidInput("the list of positions is empty", hint="give positions, or none to erase the whole session")
    else:
        _refuse_proofs(session, positions)
    return wipe(session, sorted(set(positions)), reason, scope)


def wipe(session: Session, positions: list[int], reason: str, scope: str) -> Event:
    """Erase payloads, and record that in every log that has them."""
    store = session.store
    reason = session.funnel.cleaner().text(reason, "reason")  # who erases a secret may name it
    heirs = heirs_of(store, session.id, positions)
    data = {"ranges": ranges_of(positions), "count": len(positions), "reason": reason, "scope": scope}
    key_id = key_of(store, session.id) if scope == "all" else None
    if key_id is not None:
        data["key"] = key_id
    where = store.erase(
        session.id, positions, session._draft("payload.erased", data | _untitled(store, session.id, positions))
    )
    tell_heirs(session, heirs, positions, where.position, data)
    if key_id is not None:
        shred(session, reason)
    session._reload()
    return session.log.event(where.position)


def key_of(store: Store, session: str) -> str | None:
    """The id of a session's own key; None if it has none."""
    return store.key_id(session) if isinstance(store, Keyed) else None


def erase_again(store: Store, open_session: Callable[[str], Session]) -> list[str]:
    """Erase the sessions whose key was destroyed and whose log does not say so: an older copy of the store is back."""
    found: list[str] = []
    if not isinstance(store, Keyed):
        return found
    for head in list(_all_heads(store)):
        gone = store.key_id(head.session) is not None and store.key_state(head.session) == "destroyed"
        if gone and head.status != ERASED:
            with suppress(SessionHeld):  # a hold that this copy still has; nothing can be read all the same
                wipe(open_session(head.session), _erasable(store, head.session), "its key was destroyed", "all")
                found.append(head.name)
    return found


def _erasable(store: Store, session: str) -> list[int]:
    """The positions of what an erasure of a whole session erases."""
    return [one.position for one in store.weigh(session) if one.kind not in ("payload.erased", "session.forked")]


def _destruction(key_id: str) -> str:
    """The id of the event that says that a key was destroyed."""
    return f"key-destroyed/{key_id}"


def shred(session: Session, reason: str) -> Event:
    """Destroy the key of an erased session: every copy of its content goes with it. The event that says so.

    The erasure comes first: it is refused under a hold, and after it nothing can be added to the session. A crash there
    leaves a session that is erased here and whose key exists; erasing it again does the rest.
    """
    store = session.store
    if not isinstance(store, Keyed):
        raise InvalidInput("this store does not support sessions with a key of their own")
    key_id, destroyed_at = store.key_id(session.id) or "", store.destroy_key(session.id)
    data = {"ranges": [], "count": 0, "reason": reason, "scope": "key", "key": key_id, "destroyed_at": destroyed_at}
    receipt = store.erase(session.id, (), session._draft("payload.erased", data, id=_destruction(key_id)))
    session._reload()
    return session.log.event(receipt.position)


def heirs_of(store: Store, session: str, positions: list[int]) -> list[Head]:
    """The forks of a session, and theirs; `SessionHeld` if one of them has a hold on these positions."""
    heirs = list(descendants(store, session))
    held = next((heir for heir in heirs if heir.held and heir.forked_at >= positions[0]), None)
    if held:
        raise SessionHeld(
            f"session {held.name!r}, which shares this history, has a hold: nothing of it may be erased", name=held.name
        )
    return heirs


def tell_heirs(
    session: Session, heirs: list[Head], positions: Collection[int], erasure: int, data: dict[str, Any]
) -> None:
    """Record in every fork's log that part of its inherited history was erased; without that it would look damaged."""
    store = session.store
    for heir in heirs:
        inherited = [position for position in positions if position <= heir.forked_at]
        id_ = f"erased/{session.id}/{erasure}"
        if inherited and store.find(heir.session, id_) is None:
            notice = data | {"ranges": ranges_of(inherited), "count": 0, "scope": "inherited", "of": session.id}
            notice |= _untitled(store, heir.session, inherited)
            store.erase(heir.session, (), session._draft("payload.erased", notice, id=id_))


def _refuse_proofs(session: Session, positions: Collection[int]) -> None:
    """Refuse to erase a record of an erasure: without it the log would look damaged."""
    for record in session.store.read(session.id, kinds=("payload.erased",), bodies=()):
        if record.position in positions:
            raise InvalidInput(f"position {record.position} records what was erased and must be kept")


def _untitled(store: Store, session: str, positions: Collection[int]) -> dict[str, bool]:
    """The title in lists is a copy of the last objective or title; it is erased with its source."""
    for record in store.read(session, kinds=TITLE_KINDS, backwards=True):
        if record.position in positions:
            return {"untitled": True}
        if record.payload is not None:
            break
    return {}


def descendants(store: Store, session: str) -> Iterator[Head]:
    """The forks of a session, and theirs."""
    for child in store.children(session):
        yield child
        yield from descendants(store, child.session)


def sweep(
    store: Store, open_session: Callable[[str], Session], policy: Policy, now: int, *, dry_run: bool
) -> Iterator[Swept]:
    """Apply the policy to every session, one at a time; report what is or would be done, and the bytes freed."""
    # Every session is judged by its state at the beginning, so the order does not matter and a dry run is exact.
    found = {head.session: head for head in _all_heads(store)}
    for head in found.values():
        idle = (now - head.at) / DAY
        if head.status == CLOSED and _due(policy.archive_closed_after, idle):
            reason = f"closed for {idle:.0f} days"
            if not dry_run:
                open_session(head.session).archive(f"retention: {reason}")
            yield Swept(head.session, head.name, "archive", reason, 0, 0)
        if not _due(policy.erase_after(head.status), idle) and not _retired(store, head, policy, idle):
            if head.status in LIVE and head.status != PAUSED and _due(policy.tell_idle_after, idle):
                yield Swept(head.session, head.name, "idle", f"{head.status}, idle for {idle:.0f} days", 0, 0)
            continue
        weights = store.weigh(head.session, TRANSCRIPT_KINDS)
        if not weights:
            continue
        protector = _protector(store, head, policy, now, found)
        if protector:
            yield Swept(head.session, head.name, "kept", protector, len(weights), sum(one.size for one in weights))
        else:
            reason = f"{head.status}, idle for {idle:.0f} days"
            yield _sweep_one(open_session, head, weights, reason, dry_run=dry_run)


def erase_every(store: Store, open_session: Callable[[str], Session], reason: str, *, dry_run: bool) -> Iterator[Swept]:
    """Erase the content of every session, forks before what they inherit from. A session with a hold is kept."""
    checked_text(reason, "an erasure", 1_000)
    seen: set[str] = set()
    for head in list(_all_heads(store)):
        # A fork of a fork comes before the fork: descendants are listed from the top down.
        for one in [*reversed(list(descendants(store, head.session))), head]:
            if one.session in seen or one.status == ERASED:
                continue
            seen.add(one.session)
            yield _erase_one(store, open_session, one, reason, dry_run=dry_run)


def _erase_one(
    store: Store, open_session: Callable[[str], Session], head: Head, reason: str, *, dry_run: bool
) -> Swept:
    weights = store.weigh(head.session)
    size = sum(weight.size for weight in weights)
    needed = next((child.name for child in store.children(head.session) if child.status != ERASED and child.held), "")
    kept = "held" if head.held else f"its fork {needed} is held" if needed else ""
    if not kept and not dry_run:
        try:
            erase(open_session(head.session), reason, None)
        except (SessionHeld, InvalidInput) as problem:
            kept = problem.message
    return Swept(head.session, head.name, "kept" if kept else "erase", kept or reason, len(weights), size)


def _sweep_one(
    open_session: Callable[[str], Session], head: Head, weights: list[Weight], reason: str, *, dry_run: bool
) -> Swept:
    size = sum(weight.size for weight in weights)
    if not dry_run:
        session = open_session(head.session)
        try:
            wipe(session, [weight.position for weight in weights], f"retention: {reason}", "transcript")
        except SessionHeld as held:
            return Swept(head.session, head.name, "kept", held.message, len(weights), size)
    return Swept(head.session, head.name, "erase", reason, len(weights), size)


def _protector(store: Store, head: Head, policy: Policy, now: int, found: dict[str, Head]) -> str:
    """Why this session's transcript must stay, if it must."""
    if head.held:
        return "held"
    for child in (found.get(child.session, child) for child in store.children(head.session)):
        if child.status in LIVE or child.held:
            return f"its fork {child.name} is {'held' if child.held else child.status}"
        if child.status != ERASED and not _had_its_time(store, child, policy, now):
            return f"its fork {child.name} is {child.status}, and its own time has not come"
        inherited = _protector(store, child, policy, now, found)
        if inherited:
            return inherited
    return ""


def _had_its_time(store: Store, child: Head, policy: Policy, now: int) -> bool:
    """Whether a fork no longer needs what it inherited: its own transcript is due, or is already erased."""
    if _due(policy.erase_after(child.status), (now - child.at) / DAY):
        return True
    erasures = store.read(child.session, after=child.forked_at, kinds=("payload.erased",))
    return any((open_record(record).data or {}).get("scope") == "transcript" for record in erasures)


def _retired(store: Store, head: Head, policy: Policy, idle: float) -> bool:
    """Whether this is a retired rollout whose time has come."""
    if head.status not in (CLOSED, ARCHIVED) or not _due(policy.erase_retired_after, idle):
        return False
    return bool(store.read(head.session, after=head.forked_at, kinds=("rollout.retired",), bodies=(), limit=1))


def _due(days: float | None, idle: float) -> bool:
    return days is not None and idle >= days


def _all_heads(store: Store) -> Iterator[Head]:
    before = None
    while page := store.heads(limit=500, before=before):
        yield from page
        before = (page[-1].at, page[-1].session)
