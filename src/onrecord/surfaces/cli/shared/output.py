"""How the command prints: data on stdout, notes on stderr, one JSON envelope, and tables that fit the window.

Text from agents never acts: control and bidi characters are spelled out in text, and escaped in JSON.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any

SCHEMA_VERSION = 1
"""The version of the JSON envelope and its content. Fields may be added; consumers ignore unknown ones."""
CELL_LIMIT = 1_000
"""The most characters of one cell of a table, and of one line of plain output."""
GAP = 2
"""The distance of two columns."""
KEY, WHOLE, NUMBER, FLEXIBLE, WRAPPED = "#", "!", ">", "*", "~"
MARKS = (KEY, WHOLE, NUMBER, FLEXIBLE, WRAPPED)
"""What a heading may start with; `Output.table` explains it."""


class Cell:
    """A table cell with a style: attention, bad, good, strong or quiet. A cut keeps a word of `around` visible."""

    __slots__ = ("around", "style", "text")

    def __init__(self, text: str, style: str, around: Sequence[str] = ()) -> None:
        self.text = text
        self.style = style
        self.around = around


class Output:
    """Prints answers and notes."""

    def __init__(self, *, json: bool = False, quiet: bool = False) -> None:
        self.json = json
        self.quiet = quiet
        self.terminal = not json and sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
        for stream in (sys.stdout, sys.stderr):
            if hasattr(stream, "reconfigure"):
                # A terminal that cannot show a letter must not end the command.
                stream.reconfigure(errors="backslashreplace")

    def envelope(self, kind: str, data: Any) -> None:
        """The answer as JSON."""
        answer = {"schema_version": SCHEMA_VERSION, "kind": kind, "data": data}
        self.write(dump(answer, indent=2 if sys.stdout.isatty() else None) + "\n")

    def write(self, text: str) -> None:
        """Text that was already made safe."""
        sys.stdout.write(text)

    def line(self, text: str = "") -> None:
        """One line; control characters are spelled out."""
        self.write(shown(text) + "\n")

    def done(self, kind: str, data: dict[str, Any], sentence: str) -> int:
        """The answer of a verb that changes something."""
        if self.json:
            self.envelope(kind, data)
        elif self.quiet:
            if "position" in data:  # a verb that only wrote a file has none
                self.line(str(data["position"]))
        elif self.terminal:
            from onrecord.surfaces.cli.shared.wrapping import wrapped

            self.write(wrapped(shown(sentence), stream=sys.stdout) + "\n")
        else:
            self.line(sentence)
        return 0

    def note(self, text: str) -> None:
        """Something worth knowing besides the answer; on stderr."""
        if not self.quiet and not self.json:
            sys.stdout.flush()
            sys.stderr.write(labelled("note", text))

    def table(self, columns: Sequence[str], rows: Iterable[Sequence[str | Cell]]) -> None:
        """Rows under headings on a terminal; tab-separated without headings anywhere else.

        The first character of a heading may be a mark: `#` is the key of the row and `!` its status, which are never
        cut; `>` is a number; `*` is a text that shrinks, but less than columns without a mark; `~` wraps. Without
        headings, each row is a label and its value.
        """
        if self.terminal:
            from onrecord.surfaces.cli.shared.pretty import print_pairs, print_table

            print_table(columns, rows) if columns else print_pairs(rows)
            return
        for row in rows:
            self.write("\t".join(plain(cell) for cell in row) + "\n")


def shown(text: str) -> str:
    """The text on its line, with everything that could act on a terminal spelled out."""
    if text.isascii() and text.isprintable():
        return text
    from onrecord.views.render import visible

    return visible(text)


def labelled(label: str, text: str) -> str:
    """A line for standard error: what it is, and the text; wrapped if that is a terminal."""
    line = f"{label}: {shown(text)}"
    if sys.stderr.isatty():
        from onrecord.surfaces.cli.shared.wrapping import wrapped

        line = wrapped(line, len(label) + 2)
    return f"{line}\n"


def counted(number: int, one: str, many: str = "") -> str:
    """A number and its noun: 1 session, 2 sessions; `many` is for nouns that do not just take an s."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def plain(cell: str | Cell) -> str:
    """A cell as text on one line."""
    from onrecord.views.render import one_line

    return one_line(cell if isinstance(cell, str) else cell.text, CELL_LIMIT)


def dump(value: Any, indent: int | None = None) -> str:
    """JSON that is exact for programs and harmless on a terminal: what is invisible is escaped, the rest readable."""
    import json

    separators = None if indent else (",", ":")
    text = json.dumps(value, ensure_ascii=False, indent=indent, separators=separators, default=_as_text)
    if text.isascii() and "\x7f" not in text:
        return text
    return "".join([letter if letter == "\n" or letter.isprintable() else _escaped(letter) for letter in text])


def _escaped(letter: str) -> str:
    code = ord(letter)
    if code < 0x10000:  # noqa: PLR2004  # the basic plane; beyond it JSON wants a surrogate pair
        return f"\\u{code:04x}"
    code -= 0x10000
    return f"\\u{0xD800 + (code >> 10):04x}\\u{0xDC00 + (code & 0x3FF):04x}"


def _as_text(value: object) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)
