"""Listing: what lists show of a session besides its head, and all that can make it need a person.

It is small whatever the session's length, so that a store keeps one for each of thousands of sessions. What it means
at a moment, with processes that run or have ended, is for `views/needs`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict

from onrecord.views.findings import STALE

if TYPE_CHECKING:
    from onrecord.views.fold import Whole
    from onrecord.views.values import Attention, Effect, Interruption, Json, Process, ProvisionalTurn

LISTING_VERSION = "listing.5"
"""Changes whenever a listing changes its meaning, so that older snapshots are not used."""
ENTRIES_LISTED = 20
"""How many attempts, effects, agents and claims a listing has of each; lists show fewer."""
WORDS_LISTED = 300
"""How many characters a listing keeps of a command, a message, a claim or a prompt."""

_IMPORTED = "imported"
"""The reason of a conversation that was on record first when it was imported."""


class ListedStop(TypedDict):
    """An interruption, as a listing has it."""

    cause: str
    message: str
    resets_at: float | None
    vendor: str | None
    position: int
    at: int


class ListedAgent(TypedDict):
    """An agent, as a listing has it."""

    vendor: str | None
    via: str | None
    here: bool
    process: Process | None
    talks: bool
    """Whether it has a conversation that can be resumed."""
    waits: Attention | None
    at: int
    """When its last run began."""
    position: int
    """Where its open turn began; else its last run."""
    run: int
    stop: ListedStop | None
    turn: int | None
    """The number of its open turn."""
    provisional: ProvisionalTurn | None


class Asked(TypedDict):
    """A question that ends an agent's last answer."""

    agent: str
    text: str
    position: int
    at: int


class LastWords(NamedTuple):
    """What was said last in a session, as far as the end of its log shows it."""

    prompt: str = ""
    """What a person last asked for; "" if the end of the log does not show it."""
    question: Asked | None = None
    """The question that the last answer ends with."""
    rests: str | None = None
    """The agent whose answer ended the last turn; empty while one is at work, None if nothing was said."""


class Listing(TypedDict):
    """What lists show of a session besides its head, and all that can make it need a person."""

    agents: dict[str, ListedAgent]
    agent: str
    """The one whose conversation was in use last."""
    vendor: str | None
    people: list[str]
    """Who opened the session, then other people who took part."""
    branch: str | None
    cwd: str | None
    prompt: str
    """What a person asked last."""
    question: Asked | None
    """What the last answer asks a person."""
    next: str
    attempts: list[dict[str, Json]]
    """Those without an outcome."""
    effects: dict[str, Effect]
    blocked: list[dict[str, Json]]
    stale: list[str]
    active_at: int
    """When something last happened, besides looks at the worktree."""
    rests: str | None
    """The agent whose answer ended the last turn; empty while one is at work, None if nothing was said."""
    past: bool
    """Whether it is a conversation that was imported, and that no agent joined since."""


def listing(whole: Whole, said: LastWords | None = None) -> Listing:
    """The listing of a session. What was said last is given: the kept views do not have it."""
    prompt, question, rests = said or LastWords()
    facts, agents = whole.facts, _agents(whole)
    newest = max(agents, key=lambda name: agents[name]["at"], default="")
    links = [link for agent in whole.roster.agents.values() for link in agent["links"][-1:]]
    link: Any = max(links, key=lambda one: one.get("seen_at", one["at"]), default=None)
    where = link["last"] if link else {}
    return {
        "agents": agents,
        "agent": link["agent"] if link else newest,
        "vendor": link["vendor"] if link else None,
        "people": _people(whole),
        "branch": where.get("branch"),
        "cwd": where.get("cwd"),
        "prompt": _short(prompt),
        "question": question | {"text": _short(question["text"])} if question else None,
        "next": _short(facts.next_action["text"]) if facts.next_action else "",
        "attempts": [
            {"number": one["number"], "by": one["by"], "command": _short(one["command"]), "status": one["status"],
             "process": one["process"], "keeper": one["keeper"], "position": one["position"], "at": one["at"]}
            for one in whole.attempts.unresolved()[-ENTRIES_LISTED:]
        ],
        "effects": dict(list(whole.effects.unfinished.items())[-ENTRIES_LISTED:]),
        "blocked": [
            {"claim": _short(one["claim"]), "position": one["history"][-1]["position"], "at": one["history"][-1]["at"]}
            for one in whole.findings.labelled("blocked")[-ENTRIES_LISTED:]
        ],
        "stale": [one["id"] for one in whole.findings.labelled(STALE)[-ENTRIES_LISTED:]],
        "active_at": whole.active_at,
        "rests": rests,
        "past": _is_past(whole),
    }  # fmt: skip


def _is_past(whole: Whole) -> bool:
    agents = whole.roster.agents.values()
    reasons = {link["first"].get("reason") for agent in agents for link in agent["links"]}
    return reasons == {_IMPORTED} and not any(agent["runs"] for agent in agents)


def _people(whole: Whole) -> list[str]:
    """Everyone who took part and is no agent."""
    decided = [decision["by"] for decision in whole.facts.decisions]
    started = [agent["person"] for agent in whole.roster.agents.values() if agent.get("person")]
    acted = [step["by"] for step in whole.lifecycle.steps]
    names = dict.fromkeys(name for name in (*acted, *started, *decided) if name not in whole.roster.agents)
    return list(names)[:ENTRIES_LISTED]


def _agents(whole: Whole) -> dict[str, ListedAgent]:
    """The agents of which something may need a person: not every one that ever took part."""
    stops = {one["by"]: _stop(one) for one in whole.lifecycle.interruptions if _counts(whole, one)}
    found: dict[str, ListedAgent] = {}
    for name, agent in whole.roster.agents.items():
        lane = whole.lanes.lane(name)
        at = agent.get("last_joined_at", agent["joined_at"])
        stop = stops.pop(name, None)
        found[name] = {
            "vendor": agent["vendor"], "via": agent.get("via"), "here": agent["here"], "process": agent["process"],
            "talks": bool(agent["links"]), "waits": agent["waits"], "at": at,
            "position": lane["open"]["position"] if lane["open"] else agent.get("joined", 0), "run": agent["run"],
            "stop": stop, "turn": lane["open"]["turn"] if lane["open"] else None,
            "provisional": lane["provisional"][-1] if lane["provisional"] else None,
        }  # fmt: skip
    for name, stop in stops.items():  # recorded by an actor that never joined
        found[name] = {
            "vendor": None, "via": None, "here": False, "process": None, "talks": False, "waits": None,
            "at": stop["at"], "position": 0, "run": 0, "stop": stop, "turn": None, "provisional": None,
        }  # fmt: skip
    ordered = sorted(found, key=lambda name: found[name]["at"])[-ENTRIES_LISTED:]
    return {name: found[name] for name in ordered}


def _counts(whole: Whole, stop: Interruption) -> bool:
    """Whether an interruption still says why work stopped: neither the agent nor the session continued since."""
    resumed = next((one["position"] for one in reversed(whole.lifecycle.steps) if one["step"] == "resumed"), 0)
    agent = whole.roster.agents.get(stop["by"])
    if stop["position"] <= resumed:
        return False
    if agent is None or not stop.get("vendor"):
        return True
    return agent["stop"] is not None and agent["stop"]["position"] == stop["position"]


def _stop(stop: Interruption) -> ListedStop:
    last = (stop.get("message") or "").strip().rpartition("\n")[2]
    return {
        "cause": str(stop.get("cause") or "unknown"), "message": _short(last), "resets_at": stop.get("resets_at"),
        "vendor": stop.get("vendor"), "position": stop["position"], "at": stop["at"],
    }  # fmt: skip


def _short(text: str) -> str:
    flat = " ".join(str(text).split())
    return flat if len(flat) <= WORDS_LISTED else flat[: WORDS_LISTED - 1] + "…"
