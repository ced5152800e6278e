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
            _record(records.get(id_, agent=name), agents[name]["links"][-1], env)
    return bool(set(gone) - held)


def _is_gone(agent: Agent) -> bool:
    return bool(agent["here"] and agent["links"] and agent["process"] and machine.is_gone(agent["process"]))


def _record(session: Session, link: Link, env: Mapping[str, str]) -> None:
    """Copy the rest of its transcript and record that it left; in the middle of a turn, that it was killed."""
    from onrecord.agents.mirroring import mirror
    from onrecord.vendors.port import KILLED

    working = _was_working(session, link, env)
    mirror(session, link["vendor"], link["id"], env, seconds=MIRROR_SECONDS)
    if working:
        said = "its process ended in the middle of a turn"
        session.agents.record_interruption(KILLED, said, vendor=link["vendor"], vendor_id=link["id"])
    session.agents.record_end(GONE)


def _was_working(session: Session, link: Link, env: Mapping[str, str]) -> bool:
    """Whether its transcript has messages that no hook has copied: at the end of every turn, a hook copies all."""
    from onrecord.agents.mirroring import location_of, standing
    from onrecord.vendors.port import vendor

    of, location = vendor(link["vendor"]), location_of(link, env)
    if location is None:
        return False
    mark = standing(session, link["vendor"], link["id"]).mark
    return any(item.get("role") != "user" for entry in of.read(location, mark).entries for item in entry.items)
