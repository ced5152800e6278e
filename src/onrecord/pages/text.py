"""Text from agents inside HTML: escaped, and with every invisible character written out.

Nothing on a page is written without one of these functions. `visible` of the views does the same for terminals; here a
regular expression finds the rare characters, because transcripts are long.
"""

from __future__ import annotations

import re

_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u180e\u200b\u200c\u200e\u200f"
    "\u2028-\u202e\u2060-\u2064\u2066-\u206f\ud800-\udfff\ue000-\uf8ff\ufeff\ufff9-\ufffb\U000110bd\U000110cd"
    "\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0001\U000e0020-\U000e007f"
    "\U000f0000-\U000ffffd\U00100000-\U0010fffd]"
)
"""Controls, formats, surrogates, private use, line and paragraph separators; not the line break, tab and joiner."""
_NAMED = {"\r": "\\r", "\x1b": "\\e", "\x00": "\\0"}
_SPACES = re.compile(r"\s+")
_COLOURS = re.compile("\x1b\\[[0-9;:]*m")
_ENTITIES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})
_WHOLE = 24
"""A longer word may be broken: it might not fit beside a phone's edge."""
_THOUSAND, _MILLION, _MINUTE, _HOUR = 1_000, 1_000_000, 60, 3_600
_HALF_A_DAY = 12 * _HOUR * _MILLION


def plain(text: object) -> str:
    """The text with its invisible characters written out, not escaped: for Markdown, which escapes it itself."""
    return _HIDDEN.sub(_named, str(text))


def _named(found: re.Match[str]) -> str:
    letter = found[0]
    return _NAMED.get(letter) or f"\\u{{{ord(letter):x}}}"


def shown(text: object) -> str:
    """The text as it is shown; line breaks and tabs stay."""
    return _HIDDEN.sub(_named, str(text)).translate(_ENTITIES)


def attribute(text: object) -> str:
    """The text on one line, for the value of an attribute in double quotes."""
    return _SPACES.sub(" ", shown(text)).replace('"', "&quot;").replace("'", "&#39;")


def in_words(text: object, width: int = 4_000) -> str:
    """A command of at most `width` characters that is broken between its words, not at the hyphens of options."""
    words = map(attribute, _flat(text, width).split())
    return " ".join(f'<span class="w">{word}</span>' if "-" in word and len(word) <= _WHOLE else word for word in words)


def terminal(text: object) -> str:
    """Output of a command: its colours are dropped, other control sequences are written out."""
    return shown(without_colours(str(text)))


def without_colours(text: str) -> str:
    """Output of a command without the codes that colour it, and with plain line ends."""
    return _COLOURS.sub("", text.replace("\r\n", "\n"))


def short(text: object, width: int) -> str:
    """The text on one line of at most `width` characters."""
    return shown(_flat(text, width))


def _flat(text: object, width: int) -> str:
    flat = _SPACES.sub(" ", str(text)[: width * 4]).strip()
    return flat if len(flat) <= width else f"{flat[: width - 1]}…"


def link(position: int, label: object = "") -> str:
    """A link to the event that proves what is said; without a label it shows the position."""
    return f'<a class="at" href="#e{position}">{shown(label) if label else position}</a>'


def day(at: int) -> str:
    """The day of a moment, in UTC."""
    return _iso(at)[:10]


def clock(at: int) -> str:
    """The hour and minute of a moment, in UTC."""
    return _iso(at)[11:16]


def timed(at: int, text: str) -> str:
    """A text with the time of a moment in UTC, which the live page shows in the time of its reader."""
    return f'<time datetime="{_iso(at)}">{text}</time>'


def at_clock(at: int) -> str:
    """The hour and minute of a moment."""
    return timed(at, clock(at))


def at_minute(at: int) -> str:
    """A moment with its day, to the minute."""
    return timed(at, f"{day(at)} {clock(at)} UTC")


def at_second(at: int) -> str:
    """A moment with its day, to the second."""
    return timed(at, f"{day(at)} {_iso(at)[11:19]} UTC")


def soon(at: int, now: int) -> str:
    """A moment to come: within half a day its hour and minute, else with its day."""
    return timed(at, f"{clock(at)} UTC") if at - now < _HALF_A_DAY else at_minute(at)


def _iso(at: int) -> str:
    from onrecord.views.render import iso

    return iso(at)


def tokens(number: float) -> str:
    """A number of tokens, short: 950, 14.2k, 1.2 M."""
    if number < _THOUSAND:
        return f"{number:.0f}"
    return f"{number / _THOUSAND:.1f}k" if number < _MILLION else f"{number / _MILLION:.1f} M"


def money(cost: float) -> str:
    """A cost in US dollars."""
    return f"${cost:.2f}" if cost >= 0.005 or not cost else f"${cost:.4f}"  # noqa: PLR2004  # it would be shown as nothing


def seconds(number: float) -> str:
    """A duration as people read it."""
    if number < _MINUTE:
        return f"{number:.1f} s"
    if number < _HOUR:
        return f"{number // _MINUTE:.0f} min {number % _MINUTE:.0f} s"
    return f"{number // _HOUR:.0f} h {number % _HOUR // _MINUTE:.0f} min"


def counted(number: int, noun: str, nouns: str = "") -> str:
    """A number and what is counted: 1 turn, 2 turns."""
    return f"{number:,} {noun if number == 1 else nouns or f'{noun}s'}"
