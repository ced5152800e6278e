"""JSON text of entries and payloads, written quickly: what a save would spend most of its time with.

`pydantic_core` writes texts in a fifth of the time of Python's `json`, and the same bytes. Numbers with a fraction it
writes in another way, and it writes what is no JSON. So it gets only what is sure to be written alike.
"""

from __future__ import annotations

import json
from json.encoder import encode_basestring, encode_basestring_ascii
from typing import TYPE_CHECKING, Any

from onrecord.errors import InvalidInput
from onrecord.log.codec import encode_plain, encoder_of, within_limit

try:
    from pydantic_core import to_json
except ImportError:  # every framework so far has it
    to_json = None  # type: ignore[assignment]  # as above

if TYPE_CHECKING:
    from collections.abc import Mapping

_ascii_pieces = encoder_of(encode_basestring_ascii, json.JSONEncoder().default)
_unicode_pieces = encoder_of(encode_basestring, json.JSONEncoder().default)
_ALIKE = frozenset({str, int, bool, type(None)})
"""What both write alike, besides lists and dicts of it."""
_are_texts = frozenset({str}).issuperset
_are_alike = _ALIKE.issuperset
_DEPTH = 16
"""Values that are nested deeper are written by Python."""


def as_line(record: Any) -> str:
    """An entry as JSON text, in the order of its keys; lone surrogates stay escaped."""
    if to_json is not None and _is_written_alike(record, _DEPTH):
        try:
            return to_json(record).decode()
        except ValueError:  # a lone surrogate
            pass
    try:
        text = "".join(_ascii_pieces(record, 0))
        # Most texts are plain ASCII: both encoders write the same, and this one takes half the time.
        return text if "\\u" not in text else _unescaped(record, text)
    except (TypeError, ValueError, RecursionError) as problem:
        raise InvalidInput(
            f"the entry cannot be recorded as JSON: {problem}", hint="use strings, numbers, lists and dicts"
        ) from None


def _unescaped(record: Any, escaped: str) -> str:
    text = "".join(_unicode_pieces(record, 0))
    try:
        text.encode()
    except UnicodeEncodeError:
        return escaped
    return text


def _is_written_alike(value: Any, room: int) -> bool:
    kind = type(value)
    if kind is dict:
        if not (room and _are_texts(map(type, value))):
            return False
        value = value.values()
    elif kind is not list:
        return kind in _ALIKE
    if _are_alike(map(type, value)):
        return True
    return room > 0 and all(_is_written_alike(part, room - 1) for part in value)


def payload_of(data: Mapping[str, Any]) -> bytes:
    """What `encode_plain` returns; lists of texts, which are most of what adapters record, take a fifth of the time."""
    if to_json is None:
        return encode_plain(data)
    pieces: list[bytes] = []
    rest: dict[str, Any] = {}
    try:
        for name, part in data.items():
            if type(part) is list and part and _are_texts(map(type, part)):
                if rest:
                    pieces.append(encode_plain(rest)[1:-1])
                    rest = {}
                pieces.append(b"%b:%b" % (to_json(name), to_json(part)))
            else:
                rest[name] = part
    except ValueError:  # a lone surrogate: that error says what to do
        return encode_plain(data)
    if rest:
        pieces.append(encode_plain(rest)[1:-1])
    return within_limit(b"{%b}" % b",".join(pieces))
