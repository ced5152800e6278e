"""The end of a handle's own lane: where its next turn begins.

The views know it too, but reading them folds what was appended since. Turns usually follow one another, so a handle
tracks its own lane with this, and reads the views only after other events.
"""

from __future__ import annotations

from onrecord.lean_typing import TYPE_CHECKING
from onrecord.views.lanes import Lanes
from onrecord.views.spend import Spend

if TYPE_CHECKING:
    from onrecord.log.events import Event
    from onrecord.views.fold import Whole

_NEWS = (Lanes.KINDS | Spend.KINDS) - {
    "turn.begun", "turn.committed", "turn.recorded", "transcript.compacted", "usage.recorded",
}  # fmt: skip
"""After these kinds the views are read again: they change a lane or a budget in other ways than turns do."""


class LaneEnd:
    """What the next turn of a lane must know, as long as it is `known`."""

    __slots__ = ("known", "last_commit", "open", "turns")

    def __init__(self) -> None:
        self.known = False
        """False: read the views. Always False in a session with a budget, since every turn is checked against it."""
        self.open = False
        self.last_commit = 0
        self.turns = 0

    def ask(self, whole: Whole, agent: str) -> None:
        """Read it from the views."""
        lane = whole.lanes.lane(agent)
        self.open, self.last_commit, self.turns = bool(lane["open"]), lane["last_commit"], lane["turns"]
        self.known = not whole.spend.budget

    def follow(self, event: Event) -> None:
        """One more event of this handle's own."""
        kind = event.kind
        if kind == "turn.recorded":
            self.turns += 1
            self.last_commit = event.position
        elif kind == "turn.begun":
            self.turns += 1
            self.open = True
        elif kind == "turn.committed":
            self.open = False
            self.last_commit = event.position
        elif kind in _NEWS:
            self.known = False
