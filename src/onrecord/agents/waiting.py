"""Waiting for a limit to end, and issuing the interrupted prompt again, exactly once.

Everything is on record: why the run stopped, when the limit ends, which prompt it was. So the process that waits may
die; the next one knows the same. The prompt is recorded under an id made from the interruption before it is issued; if
the process dies in between, the conversation itself shows whether the prompt had reached it. If several processes wait,
the one that takes the agent's lane first issues the prompt; the others see that the agent ran since they looked.
"""

from __future__ import annotations

import json
import time
from itertools import takewhile
from typing import TYPE_CHECKING, Any, NamedTuple

from onrecord import machine
from onrecord.agents.mirroring import kept, links_of, mirror_all
from onrecord.agents.wrapping import Ask
from onrecord.errors import IllegalTransition
from onrecord.log.head import LIVE, PAUSED
from onrecord.vendors.port import OVERLOAD, RATE_LIMIT, USAGE_WINDOW
from onrecord.views.render import iso

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from onrecord.log.events import Event
    from onrecord.session.handle import Session

UNTOLD_WAITS = {RATE_LIMIT: 60.0, OVERLOAD: 60.0, USAGE_WINDOW: 1800.0}
"""How long to wait, in seconds, if the end of the limit is unknown; doubled with each stop in a row."""
LONGEST_WAIT = 3600.0
"""The longest wait, in seconds, if the end of the limit is unknown."""
PASSED_WAIT = 5.0
"""How long to wait, in seconds, when the announced end has passed and the limit still applies; doubled each time."""
AFTER_RESET = 1.0
"""How long after the announced end work continues, in seconds: clocks differ."""
LOOK_SECONDS = 2.0
"""How often a waiting process checks whether another one resumed the session."""
REISSUE_PREFIX = "reissue/"
CONTINUE = "Continue where you were interrupted."
"""The prompt for a conversation that has the interrupted prompt already."""


class Stop(NamedTuple):
    """An agent's last interruption, and what it left undone."""

    event: Event
    until: float | None
    """When the limit ends (seconds since 1970); None: waiting does not help."""
    prompt: str
    """What it was doing, if that was a prompt of ours."""
    settled: bool
    """The agent ran since and ended in order."""


def last_stop(session: Session, agent: str) -> Stop | None:
    """The last interruption of an agent, if it has one."""
    stops = _events_of(session, agent, "interruption.recorded")
    event = next((one for one in stops if one.data and one.data.get("vendor")), None)
    if event is None:
        return None
    return Stop(event, _until(session, agent, event), _prompt(session, event), _went_on(session, agent, event))


def _went_on(session: Session, agent: str, stop: Event) -> bool:
    """Whether it worked again in the same run, or a process of the agent ran since and left without another stop."""
    if any((one.data or {}).get("went_on") for one in _since(session, agent, stop, "attention.given")):
        return True
    ran = next((one for one in _events_of(session, agent, "agent.located") if (one.data or {}).get("process")), None)
    left = next(_events_of(session, agent, "agent.left"), None)
    return ran is not None and left is not None and stop.position < ran.position < left.position


def _since(session: Session, agent: str, stop: Event, kind: str) -> Iterator[Event]:
    return takewhile(lambda one: one.position > stop.position, _events_of(session, agent, kind))


def _events_of(session: Session, agent: str, kind: str) -> Iterator[Event]:
    """An agent's events of one kind, the newest first."""
    return (event for event in session.log.newest((kind,)) if event.by == agent)


def _until(session: Session, agent: str, event: Event) -> float | None:
    told, at = _told(event), event.at / 1e6
    if told is not None and told > at:
        return told + AFTER_RESET
    first = UNTOLD_WAITS.get(event.data.get("cause", ""), None if told is None else PASSED_WAIT)
    if first is None:
        return None
    in_a_row = 0
    for one in _events_of(session, agent, "interruption.recorded"):
        if not one.data or one.data.get("cause") != event.data["cause"] or (_told(one) or 0) > one.at / 1e6:
            break
        in_a_row += 1
    if told is not None:  # it had passed when it was announced: continue at once, but not in a loop
        return float(at + (min(LONGEST_WAIT, PASSED_WAIT * 2 ** (in_a_row - 2)) if in_a_row > 1 else 0))
    return float(at + min(LONGEST_WAIT, first * 2 ** (in_a_row - 1)))


def _told(event: Event) -> float | None:
    moment = (event.data or {}).get("resets_at")
    return float(moment) if isinstance(moment, int | float) else None


def _prompt(session: Session, event: Event) -> str:
    position = event.data.get("prompt")
    if not isinstance(position, int) or not 0 < position <= session.head.position:
        return ""
    data = session.log.event(position).data
    return str((data or {}).get("prompt") or "")


def _id(event: Event) -> str:
    return f"{REISSUE_PREFIX}{event.position}"


def park(session: Session, stop: Stop) -> bool:
    """Pause the session until the limit ends, unless other agents are working; False: they are."""
    session.refresh()
    working = [one for one in session.log.leases() if not machine.is_gone(one.holder)]
    if session.status == PAUSED or any(one.lane != session.agent for one in working):
        return session.status == PAUSED
    until = f" until {iso(int(stop.until * 1e6))}" if stop.until else ""
    session.pause(f"{stop.event.data.get('cause', 'unknown')}{until}")
    return True


def wait(session: Session, stop: Stop, *, sleep: Callable[[float], None] = time.sleep) -> bool:
    """Sleep until the limit ends; False if another process resumed or ended the session meanwhile."""
    parked = session.refresh().status == PAUSED
    while stop.until is not None and (left := stop.until - session.clock()) > 0:
        sleep(min(left, LOOK_SECONDS))
        status = session.refresh().status
        if status not in LIVE or (parked and status != PAUSED):
            return False
    return True


def unpark(session: Session) -> None:
    """Resume the session, unless another process was faster."""
    if session.refresh().status == PAUSED:
        try:
            session.resume("the limit has ended")
        except IllegalTransition:
            session.refresh()


def again(session: Session, stop: Stop, ask: Ask, env: Mapping[str, str]) -> Ask:
    """What the agent is asked after the wait: the interrupted prompt, once; if it has that already, to continue.

    An agent that was stopped on a terminal gets it on a terminal, unless `ask` says that there is none. If it had begun
    to answer, it is asked to continue instead of beginning again.
    """
    if ask.prompt:
        return ask
    if not stop.prompt:
        return ask._replace(prompt=CONTINUE) if ask.headless else ask
    prompt = CONTINUE if stop.event.data.get("answered") else stop.prompt
    headless = ask.headless or not stop.event.data.get("terminal")
    reissue = session.log.find(_id(stop.event))
    if reissue is None or not _reached(session, reissue, prompt, env):
        return ask._replace(prompt=prompt, id=_id(stop.event), headless=headless)
    return ask._replace(prompt=CONTINUE, headless=headless)


def _reached(session: Session, reissue: Event, prompt: str, env: Mapping[str, str]) -> bool:
    """Whether the agent's conversations contain a prompt since it was recorded."""
    mirror_all(session, env, agent=session.agent)
    forms = [json.dumps(prompt, ensure_ascii=plain)[1:-1] for plain in (True, False)]
    return any(
        one.position > reissue.position and any(form in one.raw for form in forms)
        for link in links_of(session, session.agent)
        for one in kept(session, link["vendor"], link["id"])
    )


def waitable(stop: Stop | None) -> bool:
    """Whether waiting helps: the stop is a limit that ends with time."""
    return stop is not None and not stop.settled and stop.until is not None


def about(stop: Stop) -> dict[str, Any]:
    """An interruption as data."""
    return {name: stop.event.data.get(name) for name in ("cause", "message", "agent", "vendor", "vendor_id")} | {
        "position": stop.event.position, "until": stop.until, "prompt": bool(stop.prompt),
    }  # fmt: skip
