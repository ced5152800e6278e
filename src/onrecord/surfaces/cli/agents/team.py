"""`onrecord team`: several agents in one session, kept running, resumed and ended together."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Any

from onrecord.agents.sessions import session_named
from onrecord.crew.members import warnings_of
from onrecord.crew.next_step import FINISHED, LIMITED, OVER, RUNS
from onrecord.crew.running import DONE, STOPPED, Crew, refuse_idle, supervising
from onrecord.crew.team_file import CREW, read_team
from onrecord.crew.worktrees import is_from_elsewhere, root_of
from onrecord.errors import AmbiguousName, InvalidInput, NotFound
from onrecord.log.head import LIVE, PAUSED
from onrecord.machine.wall_clock import local_time
from onrecord.session.handle import Session
from onrecord.surfaces import notifying
from onrecord.surfaces.cli.shared.call import whole_number
from onrecord.surfaces.cli.shared.exits import FAILED, UsageError
from onrecord.surfaces.cli.shared.output import Cell, counted
from onrecord.surfaces.cli.shared.place import act, need
from onrecord.surfaces.cli.shared.shapes import session_data
from onrecord.views.handover import saved, saved_line
from onrecord.views.render import one_line, visible

if TYPE_CHECKING:
    from onrecord.log.head import Head
    from onrecord.session.session_store import SessionStore
    from onrecord.surfaces.cli.shared.call import Call

PROMPT_SHOWN = 120
"""How much of an agent's prompt a question shows, in characters."""
ROOM_FOR_IDS = 100
"""From this many columns on, a person also sees the ids of conversations; scripts always do."""
_STYLES = {
    "working": "good", "idle": "quiet", "finished": "quiet", "stopped": "quiet", "degraded": "bad",
    "limited": "attention", "needs_person": "attention",
}  # fmt: skip


def team(call: Call) -> int:
    """Do what the first word says."""
    return act(
        call,
        {
            "up": _up, "resume": _resume, "status": _status, "attach": _attach, "logs": _logs, "restart": _restart,
            "scale": _scale, "stop": _stop,
        },
        "status",
    )  # fmt: skip


# Up and resume


def _up(call: Call, words: list[str]) -> int:
    """Form the team of a file, or take over the one on record; supervise it."""
    if not words:
        crew = _crew(call, _session(call))
        if crew.is_foreign():
            _ask_first(call, crew)
            crew.take_lane()
            crew.form(headless=crew.members.headless)
        return _supervise(call, crew)
    (file,) = need(call, words, "FILE")
    wanted, headless = read_team(Path(file)), "headless" in call
    refuse_idle(wanted, headless=headless)
    for warning in warnings_of(wanted, headless=headless):
        call.output.note(warning)
    name = call.get("session") or wanted.name
    session = session_named(call.records_for_new(), name, CREW, call.get("objective"), person=call.person())
    crew = Crew(session, wanted, headless=headless, tell=call.output.note, yes="yes" in call)
    crew.check_hosts()
    crew.take_lane()
    crew.form_if_changed(headless=headless)
    return _supervise(call, crew)


def _resume(call: Call, words: list[str]) -> int:
    """Resume the team on record; each agent with its own conversation, if it has one."""
    session = _session(call, words)
    if session.refresh().status == PAUSED:
        session.resume("the team is resumed")
    crew = _crew(call, session)
    for agent in call.many("fresh"):
        crew.member(agent)
    if crew.is_foreign() or is_from_elsewhere(crew.team):
        _ask_first(call, crew)
    crew.take_lane()
    crew.form(headless=crew.members.headless)
    for agent in call.many("fresh"):
        session.log.record("agent.recalled", {"agent": agent})
    call.output.note(saved_line(saved(session.refresh().views, call.now())))
    return _supervise(call, crew)


def _ask_first(call: Call, crew: Crew) -> None:
    """Show what a team that was not formed here would run, with which environment and prompt, and ask."""
    asked = []
    for member in crew.team.members():
        where = str(root_of(crew.team, crew.members.here) / member.directory)
        given = "".join(f"{name}={shlex.quote(value)} " for name, value in member.environment.items())
        prompt = f", prompt {one_line(member.prompt, PROMPT_SHOWN)!r}" if member.prompt else ""
        asked.append(f"{member.id}: {given}{shlex.join(member.command)} (in {where}{prompt})")
    call.confirm(visible(f"The team was not formed in this store. It runs {'; '.join(asked)}. Run that here?"))


def _supervise(call: Call, crew: Crew) -> int:
    if "detach" in call:
        begun = crew.detach()
        _show(call, crew)
        return 0 if begun else FAILED
    told: dict[str, str] = {}
    why = crew.supervise(lambda rows: _tell_reports(call, crew, rows, told))
    if why == STOPPED:
        name = crew.session.name
        call.output.note("the team has no supervisor now; its agents keep running")
        call.output.note(f"`onrecord team up --session {name}` supervises it, `onrecord team stop {name}` ends it")
    _show(call, crew)
    return FAILED if why == DONE and not crew.has_finished() else 0


def _tell_reports(call: Call, crew: Crew, rows: dict[str, dict[str, Any]], told: dict[str, str]) -> None:
    """Report once for each agent how its start ended, also for agents that are still running."""
    _notify(crew, rows)
    for name, row in rows.items():
        how = row["how"] if crew.was_asked_for(name) else "still running" if row["state"] in RUNS else ""
        if how and told.get(name) != how:
            told[name] = how
            call.output.note(f"{name}: {how}")


def _notify(crew: Crew, rows: dict[str, dict[str, Any]]) -> None:
    """Tell the person what the supervisor cannot settle, and when its agents are done."""
    session = crew.session
    notifying.tell_needs(session)
    for name, row in rows.items():
        if row["state"] == FINISHED:
            key = f"{name}/finished/{row['starts']}"
            notifying.tell(session, notifying.ENDS, key, f"{name} finished its work", agent=name)
        elif row["state"] == LIMITED:
            until = local_time(int((row["until"] or 0) * 1e6), int(session.clock() * 1e6))
            text = f"{name} was stopped by a limit, until {until}; the team waits"
            notifying.tell(session, notifying.LIMITS, f"{name}/parked/{row['until']}", text, agent=name)


# Looking


def _session(call: Call, words: list[str] | None = None) -> Session:
    """The named session, or the only live one that has a team."""
    if words and len(words) > 1:
        raise UsageError(f"unexpected argument {words[1]!r}")
    records = call.records(make=False)
    id_ = records.find(words[0]).session if words else _head(call, records).session
    return records.handle(id_, agent=CREW)


def _head(call: Call, records: SessionStore) -> Head:
    """The session that is named or used here, or the only live one with a team: others cannot be meant."""
    if call.named():
        return call.head()
    if (used := call.used(records)) is not None:
        return used
    teams = [entry.head for entry in records.entries(records.every(LIVE)) if CREW in entry.listing["agents"]]
    if not teams:
        raise NotFound("no live session of this project has a team", step="form_team")
    if len(teams) > 1:
        names = ", ".join(head.name for head in teams)
        raise AmbiguousName(f"several sessions have a team: {names}", hint=f"name one: `--session {teams[0].name}`")
    return teams[0]


def _crew(call: Call, session: Session) -> Crew:
    return Crew.on_record(session, headless="headless" in call, tell=call.output.note, yes="yes" in call)


def _status(call: Call, words: list[str]) -> int:
    crew = _crew(call, _session(call, words))
    crew.supervisor.look(crew.session.clock())
    _show(call, crew)
    return 0


def _show(call: Call, crew: Crew) -> None:
    session, rows = crew.session.refresh(), crew.supervisor.rows()
    held = supervising(session)
    if call.output.json:
        about = {"team": crew.team.name, "headless": crew.members.headless, "dismissed": crew.supervisor.view.dismissed}
        about |= {"supervisor": held.holder if held else None, "runtime": str(crew.members.folder), "agents": rows}
        call.output.envelope("team", session_data(session.head) | about)
        return
    ids = not call.output.terminal or get_terminal_size().columns >= ROOM_FOR_IDS
    columns = ["#agent", "!state", "vendor", ">starts", *(["conversation"] if ids else []), "*what"]
    call.output.table(
        columns,
        [
            [
                name, Cell((row["state"] or "?").replace("_", " "), _STYLES.get(row["state"], "strong")),
                row["vendor"] or "?", str(row["starts"]), *([row["session_id"] or "?"] if ids else []),
                _what(call, row),
            ]
            for name, row in rows.items()
        ],
    )  # fmt: skip
    if held is None and any(step.state not in OVER for step in crew.supervisor.steps.values()):
        call.output.note(f"the team has no supervisor; start one: `onrecord team up --session {session.name}`")


def _what(call: Call, row: dict[str, Any]) -> str:
    moment = int((row["until"] or 0) * 1e6)
    until = f"until {call.when(moment)}" if moment else ""
    needs = f"needs a person: {row['needs']}" if row["needs"] else ""
    how = f"last start: {row['how']}" if row["how"] and row["starts"] > 1 else ""
    return "; ".join(part for part in (needs, row["why"], until, how) if part)


def _attach(call: Call, words: list[str]) -> int:
    crew = _crew(call, _session(call))
    agent = words[0] if words else None
    member = crew.member(agent) if agent else None
    if crew.members.headless or (member is not None and member.headless):
        raise InvalidInput(
            "it runs without a terminal", hint=f"read its output: `onrecord team logs {agent or 'AGENT'}`"
        )
    command = crew.members.tmux().attach_command(agent)
    if command is None:
        raise NotFound("it has no terminal now", hint=f"start the team: `onrecord team resume {crew.session.name}`")
    if not (sys.stdin.isatty() and sys.stdout.isatty()) or call.output.json:
        data = {"argv": command, "session": crew.session.name}
        return call.output.done("command", data, shlex.join(command))
    call.close()
    return os.execvpe(command[0], command, crew.members.tmux().outside())  # noqa: S606 - an argument list, no shell


def _logs(call: Call, words: list[str]) -> int:
    (agent,) = need(call, words, "AGENT")
    crew = _crew(call, _session(call))
    member = None if agent == CREW else crew.member(agent)
    text = (crew.members.processes if member is None else crew.members.host(member)).output(agent)
    if call.output.json:
        call.output.envelope("log", {"agent": agent, "text": text})
        return 0
    for line in text.splitlines():
        call.output.line(line)
    return 0


# Changing


def _restart(call: Call, words: list[str]) -> int:
    (agent,) = need(call, words, "AGENT")
    session = _session(call)
    _crew(call, session).member(agent)
    event = session.log.record("agent.recalled", {"agent": agent})
    return _heard(call, session, event.position, f"{agent} will start a new conversation")


def _scale(call: Call, words: list[str]) -> int:
    group, size = need(call, words, "GROUP", "N")
    session = _session(call)
    number = whole_number(size, "N")
    _crew(call, session).team.scaled(group, number)
    event = session.log.record("team.scaled", {"group": group, "size": number})
    return _heard(call, session, event.position, f"group {group} now has {counted(number, 'agent')}")


def _heard(call: Call, session: Session, position: int, sentence: str) -> int:
    held = supervising(session)
    if held is None:
        call.output.note(f"the team has no supervisor; start one: `onrecord team up --session {session.name}`")
    data = session_data(session.refresh().head) | {"position": position, "supervisor": held.holder if held else None}
    return call.output.done("team_change", data, sentence)


def _stop(call: Call, words: list[str]) -> int:
    """Dismiss the team, end its agents, and check that nothing is left."""
    session = _session(call, words)
    done = _crew(call, session).stop()
    data = session_data(session.refresh().head) | {"state": "stopped", "killed": done.killed, "left": done.left}
    forced = f"; killed {counted(len(done.killed), 'process', 'processes')}" if done.killed else ""
    return call.output.done("team", data, f"stopped the team of {session.name}{forced}")
