"""Whether values are the same, where `==` does not say: 1, 1.0 and True are equal, and not the same on record."""

from __future__ import annotations

from dataclasses import is_dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

_COMPARED = frozenset({str, int, bool, bytes, type(None)})
"""Of these, equal values of one class are the same."""
_BY_TEXT = frozenset({float, datetime, date, time, timedelta, Decimal, UUID})
"""Of these, values that are shown alike are the same: 0.0 and -0.0 are equal, and so is one moment in two zones."""
_are_texts = frozenset({str}).issuperset


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
