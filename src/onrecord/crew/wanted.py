"""What is wanted of a team and what became of each agent, folded from the log: any supervisor can take over."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from onrecord.crew.judging import Seen
from onrecord.crew.team_file import Team
from onrecord.views.view import View

if TYPE_CHECKING:
    from onrecord.crew.team_file import Member
    from onrecord.log.events import Event

STARTS_KEPT = 16
"""How many starts of an agent are remembered; judging looks at the last few."""


class Wanted(View):
    """The team as it was last formed, whether it was dismissed since, and the starts and ends of its agents."""

    KINDS: ClassVar = frozenset(
        {"team.formed", "team.dismissed", "agent.recalled", "agent.joined", "agent.left", "agent.located",
         "interruption.recorded"}
    )  # fmt: skip

    def __init__(self) -> None:
        self.team: dict[str, Any] | None = None
        self.formed = 0
        self.dismissed = False
        self.agents: dict[str, dict[str, Any]] = {}

    def apply(self, event: Event) -> None:
        """Fold one event in."""
        data = event.data or {}
        if event.kind == "team.formed":
            self.team, self.formed, self.dismissed = data.get("team"), event.position, False
            return
        if event.kind == "team.dismissed":
            self.dismissed = True
            return
        agent = self._agent(str(data.get("agent")) if event.kind == "agent.recalled" else event.by)
        if event.kind == "agent.recalled":
            agent["recalled"] = event.position
        elif event.kind == "agent.joined":
            agent["starts"] = [*agent["starts"], event.at / 1e6][-STARTS_KEPT:]
            agent.update(joined=event.position, process=data.get("process"), spawn=data.get("spawn"), left=None)
            agent["interruption"] = None
        elif event.kind == "agent.left":
            agent["left"] = event.at / 1e6
        elif event.kind == "agent.located":
            agent["known"] = True
        elif event.position > agent["joined"]:
            agent["interruption"] = {
                "cause": data.get("cause"),
                "resets_at": data.get("resets_at"),
                "at": event.at / 1e6,
            }

    def _agent(self, name: str) -> dict[str, Any]:
        return self.agents.setdefault(name, _nobody())

    def agent(self, name: str) -> dict[str, Any]:
        """What is known of an agent; of an unknown one, nothing."""
        return self.agents.get(name) or _nobody()

    def seen(self, member: Member | None, name: str, *, alive: bool, ended_at: float) -> Seen:
        """An agent as the judgement needs it. `ended_at` is when its process was first found gone; 0: never was one."""
        one = self.agent(name)
        stop = one["interruption"]
        return Seen(
            wanted=member is not None and not self.dismissed,
            alive=alive,
            known=one["known"],
            restart=member.restart if member is not None else "never",
            asked_fresh=one["recalled"] > one["joined"] and member is not None,
            finished=one["left"] is not None and stop is None,
            resets_at=stop["resets_at"] if stop else None,
            restarts=tuple(one["starts"][1:]),
            ended_at=ended_at,
        )

    def members(self) -> dict[str, Member]:
        """Everybody who is wanted, by name."""
        return {member.id: member for member in Team.from_data(self.team).members()} if self.team else {}


def _nobody() -> dict[str, Any]:
    return {
        "starts": [], "joined": 0, "process": None, "spawn": None, "left": None, "known": False, "interruption": None,
        "recalled": 0,
    }  # fmt: skip
