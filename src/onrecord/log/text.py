"""The words of an event: what full-text search looks at."""

from __future__ import annotations

from typing import Any


def text_of(data: Any) -> str:
    """Every string value inside a payload, one per line; keys are not content."""
    found: list[str] = []
    _collect(data, found)
    return "\n".join(found)


def _collect(value: Any, found: list[str]) -> None:
    if isinstance(value, str):
        found.append(value)
    elif isinstance(value, dict):
        for inner in value.values():
            _collect(inner, found)
    elif isinstance(value, list):
        for inner in value:
            _collect(inner, found)


def words_of(text: str) -> list[str]:
    """The words of a text or query, folded the way search compares them."""
    return "".join(letter if letter.isalnum() else " " for letter in text.casefold()).split()
