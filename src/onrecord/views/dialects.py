"""Dialects: a well-formed transcript as the messages a partner's interface expects.

A message that came in the same dialect goes back word for word.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from onrecord.errors import InvalidInput
from onrecord.log.items import to_items
from onrecord.log.readings import MEDIA
from onrecord.views.transcript import well_formed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from onrecord.log.items import Item


def to_messages(items: Iterable[Item], dialect: str) -> list[dict[str, Any]]:
    """Messages for `anthropic` or `openai`, or the items themselves (`neutral`), always well formed."""
    whole = well_formed(items)
    if dialect == "neutral":
        return whole
    whole = [_sayable(item) for item in whole if not item.get("thinking")]
    if dialect == "openai":
        return [message for message, _kept in _messages(whole, dialect, _openai_message)]
    if dialect == "anthropic":
        return _merge(_messages(whole, dialect, _anthropic_message))
    raise InvalidInput(f"unknown dialect {dialect!r}", hint="use neutral, openai or anthropic")


def _sayable(item: Item) -> Item:
    """An item in which an image of a mirrored conversation is named: the record has its data."""
    content = item.get("content")
    if not isinstance(content, list) or not any(
        isinstance(part, dict) and part.get("type") == MEDIA for part in content
    ):
        return item
    return {**item, "content": [_named(part) if isinstance(part, dict) else part for part in content]}


def _named(part: dict[str, Any]) -> dict[str, Any]:
    return {"type": "text", "text": media_line(part)} if part.get("type") == MEDIA else part


def media_line(part: dict[str, Any]) -> str:
    """An image or file of a mirrored conversation in one line: its type, size and place in the record."""
    where = part.get("url") or "/".join(map(str, part.get("at") or ()))
    return f"[{part.get('media_type')}, {part.get('bytes', 0):,} bytes, at {where}]"


def _messages(
    items: list[Item], dialect: str, make: Callable[[Item], dict[str, Any]]
) -> list[tuple[dict[str, Any], bool]]:
    """Messages, and whether each is the partner's own message, kept because all of its items are still together."""
    messages = []
    index = 0
    while index < len(items):
        verbatim = items[index].get("verbatim") or {}
        spans = verbatim.get("spans", 1) if verbatim.get("format") == dialect else 0
        if spans and _still_together(items[index : index + spans], verbatim["message"], dialect):
            messages.append((verbatim["message"], True))
            index += spans
        else:
            messages.append((make(items[index]), False))
            index += 1
    return messages


def _still_together(group: list[Item], message: object, dialect: str) -> bool:
    try:
        made = to_items(message, dialect)
    except InvalidInput:
        return False
    return [_bare(item) for item in group] == [_bare(item) for item in made]


def _bare(item: Item) -> Item:
    return {name: value for name, value in item.items() if name != "verbatim"}


def _openai_message(item: Item) -> dict[str, Any]:
    if item["role"] == "tool":
        return {"role": "tool", "tool_call_id": item["call"], "content": _text(item.get("content"))}
    message: dict[str, Any] = {"role": item["role"], "content": item.get("content")}
    if item.get("tool_calls"):
        message["tool_calls"] = [
            {
                "id": call["id"],
                "type": "function",
                "function": {"name": call["name"], "arguments": _text(call.get("arguments", {}))},
            }
            for call in item["tool_calls"]
        ]
    return message


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _anthropic_message(item: Item) -> dict[str, Any]:
    content = item.get("content")
    if item["role"] == "tool":
        result: dict[str, Any] = {"type": "tool_result", "tool_use_id": item["call"], "content": content or ""}
        if item.get("error"):
            result["is_error"] = True
        return {"role": "user", "content": [result]}
    if not item.get("tool_calls"):
        return {"role": item["role"], "content": content or ""}
    parts = list(content) if isinstance(content, list) else [{"type": "text", "text": content}] if content else []
    for call in item["tool_calls"]:
        arguments = call.get("arguments")
        made = arguments if isinstance(arguments, dict) else {"arguments": arguments}
        parts.append({"type": "tool_use", "id": call["id"], "name": call["name"], "input": made})
    return {"role": item["role"], "content": parts}


def _merge(messages: list[tuple[dict[str, Any], bool]]) -> list[dict[str, Any]]:
    """Results of one assistant message belong in one user message, together with what the user said then."""
    merged: list[tuple[dict[str, Any], bool]] = []
    for message, kept in messages:
        before, before_kept = merged[-1] if merged else ({"role": ""}, False)
        if before["role"] == message["role"] == "user" and _has_results(before) and not (kept and before_kept):
            merged[-1] = {"role": "user", "content": [*before["content"], *_parts(message["content"])]}, False
        else:
            merged.append((message, kept))
    return [message for message, _kept in merged]


def _has_results(message: dict[str, Any]) -> bool:
    return isinstance(message["content"], list) and any(
        part.get("type") == "tool_result" for part in message["content"]
    )


def _parts(content: Any) -> list[Any]:
    return content if isinstance(content, list) else [{"type": "text", "text": content}]
