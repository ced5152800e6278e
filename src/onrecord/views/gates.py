"""Gates: what was refused, advised and overridden so far, so that no refusal loops and no advice repeats."""

from __future__ import annotations

from onrecord.views.view import View

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import ClassVar

    from onrecord.log.events import Event
    from onrecord.views.values import Override

ADVICE_LIMIT = 1_000
"""How many pieces of advice are remembered as given."""
GROUNDS_LIMIT = 1_000
"""How many grounds of refusals are counted; the oldest are forgotten first."""


def ground(rule: str, agent: str, positions: tuple[int, ...]) -> str:
    """What a refusal rests on; the same refusal has the same ground."""
    return f"{rule}/{agent}/{','.join(map(str, positions))}"


class Gates(View):
    """Refusals by their ground, grounds that were overridden, and advice that was delivered."""

    KINDS: ClassVar = frozenset({"gate.decided", "gate.overridden"})

    def __init__(self) -> None:
        self.refusals: dict[str, int] = {}
        self.overridden: dict[str, Override] = {}
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
        refused = data.get("ground") if data["decision"] != "allow" else None
        if refused:
            self.refusals[refused] = self.refusals.get(refused, 0) + 1
            while len(self.refusals) > GROUNDS_LIMIT:
                del self.refusals[next(iter(self.refusals))]
        for advice in data.get("advised", []):
            if advice not in self.advised:
                self.advised.append(advice)
        del self.advised[:-ADVICE_LIMIT]
