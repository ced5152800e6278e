"""Dialects: a well-formed transcript as the messages that a model API expects.

A message that came in the same dialect goes back word for word, thoughts and signatures included.
"""

from __future__ import annotations

import json
from binascii import Error, a2b_base64
from typing import TYPE_CHECKING, Any

from onrecord.errors import InvalidInput
from onrecord.log.items import to_items, without_verbatim
from onrecord.views.call_ids import with_unique_ids
from onrecord.views.parts import anthropic_content, gemini_content, openai_content, parts_of, responses_content, text_of
from onrecord.views.transcript import well_formed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from onrecord.log.item_values import Item, Json, ToolCall

APART = ("anthropic", "gemini")
"""Dialects in which the system's text is no message: see `Messages.system`."""
GOES_ON = "[the conversation continues]"
"""The first message of a user, if an API insists on one and none is on record."""


class Messages(list["Json"]):
    """What to send to a model: a list of messages in the form that its API takes, and what belongs beside it."""

    def __init__(self, messages: Iterable[Json] = (), system: str = "") -> None:
        super().__init__(messages)
        self.system = system
        """The system's text, in the formats that take it apart from the messages; else it is the first message."""
        self.tokens = 0
        """How many tokens this is, by the counter that was used."""
        self.left_out = 0
        """How many committed turns are missing here: a summary covers them, or they did not fit."""
        self.left_out_steps = 0
        """How many older steps of the open turn did not fit."""
        self.position = 0
        """The position of the log that this was made from."""

    @property
    def messages(self) -> list[Json]:
        """The messages themselves, as a plain list."""
        return list(self)


def to_messages(items: Iterable[Item], dialect: str) -> list[Json]:
    """Messages in a dialect, or the items themselves (`neutral`), always well formed."""
    whole = well_formed(items)
    if dialect == "neutral":
        return with_unique_ids(whole, dialect)
    if not isinstance(dialect, str) or dialect not in _MAKERS:
        raise InvalidInput(f"unknown message format {dialect!r}", hint=f"use neutral, {', '.join(_MAKERS)}")
    return with_unique_ids(_MAKERS[dialect]([item for item in whole if not item.get("thinking")]), dialect)


def to_prompt(items: Iterable[Item], dialect: str) -> Messages:
    """The same as what an API accepts as a request: the system's text apart where it must be, nothing empty."""
    whole = list(items)
    if dialect == "neutral":
        return Messages(to_messages(whole, dialect))
    whole = [item for item in whole if _is_sent(item, dialect)]
    if dialect not in APART:
        return Messages(to_messages(whole, dialect))
    system = "\n\n".join(text_of(item.get("content")) for item in whole if item["role"] == "system")
    made = to_messages([item for item in whole if item["role"] != "system"], dialect)
    if made and made[0]["role"] != "user":
        first = {"content": GOES_ON} if dialect == "anthropic" else {"parts": [{"text": GOES_ON}]}
        made = [{"role": "user", **first}, *made]
    return Messages(made, system)


def _is_sent(item: Item, dialect: str) -> bool:
    """Whether an item says anything that this API takes: all of it may be thoughts of another vendor's model."""
    if item.get("tool_calls") or item["role"] == "tool":
        return True
    content, kept = item.get("content"), item.get("verbatim")
    if not content or (kept and kept.get("format") == dialect):
        return bool(content)
    return bool(anthropic_content(content) if dialect == "anthropic" else parts_of(content))


def _messages(
    items: list[Item], dialect: str, make: Callable[[Item], dict[str, Any]]
) -> list[tuple[dict[str, Any], bool]]:
    """Messages, and whether each is the partner's own message, kept because all of its items are still together."""
    messages = []
    index = 0
    while index < len(items):
        verbatim = items[index].get("verbatim")
        spans = verbatim.get("spans", 1) if verbatim and verbatim.get("format") == dialect else 0
        if verbatim and spans and _still_together(items[index : index + spans], verbatim["message"], dialect):
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
    return [without_verbatim(item) for item in group] == [without_verbatim(item) for item in made]


def _openai(items: list[Item]) -> list[dict[str, Any]]:
    return [message for message, _kept in _messages(items, "openai", _openai_message)]


def _openai_message(item: Item) -> dict[str, Any]:
    if item["role"] == "tool":
        return {"role": "tool", "tool_call_id": item["call"], "content": text_of(item.get("content"))}
    calls = item.get("tool_calls")
    content = item.get("content") if item["role"] == "user" else _texts(item.get("content"))
    message: dict[str, Any] = {"role": item["role"], "content": openai_content(content)}
    if calls:
        message["tool_calls"] = [
            {"id": call["id"], "type": "function", "function": {"name": call["name"], "arguments": _json(call)}}
            for call in calls
        ]
    elif message["content"] is None:
        message["content"] = ""
    return message


def _texts(content: object) -> Any:
    """A content of someone who cannot send images."""
    return content if content is None or isinstance(content, str) else text_of(content)


def _json(call: ToolCall) -> str:
    arguments: Json = call.get("arguments", {})
    return arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)


def _responses(items: list[Item]) -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = []
    for message, kept in _messages(items, "openai-responses", _responses_message):
        made += (message["output"] if "output" in message and "type" not in message else [message]) if kept else [
            part for part in message["output"] if part
        ]  # fmt: skip
    return _with_custom_results(made)


def _with_custom_results(made: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The result of a custom tool's call has a type of its own, as the call has."""
    custom: dict[str, bool] = {}
    parts = []
    for part in made:
        kind, id_ = part.get("type"), part.get("call_id", "")
        if kind in ("function_call", "custom_tool_call"):
            custom[id_] = kind == "custom_tool_call"
        wrong = kind == "function_call_output" and custom.get(id_, False)
        parts.append({**part, "type": "custom_tool_call_output"} if wrong else part)
    return parts


def _responses_message(item: Item) -> dict[str, Any]:
    if item["role"] == "tool":
        result = {"type": "function_call_output", "call_id": item["call"], "output": text_of(item.get("content"))}
        return {"output": [result]}
    calls = item.get("tool_calls") or ()
    parts: list[dict[str, Any]] = []
    if item.get("content") or not calls:
        content = responses_content(item.get("content"), item["role"])
        parts.append({"type": "message", "role": item["role"], "content": content})
    parts += [
        {"type": "function_call", "call_id": call["id"], "name": call["name"], "arguments": _json(call)}
        for call in calls
    ]
    return {"output": parts}


def _anthropic(items: list[Item]) -> list[dict[str, Any]]:
    return _merge(_messages(items, "anthropic", _anthropic_message))


def _anthropic_message(item: Item) -> dict[str, Any]:
    content = item.get("content")
    if item["role"] == "tool":
        said = content if isinstance(content, str) else anthropic_content(content)
        result: dict[str, Any] = {"type": "tool_result", "tool_use_id": item["call"], "content": said}
        if item.get("error"):
            result["is_error"] = True
        return {"role": "user", "content": [result]}
    if not item.get("tool_calls"):
        return {"role": item["role"], "content": content if isinstance(content, str) else anthropic_content(content)}
    parts = anthropic_content(content)
    for call in item["tool_calls"]:
        parts.append({"type": "tool_use", "id": call["id"], "name": call["name"], "input": _object(call)})
    return {"role": item["role"], "content": parts}


def _object(call: ToolCall) -> dict[str, Any]:
    arguments = call.get("arguments")
    return arguments if isinstance(arguments, dict) else {"arguments": arguments}


def _merge(messages: list[tuple[dict[str, Any], bool]]) -> list[dict[str, Any]]:
    """Results of one assistant message belong in one user message, together with what the user said then."""
    merged: list[tuple[dict[str, Any], bool]] = []
    for message, kept in messages:
        before, before_kept = merged[-1] if merged else ({"role": ""}, False)
        if before["role"] == message["role"] == "user" and _has_results(before) and not (kept and before_kept):
            merged[-1] = {"role": "user", "content": [*before["content"], *_blocks(message["content"])]}, False
        else:
            merged.append((message, kept))
    return [message for message, _kept in merged]


def _has_results(message: dict[str, Any]) -> bool:
    return isinstance(message["content"], list) and any(
        part.get("type") == "tool_result" for part in message["content"]
    )


def _blocks(content: Any) -> list[Any]:
    return content if isinstance(content, list) else [{"type": "text", "text": content}]


def _gemini(items: list[Item]) -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = []
    items = _in_order_of_calls(items)
    names = _names_of_results(items)
    for message, kept in _messages(items, "gemini", lambda item: _gemini_message(item, names.get(id(item), "tool"))):
        content = _with_bytes(message) if kept else message
        if made and made[-1]["role"] == content["role"]:
            made[-1] = {"role": content["role"], "parts": [*made[-1]["parts"], *content["parts"]]}
        else:
            made.append(content)
    return made


def _in_order_of_calls(items: list[Item]) -> list[Item]:
    """Results in the order of their calls: for calls without ids, only the order says which result is whose."""
    ordered: list[tuple[int, int, Item]] = []
    group, places = 0, dict[str, int]()
    for item in items:
        if item["role"] == "tool":
            ordered.append((group, places.get(item["call"], 0), item))
            continue
        group += 1
        places = {call["id"]: place for place, call in enumerate(item.get("tool_calls") or (), 1)}
        ordered.append((group, 0, item))
    return [item for _group, _place, item in sorted(ordered, key=lambda one: one[:2])]


def _names_of_results(items: list[Item]) -> dict[int, str]:
    """The name of the tool by the identity of a result: ids of calls repeat, so the last call before it counts."""
    calls: dict[str, str] = {}
    names: dict[int, str] = {}
    for item in items:
        calls |= {call["id"]: call["name"] for call in item.get("tool_calls") or ()}
        if item["role"] == "tool" and item["call"] in calls:
            names[id(item)] = calls[item["call"]]
    return names


def _gemini_message(item: Item, name: str) -> dict[str, Any]:
    content = item.get("content")
    if item["role"] == "tool":
        said = {"error" if item.get("error") else "output": text_of(content)}
        return {"role": "user", "parts": [{"function_response": {"id": item["call"], "name": name, "response": said}}]}
    parts = gemini_content(content)
    for call in item.get("tool_calls") or ():
        parts.append({"function_call": {"id": call["id"], "name": call["name"], "args": _object(call)}})
    role = "model" if item["role"] == "assistant" else item["role"]
    return {"role": role, "parts": parts or [{"text": " "}]}


def _with_bytes(message: dict[str, Any]) -> dict[str, Any]:
    """A content as the SDK takes it: a log keeps bytes as base64 text."""
    parts = []
    for part in message.get("parts") or ():
        signature = part.get("thought_signature")
        parts.append({**part, "thought_signature": _bytes(signature)} if isinstance(signature, str) else part)
    return {"role": message.get("role", "model"), "parts": parts}


def _bytes(text: str) -> bytes:
    try:
        return a2b_base64(text.translate({ord("-"): "+", ord("_"): "/"}))
    except (Error, ValueError):
        return text.encode()


_MAKERS: dict[str, Callable[[list[Item]], list[dict[str, Any]]]] = {
    "openai": _openai, "openai-responses": _responses, "anthropic": _anthropic, "gemini": _gemini,
}  # fmt: skip
