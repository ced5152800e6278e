"""Events and states of ADK as JSON, and what they say: the part of its adapter that keeps nothing."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from onrecord.errors import InvalidInput
from onrecord.frameworks.parsing import parsed
from onrecord.frameworks.requiring import required
from onrecord.frameworks.writing import as_line
from onrecord.log.items import make_item

with required("google-adk", "google", "2.13"):
    from google.adk.sessions.state import State
    from pydantic_core import PydanticSerializationError, to_jsonable_python

if TYPE_CHECKING:
    from google.adk.events.event import Event as AdkEvent

    from onrecord.log.item_values import Item, ToolCall


def is_same(line: str, event: AdkEvent) -> bool:
    """Whether an event is the one that a line keeps; a caller that made it again gave it another timestamp."""
    time = {"timestamp": None}
    return as_line(dict(parsed(line)) | time) == as_line(dumped(event) | time)


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
        elif part.function_response:
            answer = part.function_response
            content = json.dumps(to_jsonable_python(answer.response, fallback=str), ensure_ascii=False)
            results.append({"role": "tool", "call": answer.id or answer.name, "content": content})
    role = "user" if event.author == "user" else "assistant"
    return [*results, make_item(role, "\n".join(texts), calls)] if texts or calls else results
