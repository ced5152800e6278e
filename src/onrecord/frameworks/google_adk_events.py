"""Events and states of ADK as JSON, and what they say: the part of its adapter that keeps nothing."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from onrecord.errors import InvalidInput
from onrecord.frameworks.others import COPY
from onrecord.frameworks.parsing import parsed
from onrecord.frameworks.requiring import required
from onrecord.frameworks.writing import as_line
from onrecord.log.items import make_item
from onrecord.views.parts import text_of

with required("google-adk", "google", "2.13"):
    from google.adk.events.event import Event as AdkEvent
    from google.adk.sessions.state import State
    from pydantic_core import PydanticSerializationError, to_jsonable_python

if TYPE_CHECKING:
    from onrecord.frameworks.conversation import Conversation
    from onrecord.frameworks.others import Said
    from onrecord.log.item_values import Item, ToolCall


OTHERS = "another_agent"
"""The author of what others answered."""


def is_same(kept: Conversation, line: str, event: AdkEvent) -> bool:
    """Whether an event is the one that a line keeps; a caller that made it again gave it another timestamp."""
    time = {"timestamp": None}
    return kept.is_recorded(as_line(dict(parsed(line)) | time), as_line(dumped(event) | time))


def dumped(event: AdkEvent) -> dict[str, Any]:
    """An event as JSON."""
    try:
        found: dict[str, Any] = event.model_dump(mode="json", exclude_none=True)
    except PydanticSerializationError as problem:
        raise _no_json(problem) from None
    return found


def _no_json(problem: Exception) -> InvalidInput:
    return InvalidInput(f"it cannot be kept as JSON: {problem}", hint="use strings, numbers, lists and dicts")


def split(state: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """The parts of a change of state: of the session, of the app, of the user; temporary values are not kept."""
    try:
        plain = to_jsonable_python(dict(state))
    except PydanticSerializationError as problem:
        raise _no_json(problem) from None
    app = {name.removeprefix(State.APP_PREFIX): one for name, one in plain.items() if name.startswith(State.APP_PREFIX)}
    user = {
        name.removeprefix(State.USER_PREFIX): one for name, one in plain.items() if name.startswith(State.USER_PREFIX)
    }
    shared = (State.APP_PREFIX, State.USER_PREFIX, State.TEMP_PREFIX)
    return {name: one for name, one in plain.items() if not name.startswith(shared)}, app, user


def shares(app: dict[str, Any], user: dict[str, Any]) -> dict[str, Any]:
    """The part of a payload that changes shared state."""
    return {"shared": {"app": app, "user": user}} if app or user else {}


def copied(state: dict[str, Any]) -> dict[str, Any]:
    """A state that a caller may change."""
    found: dict[str, Any] = json.loads(json.dumps(state)) if state else {}
    return found


def neutral(event: AdkEvent) -> list[Item]:
    """What an event says, as neutral items."""
    texts: list[str] = []
    calls: list[ToolCall] = []
    results: list[Item] = []
    for part in (event.content.parts if event.content else None) or ():
        if part.text and not part.thought:
            texts.append(part.text)
        elif part.function_call:
            one = part.function_call
            calls.append({"id": one.id or one.name, "name": one.name, "arguments": one.args or {}})
        elif part.inline_data or part.file_data:
            texts.append(f"[{(part.inline_data or part.file_data).mime_type or 'file'}]")
        elif part.function_response:
            answer = part.function_response
            content = json.dumps(to_jsonable_python(answer.response, fallback=str), ensure_ascii=False)
            results.append({"role": "tool", "call": answer.id or answer.name, "content": content})
    role = "user" if event.author == "user" else "assistant"
    return [*results, make_item(role, "\n".join(texts), calls)] if texts or calls else results


def from_neutral(turn: Said, at: float) -> list[AdkEvent]:
    """Events that say the same as a turn of another writer; equal ones each time.

    ADK shows its models what an agent of another name did as a report: who said what, called which tool, and what it
    answered. So the calls of others are never taken for calls that wait for a result.
    """
    names = {call["id"]: call["name"] for item in turn.items for call in item.get("tool_calls") or ()}
    made: list[AdkEvent] = []
    for number, item in enumerate(turn.items):
        parts = _parts_of(item, names)
        if not parts or item.get("thinking") or item["role"] == "system":
            continue
        author, role = ("user", "user") if item["role"] == "user" else (OTHERS, "model")
        event = {
            "id": turn.copy_id(number), "invocation_id": f"{COPY}{turn.mark}", "author": author, "timestamp": at,
            "content": {"role": role, "parts": parts},
        }  # fmt: skip
        made.append(AdkEvent.model_validate(event))
    return made


def _parts_of(item: Item, names: dict[str, str]) -> list[dict[str, Any]]:
    text = text_of(item.get("content"))
    if item["role"] == "tool":
        said = {"error" if item.get("error") else "result": text}
        name = names.get(item["call"], "tool")
        return [{"function_response": {"id": item["call"], "name": name, "response": said}}]
    parts: list[dict[str, Any]] = [{"text": text}] if text else []
    for call in item.get("tool_calls") or ():
        arguments = call.get("arguments")
        args = arguments if isinstance(arguments, dict) else {"arguments": arguments}
        parts.append({"function_call": {"id": call["id"], "name": call["name"], "args": args}})
    return parts
