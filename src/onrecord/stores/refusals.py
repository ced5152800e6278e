"""Refusals that all stores share, with the same words."""

from __future__ import annotations

from onrecord.errors import (
    Conflict,
    EventNotFound,
    IdReused,
    InvalidInput,
    LeaseHeld,
    LeaseLost,
    LogMoved,
    NameTaken,
    SessionHeld,
    SessionNotFound,
    StoreBusy,
)
from onrecord.lean_typing import TYPE_CHECKING, Protocol
from onrecord.log.codec import SALT_BYTES, commit_to

if TYPE_CHECKING:
    from collections.abc import Iterable

    from onrecord.log.events import Draft
    from onrecord.log.head import Head
    from onrecord.log.store import Lease


class OnRecord(Protocol):
    """An event on record, or about to be: what a retry is compared with. A `Record` is one, and so is a store's row."""

    @property
    def position(self) -> int: ...
    @property
    def run(self) -> int: ...
    @property
    def hash(self) -> bytes: ...
    @property
    def kind(self) -> str: ...
    @property
    def salt(self) -> bytes | None: ...
    @property
    def payload_hash(self) -> bytes: ...


def not_found(session: str) -> SessionNotFound:
    """No session has this id."""
    return SessionNotFound(f"no session has the id {session!r}")


def reentered() -> StoreBusy:
    """A thread cannot begin a write in the middle of another one of its own."""
    return StoreBusy(
        "this thread is already writing: a signal handler or a finalizer interrupted that write",
        hint="raise from the handler or set a flag, and record afterwards",
    )


def id_taken(session: str) -> Conflict:
    """A session's id is never given twice."""
    return Conflict(f"the session id {session} is already in use")


def name_taken(name: str, status: str) -> NameTaken:
    """A name belongs to one session of a project."""
    return NameTaken(f"this project already has a session named {name!r} ({status})")


def unlike_parent() -> LogMoved:
    """A fork continues its parent's history."""
    return LogMoved("the parent's history has changed since the fork was prepared", expected=0, actual=0)


def log_moved(expected: int, actual: int) -> LogMoved:
    """The log is not where the caller expects it."""
    return LogMoved(f"the log is at position {actual}, not {expected}", expected=expected, actual=actual)


def lease_lost(lane: str) -> LeaseLost:
    """The lane has a newer fencing epoch."""
    return LeaseLost(f"another process has taken the lease of lane {lane!r}")


def nothing_at(position: int) -> EventNotFound:
    """The log is shorter than that."""
    return EventNotFound(f"there is no event at position {position}")


def refuse_other(draft: Draft, known: OnRecord) -> None:
    """An idempotency key belongs to one event forever. An erased payload cannot be compared: the key alone decides."""
    salt = known.salt
    if salt is not None and len(salt) > SALT_BYTES:  # encrypted with the key of its session
        unmask = getattr(draft, "unmask", None)
        salt = unmask(salt, known.position) if unmask is not None else None
    changed = salt is not None and commit_to(salt, draft.payload) != known.payload_hash
    if changed or known.kind != draft.kind:
        raise IdReused(
            f"idempotency key {draft.id!r} was already used for a different event, at position {known.position}"
        )


def refuse_twin(draft: Draft, first: Draft) -> None:
    """Two events of one append with the same id must be the same."""
    if (draft.kind, draft.payload) != (first.kind, first.payload):
        raise IdReused(f"one append uses the idempotency key {draft.id!r} for two different events")


def refuse_erasure(head: Head, positions: Iterable[int]) -> None:
    """Only a session's own events can be erased, and nothing under a hold."""
    if head.held:
        raise SessionHeld(f"session {head.name!r} has a hold: nothing of it may be erased", name=head.name)
    for position in positions:
        if 1 <= position <= head.forked_at:
            raise InvalidInput(f"position {position} belongs to the session this one was forked from")
        if not 1 <= position <= head.position:
            raise nothing_at(position)


def refuse_gaps(positions: list[int], start: int) -> None:
    """Copied events must follow the last event on record."""
    if positions != list(range(start + 1, start + 1 + len(positions))):
        raise LogMoved(
            f"the new events do not follow position {start}",
            expected=positions[0] - 1 if positions else start,
            actual=start,
        )


def held_by(name: str, lease: Lease) -> LeaseHeld:
    """Another process has the lease: who, since when, until when, and how to take it."""
    from onrecord.views.render import iso

    since, until = iso(lease.since), iso(lease.until)
    who = f"process {lease.holder.get('pid')} on {lease.holder.get('host')}"
    return LeaseHeld(
        f"{who} has held the lease of agent {lease.lane!r} in session {name!r} since {since}",
        hint=f"wait until that process ends, or until its lease expires at {until}; takeover=True takes it now",
        step="wait_for_lease",
        expires=until,
        holder=lease.holder,
        since=lease.since,
        until=lease.until,
    )
