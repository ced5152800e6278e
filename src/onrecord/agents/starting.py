"""Starting an agent: its lane is taken, its conversation's id is chosen or obtained first where that can be."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

from onrecord.agents.fencing import fence
from onrecord.agents.running import program_of
from onrecord.agents.wrapping import VIA, environment, record_prompt, token, wrap
from onrecord.errors import OnrecordError
from onrecord.vendors.hooks import STARTUP
from onrecord.vendors.port import Request

if TYPE_CHECKING:
    from onrecord.agents.wrapping import Ask, Outcome, Wrapped
    from onrecord.vendors.port import Vendor

OPENING_BYTES = 48 * 1024
"""How many bytes of the note go into a first prompt: systems take no argument over 128 KiB."""


def join(run: Wrapped, **about: Any) -> Wrapped:
    """Take the agent's lane for one run; what it starts can be told by the token."""
    spawn = token()
    run.session.acquire(vendor=run.of.name, spawn=spawn, **about)
    return run._replace(env=environment(run.env, run.session, spawn))


def start(run: Wrapped, cwd: str, ask: Ask, *, text: str | None = None, **about: Any) -> Outcome:
    """Begin a conversation and see it to its end. The session must be joined.

    `text` is what the agent is given where that is more than the prompt; `about` is kept with the prompt.
    """
    said = ask.prompt if text is None else text
    request = Request(
        cwd, name=run.session.name, prompt=said, headless=ask.headless, extra=ask.extra, env=run.env
    )  # fmt: skip
    check_installed(run.of, request)
    request = request._replace(vendor_id=_chosen(run.of, request))
    launch = run.of.start(request)
    prompted = record_prompt(run.session, ask, **about)
    if request.vendor_id:
        home = str(run.of.home({**run.env, **launch.env}))
        run.session.agents.locate(
            run.of.name, request.vendor_id, reason=STARTUP, cwd=cwd, home=home, via=VIA, **run.survey(cwd)
        )
    return wrap(run, launch, vendor_id=request.vendor_id, headless=ask.headless, prompted=prompted)


def check_installed(of: Vendor, request: Request) -> None:
    """One clear error before anything is on record, where the program is missing."""
    chosen = str(uuid.uuid4()) if of.capabilities.chooses_id else None
    probe = request._replace(vendor_id=request.vendor_id or chosen)
    program_of(of.start(probe), request.env, of.title)


def _chosen(of: Vendor, request: Request) -> str | None:
    if of.capabilities.chooses_id:
        return str(uuid.uuid4())
    if of.capabilities.obtains_id:
        try:
            return of.obtain_id(request)
        except OnrecordError:
            return None  # then the stream, a hook or a lock file tells it
    return None


def opening(note: str, task: str) -> str:
    """The first prompt of a conversation that goes on from the note, because the one before it is not there."""
    asked = task or "Go on with the work the note describes. Begin with its next action."
    return f"{fence(note, limit=OPENING_BYTES)}\n{asked}"
