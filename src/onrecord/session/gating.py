"""The verbs of the gate: decide on a tool call, and let a refusal pass for a reason that is on record."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from onrecord import machine
from onrecord.errors import Conflict, IdReused, InvalidInput, SessionClosed, SessionErased
from onrecord.rules import ALLOW, EDIT, RULES, RUN, ToolRequest, Verdict, decide, refusals
from onrecord.views.facts import TEXT_LIMIT
from onrecord.views.present import Present

if TYPE_CHECKING:
    from onrecord.log.events import Event
    from onrecord.session.verbs import Conducted

CALL_LIMIT = 120
"""Calls with a longer id are known by its hash."""


class GateVerbs:
    """Gate a tool call, override a refusal."""

    def gate(self: Conducted, request: ToolRequest) -> Verdict:
        """The verdict on what an agent is about to do. Whatever is not a plain yes is on record; a call once.

        An ended session takes no events, so what it refuses is not recorded: `onrecord resume --reopen` clears that.
        """
        id_ = _id_of(request)
        if id_ is not None and (known := _decided(self, id_)) is not None:
            return known
        now = int(self.clock() * 1e6)
        verdict = decide(request, Present.of(self.views), now, machine.is_gone)
        if verdict.plain:
            return verdict
        data = {"tool": request.tool, "act": request.act, "agent": request.agent, "call": request.call}
        try:
            self.record("gate.decided", data | verdict.as_data(), id=id_)
        except (SessionClosed, SessionErased):
            return verdict
        except IdReused:
            # The same call was asked about at the same moment; what went on record first counts.
            return _decided(self, str(id_)) or verdict
        return verdict

    def override(self: Conducted, rule: str, reason: str, *, agent: str | None = None) -> Event:
        """Let what a rule refuses an agent at present pass, for a reason. A new ground for refusal counts anew."""
        if rule not in RULES:
            raise InvalidInput(f"there is no rule {rule!r}", hint=f"the rules are {', '.join(RULES)}")
        self.require_text(reason, "an override", TEXT_LIMIT)
        present, now = Present.of(self.views), int(self.clock() * 1e6)
        agent = agent or self.agent
        grounds = [
            verdict
            for act in (EDIT, RUN)
            for verdict in refusals(ToolRequest(agent, act), present, now, machine.is_gone)
            if verdict.rule == rule
        ]
        if not grounds:
            raise Conflict(f"{rule} does not refuse anything to {agent!r} now", hint="there is nothing to override")
        verdict = grounds[0]
        data = {"ground": verdict.ground, "rule": rule, "reason": reason, "positions": list(verdict.positions)}
        return self.record("gate.overridden", data, because=verdict.positions[-1] if any(verdict.positions) else None)


def _id_of(request: ToolRequest) -> str | None:
    if not request.call:
        return None
    call = request.call
    if len(call) > CALL_LIMIT or not call.isprintable():
        from hashlib import sha256

        call = sha256(call.encode(errors="surrogatepass")).hexdigest()
    return f"gate/{request.agent}/{call}"


def _decided(session: Conducted, id_: str) -> Verdict | None:
    """What was decided about a call before; an erased decision is none."""
    known: Any = session.recall(id_)
    return Verdict.from_data(known.data) if known is not None and known.data else None


def failure(session: Conducted, request: ToolRequest, problem: BaseException) -> Event:
    """Put on record that the gate itself failed and let a call pass."""
    data = {
        "decision": ALLOW, "tool": request.tool, "act": request.act, "agent": request.agent, "call": request.call,
        "failure": f"{type(problem).__name__}: {problem}"[:TEXT_LIMIT],
    }  # fmt: skip
    return session.record("gate.decided", data)
