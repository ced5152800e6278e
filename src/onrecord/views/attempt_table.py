"""Attempts side by side: their metrics as columns, two of them compared; as CSV, and as HTML for notebooks."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from onrecord.views.values import Json

    Table = list[list[str]]

COLUMNS = ("number", "status", "command", "seconds", "exit_code", "error", "fix", "reason", "evidence", "by")
"""The fields of an attempt that a table shows; its metrics come after them."""
METRIC_COLUMNS = 6
"""How many metrics a list on a terminal has as columns of their own: those of the newest attempts."""
HTML_ROWS = 200
"""How many attempts a notebook shows: the newest."""


def metric_names(attempts: Sequence[Mapping[str, Json]], limit: int | None = None) -> list[str]:
    """Every metric of these attempts, in the order they first appeared; with a limit, those of the newest attempts."""
    newest: dict[str, None] = {}
    for attempt in reversed(attempts):
        newest |= dict.fromkeys(attempt.get("metrics") or {})
    kept = set(list(newest)[:limit])
    ordered = dict.fromkeys(name for attempt in attempts for name in attempt.get("metrics") or {})
    return [name for name in ordered if name in kept]


def metric_text(attempt: Mapping[str, Json], name: str) -> str:
    """A metric as people read it; nothing if the attempt does not have it."""
    value = (attempt.get("metrics") or {}).get(name)
    return "" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def rows_of(attempts: Sequence[Mapping[str, Json]]) -> Table:
    """The whole table: a heading, and a row for each attempt."""
    names = metric_names(attempts)
    rows = [[_text(one.get(column)) for column in COLUMNS] + [_exact(one, name) for name in names] for one in attempts]
    return [[*COLUMNS, *names], *rows]


def compared(attempts: Sequence[Mapping[str, Json]]) -> Table:
    """Attempts as columns: a row for everything in which they differ, and for every metric, with its change."""
    shown = ("status", "command", "revision", "seconds", "exit_code", "error", "fix", "reason")
    table = [["", *(f"attempt {one['number']}" for one in attempts), "change"]]
    for name in shown:
        values = [_revision(one) if name == "revision" else _text(one.get(name)) for one in attempts]
        if any(values) and (len(set(values)) > 1 or name in ("status", "command")):
            table.append(
                [
                    name.replace("_", " "),
                    *values,
                    _change([one.get(name) for one in attempts]) if name == "seconds" else "",
                ]
            )
    for name in metric_names(attempts):
        numbers = [(one.get("metrics") or {}).get(name) for one in attempts]
        table.append([name, *(metric_text(one, name) for one in attempts), _change(numbers)])
    return table


def as_csv(table: Table) -> str:
    """A table as CSV. A cell that a spreadsheet would run as a formula starts with an apostrophe."""
    return "".join(",".join(_cell(_inert(cell)) for cell in row) + "\n" for row in table)


def as_html(attempts: Sequence[Mapping[str, Json]]) -> str:
    """The newest attempts as an HTML table; text from agents is escaped."""
    from html import escape

    head, *rows = rows_of(attempts[-HTML_ROWS:])
    keep = [place for place, name in enumerate(head) if name in ("number", "status") or any(row[place] for row in rows)]
    heading = "".join(f"<th>{escape(head[place])}</th>" for place in keep)
    body = "".join("<tr>" + "".join(f"<td>{escape(row[place])}</td>" for place in keep) + "</tr>" for row in rows)
    left_out = len(attempts) - len(rows)
    caption = f"<caption>{left_out} earlier attempts are left out</caption>" if left_out else ""
    return f"<table>{caption}<thead><tr>{heading}</tr></thead><tbody>{body}</tbody></table>"


def _text(value: Json) -> str:
    return "" if value is None else str(value)


def _exact(attempt: Mapping[str, Json], name: str) -> str:
    return _text((attempt.get("metrics") or {}).get(name))


def _revision(attempt: Mapping[str, Json]) -> str:
    from onrecord.views.findings import short_revision

    return short_revision(attempt.get("revision"))


def _change(numbers: list[Json]) -> str:
    """The difference of the last from the first, if both are numbers."""
    if len(numbers) < 2 or not all(isinstance(one, int | float) for one in (numbers[0], numbers[-1])):  # noqa: PLR2004  # a change has two ends
        return ""
    return f"{numbers[-1] - numbers[0]:+g}"


def _cell(text: str) -> str:
    quoted = text.replace('"', '""')
    return f'"{quoted}"' if any(letter in text for letter in '",\r\n') else text


def _inert(cell: str) -> str:
    risky = cell.startswith(("=", "+", "-", "@", "\t", "\r"))
    return f"'{cell}" if risky and not _is_number(cell) else cell


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True
