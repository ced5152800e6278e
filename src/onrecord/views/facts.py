"""Facts: the durable tier of the work itself: objective, reproduction, next action, decisions, scratch values."""

from __future__ import annotations

from onrecord.lean_typing import TYPE_CHECKING, ClassVar
from onrecord.views.view import View

if TYPE_CHECKING:
    from onrecord.log.events import Event
    from onrecord.views.values import Decision, Json, NextAction, Objective, Reproduction, Stamp

TEXT_LIMIT = 4_000
"""The longest objective, decision, finding or next action, in characters: facts are small."""


class Facts(View):
    """What is known and decided, each with its author, time and position."""

    KINDS: ClassVar = frozenset(
        {"session.opened", "objective.set", "reproduction.recorded", "next_action.set", "decision.made", "scratch.set",
         "session.titled"}
    )  # fmt: skip

    def __init__(self) -> None:
        self.objective: Objective | None = None
        self.reproduction: Reproduction | None = None
        self.next_action: NextAction | None = None
        self.title: str | None = None
        self.decisions: list[Decision] = []
        self.scratch: dict[str, Json] = {}
        self.metadata: dict[str, Json] = {}

    @property
    def purpose(self) -> str | None:
        """The text of the objective."""
        return self.objective["text"] if self.objective else None

    def apply(self, event: Event) -> None:
        data = event.data
        if data is None:
            return
        stamp: Stamp = {"position": event.position, "at": event.at, "by": event.by}
        match event.kind:
            case "session.opened":
                self.metadata = data.get("metadata", {})
                if data.get("objective"):
                    self.objective = {"text": data["objective"], **stamp}
            case "objective.set":
                self.objective = {"text": data["text"], **stamp}
            case "session.titled":
                self.title = data["text"]
            case "reproduction.recorded":
                self.reproduction = data | stamp
            case "next_action.set":
                self.next_action = {"text": data["text"], "command": data.get("command"), **stamp}
            case "decision.made":
                self.decisions.append({"text": data["text"], "why": data.get("why"), "because": event.because, **stamp})
            case "scratch.set":
                if data["value"] is None:
                    self.scratch.pop(data["key"], None)
                else:
                    self.scratch[data["key"]] = data["value"]
