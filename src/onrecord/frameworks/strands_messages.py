"""Messages of Strands as neutral items, and the other way round. Nothing of the framework is imported."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from onrecord.log.items import make_item, make_result
from onrecord.views.dialects import to_messages
from onrecord.views.parts import text_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from onrecord.frameworks.others import Said
    from onrecord.log.item_values import Item, ToolCall

_MEDIA = ("image", "document", "video")
"""Parts of a message that are files."""
_MADE_UP = [{"text": "Tool was interrupted."}]
"""What Strands puts in place of a result that it does not have."""


def neutral(message: dict[str, Any]) -> list[Item]:
    """What a message of Strands says, as neutral items."""
    texts: list[str] = []
    calls: list[ToolCall] = []
    results: list[Item] = []
    for part in message.get("content") or ():
        if "text" in part:
            texts.append(str(part["text"]))
        elif kind := next((one for one in _MEDIA if one in part), ""):
            texts.append(f"[{kind}]")
        elif "toolUse" in part:
            use = part["toolUse"]
            calls.append({"id": use["toolUseId"], "name": use["name"], "arguments": use.get("input")})
        elif "toolResult" in part:
            result = part["toolResult"]
            content = "\n".join(str(one.get("text", one)) for one in result.get("content") or ())
            results.append(make_result(result["toolUseId"], content, failed=result.get("status") == "error"))
    return [*results, make_item(message["role"], "\n".join(texts), calls)] if texts or calls else results


def from_neutral(turn: Said) -> list[dict[str, Any]]:
    """Messages of Strands that say the same as a turn of another writer; their ids say which one they repeat."""
    items = [item for item in turn.items if item["role"] != "system"]  # an agent has a system prompt of its own
    made = []
    for number, message in enumerate(to_messages(items, "anthropic")):
        content = message["content"]
        parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
        said = [
            {"role": message["role"], "content": [_part(one) for one in parts], "tracking_id": turn.copy_id(number)}
        ]
        made += said if parts else []
    return made


def _part(part: dict[str, Any]) -> dict[str, Any]:
    match part:
        case {"type": "tool_use"}:
            return {"toolUse": {"toolUseId": part["id"], "name": part["name"], "input": part["input"]}}
        case {"type": "tool_result"}:
            status = "error" if part.get("is_error") else "success"
            content = [{"text": text_of(part.get("content"))}]
            return {"toolResult": {"toolUseId": part["tool_use_id"], "status": status, "content": content}}
    return {"text": text_of([part])}


def interrupted(messages: list[Any]) -> Iterator[dict[str, Any]]:
    """The results that Strands makes up for calls without one."""
    for message in messages:
        for part in message["content"]:
            block = part.get("toolResult")
            if block and block["status"] == "error" and block["content"] == _MADE_UP:
                yield block
