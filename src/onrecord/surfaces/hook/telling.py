"""What is injected into a conversation: the brief once, and when it is resumed later, only what is new."""

from __future__ import annotations

import os

from onrecord import machine
from onrecord.agents.fencing import ABOUT, MARK, fence
from onrecord.environment import AGENT_VARIABLE, SESSION_VARIABLE
from onrecord.log import digest
from onrecord.log.events import KINDS
from onrecord.log.head import LIVE
from onrecord.vendors.hooks import CLEARED, COMPACTED, PROMPT, RESUMED, START, STOP

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from onrecord.session.handle import Session
    from onrecord.vendors.hooks import HookCall
    from onrecord.vendors.port import Vendor
    from onrecord.views.fold import Whole

NOTHING_TOLD = {"position": 0, "run": 0, "lines": []}
SILENT_KINDS = frozenset(
    {"agent.located", "attention.needed", "attention.given", "payload.kept", "tool.used", "usage.recorded",
     "secret.found"}
)  # fmt: skip
"""Events that no line of a steady brief comes from: they concern the roster, the spend and the transcript."""
_FIXED_LINES = 3
"""The lines for name, objective and next action; groups of entries follow, each under its title."""
_KEY_LENGTH = 8
_KNOWING = (CLEARED, COMPACTED, RESUMED)
"""Why a conversation began that knows what was said, or that its user cleared: it gets the facts only."""


def context(session: Session, vendor: Vendor, call: HookCall) -> tuple[str, dict[str, Any] | None]:
    """The text to inject at this moment, fenced, and what to record about it.

    It is empty if the conversation knows the record as it is. A conversation that is recorded from its first prompt had
    no session at its start: it gets the brief with that prompt.
    """
    link = session.views.roster.link(call.vendor, call.vendor_id)
    late = call.moment == PROMPT and link is None
    if call.moment != vendor.context_moment and not late:
        return "", None
    told: dict[str, Any] = (link["last"].get("briefed") if link else None) or NOTHING_TOLD
    known = session.agents.get()
    run = known["run"] if known else 0
    if not vendor.context_lasts and (call.moment == START or told.get("run") != run):
        told = NOTHING_TOLD  # what was injected before was lost with the process
    elif told["lines"] and not vendor.keeps_context(call.transcript, MARK):
        told = NOTHING_TOLD  # a compaction that no hook reported dropped it
    forgot = call.moment == START and call.reason in (CLEARED, COMPACTED)
    if call.moment == PROMPT and told["lines"] and told.get("run") == run:
        return "", None  # within a run the agent itself changes the record
    if told["lines"] and not forgot and told.get("steady") and _is_unchanged(session, told["position"]):
        return "", None
    written = session.brief(happened=False)  # a conversation knows what it said itself
    lines = _news_worthy(written.splitlines())
    keys = [_key(line) for line in lines[1:]]
    if told["lines"] and not forgot:
        if set(keys) == set(told["lines"]):
            return "", None
        preface, text = f"The record of your session changed since you read it. {ABOUT}", _news(lines, told["lines"])
    else:
        from onrecord.views.note import is_unwritten

        if call.reason not in _KNOWING and is_unwritten(session.views):
            written = session.brief()
        preface, text = f"{_who(session)} {ABOUT}", written.rstrip()
    said = fence(text, about=preface, limit=vendor.context_bytes)
    if not said:
        return said, None
    after = ((link["last"].get("briefed") if link else None) or NOTHING_TOLD).get("mark", "")
    about = {"position": session.head.position, "run": run, "lines": keys, "after": after}
    return said, _marked(about | ({"steady": True} if _is_steady(session.views) else {}))


def _is_steady(views: Whole) -> bool:
    """Whether the brief changes by events only: not because a process ended, or because an agent works again."""
    return not views.attempts.unresolved() and views.interruption() is None


def _is_unchanged(session: Session, position: int) -> bool:
    """Whether no event since a steady brief can have changed it: then it need not be written to be compared."""
    telling = [kind for kind in KINDS if kind not in SILENT_KINDS]
    return next(session.log.headers(telling, after=position, page=1), None) is None


def _marked(briefed: dict[str, Any]) -> dict[str, Any]:
    """With a mark of its own, so that of two hooks at the same moment only one records it and injects its text."""
    return {**briefed, "mark": machine.entropy(4).hex()}


def announcement(vendor: Vendor, call: HookCall, session: Session | None = None) -> str:
    """The line that says at a start that the conversation is recorded by itself, and how to switch that off.

    A vendor that shows no line at a start shows it with its first answer.
    """
    if call.moment != vendor.notice_moment or call.reason == COMPACTED or os.environ.get(SESSION_VARIABLE):
        return ""
    if session is not None and not session.views.facts.metadata.get("automatic"):
        return ""
    from onrecord.connection import is_automatic

    if not is_automatic():
        return ""
    if session is not None and call.moment == STOP and not _is_first_answer(session, call):
        return ""
    where = f"in the session {session.name}" if session is not None else "from the first prompt"
    return f"onrecord records this conversation {where}. To switch that off: onrecord setup --no-auto"


def _is_first_answer(session: Session, call: HookCall) -> bool:
    """Whether this run of the agent has not been announced; it is now."""
    agent = session.agents.get()
    return agent is not None and session.agents.locate(call.vendor, call.vendor_id, announced=agent["run"]) is not None


def forget(session: Session, call: HookCall) -> None:
    """The conversation is about to lose what was injected."""
    link = session.views.roster.link(call.vendor, call.vendor_id)
    if link is not None and link["last"].get("briefed") and session.head.status in LIVE:
        session.agents.locate(call.vendor, call.vendor_id, briefed=_marked(NOTHING_TOLD))


def _who(session: Session) -> str:
    """What an agent needs to know to use the command: this text is ours; text from the record is inside the fence."""
    named = os.environ.get(SESSION_VARIABLE) and os.environ.get(AGENT_VARIABLE)
    options = "" if named else f" --session {session.name} --agent {session.agent}"
    return (
        f"You work in the onrecord session {session.name} as agent {session.agent}. "
        f"`onrecord continue{'' if named else f' {session.name}'}` says where to continue; "
        f"record what you find with `onrecord finding state`, `onrecord run -- COMMAND` and `onrecord next`"
        f"{f' (each with{options})' if options else ''}."
    )


def _news_worthy(lines: list[str]) -> list[str]:
    """The brief without the state of the worktree: it changes with every edit, and an agent sees it itself."""
    from onrecord.views.note import CODE  # only a brief needs it

    kept, skips = [], False
    for line in lines:
        skips = line.startswith(f"{CODE}:") or (skips and line.startswith("- "))
        kept += [] if skips else [line]
    return kept


def _news(lines: list[str], known: list[str]) -> str:
    """The new lines, each entry under its title; and how many earlier lines are no longer true."""
    shown, title = [], ""
    for number, line in enumerate(lines[1:], start=1):
        if number >= _FIXED_LINES and not line.startswith("- "):
            title = line
        elif _key(line) not in known:
            shown += [title, line] if title else [line]
            title = ""
    gone = len(set(known) - {_key(line) for line in lines[1:]})
    if gone:
        shown.append(f"({gone} of the lines you read before are no longer true: onrecord note --format brief)")
    return "\n".join([lines[0], *shown])


def _key(line: str) -> str:
    return digest.sha256(line.encode(errors="surrogatepass")).hexdigest()[:_KEY_LENGTH]
