"""Prices of model calls, from genai-prices if it is installed. A price that is not in its list stays unknown.

Loading it takes longer than a whole hook, so it is loaded where a price is needed, and nowhere else.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from onrecord.views.spend import Spend
    from onrecord.views.values import DayUsage

EXTRA = "prices"
"""What to install."""
_DAY_SECONDS = 86_400
_TIER_SHARE = 0.02
"""Rounding makes an average call cheaper by less than this part; a price for long calls makes it cheaper by more."""
_SUMMED = (
    "calls", "input_tokens", "cache_read_tokens", "cache_write_tokens", "output_tokens", "reasoning_tokens",
    "unknown_cost_calls", "cost", "estimated_cost",
)  # fmt: skip
_PRICED = ("input_tokens", "cache_read_tokens", "cache_write_tokens", "output_tokens")


@cache
def _prices() -> Any:
    try:
        import genai_prices
    except ImportError:
        return None
    return genai_prices


def is_installed() -> bool:
    """Whether there is a price list. Does not load it."""
    from importlib.util import find_spec

    return find_spec("genai_prices") is not None


def price(model: str, tokens: Mapping[str, int], day: int) -> float | None:
    """What tokens of a model cost on a day, in US dollars; None if the list does not say."""
    prices = _prices()
    if prices is None or not model:
        return None
    from datetime import UTC, datetime

    at = datetime.fromtimestamp(day * _DAY_SECONDS, UTC)
    used = prices.Usage(**{name: tokens.get(name, 0) for name in _PRICED})
    try:
        return float(prices.calc_price(used, model_ref=model, genai_request_timestamp=at).total_price)
    except (LookupError, ValueError):
        return None  # an unknown model, or counts that contradict each other


def price_of_sum(model: str, tokens: Mapping[str, int], calls: int, day: int) -> float | None:
    """What several calls cost together. Some models cost more per token in long calls: then an average call decides."""
    whole = price(model, tokens, day)
    if whole is None or calls < 2:  # noqa: PLR2004  # one call is its own sum
        return whole
    average = price(model, {name: amount // calls for name, amount in tokens.items()}, day)
    small = average is None or average * calls > (1 - _TIER_SHARE) * whole
    return whole if small or average is None else average * calls


def nothing() -> dict[str, Any]:
    """The usage of no call, with its cost."""
    return dict.fromkeys(_SUMMED, 0) | {"cost": 0.0, "estimated_cost": 0.0}


def add_priced(place: dict[str, Any], more: Mapping[str, Any]) -> None:
    """Add a usage with its cost to another."""
    for name in _SUMMED:
        place[name] += more[name]
    for name in ("cost", "estimated_cost"):
        place[name] = round(place[name], 9)


def priced(model: str, day: int, cell: DayUsage) -> dict[str, Any]:
    """A usage with its cost: what was stated, and an estimate for the rest as far as the list has the model."""
    told: dict[str, Any] = {name: amount for name, amount in cell.items() if name in _SUMMED}
    told["estimated_cost"] = 0.0
    if cell["unknown_cost_calls"] and cell["unpriced"]:
        cost = price_of_sum(model, cell["unpriced"], cell["unknown_cost_calls"], day)
        if cost is not None:
            told |= {"unknown_cost_calls": 0, "estimated_cost": cost, "cost": cell["cost"] + cost}
    return told


def priced_by_model(spend: Spend) -> dict[str, dict[str, Any]]:
    """What a session used of each model, with its cost."""
    models = {model: nothing() for model in spend.models}
    for day, agents in spend.days.items():
        for cells in agents.values():
            for model, cell in cells.items():
                add_priced(models[model], priced(model, int(day), cell))
    return models
