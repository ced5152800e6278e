"""The verbs of agents: where an agent's vendor conversation is, and why a run of it stopped."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from onrecord.errors import InvalidInput
from onrecord.log.codec import ID_LIMIT
from onrecord.log.store import LINK_PREFIX
from onrecord.views.facts import TEXT_LIMIT
from onrecord.views.roster import LINK_FIELDS

if TYPE_CHECKING:
    from onrecord.log.events import Event
    from onrecord.session.verbs import Conducted


def link_id(vendor: str, vendor_id: str) -> str:
    """The id of the event that puts a vendor's conversation on record; `Store.linked` finds sessions by it."""
    id_ = f"{LINK_PREFIX}{vendor}/{vendor_id}"
    if not vendor or "/" in vendor or not vendor_id or len(id_) > ID_LIMIT or not id_.isprintable():
        raise InvalidInput(f"{vendor_id!r:.80} is no id of a conversation", hint="it is the vendor's own session id")
    return id_


class AgentVerbs:
    """Locate an agent's conversation, record why a run stopped."""

    def locate(self: Conducted, /, vendor: str, vendor_id: str, **about: Any) -> Event | None:
        """Put on record which vendor conversation this agent is in, and what is new about it; None if nothing is.

        `about` may have: reason (why the id is what it is), cwd, home, worktree, branch, revision, transcript, process,
        verified. A conversation belongs to one agent of a session; its first event is found by `Store.linked`.
        """
        for name in about:
            if name not in LINK_FIELDS:
                raise InvalidInput(f"a conversation is not described by {name!r}", hint=f"{', '.join(LINK_FIELDS)}")
        id_ = link_id(vendor, vendor_id)
        known = self.views.roster.link(vendor, vendor_id)
        if known is not None and known["agent"] != self.agent:
            raise InvalidInput(
                f"the conversation {vendor_id} belongs to the agent {known['agent']!r} of this session",
                hint=f"act as it: --agent {known['agent']}",
            )
        said = {name: value for name, value in about.items() if value not in (None, "")}
        if known is None:
            return self.record("agent.located", {"vendor": vendor, "vendor_id": vendor_id, **said}, id=id_)
        agent = self.views.roster.agents[self.agent]
        current = agent["links"][-1] is known
        new = {name: value for name, value in said.items() if known["last"].get(name) != value}
        if not new and current:
            return None
        return self.record("agent.located", {"vendor": vendor, "vendor_id": vendor_id, **new})

    def interrupted(
        self: Conducted, /, cause: str, message: str = "", *, resets_at: float | None = None, **about: Any
    ) -> Event:
        """Put on record why work stopped; `resets_at` (seconds since 1970) is when a limit ends, if it was told."""
        data = {"cause": cause, "message": message[:TEXT_LIMIT], "agent": self.agent, "resets_at": resets_at, **about}
        return self.record("interruption.recorded", data)
