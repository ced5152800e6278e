"""Diff: what changed in meaning between two positions, in facts and turns rather than in events."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onrecord.log.items import text_of
from onrecord.views.code import SHORT_REVISION
from onrecord.views.note_lines import evidence_text, metrics_of
from onrecord.views.phases import PENDING
from onrecord.views.render import one_line

if TYPE_CHECKING:
    from onrecord.views.fold import Whole
    from onrecord.views.transcript import Turn
    from onrecord.views.values import Change, Feature, Json, NextAction, Objective, Reproduction

PROMPT_SHOWN = 120
"""How many characters of a turn's prompt a change has."""


def changes(old: Whole, new: Whole, turns: list[Turn]) -> list[Change]:
    """One entry per change: what, before, after."""
    found: list[Change] = []
    _single(found, "name", old.head.name, new.head.name)
    _single(found, "status", old.head.status, new.head.status)
    _single(found, "title", old.facts.title, new.facts.title)
    for field in ("objective", "reproduction", "next_action"):
        before, after = getattr(old.facts, field), getattr(new.facts, field)
        _single(found, field, _said(before), _said(after))
    found += [
        {"what": "decision", "before": None, "after": decision["text"], "position": decision["position"]}
        for decision in new.facts.decisions[len(old.facts.decisions) :]
    ]
    for name, finding in new.findings.findings.items():
        known = old.findings.findings.get(name)
        before = old.findings.label_of(known) if known else None
        _single(found, f"finding {name}", before, new.findings.label_of(finding), finding["claim"])
        argued = known["challenges"] if known else []
        for number, challenge in enumerate(finding["challenges"]):
            was = (argued[number]["outcome"] or "open") if number < len(argued) else None
            now = challenge["outcome"] or "open"
            _single(found, f"challenge of {name}", was, now, challenge["argument"])
    _evidence(found, old, new)
    _attempts(found, old, new)
    _phases(found, old, new)
    for key in sorted(old.facts.scratch.keys() | new.facts.scratch.keys()):
        _single(found, f"scratch {key}", old.facts.scratch.get(key), new.facts.scratch.get(key))
    _single(found, "budget", old.spend.budget, new.spend.budget)
    found += [_turn(turn) for turn in turns]
    for agent in sorted(new.lanes.lanes):
        before, after = old.lanes.lane(agent), new.lanes.lane(agent)
        _single(found, f"provisional turns of {agent}", len(before["provisional"]), len(after["provisional"]))
    _single(found, "tokens", old.spend.tokens, new.spend.tokens)
    return found


def _turn(turn: Turn) -> Change:
    """A committed turn: how much it has, and what was asked."""
    count = len(turn.items)
    asked = next((text for item in turn.items if item["role"] == "user" and (text := text_of(item).strip())), "")
    change: Change = {
        "what": f"turn of {turn.agent}", "before": None, "after": f"{count} item{'' if count == 1 else 's'}",
        "position": turn.ended,
    }  # fmt: skip
    return change | {"about": one_line(asked, PROMPT_SHOWN)} if asked else change


def _evidence(found: list[Change], old: Whole, new: Whole) -> None:
    for name, one in new.findings.evidence.items():
        if name not in old.findings.evidence:
            how = "captured" if one.get("captured") else "asserted"
            found.append({"what": f"evidence {name}", "before": None, "after": how, "about": evidence_text(one)})


def _attempts(found: list[Change], old: Whole, new: Whole) -> None:
    for one in new.attempts.all():
        known = old.attempts.get(one["number"])
        said = "; ".join(filter(None, (one["command"], metrics_of(one), one.get("error"))))
        _single(found, f"attempt {one['number']}", known and known["status"], one["status"], said)
        _single(found, f"fix of attempt {one['number']}", known and known.get("fix"), one.get("fix"))


def _phases(found: list[Change], old: Whole, new: Whole) -> None:
    before, after = old.phases, new.phases
    for name in after.names:
        status = before.status(name) if name in before.names else None
        if status != after.status(name) and (status is not None or after.status(name) != PENDING):
            found.append({"what": f"phase {name}", "before": status, "after": after.status(name)})
    for name in after.sections:
        _single(found, f"section {name}", before.text_of(name) or None, after.text_of(name) or None)
    for what, milestone in after.milestones.items():
        known = before.milestones.get(what)
        if known is None or known["position"] != milestone["position"]:
            found.append({
                "what": f"milestone {what}", "before": known and (known["finding"] or "reached"),
                "after": milestone["finding"] or "reached", "position": milestone["position"],
            })  # fmt: skip
    for name, feature in after.features.items():
        was = before.features.get(name)
        _single(found, f"feature {name}", was and _passes(was), _passes(feature), feature["text"])
    known_commits = {one["revision"] for one in old.code.commits}
    found += [
        {"what": "commit", "before": None, "after": one["revision"][:SHORT_REVISION], "about": one["subject"]}
        for one in new.code.commits
        if one["revision"] not in known_commits
    ]


def _passes(feature: Feature) -> str:
    return "passes" if feature["passes"] else "does not pass"


def _said(fact: Objective | Reproduction | NextAction | None) -> Json:
    if not fact:
        return None
    text, command = fact.get("text") or fact.get("steps"), fact.get("command")
    return f"{text}  $ {command}" if command else text


def _single(found: list[Change], what: str, before: Json, after: Json, about: str | None = None) -> None:
    if before != after:
        change: Change = {"what": what, "before": before, "after": after}
        if about:
            change["about"] = about
        found.append(change)
