"""Diff: what changed in meaning between two positions, in facts and turns rather than in events."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onrecord.views.fold import Whole
    from onrecord.views.transcript import Turn
    from onrecord.views.values import Change, Json, NextAction, Objective, Reproduction


def changes(old: Whole, new: Whole, turns: list[Turn]) -> list[Change]:
    """One entry per change: what, before, after."""
    found: list[Change] = []
    _single(found, "name", old.head.name, new.head.name)
    _single(found, "status", old.head.status, new.head.status)
    for field in ("objective", "reproduction", "next_action"):
        before, after = getattr(old.facts, field), getattr(new.facts, field)
        _single(found, field, _said(before), _said(after))
    found += [
        {"what": "decision", "before": None, "after": decision["text"], "position": decision["position"]}
        for decision in new.facts.decisions[len(old.facts.decisions) :]
    ]
    for name, finding in new.findings.findings.items():
        known = old.findings.findings.get(name)
        _single(found, f"finding {name}", known and known["label"], finding["label"], finding["claim"])
    for key in sorted(old.facts.scratch.keys() | new.facts.scratch.keys()):
        _single(found, f"scratch {key}", old.facts.scratch.get(key), new.facts.scratch.get(key))
    _single(found, "budget", old.spend.budget, new.spend.budget)
    found += [
        {"what": f"turn of {turn.agent}", "before": None, "after": f"{len(turn.items)} items", "position": turn.ended}
        for turn in turns
    ]
    for agent in sorted(new.lanes.lanes):
        before, after = old.lanes.lane(agent), new.lanes.lane(agent)
        _single(found, f"provisional turns of {agent}", len(before["provisional"]), len(after["provisional"]))
    _single(found, "tokens", old.spend.tokens, new.spend.tokens)
    return found


def _said(fact: Objective | Reproduction | NextAction | None) -> Json:
    return fact and (fact.get("text") or fact.get("steps"))


def _single(found: list[Change], what: str, before: Json, after: Json, about: str | None = None) -> None:
    if before != after:
        change: Change = {"what": what, "before": before, "after": after}
        if about:
            change["about"] = about
        found.append(change)
