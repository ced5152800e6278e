"""The check of a note: could a fresh agent continue from it alone? Names what is missing or vague, and grades.

Which fields count depends on the work. A session without profile, findings and attempts (plain use of the log) needs
no note, and is never refused.
"""

from __future__ import annotations

from shlex import quote
from typing import TYPE_CHECKING, NamedTuple

from onrecord.views.claims import is_fixed
from onrecord.views.findings import CAPTURED, NAMED, STALE

if TYPE_CHECKING:
    from onrecord.views.fold import Whole
    from onrecord.views.values import Finding, Json

COMPLETE, USABLE, INSUFFICIENT = "complete", "usable", "insufficient"
NONE_KEY = "note.none"
"""The scratch value that says which fields are empty on purpose, each with the reason."""
NONE_FIELDS = ("reproduction", "verified", "rejected")
_STOCK = frozenset(
    {"fix the bug", "fix the issue", "fix the problem", "look into it", "work on it", "make it work",
     "keep working on it", "finish the work", "finish the task", "continue the work", "continue the investigation",
     "continue with the work", "investigate the issue", "investigate it further", "see the above", "to be done"}
)  # fmt: skip
"""Texts that say nothing, whatever their words."""
_FILLER = frozenset(
    {"the", "and", "for", "with", "that", "this", "from", "into", "onto", "then", "than", "are", "was", "were",
     "has", "have", "had", "not", "but", "its", "our", "your", "their", "does", "did", "fix", "bug", "issue",
     "problem", "look", "looks", "like", "seem", "seems", "maybe", "perhaps", "probably", "possibly", "might",
     "could", "should", "would", "think", "guess", "somehow", "something", "anything", "everything", "some", "any",
     "all", "more", "again", "further", "later", "soon", "now", "still", "just", "done", "continue", "keep", "going",
     "todo", "tbd", "wip", "foo", "bar", "baz", "qux", "banana", "asdf", "lorem", "ipsum", "stuff", "etc", "yes"}
)  # fmt: skip
"""Words that a text does not become concrete by: articles, guesses, placeholders."""
_WORDS_NEEDED = 2
_SHORTEST_WORD = 3
_WIDE_WORD = 4
"""A word of this many letters of a script without spaces counts as a whole text."""


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
    """What keeps a session from being closed: the essential gaps of its check, if it owes a note at all."""
    return [gap for gap in check(whole).gaps if gap.essential] if owes_a_note(whole) else []


def is_done(whole: Whole) -> bool:
    """Whether nothing is left to do: every phase is finished, or the problem is fixed."""
    finished = whole.phases.profile is not None and whole.phases.current() is None
    return finished or is_fixed(whole)


def nothing_on_purpose(whole: Whole) -> dict[str, Json]:
    """Fields that are empty on purpose, with the reason; a reason that says nothing does not count."""
    said = whole.facts.scratch.get(NONE_KEY)
    return {field: why for field, why in said.items() if is_reason(str(why))} if isinstance(said, dict) else {}


def is_reason(text: str) -> bool:
    """Whether a text has at least one word that says something."""
    return bool(_content(text))


def is_vague(text: str) -> bool:
    """Whether a text says too little to act on: no two words of content, and nothing like a path, name or number."""
    words = " ".join(text.casefold().strip(" .!…").split())
    if words in _STOCK:
        return True
    if any(_is_code(word) for word in text.split()):
        return False
    return len(_content(text)) < _WORDS_NEEDED and not any(
        len(word) >= _WIDE_WORD and not word.isascii() for word in words.split()
    )


def _content(text: str) -> set[str]:
    """The distinct words that mean something."""
    found = set()
    for word in text.casefold().split():
        bare = word.strip(".,;:!?…()[]{}<>\"'`-")
        long_enough = len(bare) >= _SHORTEST_WORD or not bare.isascii()
        if bare and long_enough and bare not in _FILLER and len(set(bare)) > 1:
            found.add(bare)
    return found


def _is_code(word: str) -> bool:
    """Whether a word is a path, an option, a name of a program or something else that only a machine writes."""
    bare = word.strip(".,;:!?…()[]{}<>\"'`")
    if len(bare) < _SHORTEST_WORD - 1 or not any(letter.isalpha() for letter in bare):
        return False
    mixed = any(letter.isdigit() for letter in bare)
    return mixed or any(mark in bare for mark in ("/", "_", ".", "=", "::")) or bare.startswith("--")


def _aims(whole: Whole) -> list[Gap]:
    facts, gaps = whole.facts, []
    clear = 'onrecord objective "..."'
    if not facts.objective:
        gaps.append(Gap("objective", "is missing", clear, essential=True))
    elif is_vague(facts.objective["text"]):
        gaps.append(Gap("objective", "is vague: say what must be true at the end", clear, essential=True))
    action = facts.next_action
    clear = 'onrecord next "..." --command "..."'
    if is_done(whole):
        return gaps
    if not action:
        gaps.append(Gap("next action", "is missing", clear, essential=True))
    elif is_vague(action["text"]) and len((action["command"] or "").strip()) < _SHORTEST_WORD - 1:
        gaps.append(Gap("next action", "is vague: name a command, or what to do to which thing", clear, essential=True))
    return gaps


def _reproduction(whole: Whole) -> list[Gap]:
    """A way to reproduce the problem; if the profile has phase reports, a finished phase counts as much."""
    facts, clear = whole.facts, 'onrecord reproduction "..." --rate 3/10'
    profile = whole.phases.profile
    reproduces = any(one.get("from") == "reproduction" for one in whole.phases.described())
    if facts.reproduction:
        steps = str(facts.reproduction.get("steps", ""))
        if is_vague(steps) and not _ran(whole, steps):
            return [Gap("reproduction", "is vague: name the steps or the command", clear, essential=True)]
        rated = facts.reproduction.get("rate")
        return [] if rated else [Gap("reproduction", "has no rate (3/10 runs)", clear, essential=False)]
    if "reproduction" in nothing_on_purpose(whole) or (profile and not reproduces and whole.phases.finished):
        return []
    if profile and not reproduces:
        problem = "no phase is finished, so there is nothing to continue from"
        return [Gap("phase", problem, f"onrecord phase finish {quote(str(whole.phases.current()))}", essential=True)]
    return [Gap("reproduction", "is missing", clear, essential=True)]


def _ran(whole: Whole, steps: str) -> bool:
    """Whether these steps are a command that onrecord ran."""
    ran = (str(one.get("command") or "") for one in (*whole.attempts.all(), *whole.findings.evidence.values()))
    return steps.strip() in ran


def _judged(whole: Whole) -> list[Gap]:
    gaps = []
    for label in ("verified", "rejected"):
        found = [one for one in _with_label(whole, label) if _is_real(whole, one)]
        counts = bool(found) or (label == "verified" and _counts_as_verified(whole))
        if counts or label in nothing_on_purpose(whole):
            continue
        vague = [one["id"] for one in _with_label(whole, label)]
        problem = f"no finding is {label}; if there is none, record that"
        clear = f'onrecord note none {label} --why "..."'
        if vague:
            problem = f"{vague[0]} says too little and has no evidence that onrecord captured"
            clear = f"onrecord finding relabel {vague[0]} {label} --evidence EVIDENCE"
        # What was ruled out helps an agent that continues; once the fix is done, there is nothing to continue.
        gaps.append(Gap(label, problem, clear, essential=not (label == "rejected" and is_done(whole))))
    return gaps


def _with_label(whole: Whole, label: str) -> list[Finding]:
    """Findings that were given this label and are not stale. The fix of a bug changes the code under its cause."""
    findings = whole.findings
    given = [one for one in findings.findings.values() if one["label"] == label]
    return given if is_done(whole) else [one for one in given if findings.label_of(one) != STALE]


def _is_real(whole: Whole, finding: Finding) -> bool:
    """Whether a judged finding says something: its claim is concrete, or onrecord captured what it rests on."""
    known = {whole.findings.how(one) for one in finding["evidence"]}
    return CAPTURED in known or not is_vague(finding["claim"])


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
        Gap("attempt", f"attempt {one['number']} is unresolved", f'onrecord attempt fail {one["number"]} --error "..."',
            essential=True)
        for one in whole.attempts.unresolved()
    ]  # fmt: skip
    gaps += [
        Gap("finding", f"{one['id']} is vague and has no evidence: say what, where and when",
            f'onrecord finding relabel {one["id"]} open --why "..." --evidence EVIDENCE', essential=False)
        for one in whole.findings.labelled("open")
        if is_vague(one["claim"]) and not one["evidence"] and not one["anchors"]
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
        gaps.append(Gap("evidence", problem, "onrecord evidence run -- COMMAND", essential=False))
    return gaps
