"""The nudge: an agent that wants to stop with something undone is told so, at most once per stop."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onrecord import machine
from onrecord.rules import DENY
from onrecord.vendors.hooks import HookAnswer
from onrecord.views.attempts import RUNNING, status_of

if TYPE_CHECKING:
    from onrecord.session.handle import Session
    from onrecord.vendors.hooks import HookCall
    from onrecord.vendors.port import Vendor

NUDGE_SECONDS = 600
"""After a nudge an agent is left alone for so long, whatever it does: no two nudges in a row can hold it."""
NOTE_KINDS = (
    "objective.set", "next_action.set", "decision.made", "reproduction.recorded", "finding.stated",
    "finding.relabelled", "finding.challenged", "finding.upheld", "section.written", "worklog.written",
    "milestone.reached", "feature.judged", "phase.finished", "attempt.settled",
)  # fmt: skip
"""What changes the note by somebody's word."""
WORK_KINDS = ("tool.used",)
LOOKED_BACK = 200
"""How many tools that ran are looked through for this agent's own."""


def nudge(session: Session, vendor: Vendor, call: HookCall) -> HookAnswer:
    """What is undone, as a refusal to stop; nothing when the agent was told before."""
    if call.nudged:
        return HookAnswer()
    heard = vendor.reply(call, HookAnswer(decision=DENY, reason="?"))
    if not (heard.stdout or heard.stderr or heard.status):
        return HookAnswer()  # this agent stops whatever a hook says
    undone = _attempt(session) or _note(session)
    if undone is None:
        return HookAnswer()
    ground, reason, clear = undone
    id_ = f"nudge/{session.agent}/{ground}"
    if session.log.find(id_) is not None or _lately(session):
        return HookAnswer()
    data = {"decision": DENY, "act": "stop", "rule": ground.partition("/")[0], "reason": reason, "clear": clear,
            "agent": session.agent, "positions": [], "ground": ""}  # fmt: skip
    session.record("gate.decided", data, id=id_)
    return HookAnswer(decision=DENY, reason=f"onrecord: {reason}. To clear it: {clear}. Then stop.")


def _attempt(session: Session) -> tuple[str, str, str] | None:
    """An attempt of this agent that nobody settled; one whose process is at work is not undone."""
    for attempt in session.views.attempts.unresolved(session.agent):
        status = status_of(attempt, machine.is_gone)
        if status == RUNNING and (attempt["process"] or attempt["keeper"]):
            continue
        number = attempt["number"]
        reason = f"attempt {number} of session {session.name} is unresolved; say how it ended"
        clear = f'onrecord attempt fail {number} --session {session.name} --error "..." (or succeed, abandon)'
        return f"attempt/{attempt['position']}", reason, clear
    return None


def _note(session: Session) -> tuple[str, str, str] | None:
    """Work since the note changed last: the next agent would not know of it."""
    store, id_ = session.store, session.id
    used = store.read(id_, kinds=WORK_KINDS, backwards=True, limit=LOOKED_BACK, bodies=())
    worked = next((record.position for record in used if record.by == session.agent), 0)
    noted = store.read(id_, kinds=NOTE_KINDS, backwards=True, limit=1, bodies=())
    last = noted[0].position if noted else 0
    if worked <= last:
        return None
    reason = f"work was done since the note of session {session.name} changed; say what to do next"
    clear = f'onrecord next "..." --command "..." --session {session.name}'
    return f"note/{last}", reason, clear


def _lately(session: Session) -> bool:
    """Whether this agent was nudged a short while ago."""
    since = int((session.clock() - NUDGE_SECONDS) * 1e6)
    decided = session.store.read(session.id, kinds=("gate.decided",), backwards=True, limit=LOOKED_BACK, bodies=())
    mark = f"nudge/{session.agent}/"
    return any(record.id.startswith(mark) and record.at > since for record in decided)
