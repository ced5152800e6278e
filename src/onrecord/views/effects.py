"""Effects: side effects that were started and are not finished on record.

The key of an effect is in its event ids, so that this view outlives the erasure of arguments and results.
"""

from __future__ import annotations

from onrecord.lean_typing import TYPE_CHECKING, ClassVar
from onrecord.views.view import View

if TYPE_CHECKING:
    from onrecord.log.events import Event
    from onrecord.views.values import Effect

KEY_LIMIT = 128
"""The longest key of an effect, in characters."""


def effect_id(key: str, step: str, number: int) -> str:
    """The event id of one step (started, finished) of the `number`th try of an effect."""
    return f"effect/{number}/{step}/{key}"


def key_of(id: str) -> str:
    """The key of the effect whose step has this event id; another id is its own key."""
    parts = id.split("/", 3)
    return parts[3] if parts[0] == "effect" and len(parts) == 4 else id  # noqa: PLR2004 - the parts of effect_id


class Effects(View):
    """Unfinished effects by key. On resume these are *unknown*: never silently run again, never dropped."""

    KINDS: ClassVar = frozenset({"effect.started", "effect.finished"})

    def __init__(self) -> None:
        self.unfinished: dict[str, Effect] = {}

    def apply(self, event: Event) -> None:
        key = key_of(event.id)
        if event.kind == "effect.started":
            self.unfinished[key] = {"position": event.position, "at": event.at, "by": event.by, "run": event.run}
        else:
            self.unfinished.pop(key, None)
