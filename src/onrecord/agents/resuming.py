"""Resuming an agent's conversation: the plan is shown first, and success is reported only when it was observed.

A conversation is restored when the one that came up has the expected id and its file has grown. If it is not, the
policy decides: `must` stops, `allow` starts a new conversation from the note. `never` always starts a new one.
"""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from onrecord import machine
from onrecord.agents import processes
from onrecord.agents.beside import put_files_back
from onrecord.agents.generations import has_gaps, kept, source_path, standing
from onrecord.agents.handover import extract
from onrecord.agents.mirroring import location_of, mirror
from onrecord.agents.running import program_of
from onrecord.agents.starting import join, opening, start
from onrecord.agents.surroundings import environment_for, survey
from onrecord.agents.wrapping import VIA, record_prompt, wrap
from onrecord.errors import ConversationInUse, NotFound, NotRestored, OnrecordError
from onrecord.log.head import LIVE
from onrecord.vendors.arguments import again
from onrecord.vendors.hooks import RESUMED
from onrecord.vendors.port import (
    BUDGET,
    KILLED,
    OVERLOAD,
    RATE_LIMIT,
    TOKENS,
    USAGE_WINDOW,
    USER,
    Hazard,
    LaunchOptions,
    Location,
    vendor,
)
from onrecord.views.facts import TEXT_LIMIT
from onrecord.work.project import worktree_for

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from onrecord.agents.wrapping import Ask, Outcome, Wrapped
    from onrecord.session.handle import Session
    from onrecord.vendors.port import Launch, Vendor
    from onrecord.views.values import Agent, Link

IN_USE = "in_use"
"""The hazard that another process has the conversation open."""
MUST, ALLOW, NEVER = "must", "allow", "never"
POLICIES = (MUST, ALLOW, NEVER)
LIMITS = (RATE_LIMIT, USAGE_WINDOW, TOKENS, OVERLOAD)
"""Causes that say nothing about whether the conversation came up: a new one would meet the same limit."""

RESTORED, FRESH = "resumed", "fresh"


class Terms(NamedTuple):
    """How far resuming may go, how consent is asked for, and where a message goes."""

    policy: str
    consent: Callable[[Hazard], bool]
    """Whether the user's files may be changed as a hazard's fix says."""
    tell: Callable[[str], None]


class Plan(NamedTuple):
    """What resuming an agent would do, before anything is done."""

    agent: str
    link: Link
    of: Vendor
    env: dict[str, str]
    cwd: str
    location: Location | None
    """Where the conversation is; None: not on this machine."""
    put_back: bool = False
    """The record's copy is written back first."""
    hazards: Sequence[Hazard] = ()
    notes: Sequence[str] = ()
    lost: str = ""
    """Why it cannot be restored; empty if it can."""
    arguments: Sequence[str] = ()
    """The user's own arguments for the program, as on record."""
    arguments_on: str = ""
    """The machine on which they were given, if it is another one: then they need consent."""
    generation: int | None = None
    """Which copy of the record is written back; None: the one that counts."""
    copy_from_elsewhere: bool = False
    """That copy came from another store: then it needs consent."""

    @property
    def vendor_id(self) -> str:
        """The conversation's id."""
        return str(self.link["id"])


class Resumed(NamedTuple):
    """The result of a resume."""

    agent: str
    how: str
    """RESTORED or FRESH."""
    verified: bool
    why: str
    """What is not verified, or why it is a fresh one."""
    outcome: Outcome
    mended: Sequence[str] = ()


def plan(session: Session, agent: str, env: Mapping[str, str], here: str) -> Plan:
    """How an agent's present conversation would be resumed by a process in the directory `here`."""
    known = session.views.roster.agents.get(agent)
    if not known or not known["links"]:
        raise NotFound(
            f"there is no conversation of agent {agent!r} on record", hint="start an agent first", step="start_agent"
        )
    link = known["links"][-1]
    of, about = vendor(link["vendor"]), link["first"] | link["last"]
    notes: list[str] = []
    origin = origin_of(session, agent)
    whole = _at_home(of, dict(env), about | ({"home": ""} if origin.conversation else {}), notes)
    cwd = _directory(about, here, notes, foreign=origin.conversation)
    location = location_of(link, whole)
    drafted = Plan(agent, link, of, whole, cwd, location, notes=notes)
    drafted = drafted._replace(**_arguments_on_record(known, of, foreign=origin.arguments))
    moved = bool(about.get("cwd")) and not _same(cwd, str(about["cwd"]))
    if location is not None and (not moved or of.capabilities.resumes_elsewhere):
        return drafted._replace(hazards=of.hazards(location, whole))
    missing = (
        "its directory is another one, and this program looks for it there" if location else "its transcript is gone"
    )
    if not standing(session, of.name, link["id"]).position:
        never = location is None and not about.get("transcript")
        return drafted._replace(
            lost="no transcript of it was ever seen" if never else f"{missing}, and the record has no copy"
        )
    if has_gaps(session, of.name, link["id"]):
        return drafted._replace(lost=f"{missing}, and the record's copy is not whole: some of it was erased")
    notes.append(f"{missing}; the record's copy is put back first")
    return drafted._replace(put_back=True, copy_from_elsewhere=origin.conversation)


class Origin(NamedTuple):
    """What of an agent's record came from another store: no person here agreed to it."""

    arguments: bool
    conversation: bool
    """Where its conversation is, and what it contains."""


def origin_of(session: Session, agent: str) -> Origin:
    """Whether an agent's arguments and its present conversation came from another store."""
    arrived = session.log.arrived()
    if not arrived:
        return Origin(arguments=False, conversation=False)
    mine = [one for one in session.log.newest(("agent.joined", "agent.located")) if one.by == agent]
    given = [one.position for one in mine if isinstance((one.data or {}).get("arguments"), list)]
    located = [one.position for one in mine if one.kind == "agent.located"]
    return Origin(max(given, default=0) <= arrived, max(located, default=0) <= arrived)


def _arguments_on_record(known: Agent, of: Vendor, *, foreign: bool) -> dict[str, Any]:
    if known["vendor"] != of.name:
        return {}
    given_on = known["arguments_on"]
    elsewhere = "" if given_on == machine.identity()["host"] else given_on or "an unknown machine"
    if foreign:
        elsewhere = elsewhere or "another store"
    return {"arguments": known["arguments"], "arguments_on": elsewhere if known["arguments"] else ""}


def plan_here(session: Session, agent: str) -> Plan:
    """How an agent's present conversation would be resumed by this process, in the project's worktree."""
    here = worktree_for(session, os.curdir)
    return plan(session, agent, environment_for(session, here), here)


def _at_home(of: Vendor, env: dict[str, str], about: dict[str, Any], notes: list[str]) -> dict[str, str]:
    home = str(about.get("home") or "")
    if not home or _same(str(of.home(env)), home):
        return env
    if (
        Path(home).is_dir() and Path(home).stat().st_uid == os.getuid()
    ):  # a record from another machine cannot name another user's
        return env | of.home_env(home)
    notes.append(f"the home {home} of {of.title} is not here; {of.home(env)} is used")
    return env


def _directory(about: dict[str, Any], here: str, notes: list[str], *, foreign: bool = False) -> str:
    wanted = str(about.get("cwd") or "")
    if wanted and Path(wanted).is_dir():
        if not foreign or Path(wanted).resolve().is_relative_to(Path(here).resolve()):
            return wanted
        notes.append(f"its directory {wanted} is the word of another store; {here} is used")
    elif wanted:
        notes.append(f"its directory {wanted} is gone; {here} is used")
    return here


def _same(one: str, other: str) -> bool:
    return os.path.realpath(one) == os.path.realpath(other)


def users_of(planned: Plan) -> list[int]:
    """The living processes that have the conversation open. A second writer would mix two into one."""
    found = processes.writers(planned.of, planned.vendor_id, planned.env)
    process = (planned.link["first"] | planned.link["last"]).get("process")
    here = machine.identity()
    if isinstance(process, dict) and process.get("host") == here["host"] and not machine.is_gone(process):
        found.append(int(process["pid"]))
    return sorted(set(found))


def refuse_second_writer(planned: Plan) -> None:
    """Refuse while another process has the conversation open."""
    pids = users_of(planned)
    if pids:
        terminal = machine.terminal_of(pids[0])
        where = f"process {pids[0]}" + (f" on {terminal}" if terminal else "")
        raise ConversationInUse(
            f"{where} has the conversation of {planned.agent!r} open; two writers would mix their turns",
            hint="continue there, or end that process and resume again", pids=pids,
        )  # fmt: skip


def arguments(planned: Plan, ask: Ask, *, headless: bool | None) -> list[str]:
    """The arguments on record that still apply, with those that are given now; `headless` None: for any run."""
    return again(planned.of.name, () if ask.only_extra else planned.arguments, ask.extra, headless=headless)


def _to_record(planned: Plan, ask: Ask) -> list[str] | None:
    """The arguments that later runs use; None: what is on record stays, because it was declined only here."""
    declined = planned.arguments_on and not planned.arguments
    return None if declined and not ask.extra and not ask.only_extra else arguments(planned, ask, headless=None)


def command(planned: Plan, ask: Ask) -> Launch:
    """The command that resumes it."""
    extra = arguments(planned, ask, headless=ask.headless)
    wanted = LaunchOptions(planned.cwd, planned.vendor_id, prompt=ask.prompt, headless=ask.headless, extra=extra)
    return planned.of.resume(wanted._replace(env=planned.env))


def put_back(session: Session, planned: Plan, cwd: str | None = None) -> Location:
    """Write the record's copy where the vendor's program can resume it; never over an existing one."""
    about = planned.link["first"] | planned.link["last"]
    old = Location(planned.vendor_id, *(str(about.get(name) or "") for name in ("transcript", "home", "cwd")))
    old = old._replace(path=source_path(session, planned.of.name, planned.vendor_id, planned.generation) or old.path)
    lines = (one.raw for one in kept(session, planned.of.name, planned.vendor_id, generation=planned.generation))
    location = planned.of.put_back(old, lines, planned.env, cwd or planned.cwd)
    put_files_back(session, planned.of, location)
    return location


def prepare(session: Session, planned: Plan, consent: Callable[[Hazard], bool]) -> tuple[Plan, list[str]]:
    """Mirror the transcript or write it back, and fix what would damage it; returns the plan after that."""
    if planned.location is not None:
        mirror(session, planned.of.name, planned.vendor_id, planned.env, location=planned.location)
    if planned.put_back:
        if planned.copy_from_elsewhere and not consent(_came_from_elsewhere(planned)):
            raise NotRestored(
                "not restored, because the copy of its conversation came from another store",
                hint="allow it: the agent reads it as its own past", step="allow_fix",
                reason="the copy of its conversation came from another store",
            )  # fmt: skip
        location = _put_where_it_is_searched(session, planned, consent)
        planned = planned._replace(location=location, put_back=False, hazards=planned.of.hazards(location, planned.env))
    mended = []
    for hazard in planned.hazards:
        if hazard.code == IN_USE:
            raise ConversationInUse(hazard.message, hint=hazard.fix, pids=[])
        if not hazard.touches or consent(hazard):
            if planned.location is not None:
                planned.of.mend(hazard, planned.location, planned.env)
            mended.append(hazard.fix)
        elif hazard.fatal:
            raise NotRestored(
                f"not restored, because {hazard.message}",
                hint=f"allow this change: {hazard.fix}", step="allow_fix", reason=hazard.message,
            )  # fmt: skip
    return planned, mended


def _put_where_it_is_searched(session: Session, planned: Plan, consent: Callable[[Hazard], bool]) -> Location:
    """Write the copy for the directory of the plan; with consent, the one for another directory is moved aside."""
    if planned.location is None:
        return put_back(session, planned)
    old, shared = Path(planned.location.path), planned.of.shares_file
    message = f"{planned.of.title} would look for the conversation in {planned.cwd} only"
    fix = f"move {old} aside, and write it for {planned.cwd}" if not shared else f"set its directory to {planned.cwd}"
    hazard = Hazard("elsewhere", message, fix, (str(old),), fatal=True)
    if not consent(hazard):
        raise NotRestored(
            f"not restored, because {message}",
            hint=f"allow this change: {hazard.fix}", step="allow_fix", reason=message,
        )  # fmt: skip
    if shared:
        return planned.of.move_within(planned.location, planned.env, planned.cwd)
    aside = old.with_name(f"{old.name}.onrecord-moved")
    old.rename(aside)
    try:
        return put_back(session, planned)
    except BaseException:
        aside.rename(old)
        raise


def resume(run: Wrapped, planned: Plan, ask: Ask, terms: Terms) -> Resumed:
    """Resume as planned, or do what the policy says. The session must not be joined yet."""
    run = run._replace(env=planned.env, of=planned.of)
    if planned.arguments_on and not ask.only_extra and not terms.consent(_given_elsewhere(planned)):
        planned = planned._replace(arguments=())
    if terms.policy == NEVER:
        return _fresh(run, planned, "the policy is never", ask)
    refuse_second_writer(planned)
    if planned.lost:
        return _not_restored(run, planned, planned.lost, ask, terms)
    program_of(command(planned, ask), planned.env, planned.of.title)
    end_remains(run.session, terms.tell)
    joined = join(run, _to_record(planned, ask), as_of=ask.as_of, resumes=planned.vendor_id)
    ask = ask._replace(as_of=None)  # the lane was taken: what was decided holds
    try:
        found = _try(joined, planned, ask, terms)
    finally:
        run.session.leave()
    return found if isinstance(found, Resumed) else _not_restored(run, planned, found, ask, terms)


def end_remains(session: Session, tell: Callable[[str], None]) -> None:
    """End what is left of the agent's last run, if its end is not on record: its wrapper was killed.

    Its processes carry the token of that run. Those of a run that ended in order stay: the agent left them on purpose.
    """
    last = next((one for one in session.log.newest(("agent.joined", "agent.left")) if one.by == session.agent), None)
    about = (last.data if last is not None and last.kind == "agent.joined" else None) or {}
    if not about.get("spawn") or not machine.is_gone(about.get("process") or {}):
        return
    if left := processes.end_spawned(str(about["spawn"])):
        tell(f"ended {len(left)} processes that the last run of {session.agent!r} left running")


def _came_from_elsewhere(planned: Plan) -> Hazard:
    fix = f"write it for {planned.of.title}, which reads it as its own past"
    return Hazard("from_elsewhere", f"the copy of {planned.vendor_id} came from another store", fix, ())


def _given_elsewhere(planned: Plan) -> Hazard:
    words = shlex.join(planned.arguments)
    return Hazard("arguments", f"its arguments were given on {planned.arguments_on}", f"use them here: {words}", ())


def _try(run: Wrapped, planned: Plan, ask: Ask, terms: Terms) -> Resumed | str:
    """The resumed conversation, or why it is not restored."""
    try:
        planned, mended = prepare(run.session, planned, terms.consent)
    except ConversationInUse:
        raise
    except NotRestored as refusal:
        if terms.policy == MUST:
            raise
        return refusal.reason
    except OnrecordError as problem:
        return problem.message + (f" ({problem.hint})" if problem.hint else "")
    outcome = _run(run, planned, ask)
    lost = _lost(planned, outcome)
    if lost and outcome.came_up not in (None, planned.vendor_id) and run.session.refresh().head.status in LIVE:
        # A hook or the stream recorded the stray: the next resume must not continue with it.
        run.session.agents.locate(planned.of.name, planned.vendor_id, verified=False)
    return lost or _restored(run, planned, outcome, mended)


def _run(run: Wrapped, planned: Plan, ask: Ask) -> Outcome:
    """Only the prompt is sent: the conversation still contains its first message."""
    session, location = run.session, planned.location
    where = {"home": location.home, "transcript": location.path} if location else {}
    about = {"reason": RESUMED, "cwd": planned.cwd, "via": VIA, **where, **survey(planned.cwd)}
    session.agents.locate(run.of.name, planned.vendor_id, **about)
    launch = command(planned._replace(env=dict(run.env)), ask)
    prompted = record_prompt(session, ask)
    return wrap(run, launch, vendor_id=planned.vendor_id, resumed=True, headless=ask.headless, prompted=prompted)


def _lost(planned: Plan, outcome: Outcome) -> str:
    """Why it is not the expected conversation; empty when it is, or when there is no evidence against it."""
    if outcome.came_up is not None and outcome.came_up != planned.vendor_id:
        return f"another conversation came up: {outcome.came_up}"
    if outcome.came_up == planned.vendor_id or outcome.grew or outcome.why.cause in (*LIMITS, USER, KILLED, BUDGET):
        return ""
    if outcome.status:
        return outcome.why.message or f"{planned.of.title} ended with status {outcome.status} before it came up"
    return f"nothing shows that it came up, and {planned.of.title} added nothing to it"


def _restored(run: Wrapped, planned: Plan, outcome: Outcome, mended: list[str]) -> Resumed:
    verified = outcome.came_up == planned.vendor_id and outcome.grew
    seen = "it came up" if outcome.came_up else "no stream, hook or lock file named it"
    grown = "its transcript grew" if outcome.grew else "nothing was added to it"
    if outcome.rewritten:
        grown = "the program replaced its transcript (what it was before is on record)"
    links = run.session.refresh().views.roster.agents[run.session.agent]["links"]
    if run.session.head.status in LIVE and links[-1]["id"] == planned.vendor_id:  # a cleared one is not present again
        run.session.agents.locate(planned.of.name, planned.vendor_id, verified=verified)
    return Resumed(planned.agent, RESTORED, verified, "" if verified else f"{seen}, and {grown}", outcome, mended)


def _not_restored(run: Wrapped, planned: Plan, why: str, ask: Ask, terms: Terms) -> Resumed:
    refusal = NotRestored(
        f"not restored, because {why}", hint="allow a new conversation from the note", step="allow_fresh", reason=why
    )
    run.session.log.record("worklog.written", {"text": f"{planned.agent}: {refusal.message}"[:TEXT_LIMIT]})
    if terms.policy == MUST:
        raise refusal
    terms.tell(f"{refusal.message}; a fresh conversation begins from the note")
    said = extract(run.session, planned.link)
    return _fresh(run, planned, why, ask, said, lost=why[:TEXT_LIMIT])


def _fresh(run: Wrapped, planned: Plan, why: str, ask: Ask, said: str = "", **about: str) -> Resumed:
    """Begin a fresh conversation from the note, and from what was `said` last in the old one.

    `about` is recorded with the run: `lost` says why the old one ended.
    """
    session = run.session
    joined = join(run, _to_record(planned, ask), as_of=ask.as_of, **about)
    ask = ask._replace(extra=arguments(planned, ask, headless=ask.headless))
    ask = ask._replace(prompt=ask.anew, id=None) if ask.anew else ask
    try:
        outcome = start(joined, planned.cwd, ask, text=opening(session.note(), ask.prompt, said))
    finally:
        session.leave()
    return Resumed(planned.agent, FRESH, outcome.came_up is not None, why, outcome)
