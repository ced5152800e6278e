"""The note in other formats: the body of a pull request, an issue comment, a JSON task file.

Text from agents is made inert for its target: no mention notifies a person, and no markup takes effect.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from onrecord.views.claims import shown_action
from onrecord.views.code import commit_lines
from onrecord.views.findings import finding_line
from onrecord.views.note import BRIEF_LIMIT, brief, changed_files, feature_lines, note, status_lines
from onrecord.views.note_lines import attempt_entries, evidence_lines, failed_entries, flat, reproduction_line
from onrecord.views.render import iso, one_line

if TYPE_CHECKING:
    from collections.abc import Callable

    from onrecord.views.fold import Whole
    from onrecord.views.happenings import Recent
    from onrecord.views.values import Finding, Json, Process

    Gone = Callable[[Process], bool]

TASK_VERSION = 1
"""The version of the JSON task file; fields may be added, consumers ignore unknown ones."""
COMMENT_LIMIT = 60_000
"""The longest pull request body or comment, in characters: the services' limit is a little higher."""
_WIDTH = 1_000


def headed(whole: Whole, text: str) -> str:
    """The text under a line that names its source, so that it is not mistaken for the record."""
    return f"<!-- onrecord:note session={whole.head.session} position={whole.position} -->\n{text}"


def pull_request(whole: Whole, gone: Gone | None = None) -> str:
    """The body of a pull request: what, why it is right, what was ruled out."""
    facts, findings = whole.facts, whole.findings
    parts = [
        ("What", [facts.objective["text"] if facts.objective else "(no objective on record)"]),
        ("Status", status_lines(whole)),
        ("How to reproduce the problem", [reproduction_line(facts.reproduction)] if facts.reproduction else []),
        ("Verified", [finding_line(findings, one) for one in findings.labelled("verified")]),
        ("Settled: verified, and fixed since", [finding_line(findings, one) for one in findings.labelled("settled")]),
        ("Ruled out", [finding_line(findings, one) for one in findings.labelled("rejected")]),
        ("Stale: check again", [finding_line(findings, one) for one in findings.labelled("stale")]),
        ("Open", [finding_line(findings, one) for one in (*findings.labelled("open"), *findings.labelled("blocked"))]),
        ("Features left", feature_lines(whole)),
        ("Decisions", [one["text"] + (f" because {one['why']}" if one["why"] else "") for one in facts.decisions]),
        ("Failed on the way", flat(failed_entries(whole), _WIDTH)),
        ("Last attempt", flat(attempt_entries(whole, gone), _WIDTH)),
        ("Commits", commit_lines(whole.code)),
        ("Evidence (✓ was captured by onrecord, the rest is asserted)", evidence_lines(whole)),
    ]
    lines = []
    for title, entries in parts:
        if entries:
            lines += [f"## {title}", "", *(f"- {inert(one_line(entry, _WIDTH))}" for entry in entries), ""]
    lines.append(f"*onrecord session {inert(whole.head.name)}, position {whole.position}*")
    return _cut("\n".join(lines) + "\n")


def issue_comment(whole: Whole, recent: Recent | None = None, gone: Gone | None = None) -> str:
    """A comment on an issue: the brief, and the note folded away below it."""
    short = "\n".join(inert(line).replace("# ", "### ", 1) if line.startswith("# ") else inert(line)
                      for line in _paragraphs(brief(whole, gone, recent)))  # fmt: skip
    full = "\n".join(inert(line) for line in note(whole, recent, gone).split("\n"))
    return _cut(f"{short}\n\n<details><summary>The whole note</summary>\n\n{full}\n</details>\n")


def task(whole: Whole, gone: Gone | None = None) -> dict[str, Json]:
    """The note as data, for programs: every field, complete and unshortened."""
    facts, findings, phases = whole.facts, whole.findings, whole.phases
    active = findings.active()
    return {
        "task_version": TASK_VERSION, "session": whole.head.session, "name": whole.head.name,
        "status": whole.head.status, "position": whole.position, "last_activity_at": iso(whole.active_at),
        "objective": facts.purpose, "next_action": shown_action(whole),
        "reproduction": facts.reproduction, "hypothesis": active["id"] if active else None,
        "findings": [_finding(whole, one) for one in findings.findings.values()],
        "evidence": [{**one, "how": findings.how(name)} for name, one in findings.evidence.items()],
        "decisions": facts.decisions, "milestones": phases.milestones,
        "phases": [{"number": phases.number(one), "name": one, "status": phases.status(one)} for one in phases.names],
        "phase": phases.current(), "features": phases.features, "attempts": whole.attempts.all(),
        "unresolved_attempts": [one["number"] for one in whole.attempts.unresolved()],
        "files_changed": changed_files(whole), "code": whole.code.seen, "commits": whole.code.commits,
        "title": whole.facts.title, "brief": brief(whole, gone),
    }  # fmt: skip


def _finding(whole: Whole, finding: Finding) -> dict[str, Json]:
    findings = whole.findings
    evidence = [{"id": one, "how": findings.how(one)} for one in finding["evidence"]]
    changed = findings.files_changed(finding)
    return (
        dict(finding)
        | {"label": findings.label_of(finding), "judged": finding["label"], "evidence": evidence}
        | ({"files_changed_since": changed} if changed else {})
    )


def inert(text: str) -> str:
    """Text without mentions and tags where Markdown is rendered."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace("@", "&#64;")


def _paragraphs(text: str) -> list[str]:
    """Lines that a Markdown reader keeps apart."""
    lines: list[str] = []
    for line in text.rstrip("\n").split("\n"):
        if lines and not line.startswith("- "):
            lines.append("")
        lines.append(line)
    return lines


def _cut(text: str) -> str:
    if len(text) <= COMMENT_LIMIT:
        return text
    return text[: COMMENT_LIMIT - BRIEF_LIMIT].rpartition("\n")[0] + "\n\n*Cut here; `onrecord note` has the rest.*\n"
