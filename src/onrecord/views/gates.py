"""Gates: what was refused, advised and overridden so far, so that no refusal loops and no advice repeats itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from onrecord.views.view import View

if TYPE_CHECKING:
    from onrecord.log.events import Event

ADVICE_LIMIT = 1_000
"""How many pieces of advice are remembered as given."""


def ground(rule: str, agent: str, positions: list[int]) -> str:
    """What a refusal rests on; the same refusal has the same ground."""
    return f"{rule}/{agent}/{','.join(map(str, positions))}"


class Gates(View):
    """Refusals in a row by their ground, grounds that were overridden, and advice that was delivered."""

    KINDS: ClassVar = frozenset({"gate.decided", "gate.overridden"})

    def __init__(self) -> None:
        self.refusals: dict[str, int] = {}
        self.overridden: dict[str, dict[str, Any]] = {}
        self.advised: list[str] = []

    def apply(self, event: Event) -> None:
        data = event.data
        if data is None:
            return
        if event.kind == "gate.overridden":
            self.overridden[data["ground"]] = {
                "reason": data["reason"], "position": event.position, "at": event.at, "by": event.by
            }  # fmt: skip
            return
        if data["decision"] != "allow" and data.get("ground"):
            self.refusals[data["ground"]] = self.refusals.get(data["ground"], 0) + 1
        for advice in data.get("advised", []):
            if advice not in self.advised:
                self.advised.append(advice)
        del self.advised[:-ADVICE_LIMIT]
