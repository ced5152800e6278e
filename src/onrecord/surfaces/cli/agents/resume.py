"""Resuming agents: show the plan, run, report what is verified; and wait for limits to end."""

from __future__ import annotations

import os
import shlex
from typing import TYPE_CHECKING, Any

from onrecord.agents import waiting
from onrecord.agents.noticing import notice_in
from onrecord.agents.outlasting import outlast
from onrecord.agents.resuming import (
    ALLOW,
    FRESH,
    MUST,
    NEVER,
    Terms,
    command,
    plan_here,
    refuse_second_writer,
    resume,
)
from onrecord.agents.sessions import agent_with_conversation
from onrecord.agents.wrapping import Ask
from onrecord.errors import AmbiguousName
from onrecord.surfaces import notifying
from onrecord.surfaces.cli.agents import common
from onrecord.surfaces.cli.shared.exits import UsageError
from onrecord.surfaces.cli.shared.shapes import session_data
from onrecord.surfaces.cli.work import state_file
from onrecord.views.handover import saved, saved_line

if TYPE_CHECKING:
    from collections.abc import Callable

    from onrecord.agents.resuming import Plan, Resumed
    from onrecord.agents.wrapping import Outcome
    from onrecord.session.handle import Session
    from onrecord.surfaces.cli.shared.call import Call


def resume_agents(call: Call, session: Session, resume_session: Callable[[], None]) -> int:
    """Resume an agent of the session; `resume_session` resumes the session itself first."""
    if "print" in call:
        return _print(call, session)
    notice_in(call.records(), session.id, os.environ)
    ask = common.asked(call, call.behind)
    agent = _choose(call, session)
    acting = call.records().get(session.id, agent=agent)
    if "wait" in call:
        resume_unless_parked(acting, resume_session)
        return wait_and_resume(call, acting, ask=ask)
    common.need_terminal(ask)
    if ask.headless and not ask.prompt:
        raise UsageError("an agent without a terminal needs a prompt", hint="add `--prompt TEXT`")
    resume_session()
    done = _resume(call, acting, ask)
    return _tell(call, acting, done)


def resume_unless_parked(session: Session, resume_session: Callable[[], None]) -> None:
    """A session that waits for a limit stays paused until the limit ends; any other one is resumed first."""
    if not waiting.waitable(waiting.last_stop(session, session.agent)):
        resume_session()


def _choose(call: Call, session: Session) -> str:
    try:
        return agent_with_conversation(session, call.get("agent"))
    except AmbiguousName:
        for agent, one in session.views.roster.agents.items():
            if one["links"]:
                for line in _lines(plan_here(session, agent), Ask()):
                    call.output.note(line)
        raise


def _print(call: Call, session: Session) -> int:
    """The command alone, for a person or a script to run."""
    planned = plan_here(session, _choose(call, session))
    prompt = call.get("prompt") or ""
    ask = Ask(prompt, bool(prompt), [*call.many("argument"), *call.behind], only_extra="fresh-arguments" in call)
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
    """Variables that the plan's environment adds to this one."""
    return {name: value for name, value in planned.env.items() if os.environ.get(name) != value}


def _data(planned: Plan) -> dict[str, Any]:
    return {
        "agent": planned.agent, "vendor": planned.of.name, "vendor_id": planned.vendor_id, "cwd": planned.cwd,
        "transcript": planned.location.path if planned.location else None, "put_back": planned.put_back,
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
    planned = plan_here(session, session.agent)
    policy = call.get("policy") or (MUST if ask.headless else ALLOW)
    if policy != NEVER:
        refuse_second_writer(planned)  # before a note says that it is resumed
        for line in _lines(planned, ask._replace(prompt="")):
            call.output.note(line)
    common.tell_budget(call, session)
    run = common.wrapped(call, session, planned.of, planned.cwd)
    return resume(run, planned, ask, Terms(policy, common.consenting(call), call.output.note))


def _tell(call: Call, session: Session, done: Resumed, *, final: bool = True) -> int:
    common.tell_outcome(call, session, done.outcome)
    state_file.after(call, session)
    kept = saved(session.views, call.now())
    if done.how == FRESH:
        call.output.note(f"{done.agent} started a new conversation from the note: {done.why}")
    else:
        doubt = f"Could not confirm that it is the same conversation: {done.why}"
        proof = "Confirmed that it is the same conversation" if done.verified else doubt
        call.output.note(f"Resumed {done.agent}. {proof}.")
        if kept["phases"] or kept["attempts"]:
            call.output.note(saved_line(kept))
    if call.output.json and final:
        data = session_data(session.refresh().head) | {
            "state": done.how, "agent": done.agent, "verified": done.verified, "why": done.why,
            "mended": list(done.mended), "saved": kept,
        }  # fmt: skip
        call.output.envelope("resumption", data | common.outcome_data(done.outcome))
    return common.exit_status(done.outcome)


# Waiting


def wait_and_resume(call: Call, session: Session, *, ask: Ask | None = None, first: Outcome | None = None) -> int:
    """Wait until the limit ends and resume; repeat at the next limit."""

    def resume_once(asking: Ask) -> Outcome:
        stop = waiting.last_stop(session, session.agent)
        if stop is not None and waiting.waitable(stop):
            notifying.tell_passed(session, stop.event.position)
        done = _resume(call, session, asking)
        _tell(call, session, done, final=done.outcome.finished)
        return done.outcome

    ask = ask or Ask()
    ask = ask._replace(headless=ask.headless or not common.has_terminal())
    done = outlast(session, ask, resume_once, call.output.note, first=first)
    status = common.exit_status(done.last) if done.last else 0
    return _nothing(call, session, done.stop, status) if done.nothing else status


def _nothing(call: Call, session: Session, stop: waiting.Stop | None, status: int) -> int:
    data = session_data(session.refresh().head) | {
        "state": "nothing_to_wait_for", "agent": session.agent, "stop": waiting.about(stop) if stop else None,
    }  # fmt: skip
    if status == 0:
        return call.output.done("session", data, f"{session.name}: there is nothing to wait for")
    if call.output.json:
        call.output.envelope("session", data)
    return status
