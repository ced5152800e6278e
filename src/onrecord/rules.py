"""Rules: before a tool runs, a gate folds the present and answers allow, ask or deny, with the events behind it.

Rules are code. They look at structured facts (paths, argument lists, states), never at words inside a text. Every
refusal names the one command that clears it; the commands of onrecord itself are never refused, so no state can lock
an agent in; a refusal that repeats itself becomes a question to a person.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any, NamedTuple

from onrecord.log.head import LIVE, PAUSED
from onrecord.views.attempts import LOST, RUNNING, status_of
from onrecord.views.gates import ground
from onrecord.views.render import one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from onrecord.views.attempts import Attempt
    from onrecord.views.fold import Whole

    Gone = Callable[[dict[str, Any]], bool]

ALLOW, ASK, DENY = "allow", "ask", "deny"
EDIT, RUN, READ, OTHER = "edit", "run", "read", "other"
REFUSALS_LIMIT = 8
"""After so many refusals on the same ground the gate asks a person instead."""
ADVICE_WIDTH = 240
"""The longest line of advice, in characters."""
OWN_FILES = (".onrecord/", "STATE.md")
"""Files that keep the record readable; writing them never waits."""


class ToolRequest(NamedTuple):
    """What an agent is about to do, in no vendor's words."""

    agent: str
    act: str
    """edit, run, read or other."""
    paths: tuple[str, ...] = ()
    """Relative to the project's root."""
    command: tuple[str, ...] = ()
    tool: str = ""
    call: str = ""
    """The vendor's id of the call."""


class Verdict(NamedTuple):
    """The gate's answer."""

    decision: str
    rule: str = ""
    reason: str = ""
    clear: str = ""
    """The one command that clears a refusal."""
    positions: tuple[int, ...] = ()
    advice: tuple[str, ...] = ()
    advised: tuple[str, ...] = ()
    """Keys of the advice, so that each is given once."""


def command_of(text: str) -> tuple[str, ...]:
    """A command as an argument list; a text that is no shell command stays one argument."""
    try:
        return tuple(shlex.split(text))
    except ValueError:
        return (text,)


def signature_of_command(command: tuple[str, ...]) -> str:
    """What makes two commands the same: their arguments."""
    return shlex.join(command)


def decide(request: ToolRequest, whole: Whole, now: int, gone: Gone) -> Verdict:
    """The verdict on a request. Pure: what is known of other processes is brought by `gone`."""
    if request.act in (READ, OTHER) or _is_ours(request):
        return Verdict(ALLOW)
    for rule in _RULES:
        verdict = rule(request, whole, now, gone)
        if verdict is None:
            continue
        key = ground(verdict.rule, request.agent, list(verdict.positions))
        if key in whole.gates.overridden:
            continue
        if whole.gates.refusals.get(key, 0) >= REFUSALS_LIMIT:
            asked = f"{verdict.reason} (refused {REFUSALS_LIMIT} times; a person decides)"
            return verdict._replace(decision=ASK, reason=asked)
        return verdict
    return _advise(request, whole)


def _is_ours(request: ToolRequest) -> bool:
    if request.act == RUN:
        return bool(request.command) and request.command[0].rpartition("/")[2] == "onrecord"
    return bool(request.paths) and all(path.startswith(OWN_FILES) for path in request.paths)


def _ended(_request: ToolRequest, whole: Whole, _now: int, _gone: Gone) -> Verdict | None:
    if whole.head.status in LIVE:
        return None
    name = whole.head.name
    return Verdict(
        DENY, "session_closed", f"session {name} is {whole.head.status}", f"onrecord resume {name} --reopen",
        (_last_step(whole),),
    )  # fmt: skip


def _paused(_request: ToolRequest, whole: Whole, _now: int, _gone: Gone) -> Verdict | None:
    if whole.head.status != PAUSED:
        return None
    last = whole.lifecycle.steps[-1]
    why = f": {one_line(last['reason'], ADVICE_WIDTH)}" if last["reason"] else ""
    name = whole.head.name
    return Verdict(
        DENY, "session_paused", f"session {name} is paused{why}", f"onrecord resume {name}", (_last_step(whole),)
    )


def _unresolved(request: ToolRequest, whole: Whole, _now: int, gone: Gone) -> Verdict | None:
    for attempt in whole.attempts.unresolved(request.agent):
        alive = bool(attempt["process"]) and status_of(attempt, gone) == RUNNING
        if alive and not _disturbs(request, attempt):
            continue
        number = attempt["number"]
        lost = status_of(attempt, gone) == LOST
        state = "runs" if alive else "is lost: its process is gone" if lost else "is unresolved"
        return Verdict(
            DENY, "unresolved_attempt", f"attempt {number} ({one_line(attempt['command'], 80)}) {state}",
            "onrecord attempt list" if alive else f'onrecord attempt fail {number} --error "..." --fix "..."',
            (attempt["position"],),
        )  # fmt: skip
    return None


def _disturbs(request: ToolRequest, attempt: Attempt) -> bool:
    """A run in progress is disturbed by changes to the code and by a second run of itself."""
    return request.act == EDIT or signature_of_command(request.command) == attempt["signature"]


def _spent(_request: ToolRequest, whole: Whole, now: int, _gone: Gone) -> Verdict | None:
    out = whole.spend.exhausted(now)
    if out is None:
        return None
    reason = f"the budget is spent: {out.used:g} of {out.allowed:g} {out.limit}"
    return Verdict(DENY, "budget_spent", reason, f"onrecord budget --{out.limit} MORE", (whole.spend.budget_position,))


def _phase(request: ToolRequest, whole: Whole, _now: int, _gone: Gone) -> Verdict | None:
    current = whole.phases.current()
    if request.act != EDIT or current is None or current in whole.phases.entered:
        return None
    reason = f"phase {current!r} has not been entered"
    return Verdict(DENY, "phase_not_entered", reason, f"onrecord phase enter {shlex.quote(current)}", ())


_RULES = (_ended, _paused, _unresolved, _spent, _phase)


def _last_step(whole: Whole) -> int:
    return int(whole.lifecycle.steps[-1]["position"]) if whole.lifecycle.steps else 0


def _advise(request: ToolRequest, whole: Whole) -> Verdict:
    found = [(key, line) for key, line in _matches(request, whole) if key not in whole.gates.advised]
    return Verdict(
        ALLOW, advice=tuple(line for _key, line in found[:1]), advised=tuple(key for key, _line in found[:1])
    )


def _matches(request: ToolRequest, whole: Whole) -> Iterator[tuple[str, str]]:
    if request.act == RUN and request.command:
        for attempt in reversed(whole.attempts.failures_of(signature_of_command(request.command))):
            fix = f"; fix: {attempt['fix']}" if attempt.get("fix") else ""
            error = attempt.get("error") or "no error on record"
            line = f"attempt {attempt['number']} of this command failed: {error}{fix}"
            yield f"{request.agent}/attempt/{attempt['number']}", one_line(line, ADVICE_WIDTH)
    for finding in whole.findings.labelled("rejected"):
        paths = {anchor["path"] for anchor in finding["anchors"]}
        if request.act == EDIT and paths.intersection(request.paths):
            proof = ", ".join(finding["evidence"][-2:])
            line = f"{finding['id']} was rejected: {finding['claim']} [{proof}]"
            yield f"{request.agent}/finding/{finding['id']}/{finding['position']}", one_line(line, ADVICE_WIDTH)
