"""Benchmark reports: one line per figure, with its target, as text and as JSON."""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import NamedTuple


class Figure(NamedTuple):
    """One measured figure. `target` is an upper bound, or a lower bound with `at_least`."""

    name: str
    value: float
    unit: str
    target: float | None = None
    at_least: bool = False
    detail: str = ""

    @property
    def met(self) -> bool:
        """Whether the target is met (or there is none)."""
        if self.target is None:
            return True
        return self.value >= self.target if self.at_least else self.value <= self.target


def ratio(ours: list[float], theirs: list[float], by: Callable[[list[float]], float] = statistics.median) -> float:
    """Ours over theirs, of interleaved samples."""
    return by(ours) / by(theirs)


def timed(call: Callable[[], object]) -> float:
    """Seconds one call takes."""
    start = perf_counter()
    call()
    return perf_counter() - start


def in_turn(call: Callable[[], object], other: Callable[[], object], *, rounds: int) -> float:
    """How long one call takes against another. Each round runs both, every second one the other way round."""
    taken: tuple[list[float], list[float]] = ([], [])
    for number in range(rounds):
        for which in (0, 1) if number % 2 else (1, 0):
            taken[which].append(timed((call, other)[which]))
    return ratio(*taken)


def show(figures: list[Figure]) -> None:
    """One line per figure, aligned."""
    for figure in figures:
        bound = ""
        if figure.target is not None:
            bound = f"{'>=' if figure.at_least else '<='} {figure.target:g}{figure.unit}"
        mark = " " if figure.target is None else ("+" if figure.met else "!")
        print(f"{mark} {figure.name:<58} {figure.value:>10.3g}{figure.unit:<10} {bound:<16} {figure.detail}")
    sys.stdout.flush()


def keep(figures: list[Figure], path: Path) -> None:
    """The figures as JSON."""
    path.write_text(json.dumps([figure._asdict() | {"met": figure.met} for figure in figures], indent=1) + "\n")
