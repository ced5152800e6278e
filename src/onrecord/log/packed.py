"""Many numbers as one short text: little-endian 32-bit values in base64, behind a mark that says which.

A token id costs a third of a JSON number this way, and a logprob comes out with the very bits it went in with.
"""

from __future__ import annotations

import sys
from array import array
from base64 import b64decode, b64encode
from typing import TYPE_CHECKING, TypeVar

from onrecord.errors import DamagedLog

if TYPE_CHECKING:
    from collections.abc import Iterable

_Number = TypeVar("_Number", int, float)

INTEGERS, FLOATS = "i32le:", "f32le:"
MARKS = (INTEGERS, FLOATS)
"""What a packed text begins with; search ignores packed text."""


def pack_integers(values: Iterable[int]) -> str:
    """Signed 32-bit integers as text."""
    return INTEGERS + _packed(values if isinstance(values, array) else array("i", values))


def pack_floats(values: Iterable[float]) -> str:
    """Single-precision numbers as text."""
    return FLOATS + _packed(values if isinstance(values, array) else array("f", values))


def unpack_integers(text: object) -> array[int]:
    """The integers of a packed text."""
    return _unpacked(text, INTEGERS, array("i"))


def unpack_floats(text: object) -> array[float]:
    """The numbers of a packed text."""
    return _unpacked(text, FLOATS, array("f"))


def count_packed(text: object) -> int:
    """How many numbers a packed text has, without unpacking it; 0 for anything else."""
    if not isinstance(text, str) or not text.startswith(MARKS):
        return 0
    letters = text.partition(":")[2].rstrip("=")
    return len(letters) * 3 // 16  # four letters are three bytes, and four bytes are a number


def _packed(values: array[int] | array[float]) -> str:
    if sys.byteorder != "little":
        values = values[:]
        values.byteswap()
    return b64encode(values.tobytes()).decode()


def _unpacked(text: object, mark: str, into: array[_Number]) -> array[_Number]:
    if not isinstance(text, str) or not text.startswith(mark):
        raise DamagedLog(f"packed numbers must start with {mark!r}, not {text!r:.40}")
    try:
        into.frombytes(b64decode(text[len(mark) :], validate=True))
    except ValueError:
        raise DamagedLog("packed numbers are truncated or changed") from None
    if sys.byteorder != "little":
        into.byteswap()
    return into
