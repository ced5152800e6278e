"""What a session used: tables of tokens and costs, and a small line of activity."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from onrecord.pages.text import counted, money, shown, tokens

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onrecord.views.values import Usage

_SPARK_WIDTH, _SPARK_HEIGHT = 96, 20


class UsageRow(NamedTuple):
    """What one model, agent, day or session used."""

    name: str
    calls: int
    input_tokens: int
    cached: int
    """The part of the input that was read from a cache."""
    output_tokens: int
    cost: float
    unknown: int
    """How many calls have no known cost."""


def row_of(name: str, usage: Usage) -> UsageRow:
    """A row of what a view counted."""
    return UsageRow(
        name, usage["calls"], usage["input_tokens"], usage["cache_read_tokens"], usage["output_tokens"], usage["cost"],
        usage["unknown_cost_calls"],
    )  # fmt: skip


def usage_table(rows: Sequence[UsageRow], first: str = "model") -> str:
    """Rows with their sum."""
    if not rows:
        return '<p class="empty">No usage was recorded.</p>'
    heads = (first, "calls", "input", "from cache", "output", "cost")
    heading = "".join(f"<th{' class=n' if at else ''}>{shown(name)}</th>" for at, name in enumerate(heads))
    body = "".join(_row(row) for row in rows)
    foot = f"<tfoot>{_row(total_of(rows))}</tfoot>" if len(rows) > 1 else ""
    table = f"<thead><tr>{heading}</tr></thead><tbody>{body}</tbody>{foot}"
    return f'<div class="wide"><table class="grid use">{table}</table></div>'


def total_of(rows: Sequence[UsageRow]) -> UsageRow:
    """The sum of rows."""
    return UsageRow(
        "total", sum(row.calls for row in rows), sum(row.input_tokens for row in rows), sum(row.cached for row in rows),
        sum(row.output_tokens for row in rows), sum(row.cost for row in rows), sum(row.unknown for row in rows),
    )  # fmt: skip


def _row(row: UsageRow) -> str:
    cells = (f"{row.calls:,}", tokens(row.input_tokens), tokens(row.cached), tokens(row.output_tokens), cost_of(row))
    return f"<tr><td>{shown(row.name)}</td>{''.join(f'<td class=n>{cell}</td>' for cell in cells)}</tr>"


def cost_of(row: UsageRow) -> str:
    """A cost; calls of unknown cost are never guessed."""
    if row.unknown and row.unknown >= row.calls and not row.cost:
        return "unknown"
    return money(row.cost) + (f" + {counted(row.unknown, 'call')} of unknown cost" if row.unknown else "")


def sparkline(values: Sequence[float]) -> str:
    """A small line of activity, without labels."""
    top = max(values, default=0.0)
    if len(values) < 2:  # noqa: PLR2004  # one point is no line
        return ""
    step = _SPARK_WIDTH / (len(values) - 1)
    room = _SPARK_HEIGHT - 4
    points = " ".join(
        f"{n * step:.1f},{_SPARK_HEIGHT - 2 - (one / top * room if top else 0):.1f}" for n, one in enumerate(values)
    )
    return (
        f'<svg class="spark" viewBox="0 0 {_SPARK_WIDTH} {_SPARK_HEIGHT}" width="{_SPARK_WIDTH}" '
        f'height="{_SPARK_HEIGHT}" aria-hidden="true"><polyline points="{points}"/></svg>'
    )
