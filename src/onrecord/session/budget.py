"""`session.budget`: limits, what model calls used, and what is left."""

from __future__ import annotations

from onrecord.errors import BudgetExhausted, InvalidInput
from onrecord.log.codec import open_records
from onrecord.log.names import LINK_PREFIX
from onrecord.session.chapter import Chapter
from onrecord.views.spend import LIMITS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from onrecord.log.events import Event
    from onrecord.log.store import Store
    from onrecord.session.handle import Session
    from onrecord.views.values import Budget, ModelUsage, Usage

AMOUNT_LIMIT = 1e15
"""Token counts and costs stay below this, so that sums stay exact."""
ASKED_LIMIT = 64
"""About how many calls of a new conversation other sessions are asked: a copy begins with what was copied."""
PARTS = {"cache_read_tokens": "input_tokens", "cache_write_tokens": "input_tokens", "reasoning_tokens": "output_tokens"}
"""The counts that are parts of another one."""


class BudgetVerbs(Chapter):
    """Set limits, record usage, read what is used and left."""

    __slots__ = ()

    def set(self, /, **limits: float) -> Event:
        """Limit steps, tokens, seconds, spend or repeats; replaces the budget so far."""
        return self._session._record("budget.set", {"limits": check_budget(limits)})

    def record_usage(
        self, model: str, *, input_tokens: int = 0, output_tokens: int = 0, cost: float | None = None, **parts: int
    ) -> Event:
        """Record what a model call used. A cost that is not known stays unknown.

        If the budget limits `spend` and the extra `prices` knows the model, the cost is computed.

        `parts` may have cache_read_tokens and cache_write_tokens, which are parts of the input, and reasoning_tokens,
        which are part of the output.
        """
        from onrecord.session.pricing import with_cost

        used = usage_of(model, input_tokens, output_tokens, cost, **parts)
        return self._session._record("usage.recorded", with_cost(self._session, used))

    def check(self) -> None:
        """Raise `BudgetExhausted` if a limit is used up. Nothing is recorded and the session is not paused."""
        from onrecord.rules import enough, spent

        spend = self._session.views.spend
        now = int(self._session.clock() * 1e6)
        if out := spend.exhausted(now):
            used = spend.spent(now)
            raise BudgetExhausted(
                f"{spent(out)} in session {self._session.name!r}",
                hint=f"raise it: {raised(self._session, used, out.limit)}",
                step="raise_budget",
                limit=out.limit,
                amount=enough(spend.budget, used, out.limit)[out.limit],
                spent=used,
                name=self._session.name,
            )

    def spent(self) -> Usage:
        """What all model calls together used."""
        total = self._session.views.spend.total
        return total.copy()

    def counted(self, vendor: str, calls: Collection[str]) -> frozenset[str]:
        """Which calls of a vendor's model were counted already: in this session, or in one with the same history.

        Vendors copy the beginning of a conversation when they fork it or change its id. A copied call counts for the
        session that had it first.
        """
        store, here = self._session.store, self._session.id
        known, seen, asked = _counted(store, here, vendor), {here}, 0
        for call in calls:
            if call in known or asked >= ASKED_LIMIT:
                continue
            asked += 1
            for other in store.linked(usage_id(vendor, call)):
                if other not in seen:
                    seen.add(other)
                    known |= _counted(store, other, vendor)
        return frozenset(known.intersection(calls))

    def left(self) -> Budget:
        """What is left of each set limit, after usage and the slices given to other sessions."""
        return self._session.views.spend.remaining(int(self._session.clock() * 1e6))


def raised(session: Session, used: Mapping[str, float], limit: str) -> str:
    """The call that raises a limit and others that are used up; `set` replaces the budget, so all limits are in it."""
    from onrecord.rules import enough

    wanted = enough(session.views.spend.budget, used, limit)
    return f"session.budget.set({', '.join(f'{name}={amount}' for name, amount in wanted.items())})"


def check_budget(limits: Mapping[str, float] | None) -> dict[str, float]:
    """The limits if they are ones we know, with amounts above zero."""
    if limits is not None and not hasattr(limits, "items"):
        raise InvalidInput(
            f"a budget is a dict of limits, not {type(limits).__name__}", hint='like {"steps": 200, "spend": 5.0}'
        )
    for limit, amount in (limits or {}).items():
        if limit not in LIMITS:
            raise InvalidInput(f"a budget limits {', '.join(LIMITS)}; not {limit!r}")
        if isinstance(amount, bool) or not isinstance(amount, int | float) or not 0 < amount < float("inf"):
            raise InvalidInput(f"the limit of {limit} is a number above 0, not {amount!r}")
    return dict(limits or {})


def usage_of(
    model: str | None = None, input_tokens: int = 0, output_tokens: int = 0, cost: float | None = None, **parts: int
) -> ModelUsage:
    """The payload of a usage event, checked."""
    whole = {"input_tokens": input_tokens, "output_tokens": output_tokens}
    for what, amount in (*whole.items(), ("cost", cost), *parts.items()):
        if amount is not None and (
            isinstance(amount, bool) or not isinstance(amount, int | float) or not 0 <= amount < AMOUNT_LIMIT
        ):
            raise InvalidInput(f"{what} must be a number of at least 0, not {amount!r}")
    for what, amount in parts.items():
        if what not in PARTS:
            raise InvalidInput(f"unknown count {what!r:.60}", hint=f"use {', '.join(PARTS)}")
        whole[PARTS[what]] -= amount
    for what, rest in whole.items():
        if rest < 0:
            raise InvalidInput(
                f"the parts of {what} add up to more than {what}",
                hint="input_tokens includes what was read from a cache and written to it",
            )
    used: ModelUsage = {"model": model, "input_tokens": input_tokens, "output_tokens": output_tokens, "cost": cost}
    return used | {what: amount for what, amount in parts.items() if amount}  # type: ignore[return-value]  # the names are those of PARTS


def usage_id(vendor: str, call: str) -> str:
    """The id of the event that counts a vendor's calls from this one on; `Store.linked` finds sessions by it."""
    return f"{LINK_PREFIX}usage/{vendor}/{call}"


def _counted(store: Store, session: str, vendor: str) -> set[str]:
    """The calls of a vendor's model that a session has counted."""
    events = open_records(store.read(session, kinds=("usage.recorded",)))
    counts = [event.data for event in events if event.data and event.data.get("vendor") == vendor]
    return {call for data in counts for call in data.get("calls") or ()}
