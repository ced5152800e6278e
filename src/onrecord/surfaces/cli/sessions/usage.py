"""`onrecord usage`: the tokens and the cost of model calls, by day, week, model, session, agent or project."""

from __future__ import annotations

import re
from datetime import date, timedelta
from typing import TYPE_CHECKING, Any

from onrecord.agents import pricing
from onrecord.surfaces.cli.shared.exits import NotInitialised, UsageError
from onrecord.surfaces.cli.shared.hints import hint_of
from onrecord.surfaces.cli.shared.mistyped import refuse_mistyped
from onrecord.surfaces.cli.shared.output import Cell, counted
from onrecord.views.spend import TOKENS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from onrecord.session.usage import Used
    from onrecord.surfaces.cli.shared.call import Call

BAR_WIDTH = 20
"""How many characters the longest bar has."""
LEAST_BAR = 5
"""Shorter bars say nothing."""
LONG_AGO = "earlier"
"""The days before those that a session keeps apart."""
MILLION = 1_000_000
EXACT_BELOW = 10_000
"""A terminal shows larger numbers of tokens in thousands or millions."""
_EPOCH = date(1970, 1, 1)
_BLOCKS = " ▏▎▍▌▋▊▉█"
_SPAN = re.compile(r"(\d{1,5})([dw])")

Row = dict[str, Any]

KEYS: dict[str, Callable[[Used], str]] = {
    "day": lambda used: _date(used.day).isoformat() if used.day else LONG_AGO,
    "week": lambda used: "{}-W{:02d}".format(*_date(used.day).isocalendar()[:2]) if used.day else LONG_AGO,
    "model": lambda used: used.model,
    "session": lambda used: used.session.name,
    "agent": lambda used: used.agent,
    "project": lambda used: used.session.project,
}
"""What rows may be grouped by."""
IN_ORDER = ("day", "week")
"""These rows are in the order of time; others begin with the largest."""


def usage(call: Call) -> int:
    """Print what model calls used."""
    by = call.get("by") or "day"
    since = _since(call)
    if "csv" in call and call.output.json:
        raise UsageError("--csv and --json exclude each other", hint="leave one of them out")
    missed = False
    try:
        rows = _rows(_used(call, by, since), by)
        if not rows:
            refuse_mistyped(call, call.records())
    except NotInitialised as missing:
        call.output.note(f"{missing.message}; {hint_of(missing, call.verb)}")
        missed, rows = True, []
    total = _sum(rows)
    if call.output.json:
        about = {"by": by, "since": (_date(since).isoformat() if since else None), "currency": "USD"}
        call.output.envelope("usage", about | {"rows": rows, "total": total})
    elif "csv" in call:
        _print_csv(call, by, rows)
    elif call.output.terminal:
        _print_table(call, by, rows, total)
    else:
        call.output.table((), [_plain(row) for row in [*rows, {"key": "total", **total}]] if rows else [])
    if not missed:
        _notes(call, rows, total)
    return 0


def _since(call: Call) -> int:
    """The first day that counts, as its number: a date, `today`, or a number of days or weeks."""
    given = call.get("since")
    if given is None:
        return 0
    today = date.fromtimestamp(call.now() / 1e6)  # noqa: DTZ012  # days are local ones
    if given == "today":
        return _number(today)
    if found := _SPAN.fullmatch(given):
        days = int(found[1]) * (7 if found[2] == "w" else 1)
        return _number(today - timedelta(days=max(0, days - 1)))
    try:
        return _number(date.fromisoformat(given))
    except ValueError:
        raise UsageError(
            f"--since needs a date, not {given!r:.40}", hint="for example `--since 2026-11-01`, `--since 7d` or `today`"
        ) from None


def _number(day: date) -> int:
    return (day - _EPOCH).days


def _date(day: int) -> date:
    return _EPOCH + timedelta(days=day)


def _used(call: Call, by: str, since: int) -> Iterable[Used]:
    everywhere = "all" in call or (by == "project" and "project" not in call)
    records = call.records(make=False)
    return records.usage(project="" if everywhere else None, session=call.get("session"), since=since)


def _rows(found: Iterable[Used], by: str) -> list[Row]:
    """Sums for each key. What no vendor stated the cost of is estimated from the price list, if it is installed."""
    rows: dict[str, Row] = {}
    for used in found:
        pricing.add_priced(
            rows.setdefault(KEYS[by](used), pricing.nothing()), pricing.priced(used.model, used.day, used.usage)
        )
    ordered = sorted(rows, key=lambda key: (key != LONG_AGO, key))
    if by not in IN_ORDER:
        ordered = sorted(rows, key=lambda key: (-rows[key]["cost"], -_tokens(rows[key]), key))
    return [{"key": key, **rows[key]} for key in ordered]


def _sum(rows: list[Row]) -> Row:
    total = pricing.nothing()
    for row in rows:
        pricing.add_priced(total, row)
    return total


def _tokens(row: Row) -> int:
    return int(row["input_tokens"] + row["output_tokens"])


def _plain(row: Row) -> list[str]:
    return [row["key"], *(str(row[name]) for name in ("calls", *TOKENS)), f"{row['cost']:.6f}",
            str(row["unknown_cost_calls"])]  # fmt: skip


def _print_csv(call: Call, by: str, rows: list[Row]) -> None:
    import csv
    import io

    made = io.StringIO()
    names = ("calls", *TOKENS, "cost", "estimated_cost", "unknown_cost_calls")
    writer = csv.writer(made, lineterminator="\n")
    writer.writerow((by, *names))
    for row in rows:
        # A spreadsheet takes a text that begins like this for a formula.
        key = f"'{row['key']}" if row["key"][:1] in ("=", "+", "-", "@") else row["key"]
        writer.writerow((key, *(row[name] for name in names)))
    from onrecord.views.render import visible

    call.output.write(visible(made.getvalue(), lines=True))


def _print_table(call: Call, by: str, rows: list[Row], total: Row) -> None:
    """The bars take the room that the numbers leave; in a narrow window they take that of the cached tokens too."""
    if not rows:
        return
    titles = [by, "calls", "input", "cached", "output", "cost"]
    lines = [[row["key"], *_numbers(row)] for row in [*rows, {"key": "total", **total}]]
    room = _room([titles, *lines])
    if room < LEAST_BAR:
        titles, lines = _without_cached(titles), [_without_cached(line) for line in lines]
        room = _room([titles, *lines])
    by_cost = not total["unknown_cost_calls"] and total["cost"] > 0
    amounts = [row["cost"] if by_cost else _tokens(row) for row in rows]
    width = min(BAR_WIDTH, room) if room >= LEAST_BAR else 0
    bars = [Cell(_bar(amount / (max(amounts) or 1), width), "good") for amount in amounts] + [Cell("", "")]
    styled: list[list[str | Cell]] = [[key, bar, *rest] for (key, *rest), bar in zip(lines, bars, strict=True)]
    styled[-1] = [Cell(cell, "strong") if isinstance(cell, str) else cell for cell in styled[-1]]
    call.output.table([f"#{titles[0]}", "!", *(f">{title}" for title in titles[1:])], styled)


def _room(lines: list[list[str]]) -> int:
    """How many columns a table of these cells leaves."""
    from shutil import get_terminal_size

    widths = [max(len(line[place]) for line in lines) for place in range(len(lines[0]))]
    return get_terminal_size().columns - sum(widths) - 2 * len(widths)


def _without_cached(line: list[str]) -> list[str]:
    return [*line[:3], *line[4:]]


def _numbers(row: Row) -> list[str]:
    shown = (row["input_tokens"], row["cache_read_tokens"], row["output_tokens"])
    return [f"{row['calls']:,}", *map(_short, shown), _cost(row)]


def _short(number: int) -> str:
    if number < EXACT_BELOW:
        return f"{number:,}"
    return f"{number / MILLION:,.1f}M" if number >= MILLION else f"{number / 1e3:,.0f}k"


def _cost(row: Row) -> str:
    """The cost; `?` where it is not known, `~` where it is estimated."""
    if row["unknown_cost_calls"] == row["calls"]:
        return "?" if row["calls"] else "$0.00"
    known = f"{'~' if row['estimated_cost'] else ''}${row['cost']:,.{2 if row['cost'] >= 1 else 4}f}"
    return f"{known}+?" if row["unknown_cost_calls"] else known


def _bar(share: float, width: int) -> str:
    eighths = max(1, round(share * width * 8)) if share > 0 and width else 0
    return "█" * (eighths // 8) + _BLOCKS[eighths % 8].strip()


def _notes(call: Call, rows: list[Row], total: Row) -> None:
    if not rows:
        elsewhere = "" if "all" in call else "; add `--all` for all projects"
        call.output.note(f"no model calls are on record{elsewhere}")
    elif total["unknown_cost_calls"]:
        unknown = f"the cost of {counted(total['unknown_cost_calls'], 'call')} is not known"
        if not pricing.is_installed():
            from onrecord.setup.commands import installing_with

            call.output.note(f"{unknown}; `{installing_with(pricing.EXTRA)}` adds a price list")
        else:
            call.output.note(f"{unknown}: the price list does not have the model")
    if total["estimated_cost"] and call.output.terminal:
        call.output.note("~ is estimated from the price list of genai-prices; subscriptions may cost less")
