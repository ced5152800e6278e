"""Items of openai-agents, read and made: what the adapter and the import share. Needs nothing of openai-agents."""

from __future__ import annotations

import json
from gc import is_tracked
from typing import TYPE_CHECKING, Any

from onrecord.errors import InvalidInput
from onrecord.views.parts import responses_content, text_of

if TYPE_CHECKING:
    from onrecord.log.item_values import Item, ToolCall

FRAMEWORK = "openai-agents"
_CALLS = {"function_call": "function_call_output", "custom_tool_call": "custom_tool_call_output"}
_RESULTS = frozenset(_CALLS.values())


def fresh(item: Any) -> Any:
    """A copy of an item that shares nothing that can be changed."""
    if type(item) is dict:
        if not is_tracked(item):  # by the garbage collector: it has texts and numbers only, as most items
            return item.copy()
        return {name: fresh(part) for name, part in item.items()}
    return [fresh(part) for part in item] if type(item) is list else item


def neutral(item: Any) -> list[Item]:
    """What an item of openai-agents says, as neutral items."""
    if not isinstance(item, dict):
        raise InvalidInput(f"an item of openai-agents must be a dict, not {type(item).__name__}")
    kind = item.get("type") or "message"
    if kind == "message" and item.get("role"):
        role = {"developer": "system"}.get(item["role"], item["role"])
        if role not in ("system", "user", "assistant"):
            role = "assistant"
        return [{"role": role, "content": _content(item.get("content"))}]
    if kind in _CALLS and isinstance(item.get("call_id"), str):
        call: ToolCall = {"id": item["call_id"], "name": str(item.get("name", "")), "arguments": _parsed(item)}
        return [{"role": "assistant", "content": "", "tool_calls": [call]}]
    if kind in _RESULTS and isinstance(item.get("call_id"), str):
        return [{"role": "tool", "call": item["call_id"], "content": _content(item.get("output"))}]
    if kind == "reasoning":
        texts = [part.get("text") for part in (item.get("summary") or []) if isinstance(part, dict)]
        text = "\n".join(one for one in texts if isinstance(one, str))
        return [{"role": "assistant", "content": text, "thinking": True}] if text else []
    return [{"role": "assistant", "content": f"[{kind}]"}]


def _parsed(item: dict[str, Any]) -> Any:
    given = item.get("arguments", item.get("input"))
    try:
        return json.loads(given) if isinstance(given, str) else given
    except (ValueError, RecursionError):
        return given


def _content(content: Any) -> Any:
    if not isinstance(content, list):
        return content if isinstance(content, str) or content is None else json.dumps(content, ensure_ascii=False)
    texts = [part.get("text") for part in content if isinstance(part, dict)]
    if len(texts) == len(content) and all(isinstance(text, str) for text in texts):
        return "\n".join(str(text) for text in texts)
    return content


def from_neutral(items: list[Item]) -> list[Any]:
    """Items of openai-agents that say the same."""
    made: list[Any] = []
    for item in items:
        if item.get("thinking"):
            continue
        if item["role"] == "tool":
            made.append(
                {"type": "function_call_output", "call_id": item["call"], "output": text_of(item.get("content"))}
            )
            continue
        if item.get("content"):
            role = item["role"]
            made.append({"role": role, "content": responses_content(item["content"], role)})
        made += [
            {
                "type": "function_call", "call_id": call["id"], "name": call["name"],
                "arguments": _argument_text(call.get("arguments")),
            }
            for call in item.get("tool_calls") or ()
        ]  # fmt: skip
    return made


def _argument_text(arguments: Any) -> str:
    return arguments if isinstance(arguments, str) else json.dumps(arguments or {}, ensure_ascii=False)
