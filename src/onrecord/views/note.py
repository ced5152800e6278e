"""The note: what the next agent reads, assembled from the durable tier; and the brief, its first 2 KB.

The brief is complete without the note: objective, next action, reproduction, blockers, what was rejected, what is
verified or stale, what failed, the running or last attempt, phase, the code it was left on, pointers. Its lines are
shortened, then dropped from the least to the most important until it fits; dropped lines are counted, never silently
omitted. If the note has no written content, it lists what happened.

Evidence that onrecord captured itself carries a `✓`; asserted evidence does not.
"""

from __future__ import annotations

from onrecord.lean_typing import TYPE_CHECKING
from onrecord.views.claims import pending_action
from onrecord.views.code import code_lines, commit_lines
from onrecord.views.findings import finding_line
from onrecord.views.note_lines import (
    attempt_entries,
    attempt_entry,
    evidence_lines,
    failed_entries,
    fitted,
    flattened,
    least,
    metric_entries,
    reproduction_line,
    section_lines,
    shared,
)
from onrecord.views.render import clip, iso, one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from onrecord.views.fold import Whole
    from onrecord.views.happenings import Recent
    from onrecord.views.note_lines import Entry
    from onrecord.views.values import Decision, NextAction, Objective, Process

    Gone = Callable[[Process], bool]
    Group = tuple[str, Sequence[Entry]]
    Ready = tuple[str, list[list[str]], int]
    """A title, the parts of its newest entries, each on one line, and how many entries there are."""

BRIEF_LIMIT = 2_048
"""The largest brief, in bytes of UTF-8."""
NOTE_ENTRIES = 40
"""How many entries of one group the note lists: the newest; the rest are counted."""
_SHORT, _LINE = 100, 200
_ENTRY = 1_600
"""The most bytes of one entry of the note."""
_FIELD = 320
"""The most bytes that objective or next action take up in the brief."""
_CHANGED_SHOWN = 8
_MISFITS_SHOWN = 10

REJECTED = "Rejected (do not reopen without new evidence)"
CODE = "Code"
HAPPENED = "What happened (no note was written; this is from the events)"
STALE_TITLE = "Stale (check again before relying on it)"
SETTLED_TITLE = "Settled (verified, and fixed since)"
FAILED_TITLE = "Failed (do not repeat it)"
REPRODUCTION = "Reproduction"
_NEEDED = (
    "Blocked", REPRODUCTION, REJECTED, STALE_TITLE, "Verified", SETTLED_TITLE, FAILED_TITLE, "Attempt", HAPPENED
)  # fmt: skip
"""The groups that shrink last."""
_SHRINKING = (
    (40, 8, 200), (40, 4, 200), (40, 3, 160), (40, 2, 120), (40, 2, 100), (30, 1, 90), (24, 1, 80), (18, 1, 70),
    (12, 1, 70), (8, 1, 80), (6, 1, 80), (4, 1, 80), (3, 1, 70), (2, 1, 60), (1, 1, 60), (1, 1, 50), (1, 1, 40),
)  # fmt: skip
"""The limits tried in turn until the brief fits: entries of a needed group, of any other group, bytes of an entry."""
_MOST = max(max(needed, other) for needed, other, _width in _SHRINKING)


def brief(whole: Whole, gone: Gone | None = None, recent: Recent | None = None, *, inside: str = "") -> str:
    """The first thing the next agent reads; at most BRIEF_LIMIT bytes. `gone` knows which processes are gone.

    `recent` is the end of the log, for a session without written content. `inside` is the agent whose open turn the
    reader sees anyway.
    """
    facts = whole.facts
    fixed = [
        f"# {one_line(whole.head.name, _SHORT)} ({whole.head.status}, position {whole.position})",
        f"Objective: {_fact(facts.objective)}",
        f"Next action: {_next_of(whole)}",
    ]
    groups = [*_groups(whole, gone, inside), *(happenings(whole, recent, short=True) if recent is not None else ())]
    ready = [(title, [flattened(entry) for entry in entries[-_MOST:]], len(entries)) for title, entries in groups]
    sizes = [(title, [sum(len(part.encode()) for part in parts) for parts in entries]) for title, entries, _ in ready]
    text = ""
    for limits in _SHRINKING:
        if limits != _SHRINKING[-1] and _too_long(ready, sizes, *limits):
            continue
        text = _compose(fixed, ready, *limits)
        if len(text.encode()) <= BRIEF_LIMIT:
            return text
    return clip(text, BRIEF_LIMIT)


def note(whole: Whole, recent: Recent | None = None, gone: Gone | None = None) -> str:
    """The whole note, as Markdown. `recent` is the end of the log, for a session without written content."""
    facts, head = whole.facts, whole.head
    lines = [
        f"# {one_line(head.name, _SHORT)}",
        "",
        f"*{head.status}; from position {whole.position}; last activity {iso(whole.active_at)}*",
        "",
        f"**Objective:** {_fact(facts.objective, _LINE * 5)}",
        f"**Next action:** {_next_of(whole, _LINE * 5)}",
    ]
    if whole.misfits:
        where = ", ".join(map(str, whole.misfits[:_MISFITS_SHOWN])) + (" ..." if whole.misfits[_MISFITS_SHOWN:] else "")
        lines.append(f"**Unreadable:** the payloads at positions {where} do not have the form of their kind")
    if facts.reproduction:
        lines.append(f"**Reproduction:** {reproduction_line(facts.reproduction)}")
    groups = [group for group in _groups(whole, gone) if group[0] != REPRODUCTION]
    for title, entries in [*groups, *_details(whole), *happenings(whole, recent)]:
        shown = entries[-NOTE_ENTRIES:]
        lines += ["", f"## {title}", ""]
        lines += [f"- ({len(entries) - len(shown)} earlier ones are in the log)"] if len(entries) > len(shown) else []
        lines += [f"- {fitted(entry, _ENTRY)}" for entry in shown]
    return "\n".join(lines) + "\n"


def _too_long(groups: list[Ready], sizes: list[tuple[str, list[int]]], needed: int, other: int, width: int) -> bool:
    """Whether a brief with these limits is certainly too long: to compose it would be in vain."""
    total = 0
    for (title, entries, _count), (_title, lengths) in zip(groups, sizes, strict=True):
        most = needed if title in _NEEDED else other
        total += len(title)
        for parts, length in zip(entries[-most:], lengths[-most:], strict=True):
            total += least(parts, length, width)
        if total > BRIEF_LIMIT:
            return True
    return False


def _compose(fixed: list[str], groups: list[Ready], needed: int, other: int, width: int) -> str:
    """The brief with these limits; one that is longer than BRIEF_LIMIT is not finished."""
    lines = list(fixed)
    size = 0
    for title, entries, count in groups:
        # The newest entries are the ones that matter when not all fit.
        shown = entries[-(needed if title in _NEEDED else other) :]
        left_out = count - len(shown)
        lines.append(f"{title}:" + (f" (+{left_out} earlier)" if left_out else ""))
        for parts in shown:
            line = f"- {shared(parts, width)}"
            lines.append(line)
            size += len(line)
            if size > BRIEF_LIMIT:
                return "\n".join(lines)
    return "\n".join(lines) + "\n"


def _groups(whole: Whole, gone: Gone | None, inside: str = "") -> list[Group]:
    """Titled lists, the most important first; empty ones are left out."""
    findings = whole.findings
    active = findings.active()
    by_label = findings.by_label()

    def labelled(label: str) -> list[str]:
        return [finding_line(findings, one, label) for one in by_label.get(label, ())]

    groups: list[Group] = [
        (REPRODUCTION, [reproduction_line(whole.facts.reproduction, _LINE)] if whole.facts.reproduction else []),
        ("Blocked", labelled("blocked")),
        (REJECTED, labelled("rejected")),
        (STALE_TITLE, labelled("stale")),
        ("Verified", labelled("verified")),
        (SETTLED_TITLE, labelled("settled")),
        (FAILED_TITLE, failed_entries(whole)),
        ("Attempt", attempt_entries(whole, gone)),
        ("Phase", _phase(whole)),
        ("Status", status_lines(whole)),
        ("Working on", [finding_line(findings, active)] if active else []),
        ("Not settled (provisional turns and unknown effects)", _unsettled(whole, inside)),
        ("Open", labelled("open")),
        ("Features that do not pass yet, or must be tested again", feature_lines(whole)),
        ("Decisions", _decisions(whole.facts.decisions)),
        (CODE, list(code_lines(whole.code))),
        ("Commits", list(commit_lines(whole.code))),
        ("Pointers", _pointers(whole)),
    ]
    return [(title, entries) for title, entries in groups if entries]


def _details(whole: Whole) -> list[Group]:
    """What only the note has room for: the written sections, metrics, and what each cited evidence is."""
    groups: list[Group] = [
        ("Sections (STATE.md has the whole text)", list(section_lines(whole))),
        ("Metrics", metric_entries(whole)),
        ("Evidence (✓ was captured by onrecord, the rest is asserted)", list(evidence_lines(whole))),
    ]
    return [(title, entries) for title, entries in groups if entries]


def status_lines(whole: Whole) -> list[str]:
    """Root cause and fix, as two milestones; nothing before either is reached."""
    reached = whole.phases.milestones
    if not reached:
        return []
    cause = reached.get("root_cause")
    fix = reached.get("fix")
    finding = whole.findings.findings.get((cause["finding"] if cause else "") or "")
    how = f": {whole.findings.settled_by(finding)}" if finding and whole.findings.is_settled(finding) else ""
    told = f"root cause verified ({cause['finding']}{how})" if cause else "root cause not verified"
    return [f"{told}; " + ("fix implemented" if fix else "fix not implemented")]


def feature_lines(whole: Whole) -> list[str]:
    """Features that must pass before the work is done."""
    again = whole.phases.unproven()
    features = whole.phases.features.items()
    lines = [f"{name}: {one['text']}" for name, one in features if not one["passes"]]
    return lines + [f"{name}: passed before the last resume; test it again first" for name in again]


def _phase(whole: Whole) -> list[str]:
    phases = whole.phases
    if not phases.names:
        return []
    current = phases.current()
    count = f"{len(phases.finished)} of {len(phases.names)} done"
    if current is None:
        return [f"every phase of {phases.profile['name'] if phases.profile else ''} is done"]
    from onrecord.views.sections import lacking

    needs = ", ".join(lacking(whole, current))
    state = phases.status(current)
    return [f"{phases.number(current)} {current} ({state}); {count}" + (f"; it still needs {needs}" if needs else "")]


def _pointers(whole: Whole) -> list[str]:
    name = whole.head.name
    said = whole.phases.profile or whole.findings.findings or whole.attempts.attempts
    file = "STATE.md; " if whole.phases.profile else ""
    return [f"{file}onrecord note {name}; onrecord log {name}; onrecord continue {name}"] if said else []


def happenings(whole: Whole, recent: Recent | None, *, short: bool = False) -> list[Group]:
    """What happened, from the events alone; only if nothing else on record helps a reader.

    If it is `short`, the most useful lines are the last ones: those remain when not all fit.
    """
    if not is_unwritten(whole):
        return []
    lines: list[Entry] = [
        f"{agent}: {lane['committed']} committed turn{'' if lane['committed'] == 1 else 's'}, "
        f"the last at position {lane['last_commit']}"
        for agent, lane in whole.lanes.lanes.items()
        if lane["committed"]
    ]
    lines += [attempt_entry(attempt, None) for attempt in whole.attempts.all()[:-1]]
    # What differs from the revision is listed with the code above; a person may have changed it, not the agent.
    if changed := [name for name in changed_files(whole) if name not in whole.code.files]:
        more = f" and {len(changed) - _CHANGED_SHOWN} more" if len(changed) > _CHANGED_SHOWN else ""
        lines.append(f"files changed: {', '.join(changed[:_CHANGED_SHOWN])}{more}")
    if recent is not None:
        from onrecord.views.happenings import lines_of  # only a session without a note pays for it

        lines = [*lines, *reversed(lines_of(recent, commands=3))] if short else [*lines_of(recent), *lines]
    return [(HAPPENED, lines)] if lines else []


def is_unwritten(whole: Whole) -> bool:
    """Whether nothing on record helps a reader: no finding, next action, decision or section."""
    facts = whole.facts
    return not (whole.findings.findings or facts.next_action or facts.decisions or whole.phases.sections)


def changed_files(whole: Whole) -> list[str]:
    """Files that differed from their revision, files of commits on record, and changed ones that findings rest on."""
    found = {name for attempt in whole.attempts.all() for name in (attempt["revision"] or {}).get("changed") or ()}
    found |= set(whole.code.files)
    return sorted(found | {key.partition(":")[0].partition("@")[0] for key in whole.findings.code})


def _unsettled(whole: Whole, inside: str = "") -> list[str]:
    entries = []
    for agent, lane in whole.lanes.lanes.items():
        entries += [
            f"turn {turn['turn']} of {agent} was {turn['how']} at position {turn['end']}"
            + (f": {turn['reason']}" if turn["reason"] else "")
            for turn in lane["provisional"]
        ]
        if lane["open"] and agent != inside:
            entries.append(f"turn {lane['open']['turn']} of {agent} was begun at position {lane['open']['position']}")
    for key, effect in whole.effects.unfinished.items():
        entries.append(
            f"effect {key} was started at position {effect['position']} and has no result: check whether it happened"
        )
    stop = whole.interruption()
    if stop:
        resets = stop.get("resets_at")
        ends = stop.get("until") or (iso(int(resets * 1e6)) if resets else "")
        until = f", until {ends}" if ends else ""
        entries.append(f"interrupted at position {stop['position']}: {stop.get('cause', 'unknown')}{until}")
    return entries


def _fact(fact: Objective | NextAction | None, width: int = _FIELD) -> str:
    return clip(one_line(fact["text"], width), width) if fact else "(none on record)"


def _next_of(whole: Whole, width: int = _FIELD) -> str:
    """The next action; in an ended session, one that is done is left out."""
    done = whole.head.status in ("closed", "archived") and pending_action(whole) is None
    return "(none: the work has ended)" if whole.facts.next_action and done else _next(whole.facts.next_action, width)


def _next(action: NextAction | None, width: int = _FIELD) -> str:
    text = _fact(action, width)
    return f"{text}  $ {clip(one_line(action['command'], width), width)}" if action and action["command"] else text


def _decisions(decisions: list[Decision]) -> list[Entry]:
    """An entry for each decision; those that are too old to be shown are only counted."""
    several = len({decision["by"] for decision in decisions}) > 1
    newest: list[Entry] = [_decision(decision, several=several) for decision in decisions[-max(_MOST, NOTE_ENTRIES) :]]
    older: list[Entry] = [""] * (len(decisions) - len(newest))
    return older + newest


def _decision(decision: Decision, *, several: bool) -> str:
    """A decision; with its author, if several people or agents decided."""
    source = f" ({decision['by']})" if several else ""
    source += f" (from position {decision['because']})" if decision["because"] else ""
    return f"{decision['text']}" + (f" because {decision['why']}" if decision["why"] else "") + source
