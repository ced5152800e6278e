"""Entries of Claude's command line, read and made: the part of the SDK's adapter that keeps nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid5

from onrecord.errors import InvalidInput
from onrecord.frameworks.conversation import read_row, row
from onrecord.log.items import make_item, to_items, without_verbatim
from onrecord.log.readings import REFERENCE, joined, reference
from onrecord.views.dialects import to_messages

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onrecord.frameworks.others import Said
    from onrecord.log.item_values import Item, ToolCall

_SPACE = UUID("6f6e7265-636f-5264-8000-6f6e7265636f")
"""The namespace of the uuids of translated entries."""
_CHAINED = ("user", "assistant", "system", "attachment")
"""Entries that others continue, by their `uuid`."""
_UNKNOWN = "onrecord"
"""What a translated answer has as its model."""
_EPOCH = "1970-01-01T00:00:00.000Z"


def entry_row(number: int, key: str, entry: dict[str, Any], line: str, lane: str) -> Any:
    """What an entry says, as a row of the reading; the usual forms without a search."""
    quick = reading(entry) if "\\u" not in line else None  # an escape may be that of a lone surrogate
    if quick is not None:
        return read_row(number, key, quick, lane=lane)
    said = neutral(entry)
    return row(number, key, entry, said, lane=lane) if said else None


def reading(entry: dict[str, Any]) -> list[Item] | None:
    """What an entry says, with references to it; None if it has another form than text, tool calls and results."""
    message = entry.get("message")
    if entry.get("type") not in ("user", "assistant") or type(message) is not dict or entry.get("isMeta"):
        return None
    role, content, at = message.get("role"), message.get("content"), "/message/content"
    if role not in ("user", "assistant") or not content:
        return None
    if type(content) is str:
        return [{"role": role, "content": reference(at, content)}]
    results: list[Item] = []
    texts: list[Any] = []
    calls: list[ToolCall] = []
    for number, part in enumerate(content if type(content) is list else [None]):
        match part:
            case {"type": "text", "text": str(text)} if len(part) == 2:  # noqa: PLR2004 - nothing beside the text
                texts.append(reference(f"{at}/{number}/text", text))
            case {"type": "tool_use", "id": str(id_), "name": str(name), "input": dict()} if role == "assistant":
                calls.append({"id": id_, "name": name, "arguments": {REFERENCE: f"{at}/{number}/input"}})
            case {"type": "tool_result", "tool_use_id": str(call), "content": str(text)} if not part.get("is_error"):
                results.append({"role": "tool", "call": call, "content": reference(f"{at}/{number}/content", text)})
            case _:
                return None
    if len({call["id"] for call in calls}) != len(calls):
        return None
    return [*results, make_item(role, joined(texts, "\n"), calls)] if texts or calls else results


def neutral(entry: dict[str, Any]) -> list[Item]:
    """What an entry says, as neutral items; bookkeeping entries say nothing."""
    message = entry.get("message")
    if entry.get("type") not in ("user", "assistant") or not isinstance(message, dict) or entry.get("isMeta"):
        return []
    try:
        items = to_items({"role": message.get("role"), "content": message.get("content")}, "anthropic")
    except InvalidInput:
        return []
    return [without_verbatim(item) for item in items]


def from_neutral(turn: Said, session_id: str) -> list[dict[str, Any]]:
    """Entries that say the same as a turn of another writer; equal ones each time, without their place in the chain."""
    said = [
        item
        for item in turn.items
        if item["role"] == "tool" or ((item.get("content") or item.get("tool_calls")) and item["role"] != "system")
    ]  # the command line has a system prompt of its own, and the API refuses what is empty
    made = []
    for number, message in enumerate(to_messages(said, "anthropic")):
        uuid = str(uuid5(_SPACE, f"{session_id}/{turn.mark}/{number}"))
        is_answer = message["role"] == "assistant"
        entry = {
            "isSidechain": False, "userType": "external", "sessionId": session_id, "type": message["role"],
            "message": _answer(message, uuid) if is_answer else message, "uuid": uuid,
        }  # fmt: skip
        made.append(entry)
    return made


def _answer(message: dict[str, Any], uuid: str) -> dict[str, Any]:
    """An answer as the API returns it."""
    content = message["content"]
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
    calls = any(part.get("type") == "tool_use" for part in parts)
    return {
        "id": f"msg_{uuid.replace('-', '')}", "type": "message", "role": "assistant", "model": _UNKNOWN,
        "content": parts, "stop_reason": "tool_use" if calls else "end_turn", "stop_sequence": None,
        "usage": {"input_tokens": 0, "output_tokens": 0},
    }  # fmt: skip


def joined_in(own: Sequence[dict[str, Any]], turns: Sequence[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Own entries, and in between the turns of others, translated.

    Entries form a chain: each names the one that it continues, and the command line reads the chain that ends in the
    last one. So a turn is placed before the first entry that continues it, and behind all entries if none does. Own
    entries stay word for word, unless one continues a turn that its writer has retracted since.
    """
    place = {entry["uuid"]: number for number, turn in enumerate(turns, 1) for entry in turn}
    made: list[dict[str, Any]] = []
    done, last, at = 0, None, _EPOCH
    for entry in [*own, None]:
        reached = len(turns)
        if entry is not None:
            reached = max(place.get(str(entry.get(name)), 0) for name in ("parentUuid", "logicalParentUuid"))
        for turn in turns[done:reached]:
            for one in turn:
                made.append({"parentUuid": last, **one, "timestamp": at})
                last = one["uuid"]
        done = max(done, reached)
        if entry is None:
            break
        parent = entry.get("parentUuid")
        is_gone = _is_translated(parent) and parent not in place
        made.append({**entry, "parentUuid": last} if is_gone else entry)
        if entry.get("uuid") and entry.get("type") in _CHAINED and not entry.get("isSidechain"):
            last, at = entry["uuid"], entry.get("timestamp") or at
    return made


def _is_translated(uuid: Any) -> bool:
    """Whether an entry with this uuid is one that `from_neutral` made; those of the command line are random."""
    try:
        return UUID(str(uuid)).version == uuid5(_SPACE, "").version
    except ValueError:
        return False
