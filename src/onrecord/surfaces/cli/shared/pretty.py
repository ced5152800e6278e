"""The terminal's face of the command. Loaded only when stdout is one. Data becomes Text, never markup."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from onrecord.surfaces.cli.shared.output import CELL_LIMIT, Cell
from onrecord.views.render import one_line, visible

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_LEAST = 16
_NAMES = ("session", "project", "before")
STYLES = {"attention": "bold yellow", "bad": "bold red", "good": "green", "strong": "bold", "quiet": "dim", "": ""}


def console() -> Console:
    """A console that guesses nothing from data: no markup, no emoji codes, no highlighting."""
    plain = bool(os.environ.get("NO_COLOR"))
    return Console(markup=False, emoji=False, highlight=False, soft_wrap=False, color_system=None if plain else "auto")


def text(value: str | Cell, *, lines: bool = False) -> Text:
    """Data as a Text object, with everything that could act made visible."""
    content, style = (value, "") if isinstance(value, str) else (value.text, value.style)
    safe = visible(content, lines=True) if lines else one_line(content, CELL_LIMIT)
    return Text(safe, style=STYLES.get(style, ""))


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str | Cell]]) -> None:
    """A table without borders; the column marked `*` gives way when the window is narrow."""
    screen = console()
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim", show_edge=False)
    table.show_header = any(title.lstrip(">*") for title in columns)
    table.expand = any(title.startswith("*") for title in columns)
    for title in columns:
        flexible = title.startswith("*")
        table.add_column(
            title.lstrip(">*"),
            justify="right" if title.startswith(">") else "left",
            no_wrap=True,
            overflow="ellipsis",
            ratio=1 if flexible else None,
            min_width=_LEAST if flexible else None,
            # A name may have 64 characters; it must not push everything else off the screen.
            max_width=max(_LEAST, screen.width // 3) if title in _NAMES else None,
        )
    for row in rows:
        table.add_row(*(text(cell) for cell in row))
    if table.row_count:
        screen.print(table)


def print_page(page: str) -> None:
    """A text from the record as it is, wrapped between words at the window's edge."""
    screen = console()
    for line in page.splitlines():
        screen.print(Text(visible(line)))


def print_pairs(lines: Iterable[Sequence[str | Cell]], width: int) -> None:
    """Labels in one column, what belongs to them beside it; long text is cut at the window's edge."""
    screen = console()
    for label, *rest in lines:
        line = text(label)
        if rest:
            line.pad_right(max(0, width - line.cell_len))
            line.append("  ")
            line.append_text(text(rest[0]))
        line.truncate(screen.width, overflow="ellipsis")
        screen.print(line, no_wrap=True)
