"""Lanes: the turns of each agent. A lane is one agent's line of turns.

The provisional tail of a lane is every turn after its last commit that was aborted, or begun by a run that has ended.
It is deduced, never stored: the next commit supersedes it without deleting anything, and if none comes it is
the honest last turn.
"""

from __future__ import annotations

from onrecord.lean_typing import TYPE_CHECKING, ClassVar
from onrecord.views.view import View

if TYPE_CHECKING:
    from onrecord.log.events import Event
    from onrecord.views.values import Lane, OpenTurn

ROLLBACK_LIMIT = 8
"""How many committed turns a retry may discard at the most."""
PROVISIONAL_LIMIT = 50
"""How many provisional turns a lane lists; older ones are only counted (all of them stay in the log)."""


def new_lane() -> Lane:
    """A lane without turns."""
    return {
        "run": 0,
        "turns": 0,
        "committed": 0,
        "last_commit": 0,
        "commits": [],
        "open": None,
        "provisional": [],
        "aborted": 0,
        "interrupted": 0,
        "compacted": 0,
        "covered": 0,
    }


class Lanes(View):
    """Every lane by agent."""

    KINDS: ClassVar = frozenset(
        {"agent.joined", "agent.left", "turn.begun", "turn.committed", "turn.aborted", "turn.recorded",
         "transcript.compacted"}
    )  # fmt: skip

    def __init__(self) -> None:
        self.lanes: dict[str, Lane] = {}

    def lane(self, agent: str) -> Lane:
        """The lane of an agent; an empty one if it has no turns."""
        return self.lanes.get(agent) or new_lane()

    def apply(self, event: Event) -> None:
        lane = self.lanes.get(event.by)
        if lane is None:
            lane = self.lanes[event.by] = new_lane()
        kind = event.kind
        if kind == "turn.recorded":
            lane["turns"] += 1
            self._commit(lane, lane["turns"], lane["last_commit"], None, event)
        elif kind == "turn.begun":
            self._begin(lane, event)
        elif kind == "turn.committed" and lane["open"]:
            turn = lane["open"]
            self._commit(lane, turn["turn"], turn["base"], turn["fingerprint"], event)
        elif kind == "turn.aborted" and lane["open"]:
            lane["aborted"] += 1
            self._leave_provisional(lane, lane["open"], event, "aborted", (event.data or {}).get("reason", ""))
        elif kind == "transcript.compacted":
            lane["compacted"], lane["covered"] = event.position, event.because or 0
        elif kind in ("agent.joined", "agent.left"):
            if lane["open"]:
                lane["interrupted"] += 1
                self._leave_provisional(lane, lane["open"], event, "interrupted", "its process ended")
            lane["run"] = max(lane["run"], event.run)

    def _begin(self, lane: Lane, event: Event) -> None:
        data = event.data or {}
        if lane["open"]:
            lane["interrupted"] += 1
            self._leave_provisional(lane, lane["open"], event, "interrupted", "another turn was begun")
        lane["turns"] += 1
        lane["open"] = {
            "turn": lane["turns"],
            "base": data.get("base", lane["last_commit"]),
            "fingerprint": data.get("fingerprint"),
            "position": event.position,
            "run": event.run,
            "at": event.at,
        }

    def _commit(self, lane: Lane, turn: int, base: int, fingerprint: str | None, event: Event) -> None:
        commits = lane["commits"]
        while commits and commits[-1]["position"] > base:
            # A retry from an earlier base: the turns it discards leave the trajectory only now.
            if commits.pop()["position"] <= lane["covered"]:
                # The last summary covers what is discarded now.
                lane["compacted"] = lane["covered"] = 0
            lane["committed"] -= 1
        if base == 0:
            lane["committed"] = 0  # starting over discards more commits than are listed here
        commits.append({"turn": turn, "base": base, "fingerprint": fingerprint, "position": event.position})
        if len(commits) > ROLLBACK_LIMIT + 1:
            del commits[0]
        lane["committed"] += 1
        lane["last_commit"] = event.position
        lane["open"] = None
        if lane["provisional"]:
            lane["provisional"] = []

    def _leave_provisional(self, lane: Lane, turn: OpenTurn, event: Event, how: str, reason: str) -> None:
        lane["open"] = None
        lane["provisional"].append(
            {"turn": turn["turn"], "position": turn["position"], "end": event.position, "how": how, "reason": reason,
             "run": turn["run"], "at": event.at}
        )  # fmt: skip
        del lane["provisional"][:-PROVISIONAL_LIMIT]
