"""Text from agents, made safe to show. Data is never allowed to act as formatting."""

from __future__ import annotations

_NAMED = {"\t": "\\t", "\r": "\\r", "\x1b": "\\e", "\x00": "\\0"}
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Zl", "Zp"})
_JOINERS = frozenset("\u200d\ufe0f")


FIRST_MOMENT, LAST_MOMENT = -62_135_596_800_000_000, 253_402_300_799_999_999
"""The moments that a calendar has, in microseconds since 1970: the years 1 to 9999."""


def visible(text: str, *, lines: bool = False) -> str:
    """The text with control, bidi and other invisible characters written out; `lines` keeps line breaks and tabs."""
    if text.isascii() and text.isprintable():
        return text
    return "".join([_show(letter, lines=lines) for letter in text])


def _show(letter: str, *, lines: bool) -> str:
    if letter == "\n":
        return "\n" if lines else "⏎"
    if letter == "\t" and lines:
        return "    "
    if letter.isprintable() or letter in _JOINERS:
        return letter
    if letter in _NAMED:
        return _NAMED[letter]
    from unicodedata import category

    if category(letter) in _HIDDEN:
        return f"\\u{{{ord(letter):x}}}"
    return letter


def one_line(text: str, width: int) -> str:
    """The text on one line of at most `width` characters."""
    flat = visible(" ".join(text.split()))
    return flat if len(flat) <= width else flat[: max(0, width - 1)] + "…"


def clip(text: str, size: int) -> str:
    """The text cut to at most `size` bytes of UTF-8, with a mark where it was cut."""
    if len(text.encode()) <= size:
        return text
    mark = "…"
    return text.encode()[: max(0, size - len(mark.encode()))].decode(errors="ignore") + mark


def iso(microseconds: int) -> str:
    """A moment as people and programs read it; one that no calendar has is shown as the number it is."""
    from datetime import UTC, datetime

    if not FIRST_MOMENT <= microseconds <= LAST_MOMENT:
        return f"{microseconds} µs"
    return datetime.fromtimestamp(microseconds / 1e6, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def ago(then: int, now: int) -> str:
    """How long ago, in words short enough for a table."""
    seconds = max(0, (now - then) // 1_000_000)
    for size, name in ((86_400, "d"), (3_600, "h"), (60, "m")):
        if seconds >= size:
            return f"{seconds // size}{name} ago"
    return "just now" if seconds < 5 else f"{seconds}s ago"  # noqa: PLR2004 - too short to count
