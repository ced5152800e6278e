"""The verbs of the durable tier: short facts that anyone may add at any time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from onrecord.errors import InvalidInput
from onrecord.log.codec import encode_payload
from onrecord.views.facts import TEXT_LIMIT
from onrecord.views.spend import LIMITS

if TYPE_CHECKING:
    from onrecord.log.events import Event
    from onrecord.views.fold import Whole

SCRATCH_LIMIT = 16 * 1024
"""The largest scratch value, in bytes of JSON: larger things belong into files."""


class FactVerbs:
    """What a session can be told besides turns. `Session` brings `record`."""

    if TYPE_CHECKING:

        def record(self, kind: str, data: Any, *, id: str | None = None, because: int | None = None) -> Event:
            """Append one event."""

        def require_text(self, text: str, what: str, limit: int) -> str:
            """The text if it says something and is short enough."""

        @property
        def views(self) -> Whole:
            """Everything the log means at its newest position."""

    def set_objective(self, text: str) -> Event:
        """Say what the session is for."""
        return self.record("objective.set", {"text": self.require_text(text, "an objective", TEXT_LIMIT)})

    def set_title(self, text: str) -> Event:
        """Sum up the work so far, for lists."""
        return self.record("session.titled", {"text": self.require_text(text, "a title", TEXT_LIMIT)})

    def set_next_action(self, text: str, *, command: str | None = None) -> Event:
        """Say the one thing to do next."""
        data = {"text": self.require_text(text, "a next action", TEXT_LIMIT), "command": command}
        return self.record("next_action.set", data)

    def set_reproduction(self, steps: str, *, rate: str | None = None, scenario: str | None = None) -> Event:
        """Say how the problem is seen, and how often (`3/10`)."""
        data = {"steps": self.require_text(steps, "a reproduction", TEXT_LIMIT), "rate": rate, "scenario": scenario}
        return self.record("reproduction.recorded", data)

    def decide(self, text: str, *, why: str | None = None, because: int | None = None, id: str | None = None) -> Event:
        """Record a decision; `because` is the position it came from."""
        data = {"text": self.require_text(text, "a decision", TEXT_LIMIT), "why": why}
        return self.record("decision.made", data, because=because, id=id)

    def set_scratch(self, key: str, value: Any) -> Event:
        """Keep a small value under a key across restarts; None removes it."""
        if not isinstance(key, str) or not key:
            raise InvalidInput("a scratch value needs a key")
        if len(encode_payload(value)) > SCRATCH_LIMIT:
            raise InvalidInput(f"the scratch value {key!r} is over {SCRATCH_LIMIT:,} bytes", hint="keep it in a file")
        return self.record("scratch.set", {"key": key, "value": value})

    def set_budget(self, /, **limits: float) -> Event:
        """Limit steps, tokens, seconds, spend or repeats; replaces the budget so far."""
        return self.record("budget.set", {"limits": check_budget(limits)})


def check_budget(limits: dict[str, Any] | None) -> dict[str, float]:
    """The limits if they are ones we know, with amounts above zero."""
    for limit, amount in (limits or {}).items():
        if limit not in LIMITS:
            raise InvalidInput(f"a budget can limit {', '.join(LIMITS)}; not {limit!r}")
        if isinstance(amount, bool) or not isinstance(amount, int | float) or not 0 < amount < float("inf"):
            raise InvalidInput(f"the limit of {limit} must be a number above 0, not {amount!r}")
    return dict(limits or {})
