"""The lifecycle verbs: pause, resume, close, archive, rename, fork. Repeating one is not an error."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from onrecord.errors import Conflict, IllegalTransition
from onrecord.log.head import ACTIVE, ARCHIVED, CLOSED, LIVE, OPEN, PAUSED, RESUMED
from onrecord.surfaces.cli.shared.call import whole_number
from onrecord.surfaces.cli.shared.chooser import can_choose
from onrecord.surfaces.cli.shared.exits import UsageError
from onrecord.surfaces.cli.shared.place import look_around, survey_worktree
from onrecord.surfaces.cli.shared.shapes import session_data
from onrecord.surfaces.cli.work import state_file
from onrecord.surfaces.cli.work.notes import tell_saved
from onrecord.views.check import obstacles

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from onrecord.log.events import Event
    from onrecord.session.handle import Session
    from onrecord.surfaces.cli.shared.call import Call


SEVERAL = 2


def pause(call: Call) -> int:
    """Pause the session."""
    session = call.session()
    survey_worktree(call, session)
    state_file.before(call, session)
    done = _step(call, session, (PAUSED,), lambda: session.pause(call.get("reason") or ""))
    state_file.after(call, session)
    return done


def resume(call: Call) -> int:
    """Resume a paused session; with --reopen, a closed one. If it has agents, resume their conversations."""
    if not _chosen(call):
        return 0
    session = call.session()
    if any(agent["links"] for agent in session.views.roster.agents.values()):
        from onrecord.surfaces.cli.agents.resume import resume_agents

        return resume_agents(call, session, lambda: _take_up(call, session))
    _refuse_agents_options(call)
    name = session.name
    call.output.note(
        f"no agent of {name} has a conversation to resume; `onrecord continue {name}` shows what comes next"
    )
    live, reopen = (OPEN, ACTIVE, RESUMED), "reopen" in call
    if reopen and session.head.status == PAUSED:
        reopen = False  # a paused session is only resumed

    def go_on() -> Event:
        event = session.resume(call.get("reason") or "", reopen=reopen)
        if session.views.phases.profile:
            session.phases.log_start("Session resumed")
        return event

    done = _step(call, session, live, go_on, lambda: tell_saved(call, session))
    look_around(call, session)
    state_file.after(call, session)
    return done


def _chosen(call: Call) -> bool:
    """Without a name, where several sessions are live, let the person choose one; False if they leave."""
    if call.named() or not can_choose(call):
        return True
    records = call.records(make=False)
    if call.used(records) is not None or len(records.sessions(status=LIVE, limit=2)) < SEVERAL:
        return True
    from onrecord.surfaces.cli.shared.choosing import chosen_head

    head = chosen_head(call, records, "resume")
    if head is not None:
        call.positional["NAME"] = head.session
    return head is not None


def _take_up(call: Call, session: Session) -> None:
    """The session's own step before one of its agents is resumed; nothing if the session is live."""
    if session.status in (PAUSED, CLOSED, ARCHIVED):
        try:
            session.resume(call.get("reason") or "", reopen="reopen" in call and session.status != PAUSED)
        except IllegalTransition as refusal:
            refusal.hint = _way(session)
            raise
        if session.views.phases.profile:
            session.phases.log_start("Session resumed")
    look_around(call, session)
    state_file.after(call, session)


def _refuse_agents_options(call: Call) -> None:
    for option in ("prompt", "policy", "print", "wait"):
        if option in call:
            raise UsageError(
                f"--{option} needs a session with a coding agent's conversation",
                hint="start one: `onrecord start claude`",
            )
    if call.behind:
        raise UsageError(
            "arguments after -- are for a coding agent, and this session has none",
            hint="start one: `onrecord start claude`",
        )


def close(call: Call) -> int:
    """Close the session and keep its record; refused while its note is incomplete, unless --anyway gives a reason."""
    session = call.session()
    if session.head.status in LIVE:
        survey_worktree(call, session)
        state_file.before(call, session)
        _refuse_gaps(call, session)

    def take() -> Event:
        return session.close(call.get("reason") or "", anyway=call.get("anyway"), note_owed=True)

    done = _step(call, session, (CLOSED, ARCHIVED), take)
    state_file.after(call, session)
    return done


def _refuse_gaps(call: Call, session: Session) -> None:
    """Refuse to close a session that leaves only a summary; the hint has one command for each gap."""
    gaps = obstacles(session.views)
    if gaps and "anyway" not in call:
        missing = ", ".join(dict.fromkeys(gap.field for gap in gaps))
        commands = ", ".join(dict.fromkeys(f"`{gap.clear}`" for gap in gaps))
        raise Conflict(
            f"{session.name} cannot be closed yet; its note lacks: {missing}",
            hint=f"record it: {commands}; or `--anyway REASON` closes it as it is",
        )


def archive(call: Call) -> int:
    """Archive a closed session."""
    session = call.session()
    return _step(call, session, (ARCHIVED,), lambda: session.archive(call.get("reason") or ""))


def rename(call: Call) -> int:
    """Give the session another name."""
    session, new = call.session(), call.positional["NEW"]
    was = session.name
    if was == new:
        return call.output.done(
            "session", session_data(session.head) | {"state": "already_named"}, f"the session is already named {new}"
        )
    session.rename(new)
    data = session_data(session.head) | {"state": "renamed", "was": was}
    return call.output.done("session", data, f"renamed {was} to {new}; its id is still {session.id}")


def fork(call: Call) -> int:
    """Start a session that shares this one's history up to a position."""
    session = call.session()
    at = call.get("at")
    position = None if at is None else whole_number(at, "--at")
    child = session.fork(call.positional["NEW"], position)
    head = child.head
    data = session_data(head) | {"state": "forked"}
    return call.output.done(
        "session", data, f"forked {head.name} ({head.session}) from position {head.forked_at} of {session.name}"
    )


def _step(
    call: Call, session: Session, reached: Collection[str], take: Callable[[], Event],
    more: Callable[[], dict[str, Any]] | None = None,
) -> int:  # fmt: skip
    """Change the status, unless the session already has it, perhaps because another process was faster."""
    event = None
    if session.head.status not in reached:
        try:
            event = take()
        except IllegalTransition as refusal:
            if session.refresh().head.status not in reached:
                refusal.hint = _way(session)
                raise
    head = session.head
    state = f"already_{head.status}" if event is None else event.kind.partition(".")[2]
    data = session_data(head) | {"state": state} | (more() if more else {})
    return call.output.done("session", data, f"{head.name} is {state.replace('_', ' ')} at position {head.position}")


def _way(session: Session) -> str:
    """The command that helps from the session's present status."""
    if session.status in (CLOSED, ARCHIVED):
        return f"`onrecord resume {session.name} --reopen` reopens it"
    if session.status in (OPEN, ACTIVE, PAUSED, RESUMED):
        return f"close it first: `onrecord close {session.name}`"
    return "an erased session cannot be used again"
