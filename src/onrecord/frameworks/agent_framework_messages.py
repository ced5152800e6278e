"""Messages of agent-framework as JSON, read and made. Nothing of the framework is imported."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from onrecord.frameworks.tool_calls import said_of
from onrecord.log.items import make_item, make_result
from onrecord.log.readings import condense, joined, reference, resolve, value_reference
from onrecord.views.parts import text_of

if TYPE_CHECKING:
    from onrecord.frameworks.tool_calls import Effect
    from onrecord.log.item_values import Item, ToolCall


def message_of(role: str, contents: list[dict[str, Any]]) -> dict[str, Any]:
    """A message as data."""
    return {"type": "message", "role": role, "contents": contents}


def neutral(message: dict[str, Any]) -> list[Item]:
    """What a message of agent-framework says, as neutral items."""
    found: list[Item] = resolve(message, reading(message))
    return found


def reading(message: dict[str, Any]) -> list[Item]:
    """The same; long texts and arguments refer to the message, so they are not searched for in it."""
    role = str(message.get("role") or "assistant")
    texts: list[Any] = []
    calls: list[ToolCall] = []
    said: list[Item] = []
    for number, part in enumerate(message.get("contents") or ()):
        kind, at = part.get("type"), f"/contents/{number}"
        if kind == "text":
            texts.append(reference(f"{at}/text", str(part.get("text") or "")))
        elif kind == "function_call" and part.get("call_id"):
            calls.append({"id": part["call_id"], "name": str(part.get("name")), "arguments": _arguments(at, part)})
        elif kind == "function_result" and part.get("call_id"):
            failed = bool(part.get("exception"))
            said.append(make_result(part["call_id"], _text_of(message, at, part), failed=failed))
        elif kind == "text_reasoning":
            if part.get("text"):
                text = reference(f"{at}/text", str(part["text"]))
                said.append({"role": "assistant", "content": text, "thinking": True})
        else:
            texts.append(f"[{kind}: {part.get('media_type') or ''}]" if part.get("media_type") else f"[{kind}]")
    if texts or calls:
        role = role if role in ("system", "user", "assistant") else "assistant"
        said.append(make_item(role, joined(texts, "\n"), calls))
    return said


def _arguments(at: str, part: dict[str, Any]) -> Any:
    return value_reference(f"{at}/arguments", part.get("arguments"))


def _text_of(message: dict[str, Any], at: str, part: dict[str, Any]) -> Any:
    name = "result" if "result" in part else "exception"
    result = part.get(name)
    if isinstance(result, str):
        return reference(f"{at}/{name}", result)
    return condense(message, json.dumps(result, ensure_ascii=False))


def from_neutral(items: list[Item]) -> list[dict[str, Any]]:
    """Messages of agent-framework that say the same."""
    made: list[dict[str, Any]] = []
    for item in items:
        if item.get("thinking"):
            continue
        said = text_of(item.get("content"))
        if item["role"] == "tool":
            part = {"type": "function_result", "call_id": item["call"], "result": said}
            made.append(message_of("tool", [part]))
            continue
        parts: list[dict[str, Any]] = [{"type": "text", "text": said}] if said else []
        parts += [
            {"type": "function_call", "call_id": call["id"], "name": call["name"],
             "arguments": call.get("arguments") or {}}
            for call in item.get("tool_calls") or ()
        ]  # fmt: skip
        made.append(message_of(item["role"], parts))
    return made


def open_calls(messages: list[dict[str, Any]]) -> set[str]:
    """The ids of the calls that these messages have without a result."""
    open_: set[str] = set()
    for part in (part for message in messages for part in message.get("contents") or ()):
        if part.get("type") == "function_call":
            open_.add(part.get("call_id"))
        elif part.get("type") == "function_result":
            open_.discard(part.get("call_id"))
    return open_


def unsaved(effect: Effect, *, is_asked: bool) -> list[dict[str, Any]]:
    """A tool call of a run that ended before it saved its result: the call and what is known of the result."""
    call = {"type": "function_call", "call_id": effect.call, "name": effect.name, "arguments": effect.arguments or {}}
    result = {"type": "function_result", "call_id": effect.call, "result": said_of(effect)}
    return [*([] if is_asked else [message_of("assistant", [call])]), message_of("tool", [result])]
