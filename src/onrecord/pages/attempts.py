"""Attempts as a table with their metrics, and a plot of each metric over the attempts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from onrecord.pages.panel import Line
from onrecord.pages.text import attribute, clock, day, in_words, link, seconds, short, shown
from onrecord.views.attempt_table import METRIC_COLUMNS, metric_names, metric_text
from onrecord.views.attempts import status_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from onrecord.pages.panel import Gone
    from onrecord.views.fold import Whole
    from onrecord.views.values import Attempt

PLOTS_LIMIT = 6
"""How many metrics are plotted: those of the newest attempts."""
POINTS_LIMIT = 400
"""How many attempts a plot shows: the newest."""
_MOODS = {"succeeded": "v", "failed": "r", "running": "o"}
_WIDTH, _HEIGHT, _PAD = 340, 130, 24
_LARGEST = 1e300
_TOOK = 3
"""The column of the duration; the metrics follow it."""


def attempts_table(whole: Whole, gone: Gone | None = None) -> str:
    """Every attempt as it is now, the newest last."""
    names = metric_names(whole.attempts.all(), METRIC_COLUMNS)
    return draw_attempts(attempt_rows(whole, gone, names), names)


def draw_attempts(rows: Sequence[Line], names: Sequence[str]) -> str:
    """Rows under their headings."""
    if not rows:
        return '<p class="empty">No attempts yet. <code>onrecord run -- COMMAND</code> records one.</p>'
    heads = ["#", "outcome", "command", "took", *names, "result", "by", "event"]
    heading = "".join(f"<th>{shown(name)}</th>" for name in heads)
    body = "".join(row.html for row in sorted(rows, key=lambda row: row.order))
    return f'<div class="wide"><table class="grid"><thead><tr>{heading}</tr></thead><tbody>{body}</tbody></table></div>'


def attempt_rows(whole: Whole, gone: Gone | None, names: Sequence[str]) -> list[Line]:
    """A table row for each attempt."""
    return [attempt_row(one, gone, names) for one in whole.attempts.all()]


def attempt_row(attempt: Attempt, gone: Gone | None, names: Sequence[str]) -> Line:
    """The row of one attempt."""
    status = status_of(attempt, gone) if gone else attempt["status"]
    return Line("", attempt["number"], _row(attempt, status, names))


def _row(attempt: Attempt, status: str, names: Sequence[str]) -> str:
    took, code = _took(attempt), attempt.get("exit_code")
    result = [f"exit {shown(code)}"] if code is not None else []
    result += [short(attempt[name], 300) for name in ("error", "reason") if attempt.get(name)]
    result += [f"fix: {short(attempt['fix'], 300)}"] if attempt.get("fix") else []
    cells = [
        str(attempt["number"]),
        f'<span class="m {_MOODS.get(status, "s")}">{shown(status)}</span>',
        f"<code>{in_words(attempt['command'], 300)}</code>",
        took,
        *(shown(metric_text(attempt, name)) for name in names),
        "; ".join(result),
        shown(attempt["by"]),
        link(attempt.get("settled") or attempt["position"]),
    ]
    when = f"{day(attempt['at'])} {clock(attempt['at'])} UTC"
    numbers = range(_TOOK, _TOOK + 1 + len(names))
    drawn = "".join(f"<td{' class=n' if place in numbers else ''}>{cell}</td>" for place, cell in enumerate(cells))
    return f'<tr title="{attribute(when)}">{drawn}</tr>'


def _took(attempt: Attempt) -> str:
    """How long an attempt took; without a measurement, how long it had no outcome."""
    took, ended = attempt.get("seconds"), attempt.get("ended_at")
    if isinstance(took, int | float):
        return seconds(took)
    waited = (ended - attempt["at"]) / 1e6 if ended and attempt["status"] in ("succeeded", "failed") else 0.0
    return seconds(waited) if waited >= 1 else ""  # both were recorded at once: after the run


def metric_plots(whole: Whole) -> str:
    """A plot for each metric that several attempts have."""
    attempts = whole.attempts.all()
    drawn = [metric_plot(attempts, name) for name in metric_names(attempts, PLOTS_LIMIT)]
    return f'<div class="plots">{"".join(drawn)}</div>' if any(drawn) else ""


def metric_plot(attempts: Sequence[Mapping[str, Any]], name: str) -> str:
    """One metric over the attempts; nothing if fewer than two attempts have it as a number."""
    points = [(one, value) for one in attempts[-POINTS_LIMIT:] if (value := _number(one, name)) is not None]
    if len(points) < 2:  # noqa: PLR2004  # one point is no line
        return ""
    low, high = min(value for _one, value in points), max(value for _one, value in points)
    spread = high - low or 1.0
    step = (_WIDTH - 2 * _PAD) / (len(points) - 1)
    placed = [(_PAD + index * step, _HEIGHT - _PAD - (value - low) / spread * (_HEIGHT - 2 * _PAD), one, value)
              for index, (one, value) in enumerate(points)]  # fmt: skip
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y, _one, _value in placed)
    dots = "".join(_dot(*one) for one in placed)
    base, first, last = _HEIGHT - _PAD, points[0][0]["number"], points[-1][0]["number"]
    about = f"{attribute(name)} over {len(points)} attempts"
    return (
        f'<figure class="plot"><figcaption>{shown(name)}</figcaption>'
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="group" aria-label="{about}">'
        f'<line class="axis" x1="{_PAD}" y1="{base}" x2="{_WIDTH - _PAD}" y2="{base}"/>'
        f'<text x="{_PAD}" y="14">{attribute(f"{high:g}")}</text>'
        f'<text x="{_PAD}" y="{_HEIGHT - 8}">{attribute(f"{low:g}")}, attempt {first}</text>'
        f'<text class="end" x="{_WIDTH - _PAD}" y="{_HEIGHT - 8}">attempt {last}</text>'
        f'<polyline class="metric" points="{line}"/>{dots}</svg></figure>'
    )


def _number(attempt: Mapping[str, Any], name: str) -> float | None:
    value = (attempt.get("metrics") or {}).get(name)
    return float(value) if isinstance(value, int | float) and abs(value) < _LARGEST else None


def _dot(x: float, y: float, attempt: Mapping[str, Any], value: float) -> str:
    css = _MOODS.get(str(attempt["status"]), "s")
    title = f"<title>attempt {attempt['number']}: {attribute(f'{value:g}')}</title>"
    circle = f'<circle class="dot {css}" cx="{x:.1f}" cy="{y:.1f}" r="4">{title}</circle>'
    return f'<a href="#e{attempt.get("settled") or attempt["position"]}">{circle}</a>'
