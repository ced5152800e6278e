"""The nudge: an agent that stops with something undone is asked to finish it, at most once per stop."""

from __future__ import annotations

import os
from itertools import islice

from onrecord import machine
from onrecord.environment import HEADLESS_VARIABLE
from onrecord.lean_typing import TYPE_CHECKING
from onrecord.vendors.hooks import REFUSED, HookAnswer
from onrecord.views.attempts import RUNNING, status_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from onrecord.log.events import Event
    from onrecord.session.handle import Session
    from onrecord.vendors.hooks import HookCall
    from onrecord.vendors.port import Vendor

NUDGE_SECONDS = 600
"""No agent is nudged twice within this time, in seconds, so nudges cannot keep it from stopping."""
NOTE_KINDS = (
    "objective.set", "next_action.set", "decision.made", "reproduction.recorded", "finding.stated",
    "finding.relabelled", "finding.challenged", "finding.upheld", "section.written", "worklog.written",
    "milestone.reached", "feature.judged", "phase.finished", "attempt.settled",
)  # fmt: skip
"""Events by which a person or an agent changes the note."""
WORK_KINDS = ("tool.used",)
LOOKED_BACK = 200
"""How many events are searched for this agent's own."""


def nudge(session: Session, vendor: Vendor, call: HookCall) -> HookAnswer:
    """A refusal to stop that names what is unfinished; empty if the agent was asked before."""
    if call.nudged or call.headless or os.environ.get(HEADLESS_VARIABLE):
        return HookAnswer()  # without a terminal, its reply to a nudge would replace its answer
    heard = vendor.reply(call, HookAnswer(decision=REFUSED, reason="?"))
    if not (heard.stdout or heard.stderr or heard.status):
        return HookAnswer()  # this vendor ignores a hook's refusal to stop
    undone = _attempt(session) or _note(session)
    if undone is None:
        return HookAnswer()
    ground, reason, clear = undone
    id_ = f"nudge/{session.agent}/{ground}"
    if session.log.find(id_) is not None or _lately(session):
        return HookAnswer()
    data = {"decision": REFUSED, "act": "stop", "rule": ground.partition("/")[0], "reason": reason, "clear": clear,
            "agent": session.agent, "positions": [], "ground": ""}  # fmt: skip
    session.log.record("gate.decided", data, id=id_)
    return HookAnswer(decision=REFUSED, reason=f"onrecord: {reason}. To clear it: {clear}. Then stop.")


def _attempt(session: Session) -> tuple[str, str, str] | None:
    """An attempt of this agent that is not settled; one with a running process does not count."""
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
    """Work since the last change of the note; the next agent would not know about it.

    An agent whose conversation is only recorded, because the user wants that of all, was not asked to keep a note.
    """
    facts = session.views.facts
    if facts.metadata.get("automatic") and facts.objective is None:
        return None
    used = _newest(session, WORK_KINDS, LOOKED_BACK)
    worked = next((event.position for event in used if event.by == session.agent), 0)
    last = next((event.position for event in _newest(session, NOTE_KINDS, 1)), 0)
    if worked <= last:
        return None
    reason = f"work was done since the note of session {session.name} changed; say what to do next"
    clear = f'onrecord next "..." --command "..." --session {session.name}'
    return f"note/{last}", reason, clear


def _lately(session: Session) -> bool:
    """Whether this agent was nudged a short while ago."""
    since = int((session.clock() - NUDGE_SECONDS) * 1e6)
    mark = f"nudge/{session.agent}/"
    decided = _newest(session, ("gate.decided",), LOOKED_BACK)
    return any(event.id.startswith(mark) and event.at > since for event in decided)


def _newest(session: Session, kinds: Collection[str], limit: int) -> Iterator[Event]:
    """The headers of the last events of some kinds, the newest first."""
    return islice(session.log.newest(kinds, headers=True, page=limit), limit)
