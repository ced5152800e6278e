"""Starting agents, attaching running ones, and handing work from one to another."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onrecord.agents import adopting
from onrecord.agents.handover import hand_over
from onrecord.agents.sessions import free_agent, name_for, resume_if_paused, session_named
from onrecord.agents.starting import check_installed, join, mend_first, start
from onrecord.environment import SESSION_VARIABLE
from onrecord.errors import NotFound
from onrecord.log.names import NAME_LIMIT, check_name
from onrecord.surfaces.cli.agents import common
from onrecord.surfaces.cli.shared.exits import UsageError
from onrecord.surfaces.cli.shared.output import counted
from onrecord.surfaces.cli.shared.place import survey_worktree
from onrecord.surfaces.cli.shared.shapes import session_data
from onrecord.surfaces.cli.work import state_file
from onrecord.vendors.port import LaunchOptions
from onrecord.work.project import find_worktree
from onrecord.work.worktrees import worktree_of_branch

if TYPE_CHECKING:
    from onrecord.agents.wrapping import Ask, Outcome, Wrapped
    from onrecord.session.handle import Session
    from onrecord.surfaces.cli.shared.call import Call
    from onrecord.vendors.port import Vendor


def start_agent(call: Call) -> int:
    """Start a vendor's agent in this directory, under a session's name."""
    of, ask = common.vendor_named(call.words[0]), common.asked(call, call.words[1:])
    ask = ask._replace(prompt=ask.prompt or ask.anew)
    chosen = call.get("name") or call.get("session") or os.environ.get(SESSION_VARIABLE)
    branch = call.get("worktree")
    cwd, name = str(Path.cwd()), name_for(chosen or (None if branch is None else _name_of(branch)), Path.cwd())
    agent = call.get("agent") or of.name
    check_name(agent, "agent")
    common.need_terminal(ask)
    check_installed(of, _options(cwd, ask))
    if branch is not None:
        cwd = _worktree(call, cwd, branch)
    session = session_named(call.records_for_new(), name, agent, call.get("objective"), person=call.person())
    return _begin(call, common.wrapped(call, session, of, cwd), cwd, ask)


def _name_of(branch: str) -> str | None:
    """The session of a branch is named after it, if that is a name."""
    letters = "".join(one if one.isascii() and (one.isalnum() or one in "._-") else "-" for one in branch)
    return letters.strip(".-_")[:NAME_LIMIT].replace("..", "-") or None


def _worktree(call: Call, cwd: str, branch: str) -> str:
    """The same directory in the worktree of a branch, which is created unless it is there."""
    top = find_worktree(cwd)
    place = Path(worktree_of_branch(top, branch))
    call.output.note(f"{branch} is in the worktree {place}; `onrecord worktree diff` shows what changed in it")
    inside = place / Path(os.path.realpath(cwd)).relative_to(top)
    return str(inside if inside.is_dir() else place)


def handoff(call: Call) -> int:
    """Let another vendor's agent continue the work of a session."""
    of, ask = common.vendor_named(call.get("to") or _no_target(call)), common.asked(call, call.behind)
    common.need_terminal(ask)
    check_installed(of, _options(str(Path.cwd()), ask))
    session = call.session()
    resume_if_paused(session)
    survey_worktree(call, session)
    handed = hand_over(session, ask.prompt, dict(os.environ), str(Path.cwd()))
    agent = call.get("agent") or free_agent(session, of)
    check_name(agent, "agent")
    taken = call.records().get(session.id, agent=agent)
    return _begin(call, common.wrapped(call, taken, of, handed.cwd), handed.cwd, ask, handed.text)


def _no_target(call: Call) -> str:
    raise UsageError("--to VENDOR is missing", hint=f"for example: `{call.verb.example}`")


def _begin(call: Call, run: Wrapped, cwd: str, ask: Ask, text: str | None = None) -> int:
    """Join and start; `text` is the prompt of an agent that takes over."""
    session, of = run.session, run.of
    for warning in of.start(_options(cwd, ask)).warnings:
        call.output.note(warning)
    mend_first(run, cwd, common.consenting(call))
    common.tell_budget(call, session)
    call.output.note(f"starting {of.title} as {session.agent} in session {session.name}")
    joined = join(run, ask.extra, **({"handed_over": True} if text is not None else {}))
    try:
        outcome = start(joined, cwd, ask, text=text)
    finally:
        session.leave()
    return finish(call, session, outcome, "started")


def _options(cwd: str, ask: Ask) -> LaunchOptions:
    return LaunchOptions(cwd, prompt=ask.prompt, headless=ask.headless, extra=ask.extra, env=dict(os.environ))


def finish(call: Call, session: Session, outcome: Outcome, state: str, **more: Any) -> int:
    """Report how it ended; with --wait, wait for the limit to end and resume."""
    common.tell_outcome(call, session, outcome)
    survey_worktree(call, session)
    state_file.after(call, session)
    if (
        "wait" in call and not outcome.finished and outcome.vendor_id
    ):  # without a conversation there is nothing to resume
        from onrecord.surfaces.cli.agents.resume import wait_and_resume

        return wait_and_resume(call, session, first=outcome)
    if call.output.json:
        data = session_data(session.refresh().head) | {"state": state, "agent": session.agent}
        call.output.envelope("agent_run", data | common.outcome_data(outcome) | more)
    return common.exit_status(outcome)


def adopt(call: Call) -> int:
    """Attach an agent that is running already."""
    of = common.vendor_named(call.words[0])
    if len(call.words) > 1:
        raise UsageError(f"unexpected argument {call.words[1]!r}")
    pid, vendor_id = call.number("pid"), call.get("id")
    if pid is None and vendor_id is None:
        return _running(call, of)
    running = adopting.find_running(of, os.environ, pid=pid, vendor_id=vendor_id)
    name, agent = call.get("name") or call.get("session"), call.get("agent") or of.name
    done = adopting.adopt(call.records_for_new(), of, running, name=name, agent=agent)
    session, vendor_id = done.session, running.location.vendor_id
    state = "adopted" if done.new else "already_adopted"
    data = session_data(session.refresh().head) | {
        "state": state, "agent": session.agent, "vendor": of.name, "vendor_id": vendor_id,
        "records": done.mirrored.records,
    }  # fmt: skip
    return call.output.done(
        "agent", data,
        f"{state.replace('_', ' ')}: {of.title} {vendor_id} is {session.agent} in session {session.name}; "
        f"mirrored {counted(done.mirrored.records, 'record')}",
    )  # fmt: skip


def _running(call: Call, of: Vendor) -> int:
    """What could be adopted: every running program of the vendor, with its conversation if it is known."""
    found = adopting.candidates(of, os.environ)
    if call.output.json:
        call.output.envelope("agents", [one._asdict() for one in found])
        return 0
    if not found:
        raise NotFound(f"no {of.title} is running here", hint=f"start one: `onrecord start {of.name}`")
    call.output.table(
        ("#pid", "!conversation", "*directory"), [[str(one.pid), one.vendor_id or "?", one.cwd] for one in found]
    )
    call.output.note(f"attach one: `onrecord adopt {of.name} --pid {found[0].pid} --name my-task`")
    return 0
