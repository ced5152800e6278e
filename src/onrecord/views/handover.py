"""The continuation report: what is reused, what was rejected or failed before, what is new, what is unresolved."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onrecord.views.attempts import RUNNING, status_of
from onrecord.views.code import code_line, commit_lines
from onrecord.views.diff import changes
from onrecord.views.findings import finding_line
from onrecord.views.happenings import lines_of
from onrecord.views.note import feature_lines, status_lines
from onrecord.views.note_lines import failed_entries, flat, reproduction_line
from onrecord.views.render import one_line

if TYPE_CHECKING:
    from collections.abc import Callable

    from onrecord.views.fold import Whole
    from onrecord.views.happenings import Recent
    from onrecord.views.values import Json, Process

    Gone = Callable[[Process], bool]

REPRODUCED = "reproduction: "
"""How the reproduction begins among what is reused; it is the first."""
REPORT_LINE = 200
"""The longest line of the report, in characters."""
COMMITS_REPORTED = 8
"""How many commits the report shows as text: the newest."""
REPORT_ENTRIES = 20
"""How many entries of one part of the report are shown as text; all of them are in its data."""


def report(
    whole: Whole, before: Whole | None, gone: Gone, now: int, *, recent: Recent | None = None
) -> dict[str, Json]:
    """Everything the report says. `before` is the session at the last resume; None if there was none.

    `recent` is the end of the log, for a session without written content.
    """
    phases, findings = whole.phases, whole.findings
    unresolved = [
        f"attempt {one['number']} is {status_of(one, gone)}: {one['command']}"
        for one in whole.attempts.all()
        if one["status"] == RUNNING
    ]
    unresolved += [f"stale: {finding_line(findings, one)}" for one in findings.labelled("stale")]
    unresolved += [f"blocked: {finding_line(findings, one)}" for one in findings.labelled("blocked")]
    unresolved += [f"effect {key} may have happened" for key in whole.effects.unfinished]
    unresolved += [f"feature {line}" for line in feature_lines(whole)]
    reproduction = whole.facts.reproduction
    reused = [f"{REPRODUCED}{reproduction_line(reproduction)}"] if reproduction else []
    reused += [finding_line(findings, one) for label in ("verified", "settled") for one in findings.labelled(label)]
    return {
        "session": whole.head.session, "name": whole.head.name, "status": whole.head.status,
        "position": whole.position, "since": before.position if before else 0,
        "objective": whole.facts.purpose, "next_action": whole.facts.next_action,
        "phase": phases.current(), "outcome": (status_lines(whole) or [""])[0],
        "code": code_line(whole.code), "commits": commit_lines(whole.code), "reused": reused,
        "rejected": [finding_line(findings, one) for one in findings.labelled("rejected")],
        "failed": flat(failed_entries(whole, last_too=True), REPORT_LINE),
        "new": changes(before, whole, []) if before else [],
        "unresolved": unresolved,
        "saved": saved(whole, now), "happened": lines_of(recent) if recent else [],
    }  # fmt: skip


def saved(whole: Whole, now: int) -> dict[str, Json]:
    """What need not be done again: finished phases, settled attempts, tokens and seconds spent so far."""
    settled = [one for one in whole.attempts.all() if one["status"] != RUNNING]
    return {
        "phases": [name for name in whole.phases.names if name in whole.phases.finished],
        "attempts": len(settled),
        "failed_attempts": sum(one["status"] == "failed" for one in settled),
        "attempt_seconds": round(sum(one.get("seconds") or 0 for one in settled), 3),
        "tokens": whole.spend.tokens,
        "seconds": round(whole.spend.used(now)["seconds"], 3),
    }


def text_of(told: dict[str, Json]) -> str:
    """The report for people and agents."""
    action = told["next_action"]
    command = f"  $ {action['command']}" if action and action["command"] else ""
    lines = [
        f"# Continuing {told['name']} ({told['status']}, position {told['position']})",
        f"Objective: {told['objective'] or '(none on record)'}",
        f"Continue with: {'phase ' + told['phase'] + ': ' if told['phase'] else ''}"
        + (f"{action['text']}{command}" if action else "(no next action on record)"),
    ]
    lines += [f"Status: {told['outcome']}"] if told["outcome"] else []
    lines += [f"Code: {told['code']}"] if told["code"] else []
    lines.append(saved_line(told["saved"]))
    new = [f"{one['what']}: {one['before'] or '-'} -> {one['after']}" for one in told["new"]]
    reproduced = [line for line in told["reused"][:1] if line.startswith(REPRODUCED)]
    if told["commits"]:
        lines += ["Commits:", *(f"- {line}" for line in told["commits"][-COMMITS_REPORTED:])]
    rare = {
        "Reuse the reproduction": [line.removeprefix(REPRODUCED) for line in reproduced],
        "Failed (do not repeat it)": told["failed"],
        "What happened (from the conversation)": told["happened"],
    }  # shown only if there is something
    reproduction, failed, happened = ([(title, found)] if found else [] for title, found in rare.items())
    # Without an earlier visit everything is new, and says nothing.
    since = [(f"New since position {told['since']}", new)] if told["since"] else []
    parts = [
        *reproduction, ("Verified (reuse it)", told["reused"][len(reproduced) :]),
        ("Rejected (do not retry)", told["rejected"]), *failed, *since,
        ("Unresolved (settle first)", told["unresolved"]), *happened,
    ]  # fmt: skip
    for title, entries in parts:
        lines.append(f"{title}: {'' if entries else 'nothing'}".rstrip())
        lines += [f"- {entry}" for entry in entries[:REPORT_ENTRIES]]
        lines += [f"- and {len(entries) - REPORT_ENTRIES} more"] if len(entries) > REPORT_ENTRIES else []
    return "\n".join(one_line(line, REPORT_LINE) for line in lines) + "\n"


def saved_line(kept: dict[str, Json]) -> str:
    """What need not be done again, in one line. Tokens are named only where they were counted."""
    names, attempts, failed, tokens = kept["phases"], kept["attempts"], kept["failed_attempts"], kept["tokens"]
    if not (names or attempts):  # a conversation without more
        return f"{tokens:,} token{_s(tokens)} were spent on it so far" if tokens else "Nothing is settled yet"
    done = [f"{len(names)} phase{_s(len(names))} ({', '.join(names)})"] if names else []
    ran = [f"{kept['attempt_seconds']:g} s of runs"] if kept["attempt_seconds"] else []
    about = ", ".join([f"{failed} failed", *ran] if failed else ran)
    done += [f"{attempts} attempt{_s(attempts)}" + (f" ({about})" if about else "")] if attempts else []
    spent = f"; {tokens:,} token{_s(tokens)} were spent on it" if tokens else ""
    return f"Already done: {', '.join(done)}{spent}"


def _s(number: int) -> str:
    return "" if number == 1 else "s"
