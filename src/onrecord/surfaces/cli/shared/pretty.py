"""Tables and pages on a terminal. Loaded only when stdout is one. Data becomes Text, never markup.

A table never cuts what identifies a row or says its status. When the window is narrow, the widest of the other columns
shrink first; if that is not enough, and keys are long, each key gets a line of its own above the rest of its row.
"""

from __future__ import annotations

import os
import re
import sys
from typing import TYPE_CHECKING

from rich.cells import cell_len, chop_cells, set_cell_size
from rich.console import Console
from rich.text import Text

from onrecord.surfaces.cli.shared.output import CELL_LIMIT, GAP, KEY, MARKS, NUMBER, WHOLE, WRAPPED, Cell
from onrecord.surfaces.cli.shared.wrapping import columns_of
from onrecord.views.render import one_line, visible

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_LEAST = 8
"""How narrow a column may become before a long key moves to its own line."""
_LEAST_TEXT = 16
"""The same for a column that is marked as flexible or wrapped."""
_ROOMY = 28
"""The same where keys are long: a text with less room is better below its key than beside it."""
_ENTRY = re.compile(r" *[-*] ")
_LABELS = 20
"""Labels up to this width share one column of values."""
STYLES = {"attention": "bold yellow", "bad": "bold red", "good": "green", "strong": "bold", "quiet": "dim", "": ""}


def console() -> Console:
    """A console that guesses nothing from data: no markup, no emoji codes, no highlighting."""
    plain = bool(os.environ.get("NO_COLOR"))
    return Console(
        markup=False, emoji=False, highlight=False, soft_wrap=False, color_system=None if plain else "auto",
        width=columns_of(sys.stdout),
    )  # fmt: skip


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
    rows_of_text = [[Text(title) for title in titles], *([cell for cell, _ in row] for row in cells)]
    widths = _widths(kinds, rows_of_text, screen.width)
    if widths is None:
        _print_stacked(screen, kinds, titles, cells)
        return
    _print_heading(screen, kinds, widths, titles)
    for row in cells:
        _print_row(screen, kinds, widths, row)


def _widths(kinds: Sequence[str], rows: Sequence[Sequence[Text]], width: int) -> list[int] | None:
    """How wide each column is; None if a key is so long that it needs a line above the rest of its row."""
    room = width - GAP * (len(kinds) - 1)
    natural = [min(max(row[place].cell_len for row in rows), room) for place in range(len(kinds))]
    if KEY in kinds and natural[kinds.index(KEY)] > width // 3 and sum(_shrunk(kinds, natural, room, _ROOMY)) > room:
        return None
    widths = _shrunk(kinds, natural, room)
    for place in reversed(range(len(kinds))):
        if sum(widths) > room and not kinds[place]:
            # A column of a few letters says nothing: the least important one is dropped, with its gap.
            natural[place], room = 0, room + GAP
            widths = _shrunk(kinds, natural, room)
    return _shrunk(kinds, widths, room, 1) if sum(widths) > room else widths


def _print_stacked(
    screen: Console, kinds: Sequence[str], titles: Sequence[str], rows: Sequence[Sequence[tuple[Text, Sequence[str]]]]
) -> None:
    """Each key on a line of its own, with its status; the other cells of the row below it, in columns.

    Where rows with the same key follow each other, only the first one shows it.
    """
    place = kinds.index(KEY)
    below = place + 1 + (kinds[place + 1 : place + 2] == [WHOLE])
    before = [max(row[one][0].cell_len for row in rows) for one in range(place)]
    start = sum(before) + GAP * len(before)
    least = [[Text(title) for title in titles], *([cell for cell, _ in row] for row in rows)]
    rest = _widths(kinds[below:], [row[below:] for row in least], screen.width - start) or []
    if NUMBER in kinds[below:]:  # bare numbers need their headings; a text explains itself
        _print_heading(screen, kinds[below:], rest, titles[below:], start)
    above = ""
    for row in rows:
        texts = [cell for cell, _ in row]
        if texts[place].plain != above:
            above = texts[place].plain
            chopped = chop_cells(above, max(1, screen.width - start)) or [""]  # a row may continue the one above it
            pieces = [Text(piece, style=texts[place].style) for piece in chopped]
            status = texts[place + 1] if below > place + 1 else Text("")
            if status and pieces[-1].cell_len + GAP + status.cell_len <= screen.width - start:
                pieces[-1] = Text.assemble(pieces[-1], " " * GAP, status)
            elif status:
                pieces.append(status)
            left = [*before, pieces[0].cell_len]
            _print_line(screen, kinds, left, [*texts[:place], pieces[0]])
            for piece in pieces[1:]:
                _print_line(screen, [""], [piece.cell_len], [piece], start)
        _print_row(screen, kinds[below:], rest, row[below:], start)


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


def _print_heading(
    screen: Console, kinds: Sequence[str], widths: Sequence[int], titles: Sequence[str], start: int = 0
) -> None:
    if any(titles):
        heading = zip(titles, widths, strict=True)
        _print_line(screen, kinds, widths, [Text(cut(title, width), style="dim") for title, width in heading], start)


def _print_row(
    screen: Console,
    kinds: Sequence[str],
    widths: Sequence[int],
    row: Sequence[tuple[Text, Sequence[str]]],
    start: int = 0,
) -> None:
    """One row, on as many lines as its wrapped cells need."""
    parts: list[list[Text]] = []
    for (cell, around), kind, width in zip(row, kinds, widths, strict=True):
        if kind == WRAPPED and cell.cell_len > width:
            parts.append(list(cell.wrap(screen, width, overflow="fold")))
        else:
            parts.append([Text(cut(cell.plain, width, around), style=cell.style)])
    for number in range(max(len(part) for part in parts)):
        _print_line(screen, kinds, widths, [part[number] if number < len(part) else Text("") for part in parts], start)


def _print_line(
    screen: Console, kinds: Sequence[str], widths: Sequence[int], cells: Sequence[Text], start: int = 0
) -> None:
    """Cells in their columns, from column `start` on; a column of no width is left out."""
    line = Text(" " * start)
    for place, cell in enumerate(cells):
        if not widths[place]:
            continue
        pad = max(0, widths[place] - cell.cell_len)
        line.append(" " * pad if kinds[place] == NUMBER else "")
        line.append_text(cell)
        line.append(" " * (GAP if kinds[place] == NUMBER else pad + GAP))
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
        if content.isascii():  # where little follows the word, there is room for more before it
            start = max(1, min(start, len(content) - width + 1))
        space = content.find(" ", start, word.start())
        content = f"…{content[start if space < 0 else space + 1 :]}"
    if cell_len(content) <= width:
        return content
    return f"{set_cell_size(content, max(0, width - 1)).rstrip()}…" if width > 0 else ""


def print_page(page: str) -> None:
    """A text from the record, wrapped between words at the window's edge; list entries continue under their text."""
    screen = console()
    for line in page.splitlines():
        mark = _ENTRY.match(line)
        start = len(mark.group()) if mark else 0
        pieces = Text(visible(line[start:])).wrap(screen, max(_LEAST, screen.width - start))
        for number, piece in enumerate([*pieces] or [Text("")]):
            piece.rstrip()
            screen.print(Text(line[:start] if number == 0 else " " * start).append_text(piece))


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
        head = Text(f"{label:>{start - GAP}}{' ' * GAP}" if start and number == 0 else " " * start, style="dim")
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
        value, start = rest[0], max(column, label.cell_len) + GAP
        if start + min(value.cell_len, _LEAST) > screen.width:  # a label that long gets its own line
            for part in chop_cells(label.plain, screen.width):
                screen.print(Text(part, style=label.style))
            label, start = Text(""), column + GAP  # noqa: PLW2901  # its value comes below it
        if value.style == STYLES["quiet"]:
            value = Text(cut(value.plain, max(_LEAST, screen.width - start)), style=value.style)
        pieces = list(value.wrap(screen, max(_LEAST, screen.width - start), overflow="fold")) or [Text("")]
        label.pad_right(start - label.cell_len)
        for piece in pieces:
            label.append_text(piece)
            label.rstrip()
            screen.print(label, no_wrap=True, overflow="ignore", crop=False)
            label = Text(" " * start)  # noqa: PLW2901  # the lines after the first have no label
