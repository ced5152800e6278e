"""Whether values are the same, where `==` does not say: 1, 1.0 and True are equal, and not the same on record."""

from __future__ import annotations

import marshal
from dataclasses import is_dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import TYPE_CHECKING, Any
from uuid import UUID

if TYPE_CHECKING:
    from collections.abc import Iterable

_COMPARED = frozenset({str, int, bool, bytes, type(None)})
"""Of these, equal values of one class are the same."""
_BY_TEXT = frozenset({float, datetime, date, time, timedelta, Decimal, UUID})
"""Of these, values that are shown alike are the same: 0.0 and -0.0 are equal, and so is one moment in two zones."""
_PLAIN = 2
"""A format of `marshal` that depends on the values only, not on which of them are one object."""
_are_texts = frozenset({str}).issuperset


def uncertain(said: dict[str, Any]) -> list[str]:
    """The fields that `==` does not decide, because they are not made of texts only; of most messages, none."""
    return [name for name, part in said.items() if type(part) is not str and not _is_certain(part)]


def _is_certain(part: Any) -> bool:
    kind = type(part)
    if kind is dict:
        return not part or (_are_texts(map(type, part)) and _are_certain(part.values()))
    if kind is list:
        return not part or _are_certain(part)
    return kind is str or part is None


def _are_certain(parts: Iterable[Any]) -> bool:
    return all(map(_is_certain, parts))


def are_same(some: list[Any], others: list[Any]) -> bool:
    """`is_same` of each, in a third of the time if all of them are plain data."""
    try:
        return marshal.dumps(some, _PLAIN) == marshal.dumps(others, _PLAIN)
    except ValueError:
        return all(map(is_same, some, others))


def is_same(one: Any, other: Any) -> bool:
    """Whether the record of both is the same; False if it is not known."""
    kind = type(one)
    if kind is not type(other):
        return False
    if kind in _COMPARED:
        return bool(one == other)
    if kind in _BY_TEXT:
        return repr(one) == repr(other)
    if kind is dict:
        if not (_are_texts(map(type, one)) and one.keys() == other.keys()):
            return is_same(list(one.items()), list(other.items())) if len(one) == len(other) else False
        return all(is_same(part, other[name]) for name, part in one.items())
    if kind is list or kind is tuple:
        return len(one) == len(other) and all(map(is_same, one, other))
    if isinstance(one, Enum):
        return one is other
    if hasattr(one, "__dict__") and (hasattr(kind, "model_fields") or is_dataclass(kind)):
        more = (getattr(of, "__pydantic_extra__", None) for of in (one, other))
        return is_same(vars(one), vars(other)) and is_same(*more)
    return False
