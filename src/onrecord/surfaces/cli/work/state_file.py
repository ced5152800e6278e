"""`onrecord state-file`, and the files of a session around every verb: read back before it, rendered after it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onrecord import machine
from onrecord.connection import workspace_paths
from onrecord.errors import Conflict
from onrecord.surfaces.cli.shared.place import unknown_action
from onrecord.views import state_md
from onrecord.views.attempts import LOST, status_of
from onrecord.workspace import note_file, syncing
from onrecord.workspace.state_file import sync as sync_state

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from onrecord.errors import OnrecordError
    from onrecord.session.handle import Session
    from onrecord.surfaces.cli.shared.call import Call
    from onrecord.workspace.files import Paths
    from onrecord.workspace.state_file import Synced


def state_file(call: Call) -> int:
    """Record the text inside the fences of STATE.md and render it again; or show it, or say where it is."""
    action = call.positional.get("ACTION", "sync")
    if action not in ("sync", "show", "path"):
        raise unknown_action(call, action)
    session = call.session()
    if action == "path":
        path = paths(call, session).state
        return call.output.done("state_file", {"path": str(path), "position": session.head.position}, str(path))
    if action == "show":
        text = state_md.render(session.views, machine.is_gone)
        if call.output.json:
            call.output.envelope("state_file", {"position": session.head.position, "text": text})
        else:
            call.output.write(text)
        return 0
    if session.views.phases.profile is None:
        raise Conflict("this session has no profile, so it has no STATE.md", step="choose_profile")
    synced = sync(call, session, fresh="fresh" in call)
    data = {
        "path": str(synced.path), "taken": synced.taken, "aside": synced.aside and str(synced.aside),
        "session": session.id, "position": session.head.position,
    }  # fmt: skip
    said = f"read {', '.join(synced.taken)}; " if synced.taken else ""
    return call.output.done("state_file", data, f"{said}wrote {synced.path}, position {session.head.position}")


def paths(call: Call, session: Session) -> Paths:
    """Where the files of a session are, for the store that was chosen."""
    return workspace_paths(session, call.get("store"))


def before(call: Call, session: Session) -> None:
    """Record what an agent wrote into STATE.md, so that the verb that follows sees it."""
    _tell(call, syncing.take_in(session, paths(call, session), _advice(call)))


def after(call: Call, session: Session) -> None:
    """Bring the files up to date."""
    _tell(call, syncing.refresh(session, paths(call, session), _advice(call)))


def show_lost(call: Call, session: Session) -> None:
    """Bring the files up to date for a verb that only looks, if they may still call a lost attempt running."""
    if any(status_of(one, machine.is_gone) == LOST for one in session.views.attempts.unresolved()):
        after(call, session)


def sync(call: Call, session: Session, *, fresh: bool = False) -> Synced:
    """Record the text inside the fences of STATE.md and render it again."""
    synced = sync_state(session, paths(call, session), fresh=fresh)
    _tell(call, [synced.notice] if synced.notice else [])
    return synced


def create_note(call: Call, session: Session) -> Path | None:
    """Write NOTE.md if there is none, or if it is an earlier session's."""
    return note_file.refresh_note(session, paths(call, session).note, create=True)


def _advice(call: Call) -> Callable[[OnrecordError], str]:
    from onrecord.surfaces.cli.shared.hints import hint_of

    return lambda problem: hint_of(problem, call.verb)


def _tell(call: Call, notices: list[str]) -> None:
    for notice in notices:
        call.output.note(notice)
