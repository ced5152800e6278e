"""Draws the figures of `bench/postgres.py`; kept ones: `python -m bench.postgres_plot FIGURES.json OUT.svg`."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import matplotlib as mpl

from bench.report import Figure

mpl.use("svg")
mpl.rcParams |= {"svg.hashsalt": "onrecord", "font.size": 9, "axes.spines.top": False, "axes.spines.right": False}

from matplotlib import pyplot as plt  # noqa: E402  # the backend is chosen above

WRITERS = re.compile(r"(\d+) writers, (.+)")
STORE = re.compile(r"append in a store of ([\d,]+) events")
MEDIAN = re.compile(r"(\w+) (\d+) us")
LOOKS = {
    "own sessions": ("#0a7d5c", "o", "onrecord, sessions of their own"),
    "one session": ("#b4530f", "s", "onrecord, one session"),
    "raw, own sessions": ("#777777", "^", "raw psycopg, the same rows"),
}


def draw(figures: list[Figure], path: Path) -> None:
    """Two panels in one file."""
    sheet, (left, right) = plt.subplots(1, 2, figsize=(9, 3.4))
    for kind, (colour, marker, label) in LOOKS.items():
        points = sorted(
            (int(found[1]), figure.value)
            for figure in figures
            if (found := WRITERS.fullmatch(figure.name)) and found[2] == kind
        )
        if points:
            left.plot(*zip(*points, strict=True), color=colour, marker=marker, label=label)
    left.set(xlabel="writer processes", ylabel="turns per second", ylim=(0, None))
    left.legend(frameon=False)
    series: dict[str, list[tuple[int, float]]] = {}
    for figure in figures:
        if found := STORE.fullmatch(figure.name):
            for name, median in MEDIAN.findall(figure.detail):
                series.setdefault(name, []).append((int(found[1].replace(",", "")), int(median) / 1e3))
    for name, line in series.items():
        right.plot(*zip(*sorted(line), strict=True), marker="o", label=name)
    right.set(xscale="log", xlabel="events in the store", ylabel="median, ms", ylim=(0, None))
    right.legend(frameon=False)
    sheet.tight_layout()
    sheet.savefig(path, metadata={"Date": None})
    plt.close(sheet)


if __name__ == "__main__":
    kept = json.loads(Path(sys.argv[1]).read_text())
    draw([Figure(**{name: one[name] for name in Figure._fields}) for one in kept], Path(sys.argv[2]))
