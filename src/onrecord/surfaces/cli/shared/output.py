"""How the command speaks: data on stdout, notes on stderr, one JSON envelope, and tables that fit where they go.

Text from agents never acts: control and bidi characters are written out in text, and escaped in JSON.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any

SCHEMA_VERSION = 1
"""The version of the JSON envelope and of what stands in it. Fields may be added; consumers ignore unknown ones."""
CELL_LIMIT = 1_000
"""The most characters of one cell of a table, and of one line of plain output."""


class Cell:
    """A table cell that wants attention, or less of it: `style` is attention, bad, good, strong or quiet."""

    __slots__ = ("style", "text")

    def __init__(self, text: str, style: str) -> None:
        self.text = text
        self.style = style


class Output:
    """Where answers and notes go."""

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
        """Text that is safe already."""
        sys.stdout.write(text)

    def line(self, text: str = "") -> None:
        """One line; what would act on a terminal is made visible."""
        self.write(shown(text) + "\n")

    def done(self, kind: str, data: dict[str, Any], sentence: str) -> int:
        """The answer of a verb that changed something."""
        if self.json:
            self.envelope(kind, data)
        elif self.quiet:
            if "position" in data:  # what wrote a file, or nothing, has none
                self.line(str(data["position"]))
        else:
            self.line(sentence)
        return 0

    def note(self, text: str) -> None:
        """Something worth knowing that is not the answer; on stderr."""
        if not self.quiet and not self.json:
            sys.stdout.flush()
            sys.stderr.write(f"note: {shown(text)}\n")

    def table(self, columns: Sequence[str], rows: Iterable[Sequence[str | Cell]]) -> None:
        """Rows under headings on a terminal; tab-separated without headings anywhere else.

        A heading that starts with `>` is for numbers, one that starts with `*` takes what room is left.
        """
        if self.terminal:
            from onrecord.surfaces.cli.shared.pretty import print_table

            print_table(columns, rows)
            return
        for row in rows:
            self.write("\t".join(plain(cell) for cell in row) + "\n")


def shown(text: str) -> str:
    """The text on its line, with everything that could act on a terminal written out."""
    if text.isascii() and text.isprintable():
        return text
    from onrecord.views.render import visible

    return visible(text)


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
