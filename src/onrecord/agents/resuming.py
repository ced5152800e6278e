"""Resuming an agent's conversation: planned in the open, in the right directory, and believed only when it was seen.

A conversation is restored when the one that came up has the expected id and more in the same file than before.
Anything else is "not restored, because ...", and what happens then is the policy: `must` stops, `allow` begins anew
from the note, `never` always begins anew.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from onrecord import machine
from onrecord.agents import processes
from onrecord.agents.mirroring import has_gaps, kept, mirror, place_of, standing
from onrecord.agents.running import program_of
from onrecord.agents.starting import join, opening, start
from onrecord.agents.wrapping import VIA, record_prompt, wrap
from onrecord.errors import ConversationHeld, NotFound, NotRestored, OnrecordError
from onrecord.log.head import LIVE
from onrecord.vendors.hooks import RESUMED
from onrecord.vendors.port import (
    KILLED,
    OVERLOAD,
    RATE_LIMIT,
    TOKENS,
    USAGE_WINDOW,
    USER,
    Hazard,
    Place,
    Request,
    vendor,
)
from onrecord.views.facts import TEXT_LIMIT

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from onrecord.agents.wrapping import Ask, Outcome, Wrapped
    from onrecord.session.handle import Session
    from onrecord.vendors.port import Launch, Vendor

IN_USE = "in_use"
"""The hazard that another process has the conversation."""
MUST, ALLOW, NEVER = "must", "allow", "never"
POLICIES = (MUST, ALLOW, NEVER)
LIMITS = (RATE_LIMIT, USAGE_WINDOW, TOKENS, OVERLOAD)
"""Causes that say nothing about whether the conversation came up: a new one would meet the same limit."""

RESTORED, FRESH = "resumed", "fresh"


class Ways(NamedTuple):
    """How far resuming may go, and whom it asks and tells."""

    policy: str
    consent: Callable[[Hazard], bool]
    """Whether the user's files may be changed as a hazard's fix says."""
    tell: Callable[[str], None]


class Plan(NamedTuple):
    """What resuming an agent would do, before anything is done."""

    agent: str
    link: dict[str, Any]
    of: Vendor
    env: dict[str, str]
    cwd: str
    place: Place | None
    """Where the conversation is; None: not on this machine."""
    put_back: bool = False
    """The record's copy is written back first."""
    hazards: Sequence[Hazard] = ()
    notes: Sequence[str] = ()
    lost: str = ""
    """Why it cannot be restored; empty when it can."""

    @property
    def vendor_id(self) -> str:
        """The conversation's id."""
        return str(self.link["id"])


class Resumed(NamedTuple):
    """What became of it."""

    agent: str
    how: str
    """RESTORED or FRESH."""
    verified: bool
    why: str
    """What is not verified, or why it is a fresh one."""
    outcome: Outcome
    mended: Sequence[str] = ()


def plan(session: Session, agent: str, env: Mapping[str, str], here: str) -> Plan:
    """How an agent's present conversation would be resumed by somebody who stands in `here`."""
    known = session.views.roster.agents.get(agent)
    if not known or not known["links"]:
        raise NotFound(
            f"there is no conversation of agent {agent!r} on record", hint="start an agent first", step="start_agent"
        )
    link = known["links"][-1]
    of, about = vendor(link["vendor"]), link["first"] | link["last"]
    notes: list[str] = []
    whole = _at_home(of, dict(env), about, notes)
    cwd = _directory(about, here, notes)
    place = place_of(link, whole)
    drafted = Plan(agent, link, of, whole, cwd, place, notes=notes)
    moved = bool(about.get("cwd")) and not _same(cwd, str(about["cwd"]))
    if place is not None and (not moved or of.capabilities.resumes_elsewhere):
        return drafted._replace(hazards=of.hazards(place, whole))
    missing = "its directory is another one, and this program looks for it there" if place else "its transcript is gone"
    if not standing(session, of.name, link["id"]).position:
        never = place is None and not about.get("transcript")
        return drafted._replace(
            lost="no transcript of it was ever seen" if never else f"{missing}, and the record has no copy"
        )
    if has_gaps(session, of.name, link["id"]):
        return drafted._replace(lost=f"{missing}, and the record's copy is not whole: some of it was erased")
    notes.append(f"{missing}; the record's copy is put back first")
    return drafted._replace(put_back=True)


def _at_home(of: Vendor, env: dict[str, str], about: dict[str, Any], notes: list[str]) -> dict[str, str]:
    home = str(about.get("home") or "")
    if not home or _same(str(of.home(env)), home):
        return env
    if Path(home).is_dir() and Path(home).stat().st_uid == os.getuid():  # a record from elsewhere names no foreign one
        return env | of.home_env(home)
    notes.append(f"the home {home} of {of.title} is not here; {of.home(env)} is used")
    return env


def _directory(about: dict[str, Any], here: str, notes: list[str]) -> str:
    wanted = str(about.get("cwd") or "")
    if wanted and Path(wanted).is_dir():
        return wanted
    if wanted:
        notes.append(f"its directory {wanted} is gone; going on in {here}")
    return here


def _same(one: str, other: str) -> bool:
    return os.path.realpath(one) == os.path.realpath(other)


def holders(planned: Plan) -> list[int]:
    """The living processes that have the conversation. A second writer would mix two into one."""
    found = processes.writers(planned.of, planned.vendor_id, planned.env)
    process = (planned.link["first"] | planned.link["last"]).get("process")
    here = machine.identity()
    if isinstance(process, dict) and process.get("host") == here["host"] and not machine.is_gone(process):
        found.append(int(process["pid"]))
    return sorted(set(found))


def refuse_second_writer(planned: Plan) -> None:
    """Refuse while another process has the conversation."""
    pids = holders(planned)
    if pids:
        raise ConversationHeld(
            f"process {pids[0]} has the conversation of {planned.agent!r} open; two writers would damage it",
            hint="stop that process or wait until it ends, then resume again", pids=pids,
        )  # fmt: skip


def command(planned: Plan, ask: Ask) -> Launch:
    """The command that resumes it."""
    wanted = Request(planned.cwd, planned.vendor_id, prompt=ask.prompt, headless=ask.headless, extra=ask.extra)
    return planned.of.resume(wanted._replace(env=planned.env))


def put_back(session: Session, planned: Plan, cwd: str | None = None) -> Place:
    """Write the record's copy where the vendor's program can resume it; never over another one."""
    about = planned.link["first"] | planned.link["last"]
    old = Place(planned.vendor_id, *(str(about.get(name) or "") for name in ("transcript", "home", "cwd")))
    lines = (one.raw for one in kept(session, planned.of.name, planned.vendor_id))
    return planned.of.put_back(old, lines, planned.env, cwd or planned.cwd)


def prepare(session: Session, planned: Plan, consent: Callable[[Hazard], bool]) -> tuple[Plan, list[str]]:
    """Mirror what is there, put back what is not, mend what would harm it; the plan as it stands then."""
    if planned.place is not None:
        mirror(session, planned.of.name, planned.vendor_id, planned.env, place=planned.place)
    if planned.put_back:
        place = _put_where_it_is_looked_for(session, planned, consent)
        planned = planned._replace(place=place, put_back=False, hazards=planned.of.hazards(place, planned.env))
    mended = []
    for hazard in planned.hazards:
        if hazard.code == IN_USE:
            raise ConversationHeld(hazard.message, hint=hazard.fix, pids=[])
        if not hazard.touches or consent(hazard):
            if planned.place is not None:
                planned.of.mend(hazard, planned.place, planned.env)
            mended.append(hazard.fix)
        elif hazard.fatal:
            raise NotRestored(
                f"not restored, because {hazard.message}", hint=f"allow this change: {hazard.fix}", step="allow_fix"
            )
    return planned, mended


def _put_where_it_is_looked_for(session: Session, planned: Plan, consent: Callable[[Hazard], bool]) -> Place:
    """Write the copy for the directory of the plan; what is there for another one steps aside, if it may."""
    if planned.place is None:
        return put_back(session, planned)
    old = Path(planned.place.path)
    message = f"{planned.of.title} looks for the conversation only in {planned.cwd}"
    hazard = Hazard("elsewhere", message, f"move {old} aside, and write it for {planned.cwd}", (str(old),), fatal=True)
    if not consent(hazard):
        raise NotRestored(f"not restored, because {message}", hint=f"allow this change: {hazard.fix}", step="allow_fix")
    aside = old.with_name(f"{old.name}.onrecord-moved")
    old.rename(aside)
    try:
        return put_back(session, planned)
    except BaseException:
        aside.rename(old)
        raise


def resume(run: Wrapped, planned: Plan, ask: Ask, ways: Ways) -> Resumed:
    """Resume as planned, or as the policy has it. The session must not be joined yet."""
    run = run._replace(env=planned.env, of=planned.of)
    if ways.policy == NEVER:
        return _fresh(run, planned, "the policy is never", ask)
    refuse_second_writer(planned)
    if planned.lost:
        return _not_restored(run, planned, planned.lost, ask, ways)
    program_of(command(planned, ask), planned.env, planned.of.title)
    joined = join(run, resumes=planned.vendor_id)
    try:
        found = _try(joined, planned, ask, ways)
    finally:
        run.session.leave()
    return found if isinstance(found, Resumed) else _not_restored(run, planned, found, ask, ways)


def _try(run: Wrapped, planned: Plan, ask: Ask, ways: Ways) -> Resumed | str:
    """The resumed conversation, or why it is not restored."""
    try:
        planned, mended = prepare(run.session, planned, ways.consent)
    except ConversationHeld:
        raise
    except NotRestored as refusal:
        if ways.policy == MUST:
            raise
        return refusal.message.removeprefix("not restored, because ")
    except OnrecordError as problem:
        return problem.message
    outcome = _run(run, planned, ask)
    return _lost(planned, outcome) or _restored(run, planned, outcome, mended)


def _run(run: Wrapped, planned: Plan, ask: Ask) -> Outcome:
    """The prompt alone goes in: what the conversation was told when it began, it still knows."""
    session, place = run.session, planned.place
    where = {"home": place.home, "transcript": place.path} if place else {}
    about = {"reason": RESUMED, "cwd": planned.cwd, "via": VIA, **where, **run.survey(planned.cwd)}
    session.locate(run.of.name, planned.vendor_id, **about)
    launch = command(planned._replace(env=dict(run.env)), ask)
    prompted = record_prompt(session, ask)
    return wrap(run, launch, vendor_id=planned.vendor_id, resumed=True, headless=ask.headless, prompted=prompted)


def _lost(planned: Plan, outcome: Outcome) -> str:
    """Why what came up is not the conversation; empty when it is, or when nothing speaks against it."""
    if outcome.came_up is not None and outcome.came_up != planned.vendor_id:
        return f"another conversation came up: {outcome.came_up}"
    if outcome.came_up == planned.vendor_id or outcome.grew or outcome.why.cause in (*LIMITS, USER, KILLED):
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
    if run.session.refresh().head.status in LIVE:
        run.session.locate(planned.of.name, planned.vendor_id, verified=verified)
    return Resumed(planned.agent, RESTORED, verified, "" if verified else f"{seen}, and {grown}", outcome, mended)


def _not_restored(run: Wrapped, planned: Plan, why: str, ask: Ask, ways: Ways) -> Resumed:
    told = f"not restored, because {why}"
    run.session.record("worklog.written", {"text": f"{planned.agent}: {told}"[:TEXT_LIMIT]})
    if ways.policy == MUST:
        raise NotRestored(told, hint="allow a fresh start from the note", step="allow_fresh")
    ways.tell(f"{told}; a fresh conversation begins from the note")
    return _fresh(run, planned, why, ask)


def _fresh(run: Wrapped, planned: Plan, why: str, ask: Ask) -> Resumed:
    session = run.session
    joined = join(run)
    ask = ask._replace(prompt=ask.anew, id=None) if ask.anew else ask
    try:
        outcome = start(joined, planned.cwd, ask, text=opening(session.note(), ask.prompt))
    finally:
        session.leave()
    return Resumed(planned.agent, FRESH, outcome.came_up is not None, why, outcome)
