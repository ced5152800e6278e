"""Which agent a hook call belongs to: the environment of a started agent says it, else the conversation on record.

Never the directory alone: two agents may share one, and an agent in it may belong to no session. `at_a_glance` is for
tool calls: one cheap read that writes nothing. `owner` opens the session.
"""

from __future__ import annotations

import os

from onrecord.environment import AGENT_VARIABLE, SESSION_VARIABLE
from onrecord.errors import InvalidInput, OnrecordError
from onrecord.log.names import check_name, is_ulid, link_id

TYPE_CHECKING = False
if TYPE_CHECKING:
    from onrecord.session.handle import Session
    from onrecord.session.session_store import SessionStore
    from onrecord.vendors.hooks import HookCall
    from onrecord.views.present import Present


class Seen:
    """Which agent a call belongs to, as far as a glance can tell."""

    __slots__ = ("agent", "present", "session", "unowned")

    def __init__(
        self, session: str = "", agent: str = "", present: Present | None = None, *, unowned: bool = False
    ) -> None:
        self.session = session
        self.agent = agent
        self.present = present
        """What the gate needs to know; None if the session has to be opened for that."""
        self.unowned = unowned
        """Certainly of no session."""


def at_a_glance(call: HookCall) -> Seen:
    """One read of the store, without a lock."""
    from onrecord.connection import glance, project_here

    named, agent = os.environ.get(SESSION_VARIABLE), os.environ.get(AGENT_VARIABLE)
    if named:
        # Without the agent's name, only the roster can identify it. An id needs no project.
        key, *also = [""] if is_ulid(named.upper()) else project_here().names
        return Seen(named, agent, glance(None, key, named, tuple(also))) if agent else Seen()
    return _linked(call)


def _linked(call: HookCall, kinds: tuple[str, ...] | None = None) -> Seen:
    from onrecord.connection import glance_linked

    try:
        found = glance_linked(None, link_id(call.vendor, call.vendor_id), kinds)
    except InvalidInput:
        return Seen(unowned=True)  # no conversation on record can have this id
    if found is None:
        return Seen()
    return Seen(found.session, found.agent, found.present, unowned=not found.session)


def linked_at_a_glance(call: HookCall, kinds: tuple[str, ...]) -> Seen:
    """The same, by the conversation: who has it on record. An environment that names another session is not decided.

    Only what events of these kinds say is present.
    """
    seen, named = _linked(call, kinds), os.environ.get(SESSION_VARIABLE)
    return seen if not named or seen.session == named else Seen()


class Owned:
    """A session opened for one hook call. Use it as a context manager: at the end its store is closed."""

    __slots__ = ("records", "session")

    def __init__(self, records: SessionStore, session: Session) -> None:
        self.records = records
        self.session = session

    def __enter__(self) -> Session:
        return self.session

    def __exit__(self, *_problem: object) -> None:
        """A failure to close the store does not lose the answer."""
        try:
            self.records.close()
        except OnrecordError:
            return


def owner(call: HookCall) -> Owned | None:
    """The session of this call, opened as the agent that made it; None if it belongs to no session."""
    from onrecord.connection import connect, store_file
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
    return None if id_ is None else Owned(records, opened(records, id_, call))


def linked(records: SessionStore, call: HookCall) -> str | None:
    """The session that has this conversation on record, a live one first."""
    from onrecord.log.head import LIVE

    try:
        found = records.linked(call.vendor, call.vendor_id)
    except InvalidInput:
        return None
    return next((one for one in found if records.head(one).status in LIVE), found[0] if found else None)


def opened(records: SessionStore, id: str, call: HookCall) -> Session:
    """The session, opened as the agent that has the conversation; else as the environment says; else as the vendor."""
    session = records.handle(id, agent=os.environ.get(AGENT_VARIABLE) or call.vendor)
    link = session.views.roster.link(call.vendor, call.vendor_id)
    if link is not None and link["agent"] != session.agent:
        session.agent = check_name(link["agent"], "agent")  # a second handle would read the record once more
    return session
