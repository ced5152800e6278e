"""Before a tool: the gate, which answers a plain yes after one glance. After it: what ran, and what it changed."""

from __future__ import annotations

import os
import time

from onrecord.rules import ALLOW, EDIT, READ, RUN, decide, edit_of, is_ours
from onrecord.surfaces.hook.whose import at_a_glance, linked_at_a_glance, owner
from onrecord.vendors.hooks import HookAnswer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Protocol

    from onrecord.rules import ToolRequest, Verdict
    from onrecord.session.handle import Session
    from onrecord.surfaces.hook.whose import Seen
    from onrecord.vendors.hooks import HookCall
    from onrecord.vendors.port import Vendor
    from onrecord.views.findings import Findings
    from onrecord.views.values import Worktree

    class Pending(Protocol):
        """The answer of this hook, as far as it is known."""

        def say(self, answer: HookAnswer) -> None:
            """Use this answer if nothing better is known when the time is up."""


ADVICE_BYTES = 1_024
"""The most that is injected before a tool runs."""
COMMAND_WIDTH = 2_000
"""How much of a command is kept with a tool that ran, in characters."""
PATHS_KEPT = 50
AFTER_KINDS = (
    "session.opened", "budget.set", "budget.sliced", "finding.stated", "finding.relabelled", "finding.challenged",
    "finding.upheld", "code.changed",
)  # fmt: skip
"""What decides whether a tool that ran needs the views of its session: a budget, and what findings rest on."""


def before_tool(pending: Pending, vendor: Vendor, call: HookCall) -> HookAnswer:
    """Whether the tool may run. A plain yes reads a little and writes nothing; anything else is recorded."""
    request = _request(vendor, call, call.vendor)
    if request is None or request.act not in (EDIT, RUN):
        return HookAnswer()
    seen = at_a_glance(call)
    if seen.unowned:
        return HookAnswer()
    if seen.present is not None:
        from onrecord import machine

        request.agent = seen.agent
        if seen.present.attempts.unresolved():
            request.worktree = _here()
        verdict = decide(request, seen.present, time.time_ns() // 1000, machine.is_gone)
        if verdict.plain:
            return HookAnswer()
        # This is the answer, even if it cannot be recorded.
        pending.say(_answer(verdict))
    owned = owner(call)
    if owned is None:
        return HookAnswer()
    with owned as session:
        request.agent = session.agent
        request.worktree = _here()
        try:
            return _answer(session.gate.judge(request))
        except Exception as problem:
            if seen.present is None:
                _note_failure(session, request, problem)
                raise
            from onrecord.surfaces.trouble import note

            note(f"a verdict could not be recorded: {type(problem).__name__}: {problem}", call)
            return _answer(verdict)


def _request(vendor: Vendor, call: HookCall, agent: str) -> ToolRequest | None:
    """What the tool does, with its paths as findings write them: from the top of the worktree."""
    request = vendor.tool_request(call, agent)
    if request is not None and request.paths:
        from onrecord.work.project import find_worktree

        top = find_worktree(os.curdir)
        request.paths = tuple(_from(top, path) for path in request.paths)
    return request


def _here() -> Worktree:
    """The worktree that the agent works in."""
    from onrecord.work.project import find_worktree, worktree_named

    return worktree_named(find_worktree(os.curdir))


def _from(top: str, path: str) -> str:
    folder, name = os.path.split(os.path.abspath(path))
    return os.path.relpath(os.path.join(os.path.realpath(folder), name), top)


def _answer(verdict: Verdict) -> HookAnswer:
    if verdict.decision == ALLOW:
        from onrecord.agents.fencing import fence

        return HookAnswer(context=fence(verdict.advice, limit=ADVICE_BYTES) if verdict.advice else "")
    reason = f"onrecord: {verdict.reason}. To clear it: {verdict.clear}"
    return HookAnswer(decision=verdict.decision, reason=reason)


def _note_failure(session: Session, request: ToolRequest, problem: Exception) -> None:
    try:
        from onrecord.session.gating import failure

        failure(session, request, problem)
    except Exception:  # noqa: BLE001 - what cannot be recorded is noted beside the store
        return


def after_tool(vendor: Vendor, call: HookCall) -> HookAnswer:
    """Record what ran and how it ended; if it changed code that findings rest on, report which are stale."""
    request = _request(vendor, call, call.vendor)
    if request is None or request.act == READ or is_ours(request):
        return HookAnswer()  # reading changes nothing, and onrecord's own commands record themselves
    seen = linked_at_a_glance(call, AFTER_KINDS)
    if seen.unowned:
        return HookAnswer()
    if seen.present is not None and not seen.present.spend.budget and not _rests_on(seen.present.findings, request):
        _record_only(seen, call, request)
        return HookAnswer()
    owned = owner(call)
    if owned is not None:
        with owned as session:
            _record(session, call, request)
    return HookAnswer()


def _record_only(seen: Seen, call: HookCall, request: ToolRequest) -> None:
    """The glance said whose tool it is, and that no finding and no budget depends on it: this needs no view."""
    from onrecord.connection import open_store, store_url
    from onrecord.errors import IdReused
    from onrecord.session.single import record_tool

    store = open_store(store_url())
    try:
        record_tool(store, seen.session, seen.agent, call.tool, request.act, call=call.call,
                    at=time.time_ns() // 1000, **_about(call, request))  # fmt: skip
    except IdReused:
        return  # the same call was reported before, in other words
    finally:
        store.close()


def _about(call: HookCall, request: ToolRequest) -> dict[str, Any]:
    return {
        "command": _command(call) if request.act == RUN else None, "exit_code": call.exit_code,
        "paths": list(request.paths[:PATHS_KEPT]) or None, "vendor": call.vendor,
    }  # fmt: skip


def _record(session: Session, call: HookCall, request: ToolRequest) -> None:
    from onrecord.errors import IdReused
    from onrecord.log.head import LIVE

    if session.head.status not in LIVE:
        return
    try:  # noqa: SIM105  # a hook does not load contextlib for this
        session.agents.record_tool(call.tool, request.act, call=call.call, **_about(call, request))
    except IdReused:
        pass  # the same call was reported before, in other words
    if session.views.spend.budget:
        from onrecord.surfaces.hook import keeping

        keeping.keep_transcript(session, call)  # the gate judges the next tool by what was used until now
    if _rests_on(session.views.findings, request):
        from onrecord.work.project import find_worktree
        from onrecord.work.surveying import survey

        survey(session, find_worktree(os.curdir))


def _command(call: HookCall) -> str | None:
    given = next((call.tool_input[name] for name in ("command", "cmd", "script") if name in call.tool_input), None)
    if isinstance(given, list):
        given = " ".join(str(word) for word in given)
    return given[:COMMAND_WIDTH] if isinstance(given, str) else None


def _rests_on(findings: Findings, request: ToolRequest) -> bool:
    """Whether code that findings rest on may have changed: by an edit of those files, or by a command that edits."""
    anchored = {anchor["path"] for anchor in findings.anchors().values()}
    if request.act == EDIT:
        return not anchored.isdisjoint(request.paths)
    return bool(anchored and edit_of(request))
