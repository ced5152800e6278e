"""What the chapters of verbs may rely on: `Session` brings it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from onrecord.log.events import Draft, Event
    from onrecord.views.fold import Whole


class Conducted(Protocol):
    """A session, as the chapters see it."""

    agent: str
    run: int | None
    clock: Callable[[], float]

    @property
    def views(self) -> Whole:
        """Everything the log means at its newest position."""

    def record(self, kind: str, data: Any, *, id: str | None = None, because: int | None = None) -> Event:
        """Append one event."""

    def draft(self, kind: str, data: Any, *, id: str | None = None, because: int | None = None) -> Draft:
        """Seal an event of this handle's agent and run."""

    def append(self, *drafts: Draft) -> list[Event]:
        """Append drafts in one durable step."""

    def recall(self, id: str) -> Event | None:
        """The event with this id, if there is one."""

    def require_text(self, text: str, what: str, limit: int) -> str:
        """The text if it says something and is short enough."""
