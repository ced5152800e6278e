"""Prompts: what a person picks from a menu to continue, to hand over, to close."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from onrecord.agents.fencing import ABOUT, fence
from onrecord.errors import NotFound
from onrecord.surfaces.mcp.reading import look_around

if TYPE_CHECKING:
    from onrecord.session.handle import Session
    from onrecord.surfaces.mcp.finding import Caller, Sessions

PROMPTS = {
    "continue": "Continue the work where the record says it stopped",
    "hand_over": "Put everything on record that the next agent needs",
    "close": "Finish the work and close its session",
}
ARGUMENT = {"name": "session", "description": "the session (default: yours)", "required": False}
_TEXTS = {
    "continue": "Continue the work in the onrecord session {name}. Its brief follows. Settle what is unresolved, reuse "
    "what is verified, do not retry what was rejected or failed; then do the next action, and `record` what you learn.",
    "hand_over": "Another agent will continue the work in the onrecord session {name} and knows only the record. With "
    "`record`, put down every decision and finding (with evidence) that is not on record yet, then exactly one next "
    "action with its command. Settle running attempts with `attempt`. Then read `resume` as that agent would, and "
    "correct what it would misunderstand.",
    "close": "The work in the onrecord session {name} is done or given up. Settle running attempts, `record` the last "
    "findings with evidence and a decision that says how it ended and why; run `onrecord note check {name}`, then "
    "`onrecord close {name} --reason TEXT`.",
}


def listed() -> list[dict[str, Any]]:
    """Every prompt."""
    return [{"name": name, "description": about, "arguments": [ARGUMENT]} for name, about in PROMPTS.items()]


def text_for(name: str, session: str = "that `resume` names") -> str:
    """The text of a prompt without the brief, for a client that has no session yet."""
    text = _TEXTS[name].replace(" Its brief follows.", " Call `resume` first.")
    return (
        text.replace("`onrecord note check {name}`", "`onrecord note check`")
        .replace("`onrecord close {name} --reason TEXT`", "`onrecord close --reason TEXT`")
        .format(name=session)
    )


def text_of(sessions: Sessions, caller: Caller, name: str, wanted: str) -> str:
    """The text of a prompt, with the brief of the session."""
    if name not in PROMPTS:
        raise NotFound(f"there is no prompt {name!r:.60}", hint=f"the prompts are {', '.join(PROMPTS)}")
    session: Session = sessions.find(caller, wanted)
    look_around(session)
    return f"{_TEXTS[name].format(name=session.name)}\n\n{fence(session.brief(), about=ABOUT)}"
