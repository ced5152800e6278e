"""What a person wants of a team and the state of each agent, folded from the log: any supervisor can take over."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from onrecord.crew.next_step import Observed
from onrecord.crew.team_file import Team
from onrecord.errors import InvalidInput
from onrecord.vendors.port import ENDS_WITH_TIME
from onrecord.views.view import View

if TYPE_CHECKING:
    from onrecord.crew.team_file import Member
    from onrecord.log.events import Event

REASON_LIMIT = 200
"""How much of the reason why a run ended is shown, in characters."""
STARTS_KEPT = 16
"""How many starts of an agent are remembered; the next step depends on the last few."""


class TeamView(View):
    """The team as it was last formed, whether it was dismissed since, and the starts and ends of its agents.

    A run that replaces a conversation carries `lost`: why that one could not be resumed. Logs written before that field
    existed lack it.
    """

    KINDS: ClassVar = frozenset(
        {"team.formed", "team.scaled", "team.dismissed", "agent.spawned", "agent.recalled", "agent.joined",
         "agent.left", "agent.located", "interruption.recorded", "attention.given", "tool.used"}
    )  # fmt: skip

    def __init__(self) -> None:
        self.team: Team | None = None
        self.headless = False
        self.formed = 0
        self.decided = 0
        """The position at which the team was last formed or scaled."""
        self.dismissed = False
        self.agents: dict[str, dict[str, Any]] = {}
        self._since: dict[str, int] = {}
        """The position at which a member joined the team, for those who came after it was formed."""

    def apply(self, event: Event) -> None:
        """Fold one event in. What was recorded by hand and cannot be a team is skipped."""
        data = event.data if isinstance(event.data, dict) else {}
        kind, _, step = event.kind.partition(".")
        if kind == "team":
            self._apply_team(event, step, data)
        elif event.kind in ("agent.spawned", "agent.recalled"):
            self._apply_wish(event, data)
        else:
            self._apply_run(event, data)

    def _apply_team(self, event: Event, step: str, data: dict[str, Any]) -> None:
        try:
            if step == "formed":
                self.team, self.formed = Team.from_data(data["team"]), event.position
                self.headless, self.dismissed = bool(data.get("headless")), False
            elif step == "scaled" and self.team is not None:
                before = self.members()
                self.team = self.team.scaled(str(data["group"]), int(data["size"]))
                self._since |= {name: event.position for name in self.members() if name not in before}
        except (KeyError, TypeError, ValueError, InvalidInput):
            return
        if step != "dismissed":
            self.decided = event.position
        if step == "dismissed":
            self.dismissed = True

    def _apply_wish(self, event: Event, data: dict[str, Any]) -> None:
        agent = self.agents.setdefault(str(data.get("agent")), _nobody())
        if event.kind == "agent.recalled":
            agent["recalled"] = event.position
            return
        asked = max(self._asked(str(data.get("agent"))), agent["recalled"]) > agent["spawned"]
        agent["restarts"] = [] if asked else [*agent["restarts"], event.at / 1e6][-STARTS_KEPT:]
        agent["starts"] += 1
        agent.update(
            spawned=event.position,
            spawned_at=event.at / 1e6,
            mode=str(data.get("mode")),
            left=None,
            how="",
            lost="",
            refused=str(data.get("refused") or ""),
        )

    def _apply_run(self, event: Event, data: dict[str, Any]) -> None:
        if event.kind in ("attention.given", "tool.used"):
            if event.by in self.agents and (event.kind == "tool.used" or data.get("went_on")):
                self.agents[event.by]["interruption"] = None
            return
        agent = self.agents.setdefault(event.by, _nobody())
        if event.kind == "agent.joined":
            agent.update(joined=event.position, process=data.get("process"), spawn=data.get("spawn"), left=None)
            agent.update(interruption=None, how="resumed" if data.get("resumes") else "fresh", verified=False)
            agent["lost"] = str(data.get("lost") or "")
        elif event.kind == "agent.left":
            agent["left"] = event.at / 1e6
        elif event.kind == "agent.located":
            agent["known"] = True
            agent["verified"] = bool(data.get("verified", agent["verified"]))
        elif event.position > agent["joined"]:
            agent["interruption"] = {name: data.get(name) for name in ("cause", "message", "resets_at", "status")}

    def agent(self, name: str) -> dict[str, Any]:
        """What is known of an agent; of an unknown one, nothing."""
        return self.agents.get(name) or _nobody()

    def observed(
        self, name: str, member: Member | None, *, alive: bool, gone_at: float, doing: str = "", trouble: str = ""
    ) -> Observed:
        """An agent as the next step needs it. `gone_at` is when its process was found gone; 0: it was not."""
        one, stop = self.agent(name), self.agent(name)["interruption"] or {}
        closed = stop.get("cause") == "unknown" and stop.get("status") == 0 and not self.is_headless(member)
        return Observed(
            wanted=member is not None and not self.dismissed,
            alive=alive,
            known=one["known"],
            restart=member.restart if member is not None else "never",
            asked=self._asked(name) > one["spawned"],
            asked_fresh=one["recalled"] > one["spawned"],
            finished=one["left"] is not None and (not stop or closed),
            dismissed="a person ended it" if stop.get("cause") == "user" else "",
            limited=str(stop.get("cause")) in ENDS_WITH_TIME,
            resets_at=_number(stop.get("resets_at")),
            doing=doing if alive else "",
            trouble=trouble if alive else "",
            restarts=tuple(one["restarts"]),
            ended_at=one["left"] or gone_at or one["spawned_at"],
            last=str(stop.get("message") or one["refused"])[:REASON_LIMIT],
        )

    def _asked(self, name: str) -> int:
        """The position at which a person last asked for an agent of the team."""
        return max(self.formed, self._since.get(name, 0))

    def members(self) -> dict[str, Member]:
        """Every wanted agent, by name."""
        return {member.id: member for member in self.team.members()} if self.team else {}

    def is_headless(self, member: Member | None) -> bool:
        """Whether an agent runs without a terminal."""
        return self.headless or bool(member and member.headless)

    def stopped_at_limit(self, name: str) -> bool:
        """Whether an agent's last run stopped at a limit that ends with time."""
        return (self.agent(name)["interruption"] or {}).get("cause") in ENDS_WITH_TIME


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def _nobody() -> dict[str, Any]:
    return {
        "starts": 0, "restarts": [], "spawned": 0, "spawned_at": 0.0, "mode": "", "recalled": 0, "joined": 0,
        "process": None, "spawn": None, "left": None, "known": False, "verified": False, "interruption": None,
        "how": "", "lost": "", "refused": "",
    }  # fmt: skip
