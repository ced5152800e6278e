"""Recording a whole turn from the command line: one durable commit, in the agent's own lane."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

from onrecord.log.head import refuse_work
from onrecord.surfaces.cli.shared.call import pairs
from onrecord.surfaces.cli.shared.exits import UsageError
from onrecord.surfaces.cli.shared.output import counted
from onrecord.surfaces.cli.shared.shapes import receipt_data

if TYPE_CHECKING:
    from onrecord.log.item_values import Item
    from onrecord.surfaces.cli.shared.call import Call
    from onrecord.views.values import ModelUsage

_SPOKEN = frozenset({"user", "assistant", "tool"})


def record(call: Call) -> int:
    """Take the lane, record the turn, give the lane back."""
    items = _from_options(call) or _from_stdin(call)
    session = call.session(agent="main")
    known = session.head.position
    refuse_work(session.head)  # before the lane is taken: a refused turn leaves no trace
    session.acquire(takeover="takeover" in call)
    with session:
        event = session.record_turn(items, usage=_usage(call), id=call.get("id"))
        state = "recorded" if event.position > known else "already_recorded"
    data = receipt_data(session.head, event, state) | {"agent": session.agent, "items": len(items)}
    where = f"a turn of {session.agent} at position {event.position}"
    sentence = f"{state.replace('_', ' ')} {where}: {counted(len(items), 'item')}"
    return call.output.done("turn", data, sentence)


def _from_options(call: Call) -> list[Item]:
    """Items in the order the options were given; a tool's call belongs to what the assistant said before it."""
    items: list[Item] = []
    for name, value in call.given:
        if name not in _SPOKEN:
            continue
        if name == "tool":
            _add_tool(items, value)
        else:
            items.append({"role": name, "content": value})
    return items


def _add_tool(items: list[Item], value: str) -> None:
    ((name, result),) = pairs([value], "--tool CALL=RESULT")
    number = 1 + sum(item["role"] == "tool" for item in items)
    caller = next((item for item in reversed(items) if item["role"] != "tool"), None)
    if caller is None or caller["role"] != "assistant":
        caller = {"role": "assistant", "content": ""}
        items.append(caller)
    caller.setdefault("tool_calls", []).append({"id": f"c{number}", "name": name, "arguments": {}})
    items.append({"role": "tool", "call": f"c{number}", "content": result})


def _from_stdin(call: Call) -> list[Any]:
    if sys.stdin.isatty():
        raise UsageError(
            "nothing to record: give --user, --assistant or --tool, or JSON items on standard input",
            hint=f"for example: `{call.verb.example}`",
        )
    text = sys.stdin.read()
    try:
        values = _values(text)
    except ValueError as problem:
        raise UsageError(
            f"standard input is not JSON items: {problem}",
            hint='write a list, or one {"role": "user", "content": "..."} per line',
        ) from None
    if not values:
        raise UsageError("nothing to record: standard input is empty", hint=f"for example: `{call.verb.example}`")
    return values


def _values(text: str) -> list[Any]:
    """A JSON list, one JSON object, or one object per line."""
    if not text.strip():
        return []
    try:
        whole = json.loads(text)
    except ValueError:
        return [json.loads(line) for line in text.splitlines() if line.strip()]
    return whole if isinstance(whole, list) else [whole]


def _usage(call: Call) -> ModelUsage | None:
    if not any(name in call for name in ("model", "input-tokens", "output-tokens", "cost")):
        return None
    return {
        "model": call.get("model"), "input_tokens": call.number("input-tokens", 0) or 0,
        "output_tokens": call.number("output-tokens", 0) or 0, "cost": call.amount("cost"),
    }  # fmt: skip
