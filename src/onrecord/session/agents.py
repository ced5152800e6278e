"""`session.agents`: runs of agents, their vendor conversations, the tools they used, and why they stopped."""

from __future__ import annotations

from onrecord.errors import IdReused, InvalidInput
from onrecord.lean_typing import TYPE_CHECKING
from onrecord.log.events import NEW_RUN
from onrecord.log.names import ID_LIMIT, link_id
from onrecord.session.chapter import Chapter
from onrecord.session.single import tool_used
from onrecord.views.facts import TEXT_LIMIT
from onrecord.views.roster import LINK_FIELDS

if TYPE_CHECKING:
    from onrecord.log.events import Event
    from onrecord.views.values import Agent, Json, Lane, Process

__all__ = ["AgentVerbs", "link_id"]

_NOT_IN_AN_ID = frozenset("/\\*?[]")
"""No vendor's id has these. Vendors name files after ids, and look for them by patterns."""


class AgentVerbs(Chapter):
    """Record where an agent's conversation is, its runs and tools, when it needs a person, why it stopped."""

    __slots__ = ()

    def get(self, agent: str | None = None) -> Agent | None:
        """What is known of an agent, or of this handle's own; None if it never took part."""
        return self._session.views.roster.agents.get(agent or self._session.agent)

    def lane(self, agent: str | None = None) -> Lane:
        """An agent's turns: counts, last committed position, the open turn, the provisional tail."""
        session = self._session
        with session._lock:
            lane = session.views.lanes.lane(agent or session.agent).copy()
            lane["commits"], lane["provisional"] = lane["commits"].copy(), lane["provisional"].copy()
            lane["open"] = lane["open"] and lane["open"].copy()
        return lane

    def locate(self, /, vendor: str, vendor_id: str, **about: Json) -> Event | None:
        """Record which vendor conversation this agent uses, and what is new about it; None if nothing is new.

        `about` may have: reason (why the id is what it is), cwd, home, worktree, branch, revision, transcript, process,
        verified, via (the source), briefed (the part of the record it was given), announced (the run in which a line
        on the screen said that it is recorded). A conversation belongs to one agent of a session; `store.linked`
        finds the session by it.
        """
        for name in about:
            if name not in LINK_FIELDS:
                raise InvalidInput(f"unknown field of a conversation: {name!r}", hint=f"use {', '.join(LINK_FIELDS)}")
        id_ = link_id(vendor, vendor_id)
        if not vendor_id[0].isalnum() or ".." in vendor_id or not _NOT_IN_AN_ID.isdisjoint(vendor_id):
            raise InvalidInput(f"{vendor_id!r:.80} is not a conversation id", hint="use the vendor's own session id")
        known = self._session.views.roster.link(vendor, vendor_id)
        if known is not None and known["agent"] != self._session.agent:
            raise InvalidInput(
                f"the conversation {vendor_id} belongs to the agent {known['agent']!r} of this session",
                hint=f"act as agent {known['agent']!r}",
                step="act_as",
                agent=known["agent"],
            )
        said = {name: value for name, value in about.items() if value not in (None, "")}
        if known is None:
            return self._session._record("agent.located", {"vendor": vendor, "vendor_id": vendor_id, **said}, id=id_)
        agent = self._session.views.roster.agents[self._session.agent]
        current = agent["links"][-1] is known
        new = {name: value for name, value in said.items() if known["last"].get(name) != value}
        if not new and current:
            return None
        return self._session._record(
            "agent.located", {"vendor": vendor, "vendor_id": vendor_id, **new},
            id=_brief_id(vendor, vendor_id, known["last"].get("briefed"), new.get("briefed")),
        )  # fmt: skip

    def record_interruption(
        self, /, cause: str, message: str = "", *, resets_at: float | None = None, **about: Json
    ) -> Event:
        """Record why work stopped; `resets_at` (seconds since 1970) is when a limit ends, if that is known."""
        data = {
            "cause": cause,
            "message": message[:TEXT_LIMIT],
            "agent": self._session.agent,
            "resets_at": resets_at,
            **about,
        }
        return self._session._record("interruption.recorded", data)

    def record_going_on(self) -> Event | None:
        """Record that this agent works again after a stop of the same run; None if it was not stopped."""
        known = self._session.views.roster.agents.get(self._session.agent)
        return self._session._record("attention.given", {"went_on": True}) if known and known["stop"] else None

    def record_start(self, /, process: Process | None, **about: Json) -> Event:
        """Record that a new run of this agent began in a process that is not ours; takes no lane.

        Two callers that record the same process at the same moment record it once.
        """
        known = self._session.views.roster.agents.get(self._session.agent)
        twin = known is not None and known["here"] and process is not None and known["process"] == process
        id_ = f"arrival/{self._session.agent}/{known['runs'] - twin if known else 0}"
        draft = self._session._draft("agent.joined", {"process": process, **about}, id=id_)._replace(run=NEW_RUN)
        event = self._session._append_drafts(draft)[0]
        self._session.run = event.run
        return event

    def record_end(self, /, reason: str = "") -> Event:
        """Record that the agent's present run ended cleanly; the counterpart of `record_start`."""
        known = self._session.views.roster.agents.get(self._session.agent)
        self._session.run = known["run"] if known else self._session.run
        return self._session._append_drafts(self._session._draft("agent.left", {"reason": reason} if reason else {}))[0]

    def record_tool(self, /, tool: str, act: str, *, call: str = "", **about: Json) -> Event:
        """Record that a tool ran: command, exit_code, paths. The same call is recorded once."""
        data, id_ = tool_used(self._session.agent, tool, act, call, about)
        return self._session._record("tool.used", data, id=id_)

    def record_attention_needed(self, /, message: str) -> Event:
        """Record that this agent needs a person."""
        return self._session._record("attention.needed", {"message": message[:TEXT_LIMIT]})

    def record_attention_given(self) -> Event | None:
        """Record that this agent no longer needs a person; None if it did not wait for one."""
        known = self._session.views.roster.agents.get(self._session.agent)
        return self._session._record("attention.given", {}) if known and known["waits"] else None


def _brief_id(vendor: str, vendor_id: str, before: Json, briefed: Json) -> str | None:
    """The id of what a conversation was given. Of two hooks that give it the same, the second one gets `IdReused`."""
    if not isinstance(briefed, dict) or "after" not in briefed:
        return None
    mark = before.get("mark", "") if isinstance(before, dict) else ""
    if mark != briefed["after"]:
        raise IdReused("another hook has already given the record to this conversation")
    return f"brief/{mark or 0}/{vendor}/{vendor_id}"[:ID_LIMIT]
