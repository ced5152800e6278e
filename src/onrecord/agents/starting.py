"""Starting an agent: take its lane, choose or obtain its conversation's id first if possible, and run it."""

from __future__ import annotations

import contextlib
import uuid
from typing import TYPE_CHECKING, Any

from onrecord.agents.fencing import ABOUT, fence
from onrecord.agents.running import program_of
from onrecord.agents.surroundings import survey
from onrecord.agents.wrapping import VIA, environment, record_prompt, token, wrap
from onrecord.errors import LogMoved, OnrecordError
from onrecord.vendors.arguments import recordable
from onrecord.vendors.hooks import STARTUP
from onrecord.vendors.port import LaunchOptions, Location

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from onrecord.agents.wrapping import Ask, Outcome, Wrapped
    from onrecord.session.handle import Session
    from onrecord.vendors.port import Hazard, Vendor

OPENING_BYTES = 48 * 1024
"""How many bytes of the note go into a first prompt: no system accepts an argument over 128 KiB."""


def join(run: Wrapped, arguments: Sequence[str] | None, *, as_of: int | None = None, **about: Any) -> Wrapped:
    """Take the agent's lane for one run, unless the budget is spent. All that the run starts carries its token.

    The user's arguments are recorded, so that a resume uses them again; secrets among them are not. None leaves those
    on record as they are. `LogMoved` if the agent ran after the position `as_of`: what was decided there is void.
    """
    run.session.budget.check()
    spawn = token()
    if run.person:
        about["person"] = run.person
    if arguments is not None:
        about["arguments"] = recordable(run.of.name, arguments, run.session.funnel.has_secret)
    _acquire(run.session, as_of, vendor=run.of.name, spawn=spawn, **about)
    return run._replace(env=environment(run.env, run.session, spawn))


def _acquire(session: Session, as_of: int | None, **about: Any) -> None:
    if as_of is None:
        session.acquire(**about)
        return
    while session.lease is None:
        here = session.refresh().head.position
        runs = (one for one in session.log.newest(("agent.joined", "agent.located")) if one.by == session.agent)
        last = next(runs, None)
        if last is not None and last.position > as_of:
            raise LogMoved("another process resumed the agent", expected=as_of, actual=last.position)
        # Other agents may write in between. Only runs of this one matter, so look again.
        with contextlib.suppress(LogMoved):
            session.acquire(expect=here, **about)


def mend_first(run: Wrapped, cwd: str, consent: Callable[[Hazard], bool]) -> list[str]:
    """Fix what a start would harm, before anything is started; returns what was done."""
    mended = []
    for hazard in run.of.start_hazards(run.env):
        if consent(hazard):
            run.of.mend(hazard, Location("", "", str(run.of.home(run.env)), cwd), run.env)
            mended.append(hazard.fix)
    return mended


def start(run: Wrapped, cwd: str, ask: Ask, *, text: str | None = None, **about: Any) -> Outcome:
    """Begin a conversation and run it to its end. The session must be joined.

    `text` is what the agent is given if that is more than the prompt; `about` is kept with the prompt.
    """
    said = ask.prompt if text is None else text
    options = LaunchOptions(
        cwd, name=run.session.name, prompt=said, headless=ask.headless, extra=ask.extra, env=run.env
    )  # fmt: skip
    check_installed(run.of, options)
    options = options._replace(vendor_id=_chosen(run.of, options))
    launch = run.of.start(options)
    prompted = record_prompt(run.session, ask, **about)
    if options.vendor_id:
        home = str(run.of.home({**run.env, **launch.env}))
        run.session.agents.locate(
            run.of.name, options.vendor_id, reason=STARTUP, cwd=cwd, home=home, via=VIA, **survey(cwd)
        )
    return wrap(run, launch, vendor_id=options.vendor_id, headless=ask.headless, prompted=prompted)


def check_installed(of: Vendor, options: LaunchOptions) -> None:
    """Raise before anything is recorded if the program is missing."""
    chosen = str(uuid.uuid4()) if of.capabilities.chooses_id else None
    probe = options._replace(vendor_id=options.vendor_id or chosen)
    program_of(of.start(probe), options.env, of.title)


def _chosen(of: Vendor, options: LaunchOptions) -> str | None:
    if of.capabilities.chooses_id:
        return str(uuid.uuid4())
    if of.capabilities.obtains_id:
        try:
            return of.obtain_id(options)
        except OnrecordError:
            return None  # then the stream, a hook or a lock file will
    return None


def opening(note: str, task: str, said: str = "") -> str:
    """The first prompt of a conversation that continues from the note, because the previous one is lost.

    `said` is the end of the previous one, as far as the record has it.
    """
    asked = task or "Continue the work that the note describes. Begin with its next action."
    before = fence(said, about=f"The end of the conversation that this one replaces. {ABOUT}") if said else ""
    return "\n".join(part for part in (fence(note, limit=OPENING_BYTES), before, asked) if part)
