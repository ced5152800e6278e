"""The lifecycle: the steps that led to the session's present status. (The status itself is in the head.)"""

from __future__ import annotations

from onrecord.views.view import View

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, ClassVar

    from onrecord.log.events import Event
    from onrecord.views.values import Interruption, Parent, Step


INTERRUPTIONS_KEPT = 20
"""How many interruptions are listed; older ones are only in the log."""


class Lifecycle(View):
    """Every step with time, actor and reason; what was held, forked, imported and erased."""

    KINDS: ClassVar = frozenset(
        {"session.opened", "session.paused", "session.resumed", "session.closed", "session.archived", "session.renamed",
         "session.forked", "session.held", "session.released", "payload.erased",
         "interruption.recorded"}
    )  # fmt: skip

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.names: list[str] = []
        self.place = ""
        """The project's directory, where the session was opened or last moved to."""
        self.parent: Parent | None = None
        self.erased: int = 0
        self.interruption: Interruption | None = None
        self.interruptions: list[Interruption] = []
        """The last ones, oldest first, also those that are over."""

    def apply(self, event: Event) -> None:
        data = event.data or {}
        if event.kind == "interruption.recorded":
            told: Any = {"position": event.position, "at": event.at, "by": event.by}
            self.interruption = told | data
            self.interruptions.append(told | data)
            del self.interruptions[:-INTERRUPTIONS_KEPT]
            return
        if event.kind == "payload.erased":
            self.erased += data.get("count", 0)
        if "name" in data:
            self.names.append(data["name"])
        if data.get("place"):
            self.place = str(data["place"])
        if data.get("parent"):
            self.parent = data["parent"]
        if event.kind == "session.resumed":
            self.interruption = None
        self.steps.append(
            {
                "position": event.position,
                "at": event.at,
                "by": event.by,
                "run": event.run,
                "step": event.kind.partition(".")[2],
                "reason": data.get("reason", ""),
            }
        )
