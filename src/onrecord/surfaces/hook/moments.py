"""The moments of an agent's life other than its tools: start, prompt, compaction, stop, end, and when it waits."""

from __future__ import annotations

import os

from onrecord import machine
from onrecord.environment import SPAWN_VARIABLE
from onrecord.errors import IdReused, OnrecordError
from onrecord.log.head import LIVE
from onrecord.surfaces.hook import following, keeping, telling
from onrecord.surfaces.hook.registering import is_another, is_same, process_of, registered
from onrecord.surfaces.hook.whose import owner
from onrecord.vendors.hooks import COMPACT, END, FAILED, NOTICE, PROMPT, START, STOP, HookAnswer
from onrecord.work.git_files import stands_at
from onrecord.work.project import find_worktree

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from onrecord.session.handle import Session
    from onrecord.surfaces.hook.whose import Owned
    from onrecord.vendors.hooks import HookCall
    from onrecord.vendors.port import Vendor

MESSAGE_WIDTH = 300


def start(vendor: Vendor, call: HookCall) -> HookAnswer:
    """Record the conversation as the agent's present one, and inject the state of the work."""
    process = process_of(call)
    owned = registered(vendor, call, process)
    if owned is None:
        return HookAnswer(notice=telling.announcement(vendor, call))
    with owned as session:
        answer = started(session, vendor, call, process)
        answer.notice = answer.notice or telling.announcement(vendor, call, session)
        for name in keeping.notice_others(owned, call):
            _notify(owned.records.get(name))
        return answer


def started(session: Session, vendor: Vendor, call: HookCall, process: dict[str, Any] | None) -> HookAnswer:
    """Another hook may record the same at the same time: then use what it recorded, and record nothing twice."""
    try:
        return _started(session, vendor, call, process)
    except IdReused:
        session.refresh()
        return _started(session, vendor, call, process)


def _started(session: Session, vendor: Vendor, call: HookCall, process: dict[str, Any] | None) -> HookAnswer:
    known = session.views.roster.link(call.vendor, call.vendor_id)
    if known is None and is_another(session, call, process):
        return HookAnswer()
    notice = ""
    before = known["last"].get("process") if known else None
    if isinstance(before, dict) and not is_same(before, process) and not machine.is_gone(before):
        notice = f"onrecord: process {before.get('pid')} has this conversation open too; their turns will mix"
    if session.head.status in LIVE:
        _join(session, call, process)
    said, briefed = telling.context(session, vendor, call)
    if session.head.status in LIVE:
        session.agents.locate(
            call.vendor, call.vendor_id, reason=call.reason, home=vendor.home_path(os.environ), process=process,
            transcript=call.transcript, via="hook", briefed=briefed, **_where(call),
        )  # fmt: skip
        following.begin(session)
    return HookAnswer(context=said, notice=notice)


def _join(session: Session, call: HookCall, process: dict[str, Any] | None) -> None:
    """A run begins, unless the process that started this agent recorded that already."""
    agent = session.views.roster.agents.get(session.agent)
    if agent and agent["here"] and not (agent["process"] and machine.is_gone(agent["process"])):
        return
    spawn = os.environ.get(SPAWN_VARIABLE)
    session.agents.record_start(process, vendor=call.vendor, via="hook", **({"spawn": spawn} if spawn else {}))


def _where(call: HookCall) -> dict[str, Any]:
    worktree = find_worktree(os.curdir)
    return {"cwd": call.cwd or os.getcwd(), "worktree": worktree, **stands_at(worktree)}


def prompt(vendor: Vendor, call: HookCall) -> HookAnswer:
    """The agent got a prompt, so it is not waiting for a person. If its start was not recorded, record it now."""
    owned = owner(call)
    if owned is None:
        return start(vendor, call)
    with owned as session:
        known = session.views.roster.link(call.vendor, call.vendor_id)
        if known is None or known["last"].get("via") != "hook":
            return started(session, vendor, call, process_of(call))
        said, briefed = telling.context(session, vendor, call)
        if session.head.status in LIVE:
            session.agents.record_attention_given()
            session.facts.title_by_prompt(call.prompt)
            session.agents.record_going_on()
            following.begin(session)
            if briefed is not None:
                try:
                    session.agents.locate(call.vendor, call.vendor_id, briefed=briefed)
                except IdReused:
                    return HookAnswer()  # another hook injects it
        return HookAnswer(context=said)


def _on_record(call: HookCall) -> Owned | None:
    """The session that has this conversation on record; not the session of an agent that started this one as a tool."""
    owned = owner(call)
    if owned is not None and owned.session.views.roster.link(call.vendor, call.vendor_id) is None:
        with owned:
            return None
    return owned


def compact(_vendor: Vendor, call: HookCall) -> HookAnswer:
    """Keep what compaction will drop: mirror the transcript, write the note. The brief is injected again later."""
    owned = _on_record(call)
    if owned is not None:
        with owned as session:
            keeping.refresh_files(session)
            telling.forget(session, call)
            keeping.keep_transcript(session, call)
    return HookAnswer()


def stop(vendor: Vendor, call: HookCall) -> HookAnswer:
    """The agent wants to stop: if it leaves something undone, it is asked once to finish it."""
    owned = _on_record(call)
    if owned is None:
        return HookAnswer()
    with owned as session:
        if session.head.status not in LIVE:
            return HookAnswer()
        session.agents.record_attention_given()
        from onrecord.surfaces.hook import stopping

        answer = stopping.nudge(session, vendor, call)
        answer.notice = telling.announcement(vendor, call, session)
        keeping.keep_transcript(session, call)
        keeping.keep_going_on(session, call)
        if not answer.decision and _wants_notices():
            from onrecord.surfaces.notifying import tell_stop

            tell_stop(session)
        return answer


def failed(_vendor: Vendor, call: HookCall) -> HookAnswer:
    """An error ended the turn, for instance a limit: record why and until when, unless a wrapper does that."""
    owned = _on_record(call)
    if owned is not None:
        with owned as session:
            keeping.keep_transcript(session, call)
            keeping.keep_stop(session, call)
            _notify(session)
    return HookAnswer()


def end(_vendor: Vendor, call: HookCall) -> HookAnswer:
    """The conversation ended: keep its last part, record the revision, and that the agent left."""
    owned = _on_record(call)
    if owned is None:
        return HookAnswer()
    with owned as session:
        agent = session.views.roster.agents.get(session.agent)
        link = session.views.roster.link(call.vendor, call.vendor_id)
        if session.head.status in LIVE and agent and agent["links"][-1] is link:
            session.agents.locate(call.vendor, call.vendor_id, transcript=call.transcript, **_where(call))
        # The process that recorded the start records the end: a wrapper outlives its agent and knows how it ended.
        if agent and agent["here"] and not call.stays and is_same(agent["process"], process_of(call)):
            session.agents.record_end(call.reason)
        keeping.keep_transcript(session, call)
        keeping.keep_stop(session, call)
    return HookAnswer()


def notice(_vendor: Vendor, call: HookCall) -> HookAnswer:
    """The agent waits for a person."""
    owned = _on_record(call)
    if owned is not None:
        with owned as session:
            message = (call.message or call.event)[:MESSAGE_WIDTH]
            agent = session.agents.get()
            waits = agent["waits"] if agent else None
            if session.head.status in LIVE and (waits is None or waits["message"] != message):
                session.agents.record_attention_needed(message)
                _notify(session)
    return HookAnswer()


def _notify(session: Session) -> None:
    """Notify the person of what the session needs them for."""
    if _wants_notices():
        from onrecord.surfaces.notifying import tell_needs

        tell_needs(session)


def _wants_notices() -> bool:
    """Whether the settings ask for notices; if they cannot be read, the attempt to notify reports that."""
    from onrecord.connection import settings

    try:
        return "notify" in settings()
    except OnrecordError:
        return True


MOMENTS: dict[str, Callable[[Vendor, HookCall], HookAnswer]] = {
    START: start, PROMPT: prompt, COMPACT: compact, STOP: stop, FAILED: failed, END: end, NOTICE: notice,
}  # fmt: skip
