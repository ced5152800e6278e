"""Spend: the budget, and what was used of it. Aborted turns cost too, so they count.

Time in a pause does not count as wall-clock. A cost that is not on record is *unknown*, never guessed.
"""

from __future__ import annotations

from onrecord.views.view import View

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, ClassVar

    from onrecord.log.events import Event
    from onrecord.views.values import Budget, DayUsage, Usage

LIMITS = ("steps", "tokens", "seconds", "spend", "repeats")
"""What a budget may limit: steps, tokens, wall-clock seconds, money, and the same call made in a row.

A step is a call of a model: a turn is one, and each further call that is recorded in the turn is one more."""
RUNS_LIMIT = 200
"""How many runs have separate usage; the usage of earlier ones is summed under run 0."""
DAYS_LIMIT = 400
"""How many days have separate usage; the usage of earlier ones is summed under day 0."""
WARNING_SHARE = 0.8
"""The part of a limit from which on agents and people get a warning."""
TOKENS = ("input_tokens", "cache_read_tokens", "cache_write_tokens", "output_tokens", "reasoning_tokens")
"""What is counted of a call. Input and output are whole; the others are parts of them."""
ROW = ("day", "model", "calls", *TOKENS, "cost")
"""What a row of counted calls has, in this order; zeros at its end and an unknown cost are left out."""
_DAY = 86_400_000_000


class Exhausted:
    """A limit that ran out, or soon will: what is used of it, and how much is allowed."""

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
    return {
        "calls": 0, "input_tokens": 0, "cache_read_tokens": 0, "cache_write_tokens": 0, "output_tokens": 0,
        "reasoning_tokens": 0, "cost": 0.0, "unknown_cost_calls": 0,
    }  # fmt: skip


def add_usage(place: Any, more: Any) -> None:
    """Add one usage to another: their calls, tokens and costs."""
    place["calls"] += more["calls"]
    for name in TOKENS:
        place[name] += more[name]
    place["cost"] = round(place["cost"] + more["cost"], 9)
    place["unknown_cost_calls"] += more["unknown_cost_calls"]
    for name, amount in more.get("unpriced", {}).items():
        place["unpriced"][name] = place["unpriced"].get(name, 0) + amount


class Spend(View):
    """Limits, totals, and usage per model, per run, and per day, agent and model.

    What a model call used is recorded by who made it, one event each; or counted from a coding agent's transcript,
    many calls in one event. A call of a coding agent is a step.
    """

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
        self.days: dict[str, dict[str, dict[str, DayUsage]]] = {}
        """By the number of the day since 1970, agent and model."""
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
                self.steps, self.total, self.models, self.runs, self.days = 0, _nothing(), {}, {}, {}
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
        if "counted" not in data:
            self.steps += data.get("steps", 0)
            self._add(event, event.by, event.at // _DAY, 1, data)
            return
        agent = data.get("agent") or event.by
        for values in data["counted"]:
            row = dict(zip(ROW, values, strict=False))
            self.steps += row["calls"]
            self._add(event, agent, row["day"], row["calls"], row)
        for row in data.get("settled", ()):
            self._add(event, agent, row["day"], 0, row)

    def _add(self, event: Event, agent: str, day: int, calls: int, row: dict[str, Any]) -> None:
        """Add calls to all sums; a row that settles has the cost of calls that were counted without one."""
        cost, told = row.get("cost"), row.get("settles")
        amounts = [(name, row[name]) for name in TOKENS if row.get(name)]
        unknown = -told["calls"] if told else calls if cost is None else 0
        unpriced = [(name, -told[name]) for name in TOKENS if told.get(name)] if told else amounts if unknown else ()
        model = row.get("model") or "unknown"
        cell = self._cell(str(day), agent, model)
        place: Any
        for place in (self.total, self.models.get(model) or self._model(model), self._run(str(event.run)), cell):
            place["calls"] += calls
            place["unknown_cost_calls"] += unknown
            for name, amount in amounts:
                place[name] += amount
            if cost:
                place["cost"] = round(place["cost"] + cost, 9)
        left = cell["unpriced"]
        for name, amount in unpriced:
            left[name] = max(0, left.get(name, 0) + amount)

    def _model(self, model: str) -> Usage:
        return self.models.setdefault(model, _nothing())

    def _run(self, run: str) -> Usage:
        if run in self.runs:
            return self.runs[run]
        if len(self.runs) >= RUNS_LIMIT:
            oldest = min((one for one in self.runs if one != "0"), key=int)
            add_usage(self.runs.setdefault("0", _nothing()), self.runs.pop(oldest))
        return self.runs.setdefault(run, _nothing())

    def _cell(self, day: str, agent: str, model: str) -> DayUsage:
        try:
            return self.days[day][agent][model]
        except KeyError:
            return self._day(day).setdefault(agent, {}).setdefault(model, {**_nothing(), "unpriced": {}})

    def _day(self, day: str) -> dict[str, dict[str, DayUsage]]:
        if day not in self.days and len(self.days) >= DAYS_LIMIT:
            oldest = min((one for one in self.days if one != "0"), key=int)
            early = self.days.setdefault("0", {})
            for agent, models in self.days.pop(oldest).items():
                for model, cell in models.items():
                    place = early.setdefault(agent, {}).setdefault(model, {**_nothing(), "unpriced": {}})
                    add_usage(place, cell)
        return self.days.setdefault(day, {})

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

    def spent(self, now: int) -> dict[str, float]:
        """How much of each limit is used or given to other sessions."""
        return {limit: amount + self.sliced.get(limit, 0) for limit, amount in self.used(now).items()}

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

    def nearly(self, now: int) -> Exhausted | None:
        """The limit of which the largest part is used, if that is enough for a warning."""
        used = self.used(now)
        parts = [
            Exhausted(limit, used[limit] + self.sliced.get(limit, 0), allowed)
            for limit, allowed in self.budget.items()
            if limit in used and used[limit] + self.sliced.get(limit, 0) >= WARNING_SHARE * allowed
        ]
        return max(parts, key=lambda part: part.used / part.allowed, default=None)
