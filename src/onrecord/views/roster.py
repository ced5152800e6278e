"""The roster: which agents took part, in which runs, who is still here, and which vendor conversations are theirs."""

from __future__ import annotations

from onrecord.lean_typing import TYPE_CHECKING, Any, ClassVar
from onrecord.views.view import View

if TYPE_CHECKING:
    from onrecord.log.events import Event
    from onrecord.views.values import Agent, Attention, Link

LINK_FIELDS = (
    "reason", "cwd", "home", "worktree", "branch", "revision", "transcript", "process", "verified", "via", "briefed",
    "announced",
)  # fmt: skip
"""The fields of a conversation besides its id. The first and the last value of each are kept."""
STOP_FIELDS = ("cause", "message", "resets_at", "vendor", "terminal")


class Roster(View):
    """Agents by id. An agent that joined and has not left is here, unless its process turns out to be gone.

    `links` are an agent's vendor conversations, in the order in which each became its present one.
    `waits` is what an agent needs a person for; whatever it does next shows that it waits no more.
    `stop` is what stopped a vendor's agent, until it runs again, uses a tool, or is seen to work.
    """

    KINDS: ClassVar = frozenset(
        {"agent.joined", "agent.located", "agent.left", "attention.needed", "attention.given", "tool.used",
         "interruption.recorded"}
    )  # fmt: skip

    def __init__(self) -> None:
        self.agents: dict[str, Agent] = {}

    def apply(self, event: Event) -> None:
        data = event.data or {}
        if event.kind == "interruption.recorded":
            self._interrupt(event, data)
            return
        agent = self.agents.setdefault(
            event.by,
            {
                "joined_at": event.at, "runs": 0, "run": 0, "here": False, "vendor": None, "process": None, "links": [],
                "waits": None, "arguments": [], "arguments_on": None, "stop": None,
            },
        )  # fmt: skip
        waiting: Attention = {"message": str(data.get("message") or ""), "position": event.position, "at": event.at}
        agent["waits"] = waiting if event.kind == "attention.needed" else None
        if event.kind in ("agent.joined", "tool.used") or data.get("went_on"):
            agent["stop"] = None
        if event.kind == "agent.joined":
            agent["runs"] += 1
            agent |= {"run": event.run, "here": True, "process": data.get("process"), "last_joined_at": event.at}
            self._note_arguments(agent, data)
            if data.get("person"):
                agent["person"] = str(data["person"])
            agent["joined"] = event.position
            agent["vendor"], agent["via"] = data.get("vendor") or agent["vendor"], data.get("via")
        elif event.kind == "agent.located":
            self._locate(event, data)
        elif event.kind == "agent.left" and event.run == agent["run"]:
            agent |= {"here": False, "left_at": event.at}

    @staticmethod
    def _note_arguments(agent: Agent, data: dict[str, Any]) -> None:
        """The last known arguments of its program. A run that we did not start says nothing about them."""
        if isinstance(data.get("arguments"), list):
            process = data.get("process")
            agent["arguments"] = [str(word) for word in data["arguments"]]
            agent["arguments_on"] = process.get("host") if isinstance(process, dict) else None
        elif data.get("vendor") not in (None, agent["vendor"]):
            agent |= {"arguments": [], "arguments_on": None}  # another vendor's program

    def _interrupt(self, event: Event, data: dict[str, Any]) -> None:
        agent = self.agents.get(event.by)
        if agent is not None and data.get("vendor"):
            told: Any = {"position": event.position, "at": event.at, "by": event.by}
            agent["stop"] = told | {name: data[name] for name in STOP_FIELDS if name in data}
            agent["waits"] = None

    def _locate(self, event: Event, data: dict[str, Any]) -> None:
        vendor, vendor_id = data.get("vendor"), data.get("vendor_id")
        if not isinstance(vendor, str) or not isinstance(vendor_id, str):
            return  # an event that was recorded by hand names no conversation
        agent = self.agents[event.by]
        said = {name: data[name] for name in LINK_FIELDS if name in data}
        known = next((link for link in agent["links"] if (link["vendor"], link["id"]) == (vendor, vendor_id)), None)
        if known is None:
            known = {
                "vendor": vendor, "id": vendor_id, "agent": event.by, "position": event.position, "at": event.at,
                "first": said, "last": {},
            }  # fmt: skip
        else:
            agent["links"].remove(known)
        known["last"] = known["last"] | said
        known["seen_at"] = event.at
        agent["links"].append(known)
        agent["vendor"] = vendor

    def link(self, vendor: str, vendor_id: str) -> Link | None:
        """A conversation of any agent."""
        return next(
            (
                link
                for agent in self.agents.values()
                for link in agent["links"]
                if (link["vendor"], link["id"]) == (vendor, vendor_id)
            ),
            None,
        )
