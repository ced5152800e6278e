"""The cost of calls that were counted without one: from the price list, or from a sum that the vendor states later."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from onrecord.agents.pricing import price, price_of_sum
from onrecord.views.spend import ROW, TOKENS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from onrecord.session.handle import Session
    from onrecord.vendors.port import Usage
    from onrecord.views.spend import Spend

__all__ = ["listed", "price", "told"]

LOOK_BACK = 200
"""How many usage events are searched for the last sum of a conversation."""
PAGE = 8
"""How many of them one read fetches."""


class Unpriced(NamedTuple):
    """Calls of one day to one model whose cost is not known."""

    day: int
    model: str
    calls: int
    tokens: Mapping[str, int]

    @property
    def whole(self) -> int:
        """Their input and output."""
        return self.tokens.get("input_tokens", 0) + self.tokens.get("output_tokens", 0)


def listed(spend: Spend, agent: str) -> list[dict[str, Any]]:
    """Rows with the cost of an agent's earlier calls, which were counted while no rule depended on their cost."""
    rows = []
    for one in _unpriced(spend, agent, ()):
        cost = price_of_sum(one.model, one.tokens, one.calls, one.day)
        if cost is not None:
            rows.append(_row(one, cost, 1.0))
    return rows


def told(
    session: Session, about: dict[str, Any], agent: str, sums: Mapping[str, Usage], rows: Iterable[list[Any]]
) -> dict[str, Any] | None:
    """The payload for what a vendor states that all calls of a conversation cost; None if that is on record.

    `rows` are counted in the same commit. Only what has no cost yet gets one: the calls of other processes may be part
    of the sum, and calls of a process that was killed may be missing in it.
    """
    before = _sums_before(session, about)
    now = {model: [one.cost or 0.0, one.input_tokens + one.output_tokens] for model, one in sums.items()}
    if now == before:
        return None
    grown = {model: _growth(before.get(model, [0.0, 0]), stated) for model, stated in now.items()}
    open_calls = list(_unpriced(session.views.spend, agent, rows))
    by_model = [([one for one in open_calls if one.model == model], *more) for model, more in grown.items()]
    if not any(cells for cells, _cost, _tokens in by_model):
        # The sums have other names for the models than the calls: then they are one sum.
        by_model = [(open_calls, sum(cost for cost, _ in grown.values()), sum(more for _, more in grown.values()))]
    settled = [row for cells, cost, more in by_model for row in _shared(cells, cost, more)]
    return {"sums": now, "counted": [], "settled": settled}


def _growth(then: list[float], now: list[float]) -> tuple[float, float]:
    """By how much cost and tokens have grown; a sum that is smaller than before began again."""
    return (now[0] - then[0], now[1] - then[1]) if now[1] >= then[1] else (now[0], now[1])


def _shared(cells: list[Unpriced], cost: float, tokens: float) -> list[dict[str, Any]]:
    """Rows that share a cost out to calls by their tokens, as far as it is theirs."""
    missing = sum(one.whole for one in cells)
    if not missing or tokens <= 0 or cost <= 0:
        return []
    paid = cost * min(1.0, missing / tokens)
    return [_row(one, paid * one.whole / missing, min(1.0, tokens / missing)) for one in cells]


def _sums_before(session: Session, about: dict[str, Any]) -> dict[str, Any]:
    for event in islice(session.log.newest(("usage.recorded",), page=PAGE), LOOK_BACK):
        data = event.data or {}
        if "sums" in data and data.get("of") == about["of"]:
            return dict(data["sums"])
    return {}


def _unpriced(spend: Spend, agent: str, rows: Iterable[list[Any]]) -> Iterator[Unpriced]:
    """An agent's calls of unknown cost: those on record, and those of rows."""
    for day, agents in spend.days.items():
        for model, cell in agents.get(agent, {}).items():
            if cell["unknown_cost_calls"] > 0:
                yield Unpriced(int(day), model, cell["unknown_cost_calls"], cell["unpriced"])
    for values in rows:
        row = dict(zip(ROW, values, strict=False))
        if row["calls"] and "cost" not in row:
            yield Unpriced(row["day"], row["model"], row["calls"], {name: row.get(name, 0) for name in TOKENS})


def _row(one: Unpriced, cost: float, share: float) -> dict[str, Any]:
    """A row that gives a share of calls their cost."""
    settles = {"calls": round(one.calls * share)} | {
        name: round(amount * share) for name, amount in one.tokens.items() if amount
    }
    return {"day": one.day, "model": one.model, "cost": round(cost, 9), "settles": settles}
