"""Resuming agents: the plan in the open, the run, what is verified; and waiting for limits to end."""

from __future__ import annotations

import os
import shlex
import time
from typing import TYPE_CHECKING, Any

from onrecord.agents import waiting
from onrecord.agents.mirroring import mirror_all
from onrecord.agents.resuming import ALLOW, FRESH, NEVER, Ways, command, holders, plan, resume
from onrecord.agents.wrapping import Ask
from onrecord.errors import AmbiguousName, LeaseHeld
from onrecord.surfaces.cli.agents import common
from onrecord.surfaces.cli.shared.exits import UsageError
from onrecord.surfaces.cli.shared.shapes import session_data
from onrecord.surfaces.cli.work import state_file
from onrecord.views.handover import saved, saved_line
from onrecord.views.render import iso
from onrecord.work.project import worktree_for

if TYPE_CHECKING:
    from collections.abc import Callable

    from onrecord.agents.resuming import Plan, Resumed
    from onrecord.agents.wrapping import Outcome
    from onrecord.session.handle import Session
    from onrecord.surfaces.cli.shared.call import Call

ROUNDS_LIMIT = 1_000
"""How many limits in a row one `--wait` outlasts."""


def resume_agents(call: Call, session: Session, go_on: Callable[[], None]) -> int:
    """Resume an agent of the session; `go_on` takes the session's own step first."""
    if "print" in call:
        return _print(call, session)
    ask = common.asked(call, [])
    agent = _choose(call, session)
    acting = call.records().get(session.id, agent=agent)
    if "wait" in call:
        go_on_unless_parked(acting, go_on)
        return wait_and_resume(call, acting, ask=ask)
    common.need_terminal(ask)
    if ask.headless and not ask.prompt:
        raise UsageError("an agent without a terminal needs a prompt", hint="add `--prompt TEXT`")
    go_on()
    done = _resume(call, acting, ask)
    return _tell(call, acting, done)


def go_on_unless_parked(session: Session, go_on: Callable[[], None]) -> None:
    """A session that waits for a limit stays paused until it ends; any other one goes on first."""
    if not waiting.waitable(waiting.last_stop(session, session.agent)):
        go_on()


def _here(session: Session) -> str:
    return worktree_for(session.head.project, os.curdir)


def _plan(session: Session, agent: str) -> Plan:
    here = _here(session)
    return plan(session, agent, common.environment(session, here), here)


def _choose(call: Call, session: Session) -> str:
    try:
        return common.agent_of(call, session)
    except AmbiguousName:
        for agent, one in session.views.roster.agents.items():
            if one["links"]:
                for line in _lines(_plan(session, agent), Ask()):
                    call.output.note(line)
        raise


def _print(call: Call, session: Session) -> int:
    """The command alone, for a person or a script to run."""
    planned = _plan(session, _choose(call, session))
    ask = Ask()._replace(prompt=call.get("prompt") or "", headless=bool(call.get("prompt")))
    launch = command(planned, ask)
    extra = {**_added(planned), **launch.env}
    words = [f"{name}={shlex.quote(value)}" for name, value in extra.items()]
    line = f"cd {shlex.quote(launch.cwd)} && " + " ".join([*words, *(shlex.quote(word) for word in launch.argv)])
    if launch.stdin:
        line += f" <<< {shlex.quote(launch.stdin)}"
    if call.output.json:
        call.output.envelope("command", _data(planned) | {"argv": launch.argv, "env": extra, "stdin": launch.stdin})
        return 0
    for note in (*planned.notes, *([planned.lost] if planned.lost else [])):
        call.output.note(note)
    call.output.line(line)
    return 0


def _added(planned: Plan) -> dict[str, str]:
    """What the plan's environment has that this one has not."""
    return {name: value for name, value in planned.env.items() if os.environ.get(name) != value}


def _data(planned: Plan) -> dict[str, Any]:
    return {
        "agent": planned.agent, "vendor": planned.of.name, "vendor_id": planned.vendor_id, "cwd": planned.cwd,
        "transcript": planned.place.path if planned.place else None, "put_back": planned.put_back,
        "hazards": [hazard._asdict() for hazard in planned.hazards], "notes": list(planned.notes),
        "lost": planned.lost or None,
    }  # fmt: skip


def _lines(planned: Plan, ask: Ask) -> list[str]:
    how = f"starts a new conversation ({planned.lost})" if planned.lost else f"resumes {planned.vendor_id}"
    found = [f"{planned.agent}: {planned.of.title} {how} in {planned.cwd}"]
    if not planned.lost:
        found.append(f"{planned.agent}: {shlex.join(command(planned, ask).argv)}")
    found += [f"{planned.agent}: {note}" for note in planned.notes]
    return found + [f"{planned.agent}: {hazard.message}; {hazard.fix}" for hazard in planned.hazards]


def _resume(call: Call, session: Session, ask: Ask) -> Resumed:
    common.need_terminal(ask)
    planned = _plan(session, session.agent)
    policy = call.get("policy") or ALLOW
    if policy != NEVER:
        for line in _lines(planned, ask._replace(prompt="")):
            call.output.note(line)
    run = common.wrapped(call, session, planned.of, planned.cwd)
    return resume(run, planned, ask, Ways(policy, common.consenting(call), call.output.note))


def _tell(call: Call, session: Session, done: Resumed, *, final: bool = True) -> int:
    common.tell_outcome(call, session, done.outcome)
    state_file.after(call, session)
    kept = saved(session.views, call.now())
    if done.how == FRESH:
        call.output.note(f"{done.agent} started a new conversation from the note: {done.why}")
    else:
        proof = "Confirmed" if done.verified else "Could not confirm"
        call.output.note(f"Resumed {done.agent}. {proof} that it is the same conversation. {saved_line(kept)}")
    if call.output.json and final:
        data = session_data(session.refresh().head) | {
            "state": done.how, "agent": done.agent, "verified": done.verified, "why": done.why,
            "mended": list(done.mended), "saved": kept,
        }  # fmt: skip
        call.output.envelope("resumption", data | common.outcome_data(done.outcome))
    return common.exit_status(done.outcome)


# Waiting


def wait_and_resume(call: Call, session: Session, *, ask: Ask | None = None, first: Outcome | None = None) -> int:
    """Park the session until the limit ends, go on, and again if it stops at the next one."""
    wanted = ask or Ask()
    status = common.exit_status(first) if first else 0
    for _round in range(ROUNDS_LIMIT):
        _await_holder(call, session)
        stop = waiting.last_stop(session, session.agent)
        if not waiting.waitable(stop) and (first is not None or not wanted.prompt):
            if stop is not None and not stop.settled and first is None:
                call.output.note(f"the last stop ({stop.event.data.get('cause')}) needs a person")
            return _nothing(call, session, stop, status)
        if stop is not None and waiting.waitable(stop) and not _park(call, session, stop):
            return _nothing(call, session, stop, status)
        waiting.unpark(session)
        asking = waiting.again(session, stop, wanted, dict(os.environ)) if stop is not None else wanted
        try:
            done = _resume(call, session, asking)
        except LeaseHeld:
            call.output.note("another process has resumed it")
            raise
        status = _tell(call, session, done, final=done.outcome.finished)
        if done.outcome.finished:
            return status
        first, wanted = done.outcome, Ask(extra=wanted.extra, anew=wanted.anew)
    return status


def _park(call: Call, session: Session, stop: waiting.Stop) -> bool:
    parked = waiting.park(session, stop)
    until = iso(int((stop.until or 0) * 1e6))
    how = "the session is paused" if parked else "other agents keep working in the session"
    call.output.note(
        f"waiting until {until} ({stop.event.data.get('cause')}); {how}; you can stop this and start it again"
    )
    if waiting.wait(session, stop):
        return True
    call.output.note("the session was resumed or ended elsewhere; there is nothing to wait for")
    return False


def _await_holder(call: Call, session: Session) -> None:
    """An agent that outlived its wrapper is not disturbed: wait until it has ended."""
    told = False
    while holders(_plan(session, session.agent)):
        if not told:
            call.output.note("its process is still running; waiting until it ends")
            told = True
        time.sleep(waiting.LOOK_SECONDS)
        mirror_all(session, dict(os.environ), agent=session.agent)


def _nothing(call: Call, session: Session, stop: waiting.Stop | None, status: int) -> int:
    data = session_data(session.refresh().head) | {
        "state": "nothing_to_wait_for", "agent": session.agent, "stop": waiting.about(stop) if stop else None,
    }  # fmt: skip
    if status == 0:
        return call.output.done("session", data, f"{session.name}: there is nothing to wait for")
    if call.output.json:
        call.output.envelope("session", data)
    return status
