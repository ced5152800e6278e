"""Dialects: a well-formed transcript as the messages a partner's interface expects.

What the partner gave us in this very dialect goes back word for word.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from onrecord.errors import InvalidInput
from onrecord.views.transcript import well_formed

if TYPE_CHECKING:
    from collections.abc import Iterable

    from onrecord.log.items import Item


def to_messages(items: Iterable[Item], dialect: str) -> list[dict[str, Any]]:
    """Messages for `anthropic` or `openai`, or the items themselves (`neutral`), always well formed."""
    whole = well_formed(items)
    if dialect == "neutral":
        return whole
    if dialect == "openai":
        return [message for group in _groups(whole, dialect) for message in _openai(group)]
    if dialect == "anthropic":
        return _merge([message for group in _groups(whole, dialect) for message in _anthropic(group)])
    raise InvalidInput(f"unknown dialect {dialect!r}", hint="one of neutral, openai, anthropic")


def _groups(items: list[Item], dialect: str) -> list[list[Item]]:
    """Items that came as one message of this dialect and are still together form one group."""
    groups: list[list[Item]] = []
    index = 0
    while index < len(items):
        verbatim = items[index].get("verbatim") or {}
        spans = verbatim.get("spans", 1) if verbatim.get("format") == dialect else 1
        groups.append(items[index : index + spans])
        index += spans
    return groups


def _kept(group: list[Item], dialect: str) -> dict[str, Any] | None:
    verbatim = group[0].get("verbatim") or {}
    whole = verbatim.get("format") == dialect and verbatim.get("spans") == len(group)
    return verbatim["message"] if whole else None


def _openai(group: list[Item]) -> list[dict[str, Any]]:
    kept = _kept(group, "openai")
    return [kept] if kept else [_openai_message(item) for item in group]


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


def _anthropic(group: list[Item]) -> list[dict[str, Any]]:
    kept = _kept(group, "anthropic")
    if kept:
        return [kept]
    return [_anthropic_message(item) for item in group]


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


def _merge(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Results of one assistant message belong into one user message, together with what the user said then."""
    merged: list[dict[str, Any]] = []
    for message in messages:
        before = merged[-1] if merged else None
        if before and before["role"] == message["role"] == "user" and _has_results(before):
            merged[-1] = {"role": "user", "content": [*before["content"], *_parts(message["content"])]}
        else:
            merged.append(message)
    return merged


def _has_results(message: dict[str, Any]) -> bool:
    return isinstance(message["content"], list) and any(
        part.get("type") == "tool_result" for part in message["content"]
    )


def _parts(content: Any) -> list[Any]:
    return content if isinstance(content, list) else [{"type": "text", "text": content}]
