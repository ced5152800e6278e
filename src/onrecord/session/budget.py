"""`session.budget`: limits, what model calls used, and what is left."""

from __future__ import annotations

from onrecord.errors import InvalidInput
from onrecord.session.chapter import Chapter
from onrecord.views.spend import LIMITS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from onrecord.log.events import Event
    from onrecord.views.values import Budget, ModelUsage, Usage

AMOUNT_LIMIT = 1e15
"""Token counts and costs stay below this, so that sums stay exact."""


class BudgetVerbs(Chapter):
    """Set limits, record usage, read what is used and left."""

    __slots__ = ()

    def set(self, /, **limits: float) -> Event:
        """Limit steps, tokens, seconds, spend or repeats; replaces the budget so far."""
        return self._session._record("budget.set", {"limits": check_budget(limits)})

    def record_usage(
        self, model: str, *, input_tokens: int = 0, output_tokens: int = 0, cost: float | None = None
    ) -> Event:
        """Record what a model call used. A cost that is not known stays unknown."""
        return self._session._record("usage.recorded", usage_of(model, input_tokens, output_tokens, cost))

    def spent(self) -> Usage:
        """What all model calls together used."""
        total = self._session.views.spend.total
        return total.copy()

    def left(self) -> Budget:
        """What is left of each set limit, after usage and the slices given to other sessions."""
        return self._session.views.spend.remaining(int(self._session.clock() * 1e6))


def check_budget(limits: Mapping[str, float] | None) -> dict[str, float]:
    """The limits if they are ones we know, with amounts above zero."""
    for limit, amount in (limits or {}).items():
        if limit not in LIMITS:
            raise InvalidInput(f"a budget limits {', '.join(LIMITS)}; not {limit!r}")
        if isinstance(amount, bool) or not isinstance(amount, int | float) or not 0 < amount < float("inf"):
            raise InvalidInput(f"the limit of {limit} is a number above 0, not {amount!r}")
    return dict(limits or {})


def usage_of(
    model: str | None = None, input_tokens: int = 0, output_tokens: int = 0, cost: float | None = None
) -> ModelUsage:
    """The payload of a usage event, checked."""
    for what, amount in (("input_tokens", input_tokens), ("output_tokens", output_tokens), ("cost", cost)):
        if amount is not None and (
            isinstance(amount, bool) or not isinstance(amount, int | float) or not 0 <= amount < AMOUNT_LIMIT
        ):
            raise InvalidInput(f"{what} is a number from 0 up, not {amount!r}")
    return {"model": model, "input_tokens": input_tokens, "output_tokens": output_tokens, "cost": cost}
