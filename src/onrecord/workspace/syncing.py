"""Keeping both files current around a step. A file that cannot be written does not undo what was recorded."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onrecord.errors import OnrecordError
from onrecord.log.head import LIVE
from onrecord.workspace.note_file import refresh_note
from onrecord.workspace.state_file import sync

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from onrecord.session.handle import Session
    from onrecord.workspace.files import Paths

    Advice = Callable[[OnrecordError], str]


def own_hint(problem: OnrecordError) -> str:
    """The advice that an error carries itself; the command line has its own."""
    return problem.hint


def take_in(session: Session, paths: Paths, advice: Advice = own_hint) -> list[str]:
    """Record what an agent wrote into STATE.md, so that the next step sees it. Returns what the user should know."""
    if session.views.phases.profile is None or session.head.status not in LIVE:
        return []
    return tolerating(lambda: sync(session, paths).notice, advice)


def refresh(session: Session, paths: Paths, advice: Advice = own_hint) -> list[str]:
    """Bring both files up to date. Returns what the user should know."""
    notices = []
    if session.views.phases.profile is not None:
        notices += tolerating(lambda: sync(session, paths).notice, advice)
    return notices + tolerating(lambda: refresh_note(session, paths.note), advice)


def tolerating(step: Callable[[], Any], advice: Advice = own_hint) -> list[str]:
    """Do something that matters less than what was just recorded; a failure is a notice."""
    try:
        said = step()
    except (OnrecordError, OSError) as problem:
        hint = advice(problem) if isinstance(problem, OnrecordError) else ""
        return [f"{problem}" + (f"; {hint}" if hint else "")]
    return [said] if isinstance(said, str) and said else []
