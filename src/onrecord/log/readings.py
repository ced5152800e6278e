"""Readings: what the verbatim records of a mirrored conversation say, as items that refer to the records.

An event that keeps records word for word (`lines`) may carry a `reading`: a list of rows, one for each record that
says something. A row has the number of its `line` and its `items`; perhaps the `id` that its vendor gave the record,
`turn` (BEGINS, MAY_BEGIN or ABORTS), `lane` (a subagent), `after` (where on record a prompt continues, if not at the
end) and `weak` (it repeats a record and does not replace it). A long text of an item is not repeated: `{"$": pointer}`
is the value at that JSON pointer of the record (with `from` and `to`, a part of the text there), and `{"$+": [...]}`
joins texts and references. The step `~j` of a pointer parses the text there as JSON. A record whose `content` is one
text, said in one role, has a short row: the list of its line, the role and its id; in the role `user` it begins a turn.
So a reading needs no knowledge of a vendor, and takes little room beside its records.
"""

from __future__ import annotations

from onrecord import lean_json as json
from onrecord.lean_typing import TYPE_CHECKING, Any, NamedTuple
from onrecord.log.items import ROLES
from onrecord.log.names import BESIDE, MIRROR_PREFIX
from onrecord.log.shapes import UNREADABLE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from onrecord.log.item_values import Item

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
REFERENCE, _JOINED, _LITERAL = "$", "$+", "$="
EMBEDDED = "~j"
"""The last part of a pointer to the value that a text is as JSON."""
_PIECES = 64
_ITEM_DEPTH = 2
"""How deep an item is in a row: the row, the list, the item. What is deeper may be a whole object of the record."""


class Row(NamedTuple):
    """What one record says, resolved."""

    line: int
    items: list[Item]
    id: str
    turn: str
    lane: str
    after: tuple[int, int] | None
    weak: bool


class Part(NamedTuple):
    """Which part of which conversation an event keeps."""

    vendor: str
    vendor_id: str
    beside: str
    """The name of a further file of the conversation; empty for its transcript."""
    generation: int | None
    first: bool
    """Whether it is the beginning of the file."""


def part_of(id_: str, data: dict[str, Any]) -> Part:
    """What the first part of a file says about it; the id of every further part says the same."""
    if not id_.startswith(MIRROR_PREFIX) or "vendor_id" in data:
        named = (str(data.get("vendor")), str(data.get("vendor_id")), str(data.get("beside", "")))
        return Part(*named, data.get("generation"), (data.get("mark_before") or [None])[0] == 0)
    vendor, _, rest = id_.removeprefix(MIRROR_PREFIX).partition("/")
    vendor_id, _, rest = rest.partition("/")
    rest, _, offset = rest.rpartition("/")
    beside, _, generation = rest.rpartition("/")
    number = int(generation) if generation.isdigit() else None
    return Part(vendor, vendor_id, beside.removeprefix(BESIDE), number, offset == "0")


def condense(record: Any, value: Any) -> Any:
    """The value with its long texts replaced by references into the record; `resolve` is the inverse."""
    return _Condenser(record).condense(value, 0)


def reference(pointer: str, text: str) -> Any:
    """A text of a record, by a caller that knows where it is."""
    return text if len(text) <= REPEAT_LIMIT else {REFERENCE: pointer}


def value_reference(pointer: str, value: Any) -> Any:
    """A value of a record, or the one that a text there is as JSON, by a caller that knows where it is."""
    if isinstance(value, dict | list):
        return {REFERENCE: pointer} if value else value
    try:
        inner = json.loads(value) if isinstance(value, str) else value
    except (ValueError, RecursionError):
        return reference(pointer, value)
    return {REFERENCE: f"{pointer}/{EMBEDDED}"} if isinstance(inner, dict | list) and inner else inner


def joined(texts: list[Any], separator: str) -> Any:
    """Texts and references, joined."""
    if all(isinstance(one, str) for one in texts):
        return separator.join(texts)
    if len(texts) == 1:
        return texts[0]
    return {_JOINED: [part for one in texts for part in (separator, one)][1:]}


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
        """Note where the long texts are; a pointer is made only where there is one."""
        if isinstance(value, str):
            if len(value) > REPEAT_LIMIT:
                self._texts.setdefault(value, pointer)
            return
        for name, one in _parts_of(value):
            if isinstance(one, str):
                if len(one) > REPEAT_LIMIT:
                    self._texts.setdefault(one, f"{pointer}/{_escape(str(name))}")
            elif isinstance(one, dict | list):
                self._index(one, f"{pointer}/{_escape(str(name))}")

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
                    self._embedded.append((f"{pointer}/{EMBEDDED}", value))
                    self._index(value, f"{pointer}/{EMBEDDED}")
        return self._embedded

    def condense(self, value: Any, depth: int) -> Any:
        if isinstance(value, str):
            return self._text(value)
        if not isinstance(value, dict | list) or not value:
            return value
        if depth > _ITEM_DEPTH and (found := self._whole(value)) is not None:
            return {REFERENCE: found}
        if depth > INLINE_DEPTH:
            return json.dumps(value, ensure_ascii=False)
        if isinstance(value, list):
            return [self.condense(one, depth + 1) for one in value]
        if REFERENCE in value or _JOINED in value or _LITERAL in value:
            return {_LITERAL: json.dumps(value, ensure_ascii=False)}
        return {name: self.condense(one, depth + 1) for name, one in value.items()}

    def _text(self, text: str) -> Any:
        if len(text) <= REPEAT_LIMIT:
            return text
        found = self.pointer(text)
        if found is not None:
            return {REFERENCE: found}
        for whole, pointer in self._texts.items():
            if len(whole) > len(text) and (start := whole.find(text)) >= 0:
                return {REFERENCE: pointer, "from": start, "to": start + len(text)}
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
            pieces += [*([text[position:start]] if start > position else ()), {REFERENCE: pointer}]
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
    for name, one in _parts_of(among):
        if isinstance(one, dict | list):
            found = _equal(one, value, f"{pointer}/{_escape(str(name))}")
            if found is not None:
                return found
    return None


def _parts_of(value: Any) -> Iterable[tuple[Any, Any]]:
    """The names, or numbers, and values of a dict or a list; nothing of another value."""
    return value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()


def _escape(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1") if "~" in name or "/" in name else name


def at_pointer(record: Any, pointer: str) -> Any:
    """The value at a pointer of a record."""
    value = record
    for step in pointer.split("/")[1:]:
        if step == EMBEDDED:
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
    if REFERENCE in value:
        found = at_pointer(record, value[REFERENCE])
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
            whole = _whole_row(*row) if isinstance(row, list) else row
            if whole["line"] != number:
                number, record = whole["line"], None
            if record is None:
                record = {} if whole.get("clipped") else json.loads(lines[number])
            yield _row(whole, record, position)
        except UNREADABLE:
            continue


def short_row(line: int, id: str, record: Any, items: list[Item]) -> list[Any] | None:
    """The short row of a record, if its content is all that it says."""
    if len(items) != 1 or items[0].keys() != {"role", "content"} or not isinstance(record, dict):
        return None
    said = items[0]["content"]
    if not isinstance(said, str) or record.get("content") != said or not is_unicode(said):
        return None
    return [line, items[0]["role"], id]


def is_unicode(text: str) -> bool:
    """Whether a text has no lone surrogate, which no event can have."""
    if text.isascii():  # which Python knows without a look at the text
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _whole_row(line: int, role: str, id_: str) -> dict[str, Any]:
    """What a short row means."""
    row: dict[str, Any] = {"line": line, "id": id_, "items": [{"role": role, "content": {REFERENCE: "/content"}}]}
    return row | {"turn": BEGINS} if role == "user" else row


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
