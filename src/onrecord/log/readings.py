"""Readings: what the verbatim records of a mirrored conversation say, as items that refer to the records.

An event that keeps records word for word (`lines`) may carry a `reading`: a list of rows, one for each record that
says something. A row has the number of its `line` and its `items`; perhaps the `id` that its vendor gave the record,
`turn` (BEGINS, MAY_BEGIN or ABORTS), `lane` (a subagent), `after` (where on record a prompt continues, if not at the
end) and `weak` (it repeats a record and does not replace it). A long text of an item is not repeated: `{"$": pointer}`
is the value at that JSON pointer of the record (with `from` and `to`, a part of the text there), and `{"$+": [...]}`
joins texts and references. The step `~j` of a pointer parses the text there as JSON. So a reading needs no knowledge of
a vendor, and takes little room beside its records.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from onrecord.log.items import ROLES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from onrecord.log.items import Item

BEGINS, ABORTS, MAY_BEGIN = "begins", "aborts", "may_begin"
"""A prompt begins a turn; the user or the vendor aborted the turn; a command begins one if the model answers it."""
REPEAT_LIMIT = 16
"""Texts of up to so many characters are repeated in a reading, longer ones are referred to."""
INLINE_DEPTH = 12
"""How deep a value may be nested that a reading repeats; a deeper one becomes JSON text."""
CLIPPED = 4_096
"""How many characters of a text are repeated if its record is too long to be kept in one event."""
MEDIA = "media"
"""The type of a part that refers to an image or another file: it names the type, the size and where the data is."""
_REFERENCE, _JOINED, _LITERAL = "$", "$+", "$="
_EMBEDDED = "~j"
_PIECES = 64
_ITEM_DEPTH = 2
"""How deep an item is in a row: the row, the list, the item. What is deeper may be a whole object of the record."""
_WRONG = (KeyError, IndexError, TypeError, ValueError, AttributeError, RecursionError)


class Row(NamedTuple):
    """What one record says, resolved."""

    line: int
    items: list[Item]
    id: str
    turn: str
    lane: str
    after: tuple[int, int] | None
    weak: bool


def condense(record: Any, value: Any) -> Any:
    """The value with its long texts replaced by references into the record; `resolve` is the inverse."""
    return _Condenser(record).condense(value, 0)


def clip_texts(value: Any) -> Any:
    """The value with long texts cut, for a record that references cannot reach."""
    if isinstance(value, str):
        return value if len(value) <= CLIPPED else f"{value[:CLIPPED]}…"
    if isinstance(value, dict):
        return {name: clip_texts(one) for name, one in value.items()}
    return [clip_texts(one) for one in value] if isinstance(value, list) else value


class _Condenser:
    def __init__(self, record: Any) -> None:
        self._record = record
        self._texts: dict[str, str] = {}
        self._embedded: list[tuple[str, Any]] | None = None
        self._index(record, "")

    def _index(self, value: Any, pointer: str) -> None:
        if isinstance(value, str):
            if len(value) > REPEAT_LIMIT:
                self._texts.setdefault(value, pointer)
        elif isinstance(value, dict):
            for name, one in value.items():
                self._index(one, f"{pointer}/{_escape(name)}")
        elif isinstance(value, list):
            for number, one in enumerate(value):
                self._index(one, f"{pointer}/{number}")

    def _parsed(self) -> list[tuple[str, Any]]:
        """The values inside texts that are JSON themselves; parsed only when something is not found outside of them."""
        if self._embedded is None:
            self._embedded = []
            for text, pointer in list(self._texts.items()):
                if text[0] in "{[" and text[-1] in "}]":
                    try:
                        value = json.loads(text)
                    except (ValueError, RecursionError):
                        continue
                    self._embedded.append((f"{pointer}/{_EMBEDDED}", value))
                    self._index(value, f"{pointer}/{_EMBEDDED}")
        return self._embedded

    def condense(self, value: Any, depth: int) -> Any:
        if isinstance(value, str):
            return self._text(value)
        if not isinstance(value, dict | list) or not value:
            return value
        if depth > _ITEM_DEPTH and (found := self._whole(value)) is not None:
            return {_REFERENCE: found}
        if depth > INLINE_DEPTH:
            return json.dumps(value, ensure_ascii=False)
        if isinstance(value, list):
            return [self.condense(one, depth + 1) for one in value]
        if _REFERENCE in value or _JOINED in value or _LITERAL in value:
            return {_LITERAL: json.dumps(value, ensure_ascii=False)}
        return {name: self.condense(one, depth + 1) for name, one in value.items()}

    def _text(self, text: str) -> Any:
        if len(text) <= REPEAT_LIMIT:
            return text
        found = self.pointer(text)
        if found is not None:
            return {_REFERENCE: found}
        for whole, pointer in self._texts.items():
            if len(whole) > len(text) and (start := whole.find(text)) >= 0:
                return {_REFERENCE: pointer, "from": start, "to": start + len(text)}
        return self._joined(text)

    def pointer(self, text: str) -> str | None:
        """Where the record has this text."""
        found = self._texts.get(text)
        return self._texts.get(text) if found is None and self._parsed() else found

    def _joined(self, text: str) -> Any:
        """A text that vendors' translators joined from several."""
        spans: list[tuple[int, int, str]] = []
        for part in sorted((one for one in self._texts if len(one) < len(text)), key=len, reverse=True):
            start = text.find(part)
            if start >= 0 and all(start + len(part) <= begun or start >= end for begun, end, _ in spans):
                spans.append((start, start + len(part), self._texts[part]))
                if len(spans) >= _PIECES:
                    break
        if sum(end - start for start, end, _ in spans) * 2 < len(text):
            return text
        pieces: list[Any] = []
        position = 0
        for start, end, pointer in sorted(spans):
            pieces += [*([text[position:start]] if start > position else ()), {_REFERENCE: pointer}]
            position = end
        return {_JOINED: [*pieces, *([text[position:]] if position < len(text) else ())]}

    def _whole(self, value: Any) -> str | None:
        """Where the record has this very object or list."""
        found = _equal(self._record, value, "")
        if found is None:
            for pointer, inner in self._parsed():
                if (found := _equal(inner, value, pointer)) is not None:
                    break
        return found


def _equal(among: Any, value: Any, pointer: str) -> str | None:
    if type(among) is type(value) and among == value and json.dumps(among) == json.dumps(value):
        return pointer  # the second comparison distinguishes true and 1
    inner: Iterable[tuple[Any, Any]] = (
        among.items() if isinstance(among, dict) else enumerate(among) if isinstance(among, list) else ()
    )
    for name, one in inner:
        if isinstance(one, dict | list):
            found = _equal(one, value, f"{pointer}/{_escape(str(name))}")
            if found is not None:
                return found
    return None


def _escape(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1") if "~" in name or "/" in name else name


def at_pointer(record: Any, pointer: str) -> Any:
    """The value at a pointer of a record."""
    value = record
    for step in pointer.split("/")[1:]:
        if step == _EMBEDDED:
            value = json.loads(value)
        elif isinstance(value, list):
            value = value[int(step)]
        else:
            value = value[step.replace("~1", "/").replace("~0", "~")]
    return value


def resolve(record: Any, value: Any) -> Any:
    """The value that was condensed."""
    if isinstance(value, list):
        return [resolve(record, one) for one in value]
    if not isinstance(value, dict):
        return value
    if _REFERENCE in value:
        found = at_pointer(record, value[_REFERENCE])
        return found[value["from"] : value["to"]] if "from" in value else found
    if _JOINED in value:
        return "".join(str(resolve(record, one)) for one in value[_JOINED])
    if _LITERAL in value:
        return json.loads(value[_LITERAL])
    return {name: resolve(record, one) for name, one in value.items()}


def rows_of(data: Any, position: int = 0) -> Iterator[Row]:
    """The rows of an event's reading, resolved; rows that cannot be read are left out."""
    lines, reading = data.get("lines"), data.get("reading")
    if not isinstance(lines, list) or not isinstance(reading, list):
        return
    number, record = -1, None
    for row in reading:
        try:
            if row["line"] != number:
                number, record = row["line"], None
            if record is None:
                record = {} if row.get("clipped") else json.loads(lines[number])
            yield _row(row, record, position)
        except _WRONG:
            continue


def _row(row: dict[str, Any], record: Any, position: int) -> Row:
    items = [item for item in resolve(record, row["items"]) if item["role"] in ROLES]
    for item in items:
        if isinstance(item.get("content"), list):
            item["content"] = [_shown(part, row["line"], position) for part in item["content"]]
    after = row.get("after")
    where = (int(after[0]) or position, int(after[1])) if after else None
    id_ = str(resolve(record, row.get("id", "")))
    return Row(
        row["line"], items, id_, str(row.get("turn", "")), str(row.get("lane", "")), where, bool(row.get("weak"))
    )


def _shown(part: Any, line: int, position: int) -> Any:
    """A part as readers get it: an image names where its data is, and does not carry it."""
    if isinstance(part, dict) and part.get("type") == MEDIA:
        return part | {"at": [position, line, part.get("at", "")]}
    return part


def pointer_to(record: Any, text: str) -> str:
    """The pointer to a long text of a record; empty if the record does not have it."""
    found = _Condenser(record)
    return found.pointer(text) or ""
