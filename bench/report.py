"""Benchmark reports: one line per figure, with its target, as text and as JSON."""

from __future__ import annotations

import gc
import json
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from time import perf_counter, process_time
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


def in_turn(call: Callable[[], object], other: Callable[[], object], *, rounds: int) -> tuple[float, float]:
    """How long one call takes against another, and how much processor time.

    Each round runs both, every second one the other way round. On a busy machine the first figure says more about the
    neighbours than about the call. Garbage of one call is collected before the next: neither pays for the other.
    """
    taken: tuple[list[float], list[float]] = ([], [])
    used: tuple[list[float], list[float]] = ([], [])
    for number in range(rounds):
        for which in (0, 1) if number % 2 else (1, 0):
            gc.collect()
            begun = process_time()
            taken[which].append(timed((call, other)[which]))
            used[which].append(process_time() - begun)
    return ratio(*taken), ratio(*used)


def pair(name: str, calls: list[Callable[[], None]], rounds: int, aim: float) -> list[Figure]:
    """Two figures of two calls in alternation: the first over the second, in time and in processor time."""
    took, used = in_turn(calls[0], calls[1], rounds=rounds)
    return [Figure(name, took, "x", aim), Figure(f"{name}, processor time", used, "x", aim)]


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
