"""Noticing agents that ended without a word: a kill runs no hook, so the next hook or command records what is left.

Only runs that hooks recorded: an agent that `onrecord start` runs has a lease, and its wrapper knows how it ended.
"""

from __future__ import annotations

from onrecord import machine
from onrecord.errors import OnrecordError
from onrecord.log.head import LIVE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from onrecord.session.handle import Session
    from onrecord.session.session_store import SessionStore
    from onrecord.views.values import Agent, Link

SESSIONS_LOOKED_AT = 20
"""In how many of the newest live sessions of a project ended agents are noticed."""
MIRROR_SECONDS = 1.0
"""How long the rest of one transcript is copied; what is left is copied at the next chance."""
GONE = "gone"
"""The reason of a departure that was noticed later."""


def notice(records: SessionStore, env: Mapping[str, str], *, project: str | None = None, but: str = "") -> list[str]:
    """Record the end of agents that are gone, in the newest live sessions; the names of those sessions.

    Usually there are none, so what copies a transcript is imported when one is found. `but` is left out, by its id.
    """
    found = []
    for head in records.sessions(project=project, status=LIVE, limit=SESSIONS_LOOKED_AT):
        try:
            if head.session != but and notice_in(records, head.session, env):
                found.append(head.name)
        except (OnrecordError, OSError):
            continue  # a session that cannot be read or written is reported elsewhere
    return found


def notice_in(records: SessionStore, id_: str, env: Mapping[str, str]) -> bool:
    """Record the end of agents of one session that are gone; whether there were any."""
    session = records.get(id_)
    agents = session.views.roster.agents
    gone = [name for name, agent in agents.items() if _is_gone(agent)]
    held = {lease.lane for lease in session.log.leases()} if gone else set()
    for name in gone:
        if name not in held:
            record_gone(records.get(id_, agent=name), agents[name]["links"][-1], env)
    return bool(set(gone) - held)


def _is_gone(agent: Agent) -> bool:
    return bool(agent["here"] and agent["links"] and agent["process"] and machine.is_gone(agent["process"]))


def record_gone(session: Session, link: Link, env: Mapping[str, str]) -> None:
    """Copy the rest of its transcript and record that it left; in the middle of a turn, that it was killed.

    Several processes may notice it at the same moment: it is recorded once.
    """
    from contextlib import suppress

    from onrecord.agents.mirroring import mirror
    from onrecord.errors import IdReused
    from onrecord.vendors.port import KILLED

    working = _was_working(session, link, env)
    mirror(session, link["vendor"], link["id"], env, seconds=MIRROR_SECONDS)
    agent = session.refresh().agents.get()
    if agent is None or not agent["here"]:
        return
    session.run, key = agent["run"], f"gone/{session.agent}/{agent['run']}"
    drafts = [session.log.draft("agent.left", {"reason": GONE}, id=key)]
    if working:
        said = "its process ended in the middle of a turn"
        about = {"cause": KILLED, "message": said, "agent": session.agent, "resets_at": None}
        named = {"vendor": link["vendor"], "vendor_id": link["id"]}
        drafts.insert(0, session.log.draft("interruption.recorded", about | named, id=f"{key}/killed"))
    with suppress(IdReused):
        session.log.append(*drafts)


def _was_working(session: Session, link: Link, env: Mapping[str, str]) -> bool:
    """Whether it was in the middle of a turn.

    Its transcript shows that, or it has messages that were not copied yet: at the end of every turn, a hook copies all.
    """
    from onrecord.agents.mirroring import location_of, standing
    from onrecord.agents.observing import present_turn
    from onrecord.vendors.port import WORKING, vendor

    turn, location = present_turn(session, session.agent, env), location_of(link, env)
    if location is None or (turn is not None and turn.state == WORKING):
        return turn is not None and turn.state == WORKING
    mark = standing(session, link["vendor"], link["id"]).mark
    entries = vendor(link["vendor"]).read(location, mark).entries
    return any(item.get("role") != "user" for entry in entries for item in entry.items)
