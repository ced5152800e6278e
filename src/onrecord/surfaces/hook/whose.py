"""Whose call it is: the environment of a started agent says so, else the conversation it is on record with.

Never the directory alone: two agents may share one, and an agent in it may be nobody's. `at_a_glance` is for tool
calls: one cheap look that writes nothing. `owner` goes the whole way and opens the session.
"""

from __future__ import annotations

import os

from onrecord.errors import InvalidInput
from onrecord.log.names import link_id

TYPE_CHECKING = False
if TYPE_CHECKING:
    from onrecord.session.handle import Session
    from onrecord.session.session_store import SessionStore
    from onrecord.vendors.hooks import HookCall
    from onrecord.views.present import Present

SESSION_VARIABLE = "ONRECORD_SESSION"
AGENT_VARIABLE = "ONRECORD_AGENT"


class Seen:
    """Whose call it is, as far as a glance can tell."""

    __slots__ = ("agent", "nobody", "present", "session")

    def __init__(
        self, session: str = "", agent: str = "", present: Present | None = None, *, nobody: bool = False
    ) -> None:
        self.session = session
        self.agent = agent
        self.present = present
        """What the gate needs to know; None where only the whole way can tell."""
        self.nobody = nobody
        """Certainly nobody's."""


def at_a_glance(call: HookCall) -> Seen:
    """One look at the store, without a lock."""
    from onrecord.connect import glance, glance_linked, project_of_directory

    named, agent = os.environ.get(SESSION_VARIABLE), os.environ.get(AGENT_VARIABLE)
    if named:
        # Without the agent's name, who it is takes a look at the roster.
        return Seen(named, agent, glance(None, project_of_directory(), named)) if agent else Seen()
    try:
        found = glance_linked(None, link_id(call.vendor, call.vendor_id))
    except InvalidInput:
        return Seen(nobody=True)  # an id that nothing can be on record with
    if found is None:
        return Seen()
    return Seen(found.session, found.agent, found.present, nobody=not found.session)


def owner(call: HookCall) -> Session | None:
    """The session of this call, opened as the agent whose call it is; None where it is nobody's."""
    from onrecord.connect import connect, store_file
    from onrecord.errors import NotFound

    file = store_file()
    if file is not None and not os.access(file, os.F_OK):
        return None
    records = connect()
    named = os.environ.get(SESSION_VARIABLE)
    try:
        id_ = records.find(named).session if named else linked(records, call)
    except NotFound:
        return None
    return None if id_ is None else opened(records, id_, call)


def linked(records: SessionStore, call: HookCall) -> str | None:
    """The session that has this conversation on record: a live one if there is one."""
    from onrecord.log.head import LIVE

    try:
        found = records.store.linked(link_id(call.vendor, call.vendor_id))
    except InvalidInput:
        return None
    return next((one for one in found if records.store.head(one).status in LIVE), found[0] if found else None)


def opened(records: SessionStore, id: str, call: HookCall) -> Session:
    """The session as the agent who has the conversation; else as whom the environment names; else as the vendor."""
    from onrecord.session.handle import Session

    session = Session(records.store, id, agent=os.environ.get(AGENT_VARIABLE) or call.vendor, clock=records.clock)
    link = session.views.roster.link(call.vendor, call.vendor_id)
    if link is not None and link["agent"] != session.agent:
        return Session(records.store, id, agent=link["agent"], clock=records.clock)
    return session
