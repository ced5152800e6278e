"""Diff: what changed in meaning between two positions, told in facts and turns rather than in events."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from onrecord.views.fold import Whole
    from onrecord.views.transcript import Turn


def changes(old: Whole, new: Whole, turns: list[Turn]) -> list[dict[str, Any]]:
    """One entry per change: what, before, after."""
    found: list[dict[str, Any]] = []
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
        label = old.findings.findings.get(name, {}).get("label")
        _single(found, f"finding {name}", label, finding["label"], finding["claim"])
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
    tokens = "input_tokens", "output_tokens"
    _single(found, "tokens", *(sum(whole.spend.total[name] for name in tokens) for whole in (old, new)))
    return found


def _said(fact: dict[str, Any] | None) -> Any:
    return fact and (fact.get("text") or fact.get("steps"))


def _single(found: list[dict[str, Any]], what: str, before: Any, after: Any, about: str | None = None) -> None:
    if before != after:
        found.append({"what": what, "before": before, "after": after} | ({"about": about} if about else {}))
