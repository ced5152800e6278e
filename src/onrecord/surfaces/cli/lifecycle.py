"""The lifecycle verbs: pause, resume, close, archive, rename, fork. What is so already is answered, not refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from onrecord.errors import IllegalTransition
from onrecord.log.head import ACTIVE, ARCHIVED, CLOSED, LIVE, OPEN, PAUSED, RESUMED
from onrecord.surfaces.cli import state_file
from onrecord.surfaces.cli.call import whole_number
from onrecord.surfaces.cli.notes import tell_saved
from onrecord.surfaces.cli.place import look_around
from onrecord.surfaces.cli.shapes import session_data

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from onrecord.log.events import Event
    from onrecord.session.handle import Session
    from onrecord.surfaces.cli.call import Call


def pause(call: Call) -> int:
    """Stop for now."""
    session = call.session()
    state_file.before(call, session)
    done = _step(call, session, (PAUSED,), lambda: session.pause(call.get("reason") or ""))
    state_file.after(call, session)
    return done


def resume(call: Call) -> int:
    """Go on after a pause; with --reopen, after a close."""
    session = call.session()
    live, reopen = (OPEN, ACTIVE, RESUMED), "reopen" in call
    if reopen and session.head.status == PAUSED:
        reopen = False  # going on is what was asked for, and a pause needs no reopening

    def go_on() -> Event:
        event = session.resume(call.get("reason") or "", reopen=reopen)
        if session.views.phases.profile:
            session.start_work("Session resumed")
        return event

    done = _step(call, session, live, go_on, lambda: tell_saved(call, session))
    look_around(call, session)
    state_file.after(call, session)
    return done


def close(call: Call) -> int:
    """End the session and keep its record; not with only a summary, unless --anyway says why."""
    session = call.session()
    if session.head.status in LIVE:
        state_file.before(call, session)

    def take() -> Event:
        return session.close(call.get("reason") or "", anyway=call.get("anyway"), note_owed=True)

    done = _step(call, session, (CLOSED, ARCHIVED), take)
    state_file.after(call, session)
    return done


def archive(call: Call) -> int:
    """Put a closed session away."""
    session = call.session()
    return _step(call, session, (ARCHIVED,), lambda: session.archive(call.get("reason") or ""))


def rename(call: Call) -> int:
    """Give the session another name."""
    session, new = call.session(), call.positional["NEW"]
    was = session.name
    if was == new:
        return call.output.done(
            "session", session_data(session.head) | {"state": "already_named"}, f"it is named {new} already"
        )
    session.rename(new)
    data = session_data(session.head) | {"state": "renamed", "was": was}
    return call.output.done("session", data, f"{was} is named {new} now; its id {session.id} stays")


def fork(call: Call) -> int:
    """Start a session that shares this one's history up to a position."""
    session = call.session()
    at = call.get("at")
    position = None if at is None else whole_number(at, "--at")
    child = session.fork(call.positional["NEW"], position)
    head = child.head
    data = session_data(head) | {"state": "forked"}
    return call.output.done(
        "session", data, f"{head.name} ({head.session}) goes on from position {head.forked_at} of {session.name}"
    )


def _step(
    call: Call, session: Session, reached: Collection[str], take: Callable[[], Event],
    more: Callable[[], dict[str, Any]] | None = None,
) -> int:  # fmt: skip
    """Take a step, unless the session is there already, also when another process was quicker."""
    event = None
    if session.head.status not in reached:
        try:
            event = take()
        except IllegalTransition as refusal:
            if session.refresh().head.status not in reached:
                refusal.hint = _way(session) or refusal.hint
                raise
    head = session.head
    state = f"already_{head.status}" if event is None else event.kind.partition(".")[2]
    data = session_data(head) | {"state": state} | (more() if more else {})
    return call.output.done("session", data, f"{head.name} is {state.replace('_', ' ')} at position {head.position}")


def _way(session: Session) -> str:
    """The command that leads on from where the session stands."""
    if session.status in (CLOSED, ARCHIVED):
        return f"onrecord resume {session.name} --reopen goes on with it"
    if session.status in (OPEN, ACTIVE, PAUSED, RESUMED):
        return f"onrecord close {session.name} comes first"
    return ""
