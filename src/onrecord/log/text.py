"""The words of an event: what full-text search compares."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from onrecord.log.codec import decode_payload
from onrecord.log.packed import MARKS
from onrecord.log.readings import rows_of

if TYPE_CHECKING:
    from onrecord.log.item_values import Item

_words = re.compile(r"[^\W_]+").findall  # runs of what str.isalnum accepts
_PLAIN = bytes(code if chr(code).isalnum() else 0x20 for code in range(128)) + bytes(128)


def text_of(data: Any) -> str:
    """Every string value inside a payload, one per line; keys are not content, nor are packed numbers.

    Of records that were kept word for word, it is what their reading says, not the JSON around it.
    """
    found: list[str] = []
    if isinstance(data, dict) and "reading" in data:
        _collect([list(spoken(item)) for row in rows_of(data) for item in row.items], found)
    else:
        _collect(data, found)
    return "\n".join(found)


def said_in(data: Any) -> str:
    """What the items of a payload say, without their roles; the whole text of any other payload."""
    items = data.get("items", [data.get("item")]) if isinstance(data, dict) else None
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        return text_of(data)
    found: list[str] = []
    try:
        _collect([list(spoken(item)) for item in items], found)
    except (AttributeError, TypeError):
        return text_of(data)  # of a log from elsewhere, whose items are in another form
    return "\n".join(found)


def spoken(item: Item) -> Iterator[Any]:
    """What an item says: its texts, and the names and arguments of its calls."""
    content = item.get("content")
    if isinstance(content, list):
        yield from (part.get("text") if isinstance(part, dict) else part for part in content)
    else:
        yield content
    for call in item.get("tool_calls") or ():
        yield from (call.get("name"), call.get("arguments"))


def _collect(value: Any, found: list[str]) -> None:
    if isinstance(value, str):
        if not value.startswith(MARKS):
            found.append(value)
    elif isinstance(value, dict):
        for inner in value.values():
            _collect(inner, found)
    elif isinstance(value, list):
        for inner in value:
            _collect(inner, found)


def words_of(text: str) -> list[str]:
    """The words of a text or query, folded the way search compares them."""
    folded = text.casefold()
    if folded.isascii():  # most of what agents read and write is, and this takes a fifth of the time
        return folded.encode().translate(_PLAIN).decode().split()
    return _words(folded)


def words_in(payload: bytes | None) -> list[str]:
    """The words of a payload as a store keeps it; an erased one has none."""
    return [] if payload is None else words_of(text_of(decode_payload(payload.decode())))


def fits(words: Iterable[str], wanted: list[str]) -> bool:
    """Whether a text with these words matches a query: it has every word of it; the last may be a prefix."""
    present = set(words)
    return present.issuperset(wanted[:-1]) and any(word.startswith(wanted[-1]) for word in present)
