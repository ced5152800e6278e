"""What the chapters of verbs may rely on: `Session` brings it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from onrecord.log.events import Event
    from onrecord.views.fold import Whole


class Conducted(Protocol):
    """A session, as the chapters see it."""

    agent: str
    clock: Callable[[], float]

    @property
    def views(self) -> Whole:
        """Everything the log means at its newest position."""

    def record(self, kind: str, data: Any, *, id: str | None = None, because: int | None = None) -> Event:
        """Append one event."""

    def require_text(self, text: str, what: str, limit: int) -> str:
        """The text if it says something and is short enough."""
