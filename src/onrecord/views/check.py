"""The check of a note: could a fresh agent continue from it alone? Names what is missing or vague, and grades.

Which fields count depends on the work. A session without profile, findings and attempts (plain use of the log) needs
no note, and is never refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from onrecord.views.claims import is_fixed
from onrecord.views.findings import CAPTURED, NAMED

if TYPE_CHECKING:
    from onrecord.views.fold import Whole
    from onrecord.views.values import Json

COMPLETE, USABLE, INSUFFICIENT = "complete", "usable", "insufficient"
NONE_KEY = "note.none"
"""The scratch value that says which fields are empty on purpose, each with the reason."""
NONE_FIELDS = ("reproduction", "verified", "rejected")
_VAGUE = frozenset(
    {"fix the bug", "fix the issue", "fix the problem", "look into it", "work on it", "make it work",
     "keep working on it", "finish the work", "finish the task", "continue the work", "continue the investigation",
     "continue with the work", "investigate the issue", "investigate it further", "see the above", "to be done"}
)  # fmt: skip
"""Texts of three words and more that say nothing; shorter ones are vague anyway."""
_WORDS_NEEDED = 3


class Gap(NamedTuple):
    """One field that a fresh agent would miss."""

    field: str
    problem: str
    clear: str
    """The command that fills it."""
    essential: bool


class Checkup(NamedTuple):
    """The grade, and the reasons for it."""

    grade: str
    gaps: list[Gap]


def owes_a_note(whole: Whole) -> bool:
    """Whether another agent may have to continue the session's work."""
    return bool(whole.phases.profile or whole.findings.findings or whole.attempts.attempts)


def check(whole: Whole) -> Checkup:
    """Whether a fresh agent could continue from the note alone."""
    gaps = [*_aims(whole), *_reproduction(whole), *_judged(whole), *_unresolved(whole), *_evidence(whole)]
    if any(gap.essential for gap in gaps):
        return Checkup(INSUFFICIENT, gaps)
    return Checkup(USABLE if gaps else COMPLETE, gaps)


def obstacles(whole: Whole) -> list[Gap]:
    """What keeps a session from being closed: it would leave only a summary behind."""
    if not owes_a_note(whole):
        return []
    over = (bool(whole.phases.profile) and whole.phases.current() is None) or is_fixed(whole)
    waived = {"next action"} if over else set()
    return [gap for gap in check(whole).gaps if gap.essential and gap.field not in waived]


def nothing_on_purpose(whole: Whole) -> dict[str, Json]:
    """Fields that are empty on purpose, with the reason."""
    said = whole.facts.scratch.get(NONE_KEY)
    return said if isinstance(said, dict) else {}


def is_vague(text: str) -> bool:
    """Whether a text says too little to act on."""
    words = text.casefold().strip(" .!…").split()
    return len(words) < _WORDS_NEEDED or " ".join(words) in _VAGUE


def _aims(whole: Whole) -> list[Gap]:
    facts, gaps = whole.facts, []
    clear = 'onrecord objective "..."'
    if not facts.objective:
        gaps.append(Gap("objective", "is missing", clear, essential=True))
    elif is_vague(facts.objective["text"]):
        gaps.append(Gap("objective", "is vague: say what must be true at the end", clear, essential=False))
    action = facts.next_action
    clear = 'onrecord next "..." --command "..."'
    if not action:
        gaps.append(Gap("next action", "is missing", clear, essential=True))
    elif not action["command"] and is_vague(action["text"]):
        gaps.append(Gap("next action", "is vague: name a command, or what to do to which thing", clear, essential=True))
    return gaps


def _reproduction(whole: Whole) -> list[Gap]:
    """A way to reproduce the problem; if the profile has phase reports, a finished phase counts as much."""
    facts, clear = whole.facts, 'onrecord reproduction "STEPS" --rate 3/10'
    profile = whole.phases.profile
    reproduces = any(one.get("from") == "reproduction" for one in whole.phases.described())
    if facts.reproduction:
        rated = facts.reproduction.get("rate")
        return [] if rated else [Gap("reproduction", "has no rate (3/10 runs)", clear, essential=False)]
    if "reproduction" in nothing_on_purpose(whole) or (profile and not reproduces and whole.phases.finished):
        return []
    if profile and not reproduces:
        problem = "no phase is finished, so there is nothing to continue from"
        return [Gap("checkpoint", problem, f"onrecord phase finish {whole.phases.current()!r}", essential=True)]
    return [Gap("reproduction", "is missing", clear, essential=True)]


def _judged(whole: Whole) -> list[Gap]:
    gaps = []
    for label in ("verified", "rejected"):
        found = whole.findings.labelled(label) or (label == "verified" and _counts_as_verified(whole))
        if not found and label not in nothing_on_purpose(whole):
            problem = f"no finding is {label}; if there is none, record that"
            gaps.append(Gap(label, problem, f'onrecord note none {label} --why "..."', essential=True))
    return gaps


def _counts_as_verified(whole: Whole) -> bool:
    """A command that onrecord saw succeed and a feature that passes count as much as a verified finding."""
    ran = any(attempt["status"] == "succeeded" for attempt in whole.attempts.all())
    return (
        ran
        or bool(whole.findings.labelled("settled"))
        or any(feature["passes"] for feature in whole.phases.features.values())
    )


def _unresolved(whole: Whole) -> list[Gap]:
    gaps = [
        Gap("attempt", f"attempt {one['number']} is unresolved", f"onrecord attempt fail {one['number']} --error ...",
            essential=True)
        for one in whole.attempts.unresolved()
    ]  # fmt: skip
    gaps += [
        Gap("stale", f"{one['id']} is stale: code it rests on changed", f"onrecord finding recheck {one['id']}",
            essential=False)
        for one in whole.findings.labelled("stale")
    ]  # fmt: skip
    return gaps


def _evidence(whole: Whole) -> list[Gap]:
    findings, gaps = whole.findings, []
    for finding in (*findings.labelled("verified"), *findings.labelled("rejected")):
        known = {findings.how(one) for one in finding["evidence"]}
        if known <= {NAMED}:
            problem = f"{finding['id']} rests on a name that resolves to nothing"
        elif CAPTURED not in known:
            problem = f"{finding['id']} rests on asserted evidence only"
        else:
            continue
        gaps.append(Gap("evidence", problem, "onrecord run -- COMMAND captures some", essential=False))
    return gaps
