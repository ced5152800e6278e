"""Shows kept results as a table and a plot: `python -m bench.coldstart.show FIGURES.json docs/cold-start.svg`."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

COLUMNS = ("agent", "condition", "facts", "needed", "bytes", "ours", "repeats")
WIDTH, BAR, LEFT, LINE = 760, 300, 330, 20
OURS, OTHERS, CONTROL = "#0a7d5c", "#777777", "#b4530f"


def table(results: Sequence[dict[str, Any]]) -> str:
    """One line per vendor and condition."""
    lines = [COLUMNS, *(_cells(one) for one in results)]
    widths = [max(len(line[number]) for line in lines) for number in range(len(COLUMNS))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )


def markdown(results: Sequence[dict[str, Any]]) -> str:
    """The same as a Markdown table."""
    lines = [f"| {' | '.join(COLUMNS)} |", f"|{'---|' * len(COLUMNS)}"]
    return "\n".join([*lines, *(f"| {' | '.join(_cells(one))} |" for one in results)])


def _cells(one: dict[str, Any]) -> tuple[str, ...]:
    if not one["facts"]:
        return (one["vendor"], one["condition"], "-", "-", "-", "-", "-")
    return (
        one["vendor"], one["condition"], f"{one['found']}/{one['facts']}", f"{one['needed_found']}/{one['needed']}",
        f"{one['bytes']:,}", f"{one['own']:,}" if one["own"] else "-", str(one["repeats"]),
    )  # fmt: skip


def plot(results: Sequence[dict[str, Any]]) -> str:
    """One bar per condition: the mean share of facts over all agents that were measured, the mean repeats beside it."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for one in results:
        if one["facts"]:
            groups.setdefault(one["condition"], []).append(one)
    height = LINE * (len(groups) + 2)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" font-size="12"',
        ' font-family="sans-serif">',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="{LEFT}" y="14" fill="#333">share of the planted facts in the first request</text>',
    ]
    for number, (condition, found) in enumerate(groups.items(), 1):
        share = sum(one["found"] / one["facts"] for one in found) / len(found)
        again = sum(one["repeats"] for one in found) / len(found)
        top = number * LINE
        colour = OURS if found[0]["ours"] else CONTROL if condition.startswith("control") else OTHERS
        label = f"{condition} ({len(found)})"
        parts += [
            f'<text x="{LEFT - 8}" y="{top + 14}" text-anchor="end" fill="#222">{_escaped(label)}</text>',
            f'<rect x="{LEFT}" y="{top + 3}" width="{max(1, round(BAR * share))}" height="14" fill="{colour}"/>',
            f'<text x="{LEFT + BAR + 8}" y="{top + 14}" fill="#222">{100 * share:.0f} %, {again:.1f} repeated</text>',
        ]
    return "\n".join([*parts, "</svg>"]) + "\n"


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;")


if __name__ == "__main__":
    kept = [json.loads(figure["detail"]) for figure in json.loads(Path(sys.argv[1]).read_text())]
    Path(sys.argv[2]).write_text(plot(kept))
    print(markdown(kept))
