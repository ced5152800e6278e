"""Token counts in vendors' records: checked, and given the same meaning for all vendors."""

from __future__ import annotations

from onrecord.lean_typing import Any
from onrecord.vendors.transcripts import Usage

COUNT_LIMIT = 10**12
"""A larger count is damage, not a count."""


def count(about: object, name: str) -> int:
    """A count of tokens; 0 if it is missing, negative or not a number."""
    value = about.get(name) if isinstance(about, dict) else None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < COUNT_LIMIT:
        return 0
    return int(value)


def dollars(value: object) -> float | None:
    """A cost; None if it is missing. Vendors write 0 for a model whose price they do not know, so 0 is no cost."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < COUNT_LIMIT:
        return None
    return float(value)


def whole_output(about: Any, output: int, reasoning: int, rest: int, total: str) -> int:
    """All output: vendors disagree whether it contains the reasoning, and their own total shows it."""
    return output + reasoning if count(about, total) == rest + output + reasoning else output


def used(usage: Usage) -> list[Usage]:
    """The usage if it has an id and any tokens; an interrupted call has none."""
    return [usage] if usage.call and (usage.input_tokens or usage.output_tokens) else []
