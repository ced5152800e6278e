"""Ended rollouts: frozen samples accept no more turns and no more branches, and a retired rollout accepts nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onrecord.errors import SessionFrozen, SessionRetired

if TYPE_CHECKING:
    from onrecord.rollout.lane import Lane
    from onrecord.session.handle import Session


def refuse_frozen(name: str, lane: Lane) -> None:
    """Raise `SessionFrozen` if the samples of the rollout with this name are frozen."""
    if lane.frozen is not None:
        raise SessionFrozen(f"the samples of rollout {name!r} are frozen; it accepts no more turns and no new branches")


def refuse_retired(session: Session) -> None:
    """Raise `SessionRetired` if this rollout was retired."""
    for event in session.events(kinds=("rollout.retired", "session.forked")):
        if event.kind == "rollout.retired" and event.session == session.id:
            raise retired(session, str((event.data or {}).get("reason", "")))


def retired(session: Session, reason: str) -> SessionRetired:
    """The error for a step on a retired rollout."""
    return SessionRetired(f"rollout {session.name!r} was retired{f': {reason}' if reason else ''}")
