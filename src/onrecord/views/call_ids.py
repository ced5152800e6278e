"""Ids of tool calls: unique within the messages that are sent, as vendors require.

Gemini's calls may have no id, and some engines number their calls from 1 in every answer, so ids repeat on record. A
call whose id was used before gets another one here, and so does its result.
"""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, Any

from onrecord.log.partners import ID_LIMIT

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

CALL, RESULT = "call", "result"
_Place = tuple[str, dict[str, Any], str]
"""Where an id is: of a call or of a result, the dict that has it, and the field's name."""


def with_unique_ids(messages: Iterable[Any], dialect: str) -> list[Any]:
    """The same messages, well formed, with ids that do not repeat."""
    made, seen = [], set[str]()
    present: dict[str, str] = {}
    """The ids of the calls that are being answered, and those that they have here."""
    answering = False
    for message in messages:
        ids: list[str | None] = []
        for kind, holder, field in _places(message, dialect):
            id_ = holder.get(field)
            if kind == CALL:
                present, answering = ({} if answering else present), False
                if id_ is not None:
                    present[id_] = _unused(_accepted(id_, dialect), seen)
                    seen.add(present[id_])
            else:
                answering = True
            # In Gemini's format a call may have no id; then its result has none.
            ids.append(present.get(id_, None if dialect == "gemini" else id_) if id_ else id_)
        made.append(_with_ids(message, dialect, ids))
    return made


def _with_ids(message: Any, dialect: str, ids: list[str | None]) -> Any:
    """A message with these ids (None: without one); the same object if it has them already."""
    if [holder.get(field) for _kind, holder, field in _places(message, dialect)] == ids:
        return message
    copy = deepcopy(message)
    for (_kind, holder, field), id_ in zip(list(_places(copy, dialect)), ids, strict=True):
        if id_ is None:
            holder.pop(field, None)
        else:
            holder[field] = id_
    return copy


def _unused(id_: str, seen: set[str]) -> str:
    number, free = 1, id_
    while free in seen:
        number += 1
        tail = f"-{number}"
        free = f"{id_[: ID_LIMIT - len(tail)]}{tail}"
    return free


def _accepted(id_: str, dialect: str) -> str:
    """An id with the letters that the vendor accepts."""
    if dialect != "anthropic":
        return id_
    return "".join(letter if letter.isascii() and (letter.isalnum() or letter in "_-") else "_" for letter in id_)


def _places(message: dict[str, Any], dialect: str) -> Iterator[_Place]:
    """Where a message has ids of calls and results, in their order."""
    if dialect == "anthropic":
        for part in _dicts(message["content"]):
            if part.get("type") == "tool_use":
                yield CALL, part, "id"
            elif part.get("type") == "tool_result":
                yield RESULT, part, "tool_use_id"
    elif dialect == "gemini":
        for part in _dicts(message["parts"]):
            for kind, names in _GEMINI.items():
                for holder in _dicts([part.get(name) for name in names]):
                    yield kind, holder, "id"
    elif dialect == "openai-responses":
        kind = str(message.get("type"))
        if "call_id" in message:
            yield RESULT if kind.endswith("_output") else CALL, message, "call_id"
        if kind == "local_shell_call_output" and "id" in message:
            yield RESULT, message, "id"
    else:
        for call in _dicts(message.get("tool_calls")):
            yield CALL, call, "id"
        field = "tool_call_id" if dialect == "openai" else "call"
        if message.get("role") == "tool":
            yield RESULT, message, field


_GEMINI = {CALL: ("function_call", "functionCall"), RESULT: ("function_response", "functionResponse")}


def _dicts(value: object) -> list[dict[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []
