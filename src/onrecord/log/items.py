"""Items: the neutral form of what is said in a turn, and how partners' messages become it.

An item is a dict: `role` (system, user, assistant, tool) and `content` (text or a list of parts); an assistant's
`tool_calls` are `[{"id", "name", "arguments"}]`; a tool's result names its `call` and may be an `error`. What a
partner gave us is kept word for word in `verbatim`: `{"format", "message", "spans"}` on the first of the `spans`
items it became.
"""

from __future__ import annotations

from onrecord.errors import InvalidInput
from onrecord.lean_typing import TYPE_CHECKING, Any
from onrecord.log.codec import NESTING_LIMIT, plain
from onrecord.log.partners import (
    OWN_CALLS,
    OWN_RESULTS,
    PAUSED,
    Unchecked,
    arguments_of,
    from_gemini,
    from_responses,
    plain_message,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from onrecord.log.item_values import Content, Item, ToolCall

ROLES = ("system", "user", "assistant", "tool")
FORMATS = ("openai", "openai-responses", "anthropic", "gemini")
_SPEAKERS = ("system", "user", "assistant")
ITEMS_LIMIT = 1_000
"""The most items of one recorded turn."""
_ROOM_FOR_ARGUMENTS = NESTING_LIMIT - 5
"""How deep the arguments of a plain call may be nested: they are inside a call, a list, an item, a list and a
payload."""


def check_item(item: object) -> Item:
    """Return the item if it has the neutral form; if not, raise one clear error."""
    if not isinstance(item, dict):
        raise InvalidInput(
            f"an item must be a dict, not {type(item).__name__}", hint='like {"role": "user", "content": "..."}'
        )
    role = item.get("role")
    if role not in ROLES:
        raise InvalidInput(f"an item's role is one of {', '.join(ROLES)}, not {role!r}")
    if not isinstance(item.get("content"), str | list | None):
        raise InvalidInput(
            "an item's content must be text or a list of parts",
            hint='like "..." or [{"type": "text", "text": "..."}]; json.dumps makes text of a value',
        )
    if role == "tool" and not isinstance(item.get("call"), str):
        raise InvalidInput(
            "a tool result needs the id of the call it answers", hint='like {"role": "tool", "call": "c1", ...}'
        )
    if "verbatim" in item:
        _check_verbatim(item["verbatim"])
    calls = item.get("tool_calls")
    if calls is not None:
        _check_calls(calls, role)
    return _checked(item)


def _checked(item: Any) -> Item:
    made: Item = item
    return made


def _check_calls(calls: object, role: object) -> None:
    if role != "assistant" or not isinstance(calls, list):
        raise InvalidInput("tool_calls must be a list, and only an assistant's item may have it")
    seen: set[str] = set()
    for call in calls:
        if not isinstance(call, dict) or not isinstance(call.get("id"), str) or not isinstance(call.get("name"), str):
            raise InvalidInput("a tool call needs an id, a name and arguments", hint=f"this one is {call!r:.100}")
        if call["id"] in seen:
            raise InvalidInput(f"two tool calls of one item have the same id {call['id']!r}")
        seen.add(call["id"])


def make_item(role: str, content: Content, calls: list[ToolCall]) -> Item:
    """What is said in a role, and the tools that are called, if any."""
    item: Item = {"role": role, "content": content}
    if calls:
        item["tool_calls"] = calls
    return item


def make_result(call: str, content: Content, *, failed: bool) -> Item:
    """The result of a tool call."""
    item: Item = {"role": "tool", "call": call, "content": content}
    if failed:
        item["error"] = True
    return item


def without_verbatim(item: Item) -> Item:
    """A copy of an item, without its partner's message."""
    bare = item.copy()
    bare.pop("verbatim", None)
    return bare


def text_of(item: Item) -> str:
    """The text of an item, without images and other parts."""
    content = item.get("content")
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    return "\n".join(str(part.get("text") or "") for part in parts if isinstance(part, dict))


def _check_verbatim(kept: object) -> None:
    if (
        not isinstance(kept, dict)
        or kept.get("format") not in FORMATS
        or not isinstance(kept.get("message"), dict)
        or not isinstance(kept.get("spans"), int)
        or kept["spans"] < 1
    ):
        raise InvalidInput("verbatim needs a known message format", hint=f"use one of {', '.join(FORMATS)}")


def to_items(message: object, format: str | None = None, *, former: bool = False) -> list[Item]:
    """The neutral items of a message: neutral already, or in a partner's format (named, or recognised by its shape).

    `former` makes the items that older versions made of it, which are on record.
    """
    message = plain_message(message)
    if not isinstance(message, dict):
        return [check_item(message)]
    item = plain_item(message, format)
    if item is not None:
        return [item]
    if format not in (None, "neutral", *FORMATS):
        raise InvalidInput(f"unknown message format {format!r}", hint=f"use one of {', '.join(FORMATS)}")
    spoken = format or _shape(message)
    read = _READERS.get(spoken)
    if read is None:
        return [check_item(message)]
    try:
        items = [check_item(item) for item in read(message, former=former)]
    except (AttributeError, TypeError):  # a part of it has another type than the format says
        raise InvalidInput(
            f"this is not a message in the format {spoken}", hint="pass it as the API or its SDK returned it"
        ) from None
    items[0]["verbatim"] = {"format": spoken, "message": message, "spans": len(items)}
    return items


def plain_item(message: object, format: str | None = None) -> Item | None:
    """A copy in canonical form of an item that is only role and text, a tool's result or an assistant's calls.

    Most items are, and need no further check; any other item returns None.
    """
    if type(message) is not dict or not (format is None or format == "neutral"):
        return None
    role, content = message.get("role"), message.get("content")
    if type(role) is not str or type(content) is not str:
        return None
    if len(message) == 2:  # noqa: PLR2004 - role and content
        return {"content": content, "role": role} if role in _SPEAKERS else None
    if len(message) != 3:  # noqa: PLR2004 - and one more
        return None
    if role == "tool":
        call = message.get("call")
        return {"call": call, "content": content, "role": role} if type(call) is str else None
    calls = _plain_calls(message.get("tool_calls")) if role == "assistant" else None
    return None if calls is None else {"content": content, "role": role, "tool_calls": calls}


def _plain_calls(calls: object) -> list[ToolCall] | None:
    """A copy in canonical form of tool calls, each with an id of its own."""
    if type(calls) is not list:
        return None
    copies: dict[str, ToolCall] = {}
    for call in calls:
        if type(call) is not dict or len(call) != 3 or "arguments" not in call:  # noqa: PLR2004 - id, name, arguments
            return None
        id_, name = call.get("id"), call.get("name")
        if type(id_) is not str or type(name) is not str or id_ in copies:
            return None
        try:
            arguments = plain(call["arguments"], _ROOM_FOR_ARGUMENTS)
        except (TypeError, ValueError):
            return None  # the full check reports what is wrong
        copies[id_] = {"arguments": arguments, "id": id_, "name": name}
    return list(copies.values())


def _shape(message: Unchecked) -> str:
    if "tool_call_id" in message:
        return "openai"
    if isinstance(message.get("output"), list) or message.get("type") in _RESPONSE_PARTS:
        return "openai-responses"
    if isinstance(message.get("parts"), list):
        return "gemini"
    for call in _dicts(message.get("tool_calls")):
        if "function" in call or "custom" in call:
            return "openai"
    for part in _dicts(message.get("content")):
        if part.get("type") in ("tool_use", "tool_result", "thinking"):
            return "anthropic"
    return "neutral"


def _dicts(value: object) -> list[Unchecked]:
    return [part for part in value if isinstance(part, dict)] if isinstance(value, list) else []


def is_paused(item: Item) -> bool:
    """Whether the model stopped in the middle of this answer, and continues when it gets it back."""
    if item.get("paused"):
        return True
    parts = _dicts(item.get("content"))
    return is_open_call(parts[-1]) if parts and item["role"] == "assistant" else False


def is_open_call(part: Unchecked) -> bool:
    """Whether a part is the call of a tool that Anthropic runs; its result is another part, after it."""
    return part.get("type") in ("server_tool_use", "mcp_tool_use")


def _from_openai(message: Unchecked, *, former: bool = False) -> list[Unchecked]:
    role = "system" if message.get("role") == "developer" else message.get("role")
    content, refusal = message.get("content"), message.get("refusal")
    spoken = message.get("audio")
    if isinstance(spoken, dict) and not content and not former:
        content = spoken.get("transcript") or content
    item: Unchecked = {"role": role, "content": refusal if isinstance(refusal, str) and not content else content}
    if role == "tool":
        item["call"] = message.get("tool_call_id")
    if message.get("tool_calls"):
        item["tool_calls"] = [_openai_call(call) for call in _dicts(message["tool_calls"])]
    return [item]


def _openai_call(call: Unchecked) -> Unchecked:
    """A call of a function; or of a custom tool, whose input is text."""
    function, custom = call.get("function") or {}, call.get("custom") or {}
    arguments = custom.get("input") if custom else arguments_of(function.get("arguments"))
    return {"id": call.get("id"), "name": (custom or function).get("name"), "arguments": arguments}


def _from_anthropic(message: Unchecked, *, former: bool = False) -> list[Unchecked]:
    parts = message.get("content")
    if not isinstance(parts, list):
        return [{"role": message.get("role"), "content": parts}]
    results = [
        {"role": "tool", "call": part.get("tool_use_id"), "content": part.get("content", "")}
        | ({"error": True} if part.get("is_error") else {})
        for part in _dicts(parts)
        if part.get("type") == "tool_result"
    ]
    calls = [
        {"id": part.get("id"), "name": part.get("name"), "arguments": part.get("input")}
        for part in _dicts(parts)
        if part.get("type") == "tool_use"
    ]
    rest = [part for part in parts if not (isinstance(part, dict) and part.get("type") in ("tool_use", "tool_result"))]
    said: list[Unchecked] = []
    if rest or calls or not results:
        said = [{"role": message.get("role"), "content": _plain(rest)} | ({"tool_calls": calls} if calls else {})]
        if message.get("stop_reason") == PAUSED and not former:
            said[0]["paused"] = True
    return results + said


def _plain(parts: list[Any]) -> object:
    if all(isinstance(part, dict) and part.get("type") == "text" and set(part) == {"type", "text"} for part in parts):
        return "\n".join(part["text"] for part in parts)
    return parts


_RESPONSE_PARTS = (
    "function_call", "function_call_output", "custom_tool_call", "custom_tool_call_output", "reasoning",
    "mcp_approval_request", "mcp_approval_response", "image_generation_call", *OWN_CALLS, *OWN_RESULTS,
)  # fmt: skip
_READERS: dict[str, Callable[..., list[Unchecked]]] = {
    "openai": _from_openai, "openai-responses": from_responses, "anthropic": _from_anthropic, "gemini": from_gemini,
}  # fmt: skip
