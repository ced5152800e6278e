"""The price list of a store's sessions. This module is loaded by every command, the list itself where it is needed."""

from __future__ import annotations

from onrecord.session.pricing import configure_prices

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from onrecord.log.store import Store


def with_prices(store: Store) -> Store:
    """The same store, whose sessions know what model calls cost if the extra `prices` is installed."""
    return configure_prices(store, _price)


def _price(model: str, tokens: Mapping[str, int], day: int) -> float | None:
    from onrecord.agents.pricing import price

    return price(model, tokens, day)
