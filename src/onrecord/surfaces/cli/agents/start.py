"""Starting agents, attaching running ones, and handing work from one to another."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onrecord import machine
from onrecord.agents import processes
from onrecord.agents.handover import handover
from onrecord.agents.importing import session_with, take_in
from onrecord.agents.mirroring import mirror_all
from onrecord.agents.starting import check_installed, join, start
from onrecord.errors import NameTaken, NotFound
from onrecord.log.head import LIVE, PAUSED
from onrecord.log.names import check_name, is_ulid
from onrecord.surfaces.cli.agents import common
from onrecord.surfaces.cli.shared.exits import UsageError
from onrecord.surfaces.cli.shared.output import counted
from onrecord.surfaces.cli.shared.shapes import session_data
from onrecord.surfaces.cli.work import state_file
from onrecord.vendors.hooks import ADOPTED
from onrecord.vendors.port import Place, Request

if TYPE_CHECKING:
    from onrecord.agents.wrapping import Ask, Outcome, Wrapped
    from onrecord.session.handle import Session
    from onrecord.session.records import Records
    from onrecord.surfaces.cli.shared.call import Call
    from onrecord.vendors.port import Vendor


def start_agent(call: Call) -> int:
    """Start a vendor's agent in this directory, under a session's name."""
    of, ask = common.vendor_named(call.words[0]), common.asked(call, call.words[1:])
    ask = ask._replace(prompt=ask.prompt or ask.anew)
    cwd, name = str(Path.cwd()), _wanted_name(call)
    agent = call.get("agent") or of.name
    check_name(agent, "agent")
    common.need_terminal(ask)
    check_installed(of, _request(cwd, ask))
    session = session_named(call, name, agent)
    return _begin(call, common.wrapped(call, session, of, cwd), cwd, ask)


def handoff(call: Call) -> int:
    """Let another vendor's agent go on with the work of a session."""
    of, ask = common.vendor_named(call.get("to") or _no_target(call)), common.asked(call, [])
    common.need_terminal(ask)
    session = call.session()
    _go_on(session)
    links = [link for one in session.views.roster.agents.values() for link in one["links"]]
    last = max(links, key=lambda link: link["seen_at"], default=None)
    if last is not None:
        mirror_all(session, dict(os.environ), agent=last["agent"])
    text = handover(session, last, ask.prompt)
    agent = call.get("agent") or _free_agent(session, of)
    check_name(agent, "agent")
    taken = call.records().get(session.id, agent=agent)
    cwd = str((last["first"] | last["last"]).get("cwd") or "") if last else ""
    cwd = cwd if Path(cwd or "?").is_dir() else str(Path.cwd())
    return _begin(call, common.wrapped(call, taken, of, cwd), cwd, ask, text)


def _no_target(call: Call) -> str:
    raise UsageError("--to VENDOR is missing", hint=f"for example: `{call.verb.example}`")


def _free_agent(session: Session, of: Vendor) -> str:
    """The vendor's name, unless an agent of another vendor has it."""
    known = session.views.roster.agents.get(of.name)
    return of.name if known is None or known["vendor"] in (None, of.name) else f"{of.name}-2"


def _wanted_name(call: Call) -> str:
    """What --name or --session say; without them, a name made from directory and time."""
    name = call.get("name") or call.get("session") or os.environ.get("ONRECORD_SESSION")
    if name is not None and not is_ulid(name.upper()):
        check_name(name)
    if name is None:
        letters = "".join(one if one.isalnum() and one.isascii() else "-" for one in Path.cwd().name).strip("-")
        name = f"{letters[:40] or 'session'}-{time.strftime('%m%d-%H%M%S')}"
    return name


def session_named(call: Call, name: str, agent: str) -> Session:
    """The session of this name or id, gone on with if it is paused; made if it is new."""
    records = call.records()
    session = _found(records, name, agent)
    if session is None:
        try:
            session = records.create(name, agent=agent, objective=call.get("objective"))
        except NameTaken:  # another process was quicker; both mean the same session
            session = records.get(name, agent=agent)
    _go_on(session)
    return session


def _found(records: Records, name: str, agent: str) -> Session | None:
    """The session of this id, or of exactly this name in this project."""
    if is_ulid(name.upper()):
        return records.get(name, agent=agent)
    known = records.store.heads(project=records.project, name=name, limit=1)
    return records.get(known[0].session, agent=agent) if known else None


def _go_on(session: Session) -> None:
    if session.refresh().status == PAUSED:
        session.resume("an agent is started")


def _begin(call: Call, run: Wrapped, cwd: str, ask: Ask, text: str | None = None) -> int:
    """Join and start; `text` is what a handed-over agent is given."""
    session, of = run.session, run.of
    for warning in of.start(_request(cwd, ask)).warnings:
        call.output.note(warning)
    call.output.note(f"starting {of.title} as {session.agent} in session {session.name}")
    joined = join(run, handed_over=True) if text is not None else join(run)
    try:
        outcome = start(joined, cwd, ask, text=text)
    finally:
        session.leave()
    return finish(call, session, outcome, "started")


def _request(cwd: str, ask: Ask) -> Request:
    return Request(cwd, prompt=ask.prompt, headless=ask.headless, extra=ask.extra, env=dict(os.environ))


def finish(call: Call, session: Session, outcome: Outcome, state: str, **more: Any) -> int:
    """Tell how it ended, and wait for a limit to end if that was asked for."""
    common.tell_outcome(call, session, outcome)
    state_file.after(call, session)
    if "wait" in call and not outcome.finished:
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
    env, about = dict(os.environ), {}
    if pid is not None:
        env |= processes.environment_of(pid)
        vendor_id = _conversation_of(of, pid, env, vendor_id)
        about = {"process": machine.identity_of(pid), "cwd": processes.directory_of(pid)}
    place = of.find(str(vendor_id), env)
    if place is None and not about:
        raise NotFound(f"{of.title} has no conversation {vendor_id!r:.80}", step="list_conversations", vendor=of.name)
    if place is None:  # nothing is written before the first prompt
        place = Place(str(vendor_id), "", str(of.home(env)), str(about["cwd"]))
    return _attach(call, of, place, env, about)


def _conversation_of(of: Vendor, pid: int, env: dict[str, str], wanted: str | None) -> str:
    if machine.started(pid) is None:
        raise NotFound(f"there is no running process {pid}")
    found = of.locate(pid, env)
    if found is None or wanted not in (None, found):
        raise NotFound(
            f"the {of.title} conversation of process {pid} is not known",
            hint="give its id with `--id ID`, or install the hook with `onrecord setup`",
        )
    return found


def _attach(call: Call, of: Vendor, place: Place, env: dict[str, str], about: dict[str, Any]) -> int:
    records = call.records()
    name, agent = call.get("name") or call.get("session"), call.get("agent") or of.name
    known = session_with(records, of, place.vendor_id)
    into = _found(records, name, agent) if name is not None and known is None else None
    done = take_in(
        records, of, place, env, session=into, agent=agent, name=None if into else name, reason=ADOPTED
    )  # fmt: skip
    session = done.session
    if session.refresh().status in LIVE:
        session.locate(of.name, place.vendor_id, **{key: value for key, value in about.items() if value})
    state = "adopted" if done.new else "already_adopted"
    data = session_data(session.refresh().head) | {
        "state": state, "agent": session.agent, "vendor": of.name, "vendor_id": place.vendor_id,
        "records": done.mirrored.records,
    }  # fmt: skip
    return call.output.done(
        "agent", data,
        f"{state.replace('_', ' ')}: {of.title} {place.vendor_id} is {session.agent} in session {session.name}; "
        f"mirrored {counted(done.mirrored.records, 'record')}",
    )  # fmt: skip


def _running(call: Call, of: Vendor) -> int:
    """What could be adopted: every running program of the vendor whose conversation can be told."""
    found = []
    for pid in processes.running(of):
        env = {**os.environ, **processes.environment_of(pid)}
        found.append({"pid": pid, "vendor_id": of.locate(pid, env), "cwd": processes.directory_of(pid)})
    if call.output.json:
        call.output.envelope("agents", found)
        return 0
    if not found:
        raise NotFound(f"no {of.title} is running here", hint=f"start one: `onrecord start {of.name}`")
    call.output.table(
        ("#pid", "!conversation", "*directory"),
        [[str(one["pid"]), str(one["vendor_id"] or "?"), str(one["cwd"])] for one in found],
    )
    call.output.note(f"attach one: `onrecord adopt {of.name} --pid {found[0]['pid']} --name my-task`")
    return 0
