"""Claims: the whole story of a finding, step by step, and whether the fix of the problem is reached."""

from __future__ import annotations

from onrecord.lean_typing import TYPE_CHECKING
from onrecord.views.findings import SETTLED, STALE

if TYPE_CHECKING:
    from onrecord.views.findings import Findings
    from onrecord.views.fold import Whole
    from onrecord.views.values import ClaimStep, Finding, NextAction, Stamp

_CHANGED = {STALE: "turned stale", SETTLED: "turned out fixed"}


def steps_of(findings: Findings, finding: Finding) -> list[ClaimStep]:
    """Everything that happened to a claim, in order: labels, challenges and their outcomes, code changes, its fix."""
    steps = [
        _step(one, f"{'stated ' if place == 0 else ''}{one['label']}", one["evidence"], one.get("why"))
        for place, one in enumerate(finding["history"])
    ]
    for challenge in finding["challenges"]:
        steps.append(_step(challenge, "challenged", challenge["evidence"], challenge["argument"]))
        if challenge["outcome"] == "upheld":
            ended: Stamp = {
                "position": challenge["settled"], "at": challenge["settled_at"], "by": challenge["settled_by"]
            }  # fmt: skip
            steps.append(_step(ended, "upheld", challenge.get("proof", []), challenge.get("why")))
    for change in finding["staleness"]:
        fresh = change["label"] not in _CHANGED
        what = "fresh again: the code is as it was" if fresh else _CHANGED[change["label"]]
        steps.append(_step(change, what, [], f"{change['what']} changed" if change["what"] else None))
    fix = findings.fixes.get(finding["id"])
    if fix:
        steps.append(_step(fix, "fixed", fix["evidence"], None))
    # One outcome may settle several challenges.
    return sorted(
        {(step["position"], step["what"]): step for step in steps}.values(), key=lambda step: step["position"]
    )


def _step(of: Stamp, what: str, evidence: list[str], why: str | None) -> ClaimStep:
    return {
        "position": of["position"], "at": of["at"], "by": of["by"], "what": what, "evidence": list(evidence),
        "why": why or None,
    }  # fmt: skip


def is_fixed(whole: Whole) -> bool:
    """Whether the problem is fixed: the fix is reached, and the code of its cause is not again what it was."""
    fix, findings = whole.phases.milestones.get("fix"), whole.findings
    if fix is None:
        return False
    cause = findings.findings.get(fix["finding"] or findings.cause or "")
    return cause is None or findings.is_settled(cause) or (cause["label"] == "verified" and not cause["staleness"])


def pending_action(whole: Whole) -> NextAction | None:
    """The next action, unless it is done: its command succeeded since, or the fix was reached since."""
    action = whole.facts.next_action
    if action is None:
        return None
    since, command = action["position"], action["command"]
    fix = whole.phases.milestones.get("fix")
    ran = [one["command"] for one in whole.attempts.all() if one["status"] == "succeeded" and one["position"] > since]
    ran += [
        str(one.get("command")) for one in whole.findings.evidence.values()
        if one["position"] > since and one.get("captured") and one.get("exit_code") == 0 and not one.get("error")
    ]  # fmt: skip
    done = (fix is not None and fix["position"] > since) or (command is not None and _same(command, ran))
    return None if done else action


def shown_action(whole: Whole) -> NextAction | None:
    """The next action as notes show it: in an ended session, one that is done is left out."""
    ended = whole.head.status in ("closed", "archived")
    return pending_action(whole) if ended else whole.facts.next_action


def _same(command: str, ran: list[str]) -> bool:
    """Whether a command is among those that ran, whatever its quotes."""
    import shlex

    try:
        plain = shlex.join(shlex.split(command))
    except ValueError:
        plain = command
    return plain in ran or command in ran
