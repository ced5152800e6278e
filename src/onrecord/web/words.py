"""Words of the page: why a session needs a person in few words, and times as a clock on the wall shows them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from onrecord.log.head import CLOSED, LIVE, PAUSED
from onrecord.views.needs import (
    ATTEMPT,
    BLOCKED,
    CRASHED,
    CREW,
    EFFECT,
    LIMIT,
    QUESTION,
    STALE,
    STOPPED,
    TURN,
    WAITS,
)
from onrecord.views.render import ago

if TYPE_CHECKING:
    from onrecord.session.standing import Standing
    from onrecord.views.listing import Listing
    from onrecord.views.needs import Need

_DAY = 86_400
_PLAIN = {
    WAITS: "waits for you", QUESTION: "asks you", CRASHED: "crashed", STOPPED: "stopped", EFFECT: "check an effect",
    TURN: "turn not finished", BLOCKED: "blocked",
}  # fmt: skip
_BAD = (CRASHED, ATTEMPT, EFFECT)


def clock(moment: int, now: int) -> str:
    """A moment in local time, as short as it is clear: `14:05`, `Tue 14:05`, `2026-05-18 14:05`."""
    then = time.localtime(moment / 1e6)
    if time.localtime(now / 1e6)[:3] == then[:3]:
        return time.strftime("%H:%M", then)
    return time.strftime("%a %H:%M" if abs(moment - now) / 1e6 < 6 * _DAY else "%Y-%m-%d %H:%M", then)


def reason(one: Standing, now: int) -> str:
    """Why a session needs a person, in a few words; or what it does."""
    if not one.needs:
        return _doing(one, now)
    need = one.needs[0]
    if need.kind == LIMIT:
        return f"limit until {clock(need.until, now)}" if need.until and need.until > now else "limit has passed"
    if need.kind == ATTEMPT:
        number = next(
            (each["number"] for each in one.entry.listing["attempts"] if each["position"] == need.position), ""
        )
        return f"settle attempt {number}".rstrip()
    if need.kind == STALE:
        count = len(one.entry.listing["stale"])
        return f"{count} {'finding' if count == 1 else 'findings'} stale"
    return _PLAIN.get(need.kind, need.kind)


def _doing(one: Standing, now: int) -> str:
    head = one.entry.head
    if one.working:
        return "working"
    when = ago(head.at, now)
    return f"{head.status} · {when}" if head.status in (PAUSED, CLOSED) or head.status not in LIVE else when


def colour(one: Standing) -> str:
    """The class of the dot and of the reason: b (bad), n (needs you), g (works), or none."""
    if one.needs:
        return "b" if one.needs[0].kind in _BAD else "n"
    return "g" if one.working else ""


def about(one: Standing, now: int) -> str:
    """One line about a session: its title, and what is most worth knowing."""
    listed, head = one.entry.listing, one.entry.head
    more = told(one.needs[0], now) if one.needs else f"next: {listed['next']}" if listed["next"] else listed["prompt"]
    return " · ".join(part for part in (head.title, more) if part)


def told(need: Need, now: int) -> str:
    """A need in a whole sentence, with its end as the clock on the wall shows it."""
    return need.why + (f", until {clock(need.until, now)}" if need.until and need.until > now else "")


def who(listed: Listing) -> str:
    """The agents of a session with their vendors, the last one first."""
    found = []
    for name, agent in reversed(listed["agents"].items()):
        vendor = agent["vendor"] or ""
        found.append(name if not vendor or name.startswith(vendor) else f"{name} ({vendor})")
    return ", ".join(found)


def resume_command(one: Standing) -> str:
    """The command that continues a session, as it is typed."""
    head, agents = one.entry.head, one.entry.listing["agents"]
    if one.needs and one.needs[0].command.startswith(("onrecord resume", "onrecord team")):
        return one.needs[0].command
    if CREW in agents:
        return f"onrecord team {'attach' if CREW in one.working else 'resume'} {head.name}"
    if head.status not in LIVE:
        return f"onrecord resume {head.name} --reopen"
    if any(agent["talks"] for agent in agents.values()) or head.status == PAUSED:
        return f"onrecord resume {head.name}"
    return f"onrecord continue {head.name}"
