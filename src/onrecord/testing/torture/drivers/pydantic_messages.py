"""Turns as messages of pydantic-ai, for the drivers of its two kinds of store."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from pydantic_ai.messages import ModelRequest, ModelResponse, TextPart, UserPromptPart

if TYPE_CHECKING:
    from onrecord.testing.torture.driver import Turn

MADE = datetime(2026, 1, 1, tzinfo=UTC)


def messages_of(turn: Turn) -> list[Any]:
    """The messages of a turn as a run makes them: with its id, and the time at which each was made."""
    made: dict[str, Any] = {"run_id": turn.key, "timestamp": MADE}
    return [
        ModelRequest(parts=[UserPromptPart(turn.texts[0], timestamp=MADE)], **made),
        *(ModelResponse(parts=[TextPart(text)], **made) for text in turn.texts[1:]),
    ]


def texts(messages: list[Any]) -> list[str]:
    """What was said, in order."""
    return [part.content for message in messages for part in message.parts if isinstance(part.content, str)]
