"""The generated sections of STATE.md: each is made from the log, so it cannot say what did not happen.

A generator returns lines of Markdown; no lines mean that the section is empty, and a phase that requires it cannot
finish.
"""

from __future__ import annotations

from onrecord.views.attempts import SUCCEEDED, status_of
from onrecord.views.claims import shown_action
from onrecord.views.code import code_line
from onrecord.views.findings import finding_line
from onrecord.views.phases import DONE
from onrecord.views.render import iso, one_line

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from onrecord.views.fold import Whole
    from onrecord.views.values import Attempt, NextAction, Process, Section

    Gone = Callable[[Process], bool]

LINE_LIMIT = 400
"""The longest line or part of a line of a generated section, in characters; the log has the rest."""
STATUS_WORDS = {SUCCEEDED: "SUCCESS"}
"""The words of STATE.md for an attempt's status; the others are the record's own, in capitals."""
WORKLOG_SHOWN = 500
"""How many lines of the work log STATE.md shows: the newest."""


def lines_of(whole: Whole, section: Section, gone: Gone | None = None) -> list[str]:
    """What a generated section says. `gone` knows which processes are gone, so that a lost run is shown as lost."""
    if section["from"] == "attempts":
        return _attempts(whole, gone)
    return _GENERATORS[section["from"]](whole)


def lacking(whole: Whole, phase: str) -> list[str]:
    """What a phase still needs: required sections that are empty, features that do not pass."""
    phases = whole.phases
    about = next((one for one in phases.listed() if one["name"] == phase), None)
    if about is None:
        return []
    sections = {one["name"]: one for one in phases.described()}
    missing = [name for name in about.get("checkpoint", []) if not _is_filled(whole, sections.get(name), name)]
    if about.get("all_features"):
        missing += [f"feature {name} to pass" for name, one in phases.features.items() if not one["passes"]]
        missing += [] if phases.features else ["a feature list"]
    return missing


def _is_filled(whole: Whole, section: Section | None, name: str) -> bool:
    if section and section.get("rule") == "generated":
        return bool(lines_of(whole, section))
    return bool(whole.phases.text_of(name).strip())


def _phases(whole: Whole) -> list[str]:
    phases = whole.phases
    rows = [f"| {one['number']} | {one['name']} | {phases.status(one['name'])} |" for one in phases.listed()]
    current = phases.current()
    if current is None:
        now = "Every phase is done; nothing pending." if rows else ""
    else:
        needs = lacking(whole, current)
        state = phases.status(current)
        now = f"Now: phase {phases.number(current)}, {current} ({state})"
        now += f"; it still needs {', '.join(needs)}." if needs and state != DONE else "."
    action = shown_action(whole)
    code = code_line(whole.code)
    return [
        "| phase | name | status |", "|---|---|---|", *rows, "", now, *([f"Code: {_line(code)}"] if code else []),
        f"Next action: {_next(action)}" if action else "Next action: (none on record)",
    ]  # fmt: skip


def _worklog(whole: Whole) -> list[str]:
    entries = whole.phases.worklog
    shown = entries[-WORKLOG_SHOWN:]
    left_out = [f"- ({len(entries) - len(shown)} earlier lines are in the log)"] if len(entries) > len(shown) else []
    return left_out + [f"- {iso(one['at'])} [{one.get('phase') or '-'}] {_line(one['text'])}" for one in shown]


def _workflow(whole: Whole) -> list[str]:
    done = [attempt for attempt in whole.attempts.all() if attempt["status"] == SUCCEEDED]
    return [f"{place}. `{_code(one['command'])}` (attempt {one['number']})" for place, one in enumerate(done, 1)]


def _attempts(whole: Whole, gone: Gone | None = None) -> list[str]:
    return [f"- {attempt_line(one, gone)}" for one in whole.attempts.all()]


def attempt_line(attempt: Attempt, gone: Gone | None = None) -> str:
    """One attempt on one line: number, status, command, numbers, error, fix. Each part has its own limit."""
    status = status_of(attempt, gone) if gone else attempt["status"]
    word = STATUS_WORDS.get(status, status.upper())
    parts = [f"attempt {attempt['number']} Status: {word}: `{_code(attempt['command'])}`"]
    if attempt.get("metrics"):
        parts.append(_line(", ".join(f"{name}={value}" for name, value in attempt["metrics"].items())))
    parts += [f"{name}: {_line(str(attempt[name]))}" for name in ("error", "fix", "reason") if attempt.get(name)]
    outputs = [str(one.get("path", one) if isinstance(one, dict) else one) for one in attempt.get("outputs") or ()]
    parts += [f"files: {_line(', '.join(outputs))}"] if outputs else []
    return "; ".join(parts)


def _features(whole: Whole) -> list[str]:
    return [
        f"- [{'x' if one['passes'] else ' '}] {name}: {_line(one['text'])}"
        + (f" [{', '.join(one['evidence'])}]" if one["evidence"] else "")
        for name, one in whole.phases.features.items()
    ]


def _labelled(*labels: str) -> Callable[[Whole], list[str]]:
    def lines(whole: Whole) -> list[str]:
        found = [finding for label in labels for finding in whole.findings.labelled(label)]
        return [f"- {_line(finding_line(whole.findings, finding))}" for finding in found]

    return lines


def _objective(whole: Whole) -> list[str]:
    return [_line(whole.facts.objective["text"])] if whole.facts.objective else []


def _reproduction(whole: Whole) -> list[str]:
    found = whole.facts.reproduction
    if not found:
        return []
    more = [f"{name}: {_line(str(found[name]))}" for name in ("scenario", "rate") if found.get(name)]
    return [_line(str(found.get("steps", ""))), *more]


def _next_action(whole: Whole) -> list[str]:
    action = shown_action(whole)
    return [_next(action)] if action else []


def _next(action: NextAction) -> str:
    return _line(action["text"]) + (f"  $ {_line(action['command'])}" if action["command"] else "")


def _decisions(whole: Whole) -> list[str]:
    return [
        f"- {_line(one['text'])}" + (f" because {_line(one['why'])}" if one["why"] else "")
        for one in whole.facts.decisions
    ]


def _evidence(whole: Whole) -> list[str]:
    from onrecord.views.note_lines import evidence_text

    return [
        f"- {_line(name)}: {'captured' if one.get('captured') else 'asserted'} {_line(evidence_text(one))}"
        for name, one in whole.findings.evidence.items()
    ]


def _line(text: str) -> str:
    return one_line(text, LINE_LIMIT)


def _code(command: str) -> str:
    return _line(command).replace("`", "'")


_GENERATORS: dict[str, Callable[[Whole], list[str]]] = {
    "phases": _phases,
    "worklog": _worklog,
    "workflow": _workflow,
    "attempts": _attempts,
    "features": _features,
    "objective": _objective,
    "reproduction": _reproduction,
    "verified": _labelled("verified", "settled"),
    "rejected": _labelled("rejected"),
    "open": _labelled("open"),
    "blocked": _labelled("blocked"),
    "stale": _labelled("stale"),
    "next_action": _next_action,
    "decisions": _decisions,
    "evidence": _evidence,
}
SOURCES = tuple(_GENERATORS)
"""What a section of STATE.md can be generated from."""
