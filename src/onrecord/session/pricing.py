"""The cost of a model call that its caller did not state, where a budget limits what is spent.

The list of prices is not ours and belongs to a layer above: `connection` gives every store its prices, as it gives it
the user's rules for secrets. A cost that no list knows stays unknown, and the caller reads a warning, once.
"""

from __future__ import annotations

from onrecord.lean_weak import WeakKeys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from onrecord.log.store import Store
    from onrecord.session.handle import Session
    from onrecord.views.values import ModelUsage

    Price = Callable[[str, Mapping[str, int], int], float | None]
    """What tokens of a model cost on a day (its number since 1970), in US dollars; None if that is not known."""

_DAY_SECONDS = 86_400
_PRICES: WeakKeys[Store, Price] = WeakKeys()
_WARNED: WeakKeys[Session, bool] = WeakKeys()


def configure_prices(store: Store, price: Price) -> Store:
    """Give a store its prices."""
    _PRICES[store] = price
    return store


def with_cost(session: Session, used: ModelUsage) -> ModelUsage:
    """What a model call used, with its cost if a limit depends on it and the price is known."""
    if used["cost"] is not None or "spend" not in session._whole.spend.budget:
        return used
    price, model = _PRICES.get(session.store), used["model"] or ""
    tokens = {name: amount for name, amount in used.items() if isinstance(amount, int)}
    cost = price(model, tokens, int(session.clock() // _DAY_SECONDS)) if price is not None else None
    if cost is None:
        _warn(session, model)
        return used
    return {**used, "cost": cost}


def _warn(session: Session, model: str) -> None:
    if _WARNED.get(session):
        return
    _WARNED[session] = True
    import warnings

    warnings.warn(
        f"session {session.name!r} has a limit of spend, but the cost of a call of {model!r} is not known and does not "
        'count: pass cost=..., or pip install "onrecord[prices]"; it knows many models, but not all',
        stacklevel=2,
    )
