"""Sentences for a person, wrapped between words at the window's edge. Loaded only when they go to a terminal."""

from __future__ import annotations

import os
import re
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TextIO

LEAST = 20
"""In a window narrower than this, the terminal wraps as it likes."""
_ORDINARY_COLUMNS = 80
_WORDS = re.compile(r"[^\s`]*(?:`[^`]*`[^\s`]*)+|\S+")
"""Words; a command in backquotes is one, because it must survive being copied."""


def wrapped(text: str, indent: int = 0, stream: TextIO | None = None) -> str:
    """The text, with each of its lines wrapped; what does not fit a line continues under `indent` spaces.

    What is wider than a whole line is left to the terminal, which copies it without a break.
    """
    columns = columns_of(stream or sys.stderr)
    if columns < LEAST + indent:
        return text
    return "\n".join(_lines(line, indent, columns) for line in text.split("\n"))


def _lines(text: str, indent: int, columns: int) -> str:
    lines: list[str] = []
    line = ""
    for word in _WORDS.findall(text):
        longer = f"{line} {word}" if line.strip() else line + word
        if line.strip() and _cells(longer) > columns:
            lines.append(line)
            longer = " " * indent + word
        line = longer
    return "\n".join([*lines, line])


def _cells(text: str) -> int:
    if text.isascii():
        return len(text)
    from unicodedata import combining, east_asian_width

    return sum(0 if combining(letter) else 2 if east_asian_width(letter) in "WF" else 1 for letter in text)


def columns_of(stream: TextIO) -> int:
    """How wide the window is; a terminal that does not say, as below `script`, counts as an ordinary one."""
    try:
        found = int(os.environ.get("COLUMNS") or 0) or os.get_terminal_size(stream.fileno()).columns
    except (OSError, ValueError):
        found = 0
    return found if found > 0 else _ORDINARY_COLUMNS
