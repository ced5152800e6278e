"""Threads of LangGraph of which payloads were erased: which numbers the other texts have, and lists that models take.

The texts of a thread are numbered by their place in it, and what was erased does not say how many texts it had. But
other events do: a new one names the number that its texts start with, and one of an earlier version names numbers in
what it says or in its shape. So every text keeps its number. One whose number cannot be known is as good as erased.
"""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from onrecord.frameworks.langgraph_puts import FRAMEWORK
from onrecord.frameworks.langgraph_values import ERASED
from onrecord.frameworks.parsing import VENDOR, parser_of
from onrecord.frameworks.requiring import required

with required("langgraph", "langgraph langchain_core", "1.2"):
    from langchain_core.messages import AIMessage, ToolMessage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from langchain_core.messages import BaseMessage

    from onrecord.session.handle import Session

FAR = 1 << 40
"""Where texts are whose number cannot be known: no text that is on record has such a number."""
ROOM = 1 << 16
"""How many numbers are left free for the texts of erased events that nothing follows which names a number."""
_FIELDS = ("all", "lines", "put", "reading", "start", "step", "writes")
_SHAPE_PARTS = frozenset(
    {"add", "fill", "ids", "metadata", "named", "no_metadata", "no_rest", "no_seen", "no_values", "no_versions", "rest",
     "seen", "set", "up", "versions", "writes"}
)  # fmt: skip


class _Row(NamedTuple):
    """What is known of the numbers of one event."""

    position: int
    texts: int
    """How many texts it has."""
    start: int | None
    is_erased: bool = False
    is_ahead: bool = False
    """It has shapes of the event that follows it, whose texts have lower numbers."""


class Starts(NamedTuple):
    """The number of the first text of each event, by position, and of the next event."""

    of: dict[int, int]
    after: int


def starts_of(session: Session, upto: int) -> Starts:
    """The numbers of a thread that has erased events."""
    starts: dict[int, int] = {}
    rows: list[_Row] = []
    kinds = ("payload.kept", "payload.retracted")
    for event in session.log.decoded(parser_of(FRAMEWORK, _FIELDS), kinds, upto=upto):
        data = event.data
        if event.kind == "payload.kept" and data is None:
            rows.append(_Row(event.position, 0, None, is_erased=True))
        elif isinstance(data, dict) and data.get(VENDOR) == FRAMEWORK:
            if event.kind == "payload.kept":
                is_ahead = "start" in data and not data.keys() & {"put", "step", "writes"}
                count = len(data.get("lines") or ())
                rows.append(_Row(event.position, count, _named_start(data), is_ahead=is_ahead))
            elif data.get("all"):  # the texts after it begin with number 0 again
                starts |= _placed(rows).of
                rows = []
    last = _placed(rows)
    return Starts(starts | last.of, last.after)


def _placed(rows: Sequence[_Row]) -> Starts:
    starts: dict[int, int] = {}
    end: int | None = 0
    highest = 0
    for row in rows:
        start = end if row.start is None else row.start
        if row.is_erased or start is None:
            end = None
        else:
            starts[row.position] = start
            highest = end = max(start + row.texts, highest)
    unknown = sum(row.texts for row in rows if row.position not in starts)
    after = highest if end is not None else highest + ROOM + unknown
    before = None if end is not None else after
    for row in reversed(rows):
        if row.is_erased:
            before = None
        elif row.position in starts:
            if not row.is_ahead:
                before = starts[row.position]
        elif before is None:
            starts[row.position] = FAR
        else:
            before = starts[row.position] = before - row.texts
    return Starts(starts, after)


def _named_start(data: dict[str, Any]) -> int | None:
    """The number of the first text of an event, if its payload names it or another number."""
    if "start" in data:
        return int(data["start"])
    with suppress(ValueError, TypeError, LookupError):
        for row in data.get("reading") or ():
            line, key = (row[0], row[2]) if isinstance(row, list) else (row["line"], row["id"])
            return int(key) - int(line)
        if data.get("step") and data.get("lines"):
            shape = json.loads(data["lines"][-1])
            if isinstance(shape, dict) and shape.keys() <= _SHAPE_PARTS:
                return int(data["step"][0]) - len(data["lines"]) + 1
    return None


def mended(messages: Sequence[BaseMessage], erased: Sequence[bool]) -> list[BaseMessage]:
    """Messages some of which were erased, so that models take them: each call has its result, each result its call."""
    made = list(messages)
    answered = {one.tool_call_id for one in messages if isinstance(one, ToolMessage)}
    called = {call["id"] for one in messages if isinstance(one, AIMessage) for call in one.tool_calls}
    open_: list[str] = []
    asking = 0
    for at, one in enumerate(messages):
        if open_ and not erased[at] and not isinstance(one, ToolMessage):
            made[asking] = _without(made[asking], open_)  # their results are gone with an erased checkpoint
            open_ = []
        if isinstance(one, AIMessage):
            open_, asking = [call["id"] or "" for call in one.tool_calls if call["id"] not in answered], at
        elif erased[at] and open_:
            made[at] = ToolMessage(ERASED, tool_call_id=open_.pop(0), id=one.id)
        elif erased[at]:
            results = _results_after(messages, at)
            unasked = [of for of in results if of.tool_call_id not in called]
            if unasked:
                called.update(of.tool_call_id for of in unasked)
                calls = [{"name": of.name or "erased", "args": {}, "id": of.tool_call_id} for of in unasked]
                made[at] = AIMessage(ERASED, tool_calls=calls, id=one.id)
        elif isinstance(one, ToolMessage) and one.tool_call_id not in called:
            made[at] = AIMessage(one.content, id=one.id)  # its call is gone with an erased checkpoint
    return made


def _without(message: Any, calls: Sequence[str]) -> AIMessage:
    """A message of a model without some of its calls."""
    left = [call for call in message.tool_calls if call["id"] not in calls]
    text = message.content if isinstance(message.content, str) else ERASED
    return AIMessage(text, tool_calls=left, id=message.id, name=message.name)


def _results_after(messages: Sequence[BaseMessage], at: int) -> list[ToolMessage]:
    found: list[ToolMessage] = []
    for one in messages[at + 1 :]:
        if not isinstance(one, ToolMessage):
            break
        found.append(one)
    return found
