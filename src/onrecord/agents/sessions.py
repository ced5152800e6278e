"""Which session and agent a command means: found by name or id, created if missing, resumed if paused."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from onrecord.errors import AmbiguousName, NameTaken, NotFound
from onrecord.log.head import LIVE, PAUSED
from onrecord.log.names import check_name, is_ulid

if TYPE_CHECKING:
    from pathlib import Path

    from onrecord.log.head import Head
    from onrecord.session.handle import Session
    from onrecord.session.session_store import SessionStore
    from onrecord.vendors.port import Vendor

_FOLDER_CHARACTERS = 40


def name_for(chosen: str | None, directory: Path) -> str:
    """The chosen name or id, checked; without one, a name made from the directory and the time."""
    if chosen is not None:
        if not is_ulid(chosen.upper()):
            check_name(chosen)
        return chosen
    letters = "".join(one if one.isalnum() and one.isascii() else "-" for one in directory.name).strip("-")
    return f"{letters[:_FOLDER_CHARACTERS] or 'session'}-{time.strftime('%m%d-%H%M%S')}"


def at_work(records: SessionStore, limit: int) -> list[Head]:
    """The live sessions one of which a command means that names none, the newest first.

    A session that is only an imported conversation is past, until an agent joins it; it counts if there is no other.
    """
    live = records.sessions(status=LIVE, limit=limit)
    if len(live) == 1:
        return live
    present = [entry.head for entry in records.entries(records.every(LIVE)) if not entry.listing["past"]]
    return present[:limit] or live


def find_named(records: SessionStore, name: str, agent: str) -> Session | None:
    """The session with this id, or with exactly this name in this project."""
    if is_ulid(name.upper()):
        return records.get(name, agent=agent)
    known = records.named(name)
    return records.get(known.session, agent=agent) if known else None


def session_named(
    records: SessionStore, name: str, agent: str, objective: str | None = None, *, person: str = ""
) -> Session:
    """The session with this name or id, resumed if it is paused; created, by the person, if it is new."""
    session = find_named(records, name, agent)
    if session is None:
        try:
            made = records.create(name, agent=person or agent, objective=objective)
            session = records.get(made.id, agent=agent) if person else made
        except NameTaken:  # another process was faster; both mean the same session
            session = records.get(name, agent=agent)
    resume_if_paused(session)
    return session


def resume_if_paused(session: Session) -> None:
    """Resume a paused session before one of its agents starts."""
    if session.refresh().status == PAUSED:
        session.resume("an agent is started")


def agent_with_conversation(session: Session, wanted: str | None) -> str:
    """The wanted agent, or the only one that has a conversation on record."""
    having = [name for name, one in session.views.roster.agents.items() if one["links"]]
    if wanted:
        if wanted not in having:
            raise NotFound(f"no conversation of the agent {wanted!r:.80} is on record in {session.name}")
        return wanted
    if not having:
        raise NotFound(
            f"no agent's conversation is on record in {session.name}", hint="start an agent first", step="start_agent"
        )
    if len(having) > 1:
        raise AmbiguousName(
            f"{len(having)} agents have conversations in {session.name}: {', '.join(having)}",
            hint="choose one of them",
            step="choose_agent",
            agent=having[0],
        )
    return having[0]


def free_agent(session: Session, of: Vendor) -> str:
    """The vendor's name, unless an agent of another vendor has it."""
    known = session.views.roster.agents.get(of.name)
    return of.name if known is None or known["vendor"] in (None, of.name) else f"{of.name}-2"
