"""Needs: why a person should look at a session, and the one command that helps. Deduced, never stored.

A session needs a person if an agent waits for one, was stopped by a limit or crashed; if an attempt or an effect has
no outcome and no process is left that would record it; if findings are blocked, or stale when work continues. A process
that ended without leaving anything open is a script that ended normally, and needs no person.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from onrecord.log.head import LIVE, PAUSED
from onrecord.views.attempts import LOST, RUNNING, status_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from onrecord.log.head import Head
    from onrecord.views.listing import ListedStop, Listing
    from onrecord.views.values import Effect, Process

WAITS, QUESTION, LIMIT, CRASHED, STOPPED, ATTEMPT, EFFECT, TURN, BLOCKED, STALE = (
    "waits", "question", "limit", "crashed", "stopped", "attempt", "effect", "turn", "blocked", "stale",
)  # fmt: skip
KINDS = (WAITS, QUESTION, LIMIT, CRASHED, STOPPED, ATTEMPT, EFFECT, TURN, BLOCKED, STALE)
"""Why a session needs a person, the most pressing first."""
LIMITS = {"rate_limit": "a rate limit", "usage_window": "its usage limit", "overload": "an overloaded model"}
"""The causes of interruptions that end with time, in words."""
CRASHES = frozenset({"crash", "killed"})
BY_A_PERSON = "user"
"""The cause of an interruption that a person made: they know."""
CREW = "crew"
"""The agent that supervises a team; its members are attached to, not resumed."""


class Need(NamedTuple):
    """One reason why a session needs a person."""

    kind: str
    agent: str
    why: str
    command: str
    """The one command that helps, as it is typed."""
    position: int
    """The event it comes from: the same need has the same position."""
    at: int
    until: int | None = None
    """When it ends by itself, in microseconds since 1970."""


def needs(
    head: Head, listing: Listing, now: int, alive: Collection[str], gone: Callable[[Process], bool]
) -> list[Need]:
    """Why a person should look at a session at this moment, the most pressing first; empty if there is no reason.

    `alive` are the agents whose process runs; `gone` says whether a process on record has certainly ended.
    """
    if head.status not in LIVE:
        return []
    found: list[Need] = []
    for name, agent in listing["agents"].items():
        process = agent["process"]
        # A process that has a lease ended if it lost it; of any other one on another machine nothing is known.
        ended = name not in alive and bool(process) and (not agent["via"] or gone(process or {}))
        # A supervisor waits for the limits of its team, and starts what crashed.
        supervised = CREW in alive and name != CREW
        found += _of_agent(head, listing, name, now, ended=ended, supervised=supervised)
    found += _asks(head, listing, alive)
    found += _attempts(head, listing, alive, gone)
    found += [
        Need(EFFECT, one["by"], f"effect {key} may have happened", f"onrecord show {head.name}", one["position"],
             one["at"])
        for key, one in listing["effects"].items() if _is_unknown(listing, one, alive)
    ]  # fmt: skip
    found += _turns(head, listing, alive)
    found += [
        Need(BLOCKED, "", f"blocked: {one['claim']}", _findings(head, "blocked"), one["position"], one["at"])
        for one in listing["blocked"]
    ]
    if listing["stale"] and not alive:
        count = len(listing["stale"])
        which = "finding is stale: the code it rests on" if count == 1 else "findings are stale: the code they rest on"
        why = f"{count} {which} changed"
        found.append(Need(STALE, "", why, _findings(head, "stale"), head.position, head.at))
    return sorted(found, key=lambda need: KINDS.index(need.kind))


def _is_unknown(listing: Listing, effect: Effect, alive: Collection[str]) -> bool:
    """Whether no process is left that will record the end of an effect: its agent is not at work, or in a later run."""
    agent = listing["agents"].get(effect["by"])
    return effect["by"] not in alive or (agent is not None and agent["run"] > effect["run"])


def _findings(head: Head, label: str) -> str:
    return f"onrecord finding list --label {label} --session {head.name}"


def _of_agent(head: Head, listing: Listing, name: str, now: int, *, ended: bool, supervised: bool) -> Iterator[Need]:
    """What one agent needs a person for: it waits, it was stopped, or it ended without a word."""
    agent = listing["agents"][name]
    waits, stop = agent["waits"], agent["stop"]
    if agent["here"] and waits and not ended:
        kind = QUESTION if waits.get("kind") == QUESTION else WAITS
        why = f"{name} is waiting: {waits['message']}"
        yield Need(kind, name, why, _see(head, listing, name), waits["position"], waits["at"])
    elif waits and not agent["here"]:  # the supervisor recorded that, and leaves it alone
        again = f"onrecord team restart {name} --session {head.name}"
        yield Need(CRASHED, name, f"{name} keeps ending: {waits['message']}", again, waits["position"], waits["at"])
    elif supervised or not (ended or stop):
        return
    elif stop and stop["cause"] != BY_A_PERSON and (head.status == PAUSED or stop["vendor"]):
        yield _stopped(head, listing, name, stop, now)
    elif agent["here"] and waits:
        why = f"{name} ended while it was waiting: {waits['message']}"
        yield Need(CRASHED, name, why, _resume(head, listing, name), waits["position"], waits["at"])
    elif agent["here"] and name == CREW:
        why = "the supervisor of the team ended: no process restarts its agents"
        yield Need(CRASHED, name, why, _resume(head, listing, name), agent["position"], agent["at"])
    elif agent["here"] and agent["vendor"] and not agent["via"]:
        # Its wrapper records every end; only a wrapper that was killed does not.
        why = f"{name} ended without a word: its process was killed, or the machine went down"
        yield Need(CRASHED, name, why, _resume(head, listing, name), agent["position"], agent["at"])


def _asks(head: Head, listing: Listing, alive: Collection[str]) -> Iterator[Need]:
    """A question that ends the last answer of an agent which is still there for a reply."""
    asked = listing["question"]
    agent = listing["agents"].get(asked["agent"]) if asked else None
    if asked and agent and agent["vendor"] and asked["agent"] in alive and not (agent["waits"] or agent["stop"]):
        command = _see(head, listing, asked["agent"])
        yield Need(QUESTION, asked["agent"], f"{asked['agent']} asks: {asked['text']}", command, asked["position"],
                   asked["at"])  # fmt: skip


def _see(head: Head, listing: Listing, name: str) -> str:
    """The command that shows where an agent runs: a person answers it there."""
    return (
        f"onrecord team attach {name} --session {head.name}"
        if CREW in listing["agents"]
        else f"onrecord show {head.name}"
    )


def _stopped(head: Head, listing: Listing, name: str, stop: ListedStop, now: int) -> Need:
    cause, told = stop["cause"], stop["resets_at"]
    resume = _resume(head, listing, name)
    if cause in LIMITS or told is not None:
        until = None if told is None else int(told * 1e6)
        if until is not None and until <= now:
            why = f"the limit of {name} has passed"
            return Need(LIMIT, name, why, resume, stop["position"], stop["at"], until)
        why = f"{name} was stopped by {LIMITS.get(cause, 'a limit')}"
        wait = f"{resume} --wait" if listing["agents"][name]["talks"] else resume
        return Need(LIMIT, name, why, wait, stop["position"], stop["at"], until)
    about = f": {stop['message']}" if stop["message"] and cause != "killed" else ""
    kind = CRASHED if cause in CRASHES else STOPPED
    how = {"crash": "crashed", "killed": "was killed", "budget": "was stopped"}.get(cause, f"was stopped ({cause})")
    return Need(kind, name, f"{name} {how}{about}", resume, stop["position"], stop["at"])


def _resume(head: Head, listing: Listing, name: str) -> str:
    """The command that resumes an agent; it is named if there are others with conversations."""
    if CREW in listing["agents"]:
        return f"onrecord team resume {head.name}"
    several = sum(agent["talks"] for agent in listing["agents"].values()) > 1
    return f"onrecord resume {head.name}" + (f" --agent {name}" if several else "")


def _attempts(head: Head, listing: Listing, alive: Collection[str], gone: Callable[[Process], bool]) -> Iterator[Need]:
    """Attempts that no process will settle: theirs is gone, or they have none and their agent is not at work."""
    for one in listing["attempts"]:
        number, status = one["number"], status_of(one, gone)  # type: ignore[arg-type]  # it has these fields
        if status == LOST:
            why = f"attempt {number} is lost: its process has ended ({one['command']})"
            command = f'onrecord attempt abandon {number} --reason "its process ended" --session {head.name}'
        elif status == RUNNING and not one["process"] and not one["keeper"] and one["by"] not in alive:
            why = f"attempt {number} has no outcome ({one['command']})"
            command = f"onrecord attempt succeed {number} --session {head.name}"
        else:
            continue
        yield Need(ATTEMPT, one["by"], why, command, one["position"], one["at"])


def _turns(head: Head, listing: Listing, alive: Collection[str]) -> Iterator[Need]:
    """Turns that were begun and never committed, of agents that are not at work."""
    for name, agent in listing["agents"].items():
        if name in alive:
            continue
        last, command = agent["provisional"], f"onrecord show {head.name}"
        if agent["turn"]:
            why = f"turn {agent['turn']} of {name} was interrupted: its process has ended"
            yield Need(TURN, name, why, command, agent["position"], agent["at"])
        if last:
            why = f"turn {last['turn']} of {name} was {last['how']}"
            yield Need(TURN, name, why, command, last["position"], last["at"])
