"""Spend: the budget, and what was used of it. Aborted turns cost too, so they count.

Time in a pause does not count as wall-clock. A cost that was not reported is *unknown*, never guessed.
"""

from __future__ import annotations

from onrecord.views.view import View

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, ClassVar

    from onrecord.log.events import Event
    from onrecord.views.values import Budget, Usage

LIMITS = ("steps", "tokens", "seconds", "spend", "repeats")
"""What a budget may limit: turns, tokens, wall-clock seconds, money, and the same call made in a row."""
RUNS_LIMIT = 200
"""How many runs have separate usage; the usage of earlier ones is summed under run 0."""


class Exhausted:
    """The first limit that ran out."""

    __slots__ = ("allowed", "limit", "used")

    def __init__(self, limit: str, used: float, allowed: float) -> None:
        self.limit = limit
        self.used = used
        self.allowed = allowed

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Exhausted) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple[str, float, float]:
        return self.limit, self.used, self.allowed


def _nothing() -> Usage:
    return {"calls": 0, "input_tokens": 0, "output_tokens": 0, "cost": 0.0, "unknown_cost_calls": 0}


class Spend(View):
    """Limits, totals, and usage per model and per run, for billing."""

    KINDS: ClassVar = frozenset(
        {"session.opened", "session.forked", "budget.set", "budget.sliced", "usage.recorded", "turn.begun",
         "turn.recorded", "session.paused", "session.resumed", "session.closed"}
    )  # fmt: skip

    def __init__(self) -> None:
        self.budget: Budget = {}
        self.budget_position = 0
        self.sliced: Budget = {}
        self.steps = 0
        self.total = _nothing()
        self.models: dict[str, Usage] = {}
        self.runs: dict[str, Usage] = {}
        self.started_at = 0
        self.stopped_at: int | None = None
        self.idle = 0

    def apply(self, event: Event) -> None:
        data = event.data or {}
        match event.kind:
            case "turn.recorded" | "turn.begun":
                self.steps += 1
            case "usage.recorded":
                self._use(event, data)
            case "session.opened":
                self.started_at = event.at
                self.budget = dict(data.get("budget") or {})
                self.budget_position = event.position
            case "session.forked":
                # A fork shares its parent's history, not its bill.
                self.steps, self.total, self.models, self.runs = 0, _nothing(), {}, {}
                self.sliced, self.idle, self.started_at, self.stopped_at = {}, 0, event.at, None
            case "budget.set":
                self.budget = dict(data.get("limits", {}))
                self.budget_position = event.position
            case "budget.sliced":
                for limit, amount in data.get("limits", {}).items():
                    self.sliced[limit] = self.sliced.get(limit, 0) + amount
            case "session.paused" | "session.closed":
                self.stopped_at = self.stopped_at or event.at
            case "session.resumed" if self.stopped_at:
                self.idle += max(0, event.at - self.stopped_at)
                self.stopped_at = None

    def _use(self, event: Event, data: dict[str, Any]) -> None:
        if str(event.run) not in self.runs and len(self.runs) >= RUNS_LIMIT:
            self._sum_up_oldest_run()
        places = (
            self.total,
            self.models.setdefault(data.get("model") or "unknown", _nothing()),
            self.runs.setdefault(str(event.run), _nothing()),
        )
        for place in places:
            place["calls"] += 1
            place["input_tokens"] += data.get("input_tokens", 0)
            place["output_tokens"] += data.get("output_tokens", 0)
            if data.get("cost") is None:
                place["unknown_cost_calls"] += 1
            else:
                place["cost"] = round(place["cost"] + data["cost"], 9)

    def _sum_up_oldest_run(self) -> None:
        oldest = min((run for run in self.runs if run != "0"), key=int)
        early = self.runs.setdefault("0", _nothing())
        late = self.runs.pop(oldest)
        early["calls"] += late["calls"]
        early["input_tokens"] += late["input_tokens"]
        early["output_tokens"] += late["output_tokens"]
        early["cost"] += late["cost"]
        early["unknown_cost_calls"] += late["unknown_cost_calls"]

    @property
    def tokens(self) -> int:
        """All used tokens, input and output."""
        return self.total["input_tokens"] + self.total["output_tokens"]

    def used(self, now: int) -> Budget:
        """How much of each limit is used at a moment."""
        until = self.stopped_at or now
        return {
            "steps": self.steps,
            "tokens": self.tokens,
            "seconds": max(0.0, (until - self.started_at - self.idle) / 1e6) if self.started_at else 0.0,
            "spend": self.total["cost"],
        }

    def remaining(self, now: int) -> Budget:
        """What is left of each set limit, after usage and slices."""
        used = self.used(now)
        return {
            limit: allowed - used[limit] - self.sliced.get(limit, 0)
            for limit, allowed in self.budget.items()
            if limit in used
        }

    def exhausted(self, now: int) -> Exhausted | None:
        """The first limit with nothing left, if there is one."""
        remaining = self.remaining(now)
        for limit in LIMITS:
            if remaining.get(limit, 1) <= 0:
                return Exhausted(limit, self.used(now)[limit] + self.sliced.get(limit, 0), self.budget[limit])
        return None
