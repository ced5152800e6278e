"""The verbs of agents: where an agent's vendor conversation is, and why a run of it stopped."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from onrecord.errors import InvalidInput
from onrecord.log.events import NEW_RUN
from onrecord.log.names import ID_LIMIT, link_id
from onrecord.views.facts import TEXT_LIMIT
from onrecord.views.roster import LINK_FIELDS

if TYPE_CHECKING:
    from onrecord.log.events import Event
    from onrecord.session.verbs import Conducted

__all__ = ["AgentVerbs", "link_id"]


class AgentVerbs:
    """Locate an agent's conversation, record its runs, its tools, what it waits for and why it stopped."""

    run: int | None

    def locate(self: Conducted, /, vendor: str, vendor_id: str, **about: Any) -> Event | None:
        """Put on record which vendor conversation this agent is in, and what is new about it; None if nothing is.

        `about` may have: reason (why the id is what it is), cwd, home, worktree, branch, revision, transcript, process,
        verified, via (who says so), briefed (what it was told of the record). A conversation belongs to one agent of a
        session; its first event is found by `Store.linked`.
        """
        for name in about:
            if name not in LINK_FIELDS:
                raise InvalidInput(f"unknown field of a conversation: {name!r}", hint=f"use {', '.join(LINK_FIELDS)}")
        id_ = link_id(vendor, vendor_id)
        known = self.views.roster.link(vendor, vendor_id)
        if known is not None and known["agent"] != self.agent:
            raise InvalidInput(
                f"the conversation {vendor_id} belongs to the agent {known['agent']!r} of this session",
                hint=f"act as agent {known['agent']!r}",
                step="act_as",
                agent=known["agent"],
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

    def arrive(self: Conducted, /, process: dict[str, Any] | None, **about: Any) -> Event:
        """Put on record that a new run of this agent began in a process that is not ours, so that no lane is taken.

        Two that say so of the same process at the same moment record it once.
        """
        known = self.views.roster.agents.get(self.agent)
        id_ = f"arrival/{self.agent}/{known['runs'] if known else 0}"
        draft = self.draft("agent.joined", {"process": process, **about}, id=id_)._replace(run=NEW_RUN)
        event = self.append(draft)[0]
        self.run = event.run
        return event

    def depart(self: Conducted, /, reason: str = "") -> Event:
        """Put on record that the agent's present run ended in order; the counterpart of `arrive`."""
        known = self.views.roster.agents.get(self.agent)
        self.run = known["run"] if known else self.run
        return self.append(self.draft("agent.left", {"reason": reason} if reason else {}))[0]

    def used_tool(self: Conducted, /, tool: str, act: str, *, call: str = "", **about: Any) -> Event:
        """Put on record that a tool ran: command, exit_code, paths. The same call again records nothing twice."""
        id_ = f"tool/{self.agent}/{call}"
        known = bool(call) and len(id_) <= ID_LIMIT and id_.isprintable()
        data = {"tool": tool, "act": act} | {name: value for name, value in about.items() if value not in (None, "")}
        return self.record("tool.used", data, id=id_ if known else None)

    def wait(self: Conducted, /, message: str) -> Event:
        """Put on record that this agent needs a person."""
        return self.record("attention.needed", {"message": message[:TEXT_LIMIT]})

    def go_on(self: Conducted) -> Event | None:
        """Put on record that this agent needs nobody any more; None if it did not wait."""
        known = self.views.roster.agents.get(self.agent)
        return self.record("attention.given", {}) if known and known["waits"] else None
