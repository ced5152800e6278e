"""The types of items: what is said in a turn, in neutral form.

They are plain dicts of JSON values. Modules import this one for type checkers only: a hook starts without `typing`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NotRequired, Protocol, TypeAlias, TypedDict

Json: TypeAlias = Any
"""A JSON value: text, number, boolean, None, a list or a dict of these. The caller knows its form."""
Part: TypeAlias = dict[str, Json]
"""A part of a content: `{"type": "text", "text": ...}`, or an image or file in the form its vendor gives it."""
Content: TypeAlias = str | list[Part] | None
"""What an item says: text, or a list of parts."""


class SdkMessage(Protocol):
    """A message of a vendor's SDK, such as those of openai and anthropic."""

    def model_dump(self, *, mode: str, exclude_none: bool) -> dict[str, Json]:
        """The message as a dict."""


class ToolCall(TypedDict):
    """A tool that an assistant calls."""

    id: str
    name: str
    arguments: NotRequired[Json]


class Verbatim(TypedDict):
    """A partner's message word for word, on the first of the items that it became."""

    format: str
    message: dict[str, Json]
    spans: int
    """How many items it became."""
    spelled: NotRequired[str]
    """The message as text, where the order of its keys matters."""


class Item(TypedDict):
    """What one speaker says in a turn."""

    role: str
    """system, user, assistant or tool."""
    content: NotRequired[Content]
    tool_calls: NotRequired[list[ToolCall]]
    """The tools that an assistant calls."""
    call: NotRequired[str]
    """The id of the call that a tool's result answers."""
    error: NotRequired[bool]
    """Whether the tool failed."""
    thinking: NotRequired[bool]
    """Whether it is a model's thoughts, which are not sent to another model."""
    summary: NotRequired[bool]
    """Whether it is a vendor's summary of the conversation so far."""
    paused: NotRequired[bool]
    """Whether the model stopped in the middle of this answer, and continues when it gets it back."""
    synthesised: NotRequired[bool]
    """Whether onrecord made this result for a call that has none on record."""
    verbatim: NotRequired[Verbatim]


Message: TypeAlias = Item | Mapping[str, Json] | SdkMessage
"""What can be added to a turn: an item, or a message in a partner's format, as a dict or as an object of its SDK."""
