"""The roster: which agents took part, in which runs, and who is still here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from onrecord.views.view import View

if TYPE_CHECKING:
    from onrecord.log.events import Event


class Roster(View):
    """Agents by id. An agent that joined and has not left is here, unless its process turns out to be gone."""

    KINDS: ClassVar = frozenset({"agent.joined", "agent.located", "agent.left"})

    def __init__(self) -> None:
        self.agents: dict[str, dict[str, Any]] = {}

    def apply(self, event: Event) -> None:
        data = event.data or {}
        agent = self.agents.setdefault(
            event.by, {"joined_at": event.at, "runs": 0, "run": 0, "here": False, "vendor": None, "process": None}
        )
        if event.kind == "agent.joined":
            agent["runs"] += 1
            agent.update(run=event.run, here=True, process=data.get("process"), last_joined_at=event.at)
            agent["vendor"] = data.get("vendor") or agent["vendor"]
        elif event.kind == "agent.left" and event.run == agent["run"]:
            agent.update(here=False, left_at=event.at)
