"""The note: what the next agent reads, assembled from the durable tier; and the brief, its first 2 KB.

The brief stands alone: objective, next action, blockers, what was rejected, what is verified, the last turn. Its
lines are dropped from the least to the most important until it fits; what was dropped is counted, never passed over
in silence.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from onrecord.views.render import clip, iso, one_line

if TYPE_CHECKING:
    from onrecord.views.fold import Whole

BRIEF_LIMIT = 2_048
"""The largest brief, in bytes of UTF-8."""
_SHORT, _LINE = 100, 200
_FIELD = 320
"""The most bytes that objective or next action take up in the brief."""


def brief(whole: Whole) -> str:
    """The first thing the next agent reads; at most BRIEF_LIMIT bytes."""
    facts = whole.facts
    fixed = [
        f"# {one_line(whole.head.name, _SHORT)} ({whole.head.status}, position {whole.position})",
        f"Objective: {_fact(facts.objective)}",
        f"Next action: {_next(facts.next_action)}",
    ]
    groups = _groups(whole)
    for width in (_LINE, _SHORT):
        for most in (8, 4, 2, 1):
            text = _compose(fixed, groups, most, width)
            if len(text.encode()) <= BRIEF_LIMIT:
                return text
    return clip(text, BRIEF_LIMIT)


def note(whole: Whole) -> str:
    """The whole note, as Markdown."""
    facts, head = whole.facts, whole.head
    lines = [
        f"# {one_line(head.name, _SHORT)}",
        "",
        f"*{head.status}; from position {whole.position}; last activity {iso(head.at)}*",
        "",
        f"**Objective:** {_fact(facts.objective, _LINE * 5)}",
        f"**Next action:** {_next(facts.next_action, _LINE * 5)}",
    ]
    if facts.reproduction:
        lines.append(f"**Reproduction:** {_reproduction(facts.reproduction)}")
    for title, entries in _groups(whole):
        lines += ["", f"## {title}", ""]
        lines += [f"- {one_line(entry, _LINE * 5)}" for entry in entries]
    return "\n".join(lines) + "\n"


def _compose(fixed: list[str], groups: list[tuple[str, list[str]]], most: int, width: int) -> str:
    lines = list(fixed)
    for title, entries in groups:
        # The newest entries are the ones that matter when not all fit.
        shown = entries[-most:]
        left_out = len(entries) - len(shown)
        lines.append(f"{title}:" + (f" (+{left_out} earlier)" if left_out else ""))
        lines += [f"- {one_line(entry, width)}" for entry in shown]
    return "\n".join(lines) + "\n"


def _groups(whole: Whole) -> list[tuple[str, list[str]]]:
    """Titled lists, the most important first; empty ones are left out."""
    findings = whole.findings
    groups = [
        ("Blocked", [_finding(finding) for finding in findings.labelled("blocked")]),
        ("Rejected (do not reopen without new evidence)", [_finding(f) for f in findings.labelled("rejected")]),
        ("Verified", [_finding(finding) for finding in findings.labelled("verified")]),
        ("Not settled (provisional turns and unknown effects)", _unsettled(whole)),
        ("Open", [_finding(finding) for finding in findings.labelled("open")]),
        ("Decisions", [_decision(decision) for decision in whole.facts.decisions]),
    ]
    return [(title, entries) for title, entries in groups if entries]


def _unsettled(whole: Whole) -> list[str]:
    entries = []
    for agent, lane in whole.lanes.lanes.items():
        entries += [
            f"turn {turn['turn']} of {agent} was {turn['how']} at position {turn['end']}"
            + (f": {turn['reason']}" if turn["reason"] else "")
            for turn in lane["provisional"]
        ]
        if lane["open"]:
            entries.append(f"turn {lane['open']['turn']} of {agent} was begun at position {lane['open']['position']}")
    for key, effect in whole.effects.unfinished.items():
        entries.append(f"effect {key} was started at position {effect['position']} and has no result: find out first")
    stop = whole.lifecycle.interruption
    if stop:
        entries.append(f"interrupted at position {stop['position']}: {stop.get('cause', 'unknown')}")
    return entries


def _fact(fact: dict[str, Any] | None, width: int = _FIELD) -> str:
    return clip(one_line(fact["text"], width), width) if fact else "(none on record)"


def _next(action: dict[str, Any] | None, width: int = _FIELD) -> str:
    text = _fact(action, width)
    return f"{text}  $ {clip(one_line(action['command'], width), width)}" if action and action["command"] else text


def _finding(finding: dict[str, Any]) -> str:
    proof = f" [{', '.join(finding['evidence'][-3:])}]" if finding["evidence"] else ""
    return f"{finding['id']}: {finding['claim']}{proof}"


def _decision(decision: dict[str, Any]) -> str:
    source = f" (from position {decision['because']})" if decision["because"] else ""
    return f"{decision['text']}" + (f" because {decision['why']}" if decision["why"] else "") + source


def _reproduction(reproduction: dict[str, Any]) -> str:
    rate = f" (rate {one_line(str(reproduction['rate']), _SHORT)})" if reproduction.get("rate") else ""
    return one_line(str(reproduction.get("steps", "")), _LINE * 5) + rate
