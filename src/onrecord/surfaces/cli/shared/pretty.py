"""Tables and pages on a terminal. Loaded only when stdout is one. Data becomes Text, never markup.

A table never cuts what identifies a row or says its status. When the window is narrow, the widest of the other columns
shrink first; if that is not enough, a key that is too long gets a line of its own above the rest of its row.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from rich.cells import cell_len, chop_cells, set_cell_size
from rich.console import Console
from rich.text import Text

from onrecord.surfaces.cli.shared.output import CELL_LIMIT, KEY, MARKS, NUMBER, WHOLE, WRAPPED, Cell
from onrecord.views.render import one_line, visible

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_GAP = 2
_LEAST = 8
"""How narrow a column may become before a long key moves to its own line."""
_LEAST_TEXT = 16
"""The same for a column that is marked as flexible or wrapped."""
_LABELS = 20
"""Labels up to this width share one column of values."""
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
    """A table without borders; `Output.table` says what the marks of the headings mean."""
    screen = console()
    kinds = [title[0] if title[:1] in MARKS else "" for title in columns]
    titles = [title[1:] if kind else title for title, kind in zip(columns, kinds, strict=True)]
    cells = [[(text(cell), () if isinstance(cell, str) else cell.around) for cell in row] for row in rows]
    # A column without content would only take room from the others.
    full = [place for place in range(len(columns)) if any(row[place][0] for row in cells)]
    kinds, titles = [kinds[place] for place in full], [titles[place] for place in full]
    cells = [[row[place] for place in full] for row in cells]
    if not cells:
        return
    widths = _widths(kinds, [[Text(title) for title in titles], *([cell for cell, _ in row] for row in cells)], screen)
    if any(titles):
        heading = zip(titles, widths, strict=True)
        _print_line(screen, kinds, widths, [Text(cut(title, width), style="dim") for title, width in heading])
    above = ""
    for row in cells:
        above = _print_row(screen, kinds, widths, row, above)


def _widths(kinds: Sequence[str], rows: Sequence[Sequence[Text]], screen: Console) -> list[int]:
    room = screen.width - _GAP * (len(kinds) - 1)
    natural = [min(max(row[place].cell_len for row in rows), room) for place in range(len(kinds))]
    widths = _shrunk(kinds, natural, room)
    if sum(widths) > room and KEY in kinds:
        # Long keys get lines of their own; the column is as wide as the short ones.
        place = kinds.index(KEY)
        short = [row[place].cell_len for row in rows if row[place].cell_len <= screen.width // 3]
        natural[place] = max([_LEAST, *short])
        widths = _shrunk(kinds, natural, room)
    for place in reversed(range(len(kinds))):
        if sum(widths) > room and not kinds[place]:
            # A column of a few letters says nothing: the least important one is dropped, with its gap.
            natural[place], room = 0, room + _GAP
            widths = _shrunk(kinds, natural, room)
    return _shrunk(kinds, widths, room, 1) if sum(widths) > room else widths


def _shrunk(kinds: Sequence[str], natural: Sequence[int], room: int, bottom: int = _LEAST_TEXT) -> list[int]:
    """Take cells from the widest columns until all fit; keys, statuses and numbers keep theirs.

    A column without a mark counts double: it gives way before the text that the row is about.
    """
    widths = list(natural)
    least = [
        width if kind in (KEY, WHOLE, NUMBER) else min(width, bottom if kind else min(bottom, _LEAST))
        for kind, width in zip(kinds, widths, strict=True)
    ]
    weight = [1 if kind else 2 for kind in kinds]
    while sum(widths) > room:
        wide = [place for place, width in enumerate(widths) if width > least[place]]
        if not wide:
            break
        widths[max(wide, key=lambda place: widths[place] * weight[place])] -= 1
    return widths


def _print_row(
    screen: Console, kinds: Sequence[str], widths: Sequence[int], row: Sequence[tuple[Text, Sequence[str]]], above: str
) -> str:
    """One row, on as many lines as its wrapped cells need; a key that is too long comes first, with its status.

    The key is returned: where rows with the same long key follow each other, only the first one shows it.
    """
    parts: list[list[Text]] = []
    key, beside = "", -1
    for place, (cell, around) in enumerate(row):
        kind, width = kinds[place], widths[place]
        if place == beside:
            parts.append([Text("")])
        elif kind == KEY and cell.cell_len > width:
            key = cell.plain
            before = [part[0] for part in parts]
            room = screen.width - sum(width + _GAP for width in widths[:place] if width)
            pieces = [Text(piece, style=cell.style) for piece in chop_cells(key, max(1, room)) if key != above]
            status = row[place + 1][0] if kinds[place + 1 : place + 2] == [WHOLE] else Text("")
            if pieces and status and pieces[-1].cell_len + _GAP + status.cell_len <= room:
                pieces[-1], beside = Text.assemble(pieces[-1], " " * _GAP, status), place + 1
            for piece in pieces:
                _print_line(screen, kinds, widths, [*before, piece])
                before = [Text("") for _ in before]
            parts = [[Text("")] for _ in (*parts, cell)]
        elif kind == WRAPPED and cell.cell_len > width:
            parts.append(list(cell.wrap(screen, width, overflow="fold")))
        else:
            parts.append([Text(cut(cell.plain, width, around), style=cell.style)])
    for number in range(max(len(part) for part in parts)):
        _print_line(screen, kinds, widths, [part[number] if number < len(part) else Text("") for part in parts])
    return key


def _print_line(screen: Console, kinds: Sequence[str], widths: Sequence[int], cells: Sequence[Text]) -> None:
    line = Text()
    for place, cell in enumerate(cells):
        if not widths[place]:
            continue
        pad = max(0, widths[place] - cell.cell_len)
        line.append(" " * pad if kinds[place] == NUMBER else "")
        line.append_text(cell)
        line.append(" " * (_GAP if kinds[place] == NUMBER else pad + _GAP))
    line.rstrip()
    screen.print(line, no_wrap=True, overflow="ignore", crop=False)


def cut(content: str, width: int, around: Sequence[str] = ()) -> str:
    """The text in at most `width` cells; of the words in `around`, the first that occurs stays visible."""
    if cell_len(content) <= width:
        return content
    found = [match for word in around if (match := re.search(re.escape(word), content, re.IGNORECASE))]
    if found and cell_len(content[: found[0].end()]) >= width:
        word = found[0]
        start = max(1, word.start() - max(0, width - cell_len(word.group()) - 2) // 3)
        space = content.find(" ", start, word.start())
        content = f"…{content[start if space < 0 else space + 1 :]}"
    if cell_len(content) <= width:
        return content
    return f"{set_cell_size(content, max(0, width - 1)).rstrip()}…" if width > 0 else ""


def print_page(page: str) -> None:
    """A text from the record, wrapped between words at the window's edge."""
    screen = console()
    for line in page.splitlines():
        screen.print(Text(visible(line)))


def print_block(cells: Sequence[Cell], label: str = "", start: int = 0, lines: int = 0) -> None:
    """Cells side by side from column `start` on, wrapped at the window's edge, beside a label that ends there.

    `lines` is the most lines they take.
    """
    screen = console()
    line = Text("  ").join([text(cell) for cell in cells if cell.text])
    pieces = list(line.wrap(screen, max(_LEAST, screen.width - start), overflow="fold")) or [Text("")]
    if 0 < lines < len(pieces):
        rest = " ".join(piece.plain.strip() for piece in pieces[lines - 1 :])
        pieces[lines - 1 :] = [Text(cut(rest, max(_LEAST, screen.width - start)), style=pieces[lines - 1].style)]
    for number, piece in enumerate(pieces):
        piece.rstrip()
        head = Text(f"{label:>{start - _GAP}}{' ' * _GAP}" if start and number == 0 else " " * start, style="dim")
        screen.print(head.append_text(piece), no_wrap=True, overflow="ignore", crop=False)


def print_pairs(lines: Iterable[Sequence[str | Cell]], width: int = 0) -> None:
    """Labels in one column, values beside it. Values wrap at the window's edge; quotations (`quiet`) are cut there."""
    screen = console()
    pairs = [[text(cell) for cell in line] for line in lines]
    column = max([width, *(line[0].cell_len for line in pairs if len(line) > 1 and line[0].cell_len <= _LABELS)])
    for label, *rest in pairs:
        if not rest:
            screen.print(label)
            continue
        value, start = rest[0], max(column, label.cell_len) + _GAP
        if start + min(value.cell_len, _LEAST) > screen.width:  # a label that long gets its own line
            for part in chop_cells(label.plain, screen.width):
                screen.print(Text(part, style=label.style))
            label, start = Text(""), column + _GAP  # noqa: PLW2901  # its value comes below it
        if value.style == STYLES["quiet"]:
            value = Text(cut(value.plain, max(_LEAST, screen.width - start)), style=value.style)
        pieces = list(value.wrap(screen, max(_LEAST, screen.width - start), overflow="fold")) or [Text("")]
        label.pad_right(start - label.cell_len)
        for piece in pieces:
            label.append_text(piece)
            label.rstrip()
            screen.print(label, no_wrap=True, overflow="ignore", crop=False)
            label = Text(" " * start)  # noqa: PLW2901  # the lines after the first have no label
