"""Messages of pydantic-ai as JSON, read and made: what its two adapters share. Nothing of pydantic-ai is imported."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from onrecord.log.items import make_item, make_result
from onrecord.log.readings import condense, joined, reference, resolve, value_reference
from onrecord.views.parts import text_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from onrecord.log.item_values import Item, ToolCall

CARRIED = "onrecord"
"""In the metadata of a message: the position of the turn of another writer that it repeats."""
ANSWERS = ("tool-return", "retry-prompt")
"""The kinds of parts that answer a tool call."""
NOT_STARTED = "not started: the process ended before {name} ran"


def neutral(message: Any) -> list[Item]:
    """What a message says, as neutral items."""
    found: list[Item] = resolve(message, reading(message))
    return found


def reading(message: Any) -> list[Item]:
    """The same; long texts and arguments refer to the message, so they are not searched for in it."""
    parts = [(f"/parts/{at}", one) for at, one in enumerate(message.get("parts") or ()) if isinstance(one, dict)]
    return _response(message, parts) if message.get("kind") == "response" else _request(message, parts)


def _request(message: Any, parts: list[tuple[str, Any]]) -> list[Item]:
    said: list[Item] = []
    for at, part in parts:
        kind = part.get("part_kind")
        if kind in ("user-prompt", "system-prompt", "instruction"):
            role = "user" if kind == "user-prompt" else "system"
            said.append({"role": role, "content": _content(message, at, part)})
        elif kind in ANSWERS:
            failed = kind == "retry-prompt" or part.get("outcome") not in (None, "success")
            content = _content(message, at, part)
            if part.get("tool_name"):
                said.append(make_result(str(part.get("tool_call_id")), content, failed=failed))
            else:
                said.append({"role": "user", "content": content})
    return said


def _response(message: Any, parts: list[tuple[str, Any]]) -> list[Item]:
    texts: list[Any] = []
    calls: list[ToolCall] = []
    said: list[Item] = []
    for at, part in parts:
        kind = part.get("part_kind")
        if kind == "text":
            texts.append(_content(message, at, part))
        elif kind == "thinking" and part.get("content"):
            said.append({"role": "assistant", "content": _content(message, at, part), "thinking": True})
        elif kind in ("tool-call", "builtin-tool-call", "native-tool-call"):
            call, name = str(part.get("tool_call_id")), str(part.get("tool_name"))
            calls.append({"id": call, "name": name, "arguments": value_reference(f"{at}/args", part.get("args"))})
        elif kind and kind != "thinking":
            texts.append(f"[{kind}]")
    if texts or calls:
        said.append(make_item("assistant", joined(texts, "\n"), calls))
    return said


def _content(message: Any, at: str, part: Any) -> Any:
    content = part.get("content", "")
    if isinstance(content, str):
        return reference(f"{at}/content", content)
    if isinstance(content, list):
        text = "\n".join(one if isinstance(one, str) else _short(one) for one in content)
    else:
        text = json.dumps(content, ensure_ascii=False)
    return condense(message, text)


def _short(part: Any) -> str:
    """A file or another part of a prompt, in a few words."""
    if isinstance(part, dict) and part.get("kind"):
        return f"[{part['kind']}: {part.get('url') or part.get('media_type') or ''}]"
    return json.dumps(part, ensure_ascii=False)


def from_neutral(items: list[Item], position: int) -> list[dict[str, Any]]:
    """Messages of pydantic-ai that say the same as a turn of another writer.

    Neighbouring requests are one: pydantic-ai would merge them, and lose by which turn they were carried.
    """
    made: list[dict[str, Any]] = []
    names = {call["id"]: call["name"] for item in items for call in item.get("tool_calls") or ()}
    for item in items:
        if item.get("thinking"):
            continue
        if item["role"] == "assistant":
            parts: list[Any] = [{"part_kind": "text", "content": _text(item)}] if _text(item) else []
            parts += [
                {"part_kind": "tool-call", "tool_name": call["name"], "args": call.get("arguments") or {},
                 "tool_call_id": call["id"]}
                for call in item.get("tool_calls") or ()
            ]  # fmt: skip
            made.append({"kind": "response", "parts": parts, "metadata": {CARRIED: position}})
        elif item["role"] == "tool":
            _add_request(made, returned(item["call"], names.get(item["call"], "tool"), _text(item)), position)
        else:
            kind = "user-prompt" if item["role"] == "user" else "system-prompt"
            part = {"part_kind": kind, "content": _text(item), "timestamp": _now()}
            _add_request(made, {"kind": "request", "parts": [part]}, position)
    return made


def _add_request(made: list[dict[str, Any]], request: dict[str, Any], position: int) -> None:
    if made and made[-1]["kind"] == "request":
        made[-1]["parts"] += request["parts"]
    else:
        made.append(request | {"metadata": {CARRIED: position}})


Heard = set[tuple[str, Any, str]]
"""What others asked and what their tools answered: role, call and text of each."""


def heard_of(turns: Iterable[list[Item]]) -> Heard:
    """What is in the requests of these turns."""
    return {_key(item) for items in turns for item in items if item["role"] != "assistant"}


def own_reading(message: Any, heard: Heard) -> list[Item]:
    """What a message says, without copies of what others have on record.

    A request that was merged with another one is no longer marked as carried; a result of a tool of others shows it. It
    has no run, as the messages of a run have: its model may use the ids of calls again.
    """
    said = reading(message)
    if not heard or message.get("run_id"):
        return said
    keys = [_key(one) for one in resolve(message, said)]
    if not any(key in heard for key in keys if key[0] == "tool"):
        return said
    return [one for one, key in zip(said, keys, strict=True) if key not in heard]


def _key(item: Item) -> tuple[str, Any, str]:
    return item["role"], item.get("call"), _text(item)


def returned(call: str, name: str, content: str) -> dict[str, Any]:
    """A request with the result of one tool call."""
    part = {
        "part_kind": "tool-return", "tool_name": name, "tool_call_id": call, "content": content, "timestamp": _now(),
    }  # fmt: skip
    return {"kind": "request", "parts": [part]}


def _now() -> str:
    return datetime.now(UTC).isoformat()


def _text(item: Item) -> str:
    return text_of(item.get("content"))


def carried_of(line: str) -> int:
    """The position of the turn that a stored message repeats; 0 if it repeats none."""
    if f'"{CARRIED}"' not in line:
        return 0
    metadata = json.loads(line).get("metadata") or {}
    return int(metadata.get(CARRIED) or 0) if isinstance(metadata, dict) else 0


def answers(messages: list[dict[str, Any]], call: str) -> int:
    """How many results these messages have of the calls with this id."""
    return sum(item.get("call") == call for message in messages for item in neutral(message))


def unanswered(messages: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """The tool calls of these messages without a result: id and name of each."""
    calls: dict[str, str] = {}
    for message in messages:
        for item in neutral(message):
            calls.update((call["id"], call["name"]) for call in item.get("tool_calls") or ())
            calls.pop(str(item.get("call")), None)
    return list(calls.items())
