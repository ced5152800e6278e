"""`onrecord team`: several agents in one session, kept running, resumed and ended together."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onrecord import machine
from onrecord.agents.running import Stops
from onrecord.crew.judging import FINISHED, OVER, PARKED, RUNNING
from onrecord.crew.team_file import CREW, read_team
from onrecord.crew.wanted import Wanted
from onrecord.crew.worktrees import is_from_elsewhere
from onrecord.errors import InvalidInput, LeaseHeld, NotFound
from onrecord.log.head import PAUSED
from onrecord.session.handle import Session
from onrecord.surfaces.cli.agents.start import session_named
from onrecord.surfaces.cli.agents.team_ways import Crew, warnings_of
from onrecord.surfaces.cli.shared.call import whole_number
from onrecord.surfaces.cli.shared.exits import FAILED, UsageError
from onrecord.surfaces.cli.shared.output import Cell, counted
from onrecord.surfaces.cli.shared.place import act, need
from onrecord.surfaces.cli.shared.shapes import session_data
from onrecord.vendors.port import vendor_of
from onrecord.views.handover import saved, saved_line
from onrecord.views.render import iso

if TYPE_CHECKING:
    from onrecord.crew.team_file import Team
    from onrecord.log.store import Lease
    from onrecord.surfaces.cli.shared.call import Call

SETTLING_SECONDS = 120.0
"""How long `--detach` waits until it is known what became of every agent."""
STOP_SECONDS = 60.0
"""How long a supervisor has to end its team before `team stop` does it itself."""
_LOOK = 0.2
_STYLES = {"running": "good", "finished": "quiet", "stopped": "quiet", "degraded": "bad", "parked": "attention"}


def team(call: Call) -> int:
    """Do what the first word says."""
    return act(
        call,
        {
            "up": _up, "resume": _resume, "status": _status, "attach": _attach, "logs": _logs, "restart": _restart,
            "scale": _scale, "stop": _stop,
        },
    )  # fmt: skip


# Up and resume


def _up(call: Call, words: list[str]) -> int:
    """Form the team of a file, or take over the one on record; supervise it."""
    if not words:
        return _supervise(call, _crew(call, _session(call)))
    (file,) = need(call, words, "FILE")
    wanted, headless = read_team(Path(file)), "headless" in call
    _refuse_idle(wanted, headless=headless)
    for warning in warnings_of(wanted, headless=headless):
        call.output.note(warning)
    session = session_named(call, call.get("session") or wanted.name, CREW)
    crew = Crew(session, wanted, headless=headless, tell=call.output.note, yes="yes" in call)
    for member in wanted.members():
        crew.place(member)  # tmux is missed before anything is on record
    _take_lane(session)
    crew.supervisor.read()
    known = crew.supervisor.wanted
    if known.team is None or known.dismissed or (known.team.as_data(), known.headless) != (wanted.as_data(), headless):
        _form(session, wanted, headless=headless)
    return _supervise(call, crew)


def _resume(call: Call, words: list[str]) -> int:
    """Everybody of the team on record goes on; each with its own conversation, where it has one."""
    session = _session(call, words)
    if session.refresh().status == PAUSED:
        session.resume("the team goes on")
    crew = _crew(call, session)
    for agent in call.many("fresh"):
        _member(crew, agent)
    if is_from_elsewhere(crew.team):
        commands = "; ".join(sorted({shlex.join(member.command) for member in crew.team.members()}))
        call.confirm(f"The team was formed on another machine. It runs {commands}. Run that here?")
    _take_lane(session)
    _form(session, crew.team, headless=crew.headless)
    for agent in call.many("fresh"):
        session.record("agent.recalled", {"agent": agent})
    call.output.note(saved_line(saved(session.refresh().views, call.now())))
    return _supervise(call, crew)


def _refuse_idle(team: Team, *, headless: bool) -> None:
    for member in team.members():
        if (headless or member.headless) and not member.prompt and vendor_of(member.command[0]):
            raise InvalidInput(f"{member.id} runs without a terminal and has no prompt", hint="give it a prompt")


def _form(session: Session, team: Team, *, headless: bool) -> None:
    session.append(session.draft("team.formed", {"team": team.as_data(), "headless": headless}), fenced=True)


def _take_lane(session: Session) -> None:
    try:
        session.join()
    except LeaseHeld as held:
        who = f"process {held.holder.get('pid')} on {held.holder.get('host')}"
        raise LeaseHeld(
            f"{who} already supervises the team of {session.name}",
            hint=f"see `onrecord team status {session.name}`", step="team_status", name=session.name,
            holder=held.holder,
        ) from None  # fmt: skip


def _supervise(call: Call, crew: Crew) -> int:
    session, supervisor = crew.session, crew.supervisor
    with suppress(OSError):  # what cannot be written there is told by the supervisor
        crew.files.prepare()
    if "detach" in call:
        session.leave()
        return _detach(call, crew)
    _take_lane(session)
    told: dict[str, str] = {}

    def changed(rows: dict[str, dict[str, Any]]) -> None:
        _tell_reports(call, crew, rows, told)

    try:
        with Stops((signal.SIGINT, signal.SIGTERM, signal.SIGHUP)) as stops:
            why = supervisor.run(lambda: bool(stops.signal), changed)
        supervisor.look(session.clock())
        changed(supervisor.rows())
        if why == "dismissed":
            crew.close()
    finally:
        session.leave()
    if why == "stopped":
        call.output.note("the team has no supervisor now; its agents keep running")
        call.output.note(
            f"`onrecord team up --session {session.name}` supervises it, `onrecord team stop {session.name}` ends it"
        )
    _show(call, crew)
    finished = all(step.state == FINISHED for step in supervisor.steps.values())
    return FAILED if why == "done" and not finished else 0


def _tell_reports(call: Call, crew: Crew, rows: dict[str, dict[str, Any]], told: dict[str, str]) -> None:
    """What became of everybody who was asked for, once for each; also of those who had never ended."""
    wanted = crew.supervisor.wanted
    for name, row in rows.items():
        asked = wanted.agent(name)["spawned"] > wanted.formed
        how = row["how"] if asked else "still running" if row["state"] == RUNNING else ""
        if how and told.get(name) != how:
            told[name] = how
            call.output.note(f"{name}: {how}")


def _detach(call: Call, crew: Crew) -> int:
    """Leave the supervising to a process of its own, and tell how it began."""
    session = crew.session
    log = crew.processes.log(CREW)
    log.parent.mkdir(parents=True, exist_ok=True)
    words = [sys.executable, "-m", "onrecord", "team", "up", "--session", session.id, "--store", session.store.url]
    words += ["--project", session.head.project, *(["--yes"] if "yes" in call else [])]
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        child = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=file, stderr=file, start_new_session=True, cwd=crew.here
        )
    finally:
        os.close(file)
    deadline = time.monotonic() + SETTLING_SECONDS
    while time.monotonic() < deadline and child.poll() is None and not _settled(crew):
        time.sleep(_LOOK)
    _show(call, crew)
    return FAILED if child.poll() not in (None, 0) else 0


def _settled(crew: Crew) -> bool:
    """Whether it is known of everybody what became of its start."""
    crew.supervisor.look(crew.session.clock())
    wanted = crew.supervisor.wanted
    return all(
        row["how"] if wanted.agent(name)["spawned"] > wanted.formed else row["state"] in (RUNNING, PARKED)
        for name, row in crew.supervisor.rows().items()
    )


# Looking


def _session(call: Call, words: list[str] | None = None) -> Session:
    """The session that is meant: named, or the only live one."""
    if words and len(words) > 1:
        raise UsageError(f"unexpected argument {words[1]!r}")
    records = call.records(make=False)
    id_ = records.find(words[0]).session if words else call.head().session
    return Session(records.store, id_, agent=CREW, clock=records.clock)


def _crew(call: Call, session: Session) -> Crew:
    known = Wanted()
    for event in session.events(kinds=("team.formed", "team.scaled", "team.dismissed")):
        if event.session == session.id:
            known.apply(event)
    if known.team is None:
        raise NotFound(f"{session.name} has no team", hint="start one: `onrecord team up team.toml`")
    headless = known.headless or "headless" in call
    return Crew(session, known.team, headless=headless, tell=call.output.note, yes="yes" in call)


def _member(crew: Crew, agent: str) -> Any:
    known = {member.id: member for member in crew.team.members()}
    if agent not in known:
        raise NotFound(
            f"the team of {crew.session.name} has no agent {agent!r:.80}", hint=f"its agents are {', '.join(known)}"
        )
    return known[agent]


def _supervising(session: Session) -> Lease | None:
    return next(
        (one for one in session.store.leases(session.id) if one.lane == CREW and not machine.is_gone(one.holder)), None
    )


def _status(call: Call, words: list[str]) -> int:
    crew = _crew(call, _session(call, words))
    crew.supervisor.look(crew.session.clock())
    _show(call, crew)
    return 0


def _show(call: Call, crew: Crew) -> None:
    session, rows = crew.session.refresh(), crew.supervisor.rows()
    held = _supervising(session)
    if call.output.json:
        about = {"team": crew.team.name, "headless": crew.headless, "dismissed": crew.supervisor.wanted.dismissed}
        about |= {"supervisor": held.holder if held else None, "runtime": str(crew.folder), "agents": rows}
        call.output.envelope("team", session_data(session.head) | about)
        return
    call.output.table(
        ("#agent", "!state", "vendor", ">starts", "conversation", "*what"),
        [
            [
                name, Cell(row["state"] or "?", _STYLES.get(row["state"], "strong")), row["vendor"] or "?",
                str(row["starts"]), row["session_id"] or "?", _what(row),
            ]
            for name, row in rows.items()
        ],
    )  # fmt: skip
    if held is None and any(step.state not in OVER for step in crew.supervisor.steps.values()):
        call.output.note(f"the team has no supervisor; start one: `onrecord team up --session {session.name}`")


def _what(row: dict[str, Any]) -> str:
    until = f"until {iso(int(row['until'] * 1e6))}" if row["until"] else ""
    needs = f"needs a person: {row['needs']}" if row["needs"] else ""
    return "; ".join(part for part in (needs, row["how"], row["why"], until) if part)


def _attach(call: Call, words: list[str]) -> int:
    crew = _crew(call, _session(call))
    agent = words[0] if words else None
    member = _member(crew, agent) if agent else None
    if crew.headless or (member is not None and member.headless):
        raise InvalidInput(
            "it runs without a terminal", hint=f"read its output: `onrecord team logs {agent or 'AGENT'}`"
        )
    command = crew.panes().attach_command(agent)
    if command is None:
        raise NotFound("it has no terminal now", hint=f"start the team: `onrecord team resume {crew.session.name}`")
    if not (sys.stdin.isatty() and sys.stdout.isatty()) or call.output.json:
        data = {"argv": command, "session": crew.session.name}
        return call.output.done("command", data, shlex.join(command))
    call.close()
    return os.execvp(command[0], command)  # noqa: S606 - an argument list, no shell


def _logs(call: Call, words: list[str]) -> int:
    (agent,) = need(call, words, "AGENT")
    crew = _crew(call, _session(call))
    member = None if agent == CREW else _member(crew, agent)
    text = (crew.processes if member is None else crew.place(member)).output(agent)
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
    _member(_crew(call, session), agent)
    event = session.record("agent.recalled", {"agent": agent})
    return _heard(call, session, event.position, f"{agent} will start a new conversation")


def _scale(call: Call, words: list[str]) -> int:
    group, size = need(call, words, "GROUP", "N")
    session = _session(call)
    number = whole_number(size, "N")
    _crew(call, session).team.scaled(group, number)
    event = session.record("team.scaled", {"group": group, "size": number})
    return _heard(call, session, event.position, f"group {group} now has {counted(number, 'agent')}")


def _heard(call: Call, session: Session, position: int, sentence: str) -> int:
    held = _supervising(session)
    if held is None:
        call.output.note(f"the team has no supervisor; start one: `onrecord team up --session {session.name}`")
    data = session_data(session.refresh().head) | {"position": position, "supervisor": held.holder if held else None}
    return call.output.done("team_change", data, sentence)


def _stop(call: Call, words: list[str]) -> int:
    """Dismiss the team: its supervisor ends it, or we do; then look that nothing is left."""
    session = _session(call, words)
    crew = _crew(call, session)
    session.record("team.dismissed", {})
    deadline = time.monotonic() + STOP_SECONDS
    while _supervising(session) is not None and time.monotonic() < deadline:
        time.sleep(_LOOK)
    session.join(takeover=True)
    try:
        killed = crew.supervisor.end_all()
        crew.close()
        crew.supervisor.look(session.clock())
        crew.supervisor.write_files(crew.supervisor.rows())
    finally:
        session.leave()
    left = crew.belonging([name for name, one in crew.supervisor.wanted.agents.items() if one["spawned"]], [])
    data = session_data(session.refresh().head) | {"state": "stopped", "killed": killed, "left": left}
    forced = f"; killed {counted(len(killed), 'process', 'processes')}" if killed else ""
    return call.output.done("team", data, f"stopped the team of {session.name}{forced}")
