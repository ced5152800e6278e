"""The gate on the command line: one decision before a tool runs, for any harness, in milliseconds.

A plain yes needs one quick read of the store and writes nothing. Any other verdict is recorded. The gate never breaks
an agent: if it fails itself, the verdict is yes, except with --strict-gate.
"""

from __future__ import annotations

import os
import time

from onrecord.environment import SESSION_VARIABLE, STRICT_VARIABLE
from onrecord.rules import ALLOW, DENY, EDIT, RUN, ToolRequest, Verdict, act_of, commands_of, decide
from onrecord.surfaces.cli.shared.exits import OK, REFUSED, NotInitialised, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from onrecord.session.handle import Session
    from onrecord.surfaces.cli.shared.call import Call


def gate(call: Call) -> int:
    """Decide on a tool call; with `override RULE`, let a refusal pass."""
    first = call.positional.get("OVERRIDE")
    if first is not None:
        return _override(call, first)
    request = _request(call)
    try:
        return _decide(call, request)
    except UsageError:
        raise
    except Exception as problem:  # noqa: BLE001 - the gate never breaks the harness
        return _failed(call, request, problem)


def _request(call: Call) -> ToolRequest:
    tool, command, act = call.get("tool") or "", call.get("command"), call.get("act")
    paths = [_from_root(path) for path in call.many("path")]
    if not tool and act is None and not paths and command is None:
        raise UsageError("the gate needs --tool, --path or --command", hint=f"for example: `{call.verb.example}`")
    act = act or act_of(tool, has_path=bool(paths), has_command=command is not None)
    from onrecord.work.project import find_worktree, worktree_named

    return ToolRequest(
        call.agent(), act, paths=paths, commands=commands_of(command) if command and act in (RUN, EDIT) else (),
        lines=_lines(call.get("lines")), tool=tool, call=call.get("call") or "", line=command or "",
        worktree=worktree_named(find_worktree(os.curdir)),
    )  # fmt: skip


def _from_root(path: str) -> str:
    """A path as findings write it: from the top of the worktree."""
    from onrecord.work.project import find_worktree

    folder, name = os.path.split(os.path.abspath(path))
    return os.path.relpath(os.path.join(os.path.realpath(folder), name), find_worktree(os.curdir))


def _lines(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    first, _dash, last = text.partition("-")
    if not first.isdigit() or (last and not last.isdigit()):
        raise UsageError(f"--lines must look like 10-20, not {text!r}")
    return int(first), int(last or first)


def _decide(call: Call, request: ToolRequest) -> int:
    if request.act not in (EDIT, RUN):
        return _answer(call, Verdict(ALLOW))
    from onrecord import machine
    from onrecord.connection import glance, project_here
    from onrecord.work.project import project_named

    named, project = call.get("session") or os.environ.get(SESSION_VARIABLE), call.get("project")
    here = project_named(project) if project else project_here()
    present = glance(call.get("store"), here.key, named, here.also)
    if present is not None:
        verdict = decide(request, present, time.time_ns() // 1000, machine.is_gone)
        if verdict.plain:
            return _answer(call, verdict, present.name)
    from onrecord.errors import AmbiguousName, SessionNotFound

    try:
        session = call.session()
    except (NotInitialised, SessionNotFound, AmbiguousName) as problem:
        return _answer(call, Verdict(ALLOW), note=f"no rules apply: {problem.message}")
    return _answer(call, session.gate.judge(request), session.name)


def _failed(call: Call, request: ToolRequest, problem: Exception) -> int:
    said = f"the gate itself failed: {type(problem).__name__}: {problem}"
    _record_failure(call, request, problem)
    if "strict-gate" in call or os.environ.get(STRICT_VARIABLE):
        clear = "onrecord doctor"
        return _answer(call, Verdict(DENY, "gate_failed", said, clear))
    return _answer(call, Verdict(ALLOW), note=said)


def _record_failure(call: Call, request: ToolRequest, problem: Exception) -> None:
    try:
        from onrecord.session.gating import failure

        session: Session = call.session()
        failure(session, request, problem)
    except Exception:  # noqa: BLE001 - what cannot be recorded must not break the harness either
        return


def _answer(call: Call, verdict: Verdict, session: str | None = None, note: str = "") -> int:
    output = call.output
    if output.json:
        data = verdict.as_data() | {"session": session, "note": note}
        output.envelope("verdict", data)
    elif verdict.decision == ALLOW:
        if not output.quiet:
            output.line(f"allow: {verdict.advice}" if verdict.advice else "allow")
        if note:
            output.note(note)
    else:
        output.line(f"{verdict.decision}: {verdict.reason}")
        output.line(f"to clear it: {verdict.clear}")
    return REFUSED if verdict.decision == DENY else OK


def _override(call: Call, word: str) -> int:
    rule, reason = call.positional.get("RULE"), call.get("reason")
    if word != "override" or not rule or not reason:
        raise UsageError(
            "an override needs a rule and a reason",
            hint='for example: `onrecord gate override session_paused --reason "..."`',
        )
    session = call.session()
    from onrecord.work.project import find_worktree, worktree_named

    event = session.gate.override(rule, reason, worktree=worktree_named(find_worktree(os.curdir)))
    data = {"session": session.name, "position": event.position, "state": "recorded", **event.data}
    return call.output.done("override", data, f"override recorded at position {event.position}: {event.data['ground']}")
