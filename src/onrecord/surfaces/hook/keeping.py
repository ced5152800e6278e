"""Keeping what a conversation is about to lose at its end or compaction: its transcript; and the rendered files."""

from __future__ import annotations

import os

from onrecord.errors import OnrecordError
from onrecord.surfaces.trouble import note
from onrecord.vendors.hooks import RETRIES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from onrecord.session.handle import Session
    from onrecord.surfaces.hook.whose import Owned
    from onrecord.vendors.hooks import HookCall

MIRROR_SECONDS = 2.0
"""How long a hook copies a transcript; the rest is copied by the next hook, or by the agent's wrapper."""


def keep_transcript(session: Session, call: HookCall) -> None:
    """Copy new messages of the conversation, for a while. A failure here does not cost the hook's answer."""
    from onrecord.agents.mirroring import mirror
    from onrecord.vendors.transcripts import Location

    link, location = session.views.roster.link(call.vendor, call.vendor_id), None
    about = (link["first"] | link["last"]) if link is not None else {}
    if call.transcript and about.get("transcript") == call.transcript and os.path.isfile(call.transcript):
        # The vendor names the file that the record names, so it is on this machine and need not be searched.
        home, cwd = str(about.get("home") or ""), str(about.get("cwd") or "")
        location = Location(call.vendor_id, call.transcript, home, cwd)
    try:
        mirror(session, call.vendor, call.vendor_id, os.environ, location=location, seconds=MIRROR_SECONDS)
    except (OnrecordError, OSError) as problem:
        note(f"the transcript could not be kept: {type(problem).__name__}: {problem}", call)


def notice_others(owned: Owned, call: HookCall) -> list[str]:
    """Record the end of agents in this project that were killed: they called no hook. The names of their sessions."""
    from onrecord.agents.noticing import notice

    try:
        return notice(owned.records, os.environ, but=owned.session.id)
    except (OnrecordError, OSError) as problem:
        note(f"ended agents could not be noticed: {type(problem).__name__}: {problem}", call)
        return []


def keep_stop(session: Session, call: HookCall) -> None:
    """Record why the last turn stopped, if an error stopped it and no process of ours wraps the agent."""
    from onrecord.agents.observing import note_stop

    try:
        note_stop(session, os.environ, call.message, retries=call.reason == RETRIES)
    except (OnrecordError, OSError) as problem:
        note(f"why the turn stopped could not be kept: {type(problem).__name__}: {problem}", call)


def keep_going_on(session: Session, call: HookCall) -> None:
    """Record that a stopped agent works again, if it finished a turn since without another prompt: it had retried."""
    known = session.agents.get()
    if known is None or not known["stop"]:
        return
    from onrecord.agents.observing import present_turn
    from onrecord.vendors.port import IDLE

    turn = present_turn(session, session.agent, os.environ)
    if turn is not None and turn.state == IDLE:
        try:
            session.agents.record_going_on()
        except (OnrecordError, OSError) as problem:
            note(f"that the agent works again could not be kept: {type(problem).__name__}: {problem}", call)


def refresh_files(session: Session) -> None:
    """Render STATE.md and NOTE.md as after a command; what was written inside the fences is recorded first."""
    from onrecord.connection import workspace_paths
    from onrecord.workspace.syncing import refresh

    refresh(session, workspace_paths(session))
