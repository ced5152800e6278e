"""Listing: what lists show of a session besides its head, and all that can make it need a person.

It is small whatever the session's length, so that a store keeps one for each of thousands of sessions. What it means
at a moment, with processes that run or have ended, is for `views/needs`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from onrecord.views.findings import STALE

if TYPE_CHECKING:
    from onrecord.views.fold import Whole
    from onrecord.views.values import Interruption, ListedAgent, ListedStop, Listing

LISTING_VERSION = "listing.2"
"""Changes whenever a listing changes its meaning, so that older snapshots are not used."""
ENTRIES_LISTED = 20
"""How many attempts, effects, agents and claims a listing has of each; lists show fewer."""
WORDS_LISTED = 300
"""How many characters a listing keeps of a command, a message, a claim or a prompt."""


def listing(whole: Whole, prompt: str = "") -> Listing:
    """The listing of a session. `prompt` is the last thing a person asked for, which the kept views do not have."""
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
    }  # fmt: skip


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
    """Whether an interruption still says why work stopped: no run of that agent began since, nor was it resumed."""
    resumed = next((one["position"] for one in reversed(whole.lifecycle.steps) if one["step"] == "resumed"), 0)
    agent = whole.roster.agents.get(stop["by"])
    joined = agent.get("joined", 0) if agent and stop.get("vendor") else 0
    return stop["position"] > max(resumed, joined)


def _stop(stop: Interruption) -> ListedStop:
    return {
        "cause": str(stop.get("cause") or "unknown"), "message": _short((stop.get("message") or "").strip().rpartition("\n")[2]),
        "resets_at": stop.get("resets_at"), "vendor": stop.get("vendor"), "position": stop["position"], "at": stop["at"],
    }  # fmt: skip


def _short(text: str) -> str:
    flat = " ".join(str(text).split())
    return flat if len(flat) <= WORDS_LISTED else flat[: WORDS_LISTED - 1] + "…"
