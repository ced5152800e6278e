"""Words of the page: what a session does, and why it needs a person, in few words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onrecord.log.head import LIVE, PAUSED
from onrecord.pages.text import shown, soon
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

if TYPE_CHECKING:
    from onrecord.session.standing import Standing
    from onrecord.views.listing import Listing
    from onrecord.views.needs import Need

_PLAIN = {
    WAITS: "waits for you", QUESTION: "asks you", CRASHED: "crashed", STOPPED: "stopped", EFFECT: "check an effect",
    TURN: "turn not finished", BLOCKED: "blocked",
}  # fmt: skip
_BAD = (CRASHED, ATTEMPT, EFFECT)


def reason(one: Standing, now: int) -> str:
    """Why a session needs a person, in a few words; or what it does. As HTML."""
    if not one.needs:
        return doing(one)
    need = one.needs[0]
    if need.kind == LIMIT:
        return f"limit until {soon(need.until, now)}" if need.until and need.until > now else "limit has passed"
    if need.kind == ATTEMPT:
        number = next(
            (each["number"] for each in one.entry.listing["attempts"] if each["position"] == need.position), ""
        )
        return f"settle attempt {shown(number)}".rstrip()
    if need.kind == STALE:
        count = len(one.entry.listing["stale"])
        return f"{count} {'finding' if count == 1 else 'findings'} stale"
    return _PLAIN[need.kind]


def doing(one: Standing) -> str:
    """What a session does that needs no person."""
    head = one.entry.head
    if one.busy:
        return "working"
    return head.status if head.status == PAUSED or head.status not in LIVE else "idle"


def colour(one: Standing) -> str:
    """The class of the dot and of the reason: b (bad), n (needs you), g (works), or none."""
    if one.needs:
        return "b" if one.needs[0].kind in _BAD else "n"
    return "g" if one.busy else ""


def about(one: Standing) -> str:
    """One line about a session: its title, and what is most worth knowing."""
    listed, head = one.entry.listing, one.entry.head
    more = f"next: {listed['next']}" if listed["next"] else listed["prompt"]
    if one.needs and (one.needs[0].kind != LIMIT or not listed["next"]):  # of a limit, the reason beside it says all
        more = one.needs[0].why
    return " · ".join(part for part in (head.title, more) if part)


def tone(need: Need) -> str:
    """The class of a need's colour, as on the first page."""
    return "tone-bad" if need.kind in _BAD else "tone-warn"


def told(need: Need, now: int) -> str:
    """A need in a whole sentence, as HTML."""
    return shown(need.why) + (f", until {soon(need.until, now)}" if need.until and need.until > now else "")


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
