"""Google's message parts, which Gemini CLI and Qwen Code keep: text, thoughts, function calls and responses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from onrecord.log.items import make_item, make_result
from onrecord.vendors.base import text

if TYPE_CHECKING:
    from onrecord.log.item_values import Item, ToolCall


def items_of(role: str, parts: object) -> list[Item]:
    """The neutral items of a message's parts, results first as they answer what came before."""
    if isinstance(parts, str):
        return [{"role": role, "content": parts}] if parts else []
    dicts = [part for part in parts if isinstance(part, dict)] if isinstance(parts, list) else []
    results = [result_of(part["functionResponse"]) for part in dicts if isinstance(part.get("functionResponse"), dict)]
    calls = [part["functionCall"] for part in dicts if isinstance(part.get("functionCall"), dict)]
    words = [text(part.get("text")) for part in dicts if isinstance(part.get("text"), str) and not part.get("thought")]
    spoken = ("functionCall", "functionResponse", "text")
    others = [part for part in dicts if part.get("thought") or not any(name in part for name in spoken)]
    said: list[Item] = []
    if words or calls or others:
        content: Any = "\n".join(words)
        if others:
            content = [*({"type": "text", "text": one} for one in words), *others]
        said = [make_item(role, content, calls_of(calls))]
    return results + said


def calls_of(calls: list[dict[str, Any]]) -> list[ToolCall]:
    """Tool calls; one without an id gets its index as id."""
    made: dict[str, ToolCall] = {}
    for index, call in enumerate(calls):
        name = text(call.get("name"))
        id_ = text(call.get("id")) or f"{name}-{index}"
        made[id_] = {"id": id_, "name": name, "arguments": call.get("args", {})}
    return list(made.values())


def result_of(response: dict[str, Any]) -> Item:
    """A tool's result."""
    name = text(response.get("name"))
    answer = response.get("response")
    output: object = answer
    failed = False
    if isinstance(answer, dict):
        failed = "error" in answer
        output = answer["error"] if failed else answer.get("output", answer)
    return make_result(text(response.get("id")) or f"{name}-0", words_of(output), failed=failed)


def words_of(output: object) -> str:
    """A result as text."""
    import json

    return output if isinstance(output, str) else json.dumps(output, ensure_ascii=False)
