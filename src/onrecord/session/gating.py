"""`session.gate`: judge a tool call, and override a refusal for a reason that is on record."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from onrecord import machine
from onrecord.errors import Conflict, IdReused, InvalidInput, SessionClosed, SessionErased
from onrecord.rules import ALLOW, EDIT, RULES, RUN, ToolRequest, Verdict, decide, refusals
from onrecord.session.chapter import Chapter, checked_text
from onrecord.views.facts import TEXT_LIMIT
from onrecord.views.present import Present

if TYPE_CHECKING:
    from onrecord.log.events import Event
    from onrecord.session.handle import Session
    from onrecord.views.values import Worktree

CALL_LIMIT = 120
"""Calls with a longer id are known by its hash."""


class GateVerbs(Chapter):
    """Judge a tool call, override a refusal."""

    __slots__ = ()

    def judge(self, request: ToolRequest, *, asked: bool = False) -> Verdict:
        """The verdict on a tool call. Every verdict except a plain allow is recorded, once for each call.

        `asked`: the agent only asks, and the call itself may follow, so a refusal is not counted as one more.
        An ended session takes no events, so its refusals are not recorded; reopening the session clears them.
        """
        id_ = _id_of(request)
        if id_ is not None and (known := _decided(self._session, id_)) is not None:
            return known
        now = int(self._session.clock() * 1e6)
        verdict = decide(request, Present.of(self._session.views), now, machine.is_gone)
        if verdict.plain:
            return verdict
        data = {"tool": request.tool, "act": request.act, "agent": request.agent, "call": request.call}
        data |= verdict.as_data() | ({"asked": True, "ground": ""} if asked else {})
        try:
            self._session._record("gate.decided", data, id=id_)
        except (SessionClosed, SessionErased):
            return verdict
        except IdReused:
            # Two processes asked about the same call at once; the verdict recorded first counts.
            return _decided(self._session, str(id_)) or verdict
        return verdict

    def override(self, rule: str, reason: str, *, agent: str | None = None, worktree: Worktree | None = None) -> Event:
        """Allow what a rule refuses an agent at present, for a reason. A new ground is refused again."""
        if rule not in RULES:
            raise InvalidInput(f"there is no rule {rule!r}", hint=f"the rules are {', '.join(RULES)}")
        checked_text(reason, "an override", TEXT_LIMIT)
        present, now = Present.of(self._session.views), int(self._session.clock() * 1e6)
        agent = agent or self._session.agent
        grounds = [
            verdict
            for act in (EDIT, RUN)
            for verdict in refusals(ToolRequest(agent, act, worktree=worktree), present, now, machine.is_gone)
            if verdict.rule == rule
        ]
        if not grounds:
            raise Conflict(f"{rule} does not refuse anything to {agent!r} now", hint="there is nothing to override")
        verdict = grounds[0]
        data = {"ground": verdict.ground, "rule": rule, "reason": reason, "positions": list(verdict.positions)}
        return self._session._record(
            "gate.overridden", data, because=verdict.positions[-1] if any(verdict.positions) else None
        )


def _id_of(request: ToolRequest) -> str | None:
    if not request.call:
        return None
    call = request.call
    if len(call) > CALL_LIMIT or not call.isprintable():
        from hashlib import sha256

        call = sha256(call.encode(errors="surrogatepass")).hexdigest()
    return f"gate/{request.agent}/{call}"


def _decided(session: Session, id_: str) -> Verdict | None:
    """The recorded verdict on a call; an erased one counts as none."""
    known: Any = session.log.find(id_)
    return Verdict.from_data(known.data) if known is not None and known.data else None


def failure(session: Session, request: ToolRequest, problem: BaseException) -> Event:
    """Record that the gate itself failed and allowed a call."""
    data = {
        "decision": ALLOW, "tool": request.tool, "act": request.act, "agent": request.agent, "call": request.call,
        "failure": f"{type(problem).__name__}: {problem}"[:TEXT_LIMIT],
    }  # fmt: skip
    return session._record("gate.decided", data)
