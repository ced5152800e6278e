"""The recording proxy under load: real processes over HTTP, an engine that aborts and pauses, and kills in between."""

from __future__ import annotations

import statistics
from pathlib import Path

from bench.report import Figure
from bench.rollout_load import run_load


def load(place: Path, *, quick: bool) -> list[Figure]:
    """64 sessions of 50 turns, three kills: every turn is on record once, with the exact ids; and the time it took."""
    sessions, turns = (16, 10) if quick else (64, 50)
    done = run_load(place, sessions=sessions, turns=turns, kills=3)
    for problem in done.problems[:10]:
        print(f"    {problem}")
    name = f"proxy, {sessions} sessions x {turns} turns, 3 kills"
    aborted = f"{done.engine['aborted']} of {done.engine['asked']} replies aborted"
    return [
        Figure(f"{name}: turns lost, doubled or changed", len(done.problems), "", 0, detail=aborted),
        Figure(f"{name}: turns a second", done.answered / done.seconds, "/s", detail=f"{done.seconds:.1f} s in all"),
        Figure(f"{name}: /health, median", statistics.median(done.health) * 1e3, " ms"),
        Figure(f"{name}: /health, p99", done.p99_health() * 1e3, " ms", detail=f"{len(done.health)} answers"),
    ]


def routing(place: Path, *, quick: bool) -> list[Figure]:
    """1,000 turns whose requests go to one of two proxies at random, with two kills. How fast: `rollout_balanced`."""
    sessions, turns = (8, 6) if quick else (20, 50)
    done = run_load(place, sessions=sessions, turns=turns, kills=2, proxies=2, random_routing=True)
    for problem in done.problems[:10]:
        print(f"    {problem}")
    name = f"random routing over two proxies, {sessions * turns:,} turns, 2 kills"
    detail = f"{done.asked_again} retries, {done.answered / done.seconds:.0f} turns/s"
    return [Figure(f"{name}: turns lost, doubled or changed", len(done.problems), "", 0, detail=detail)]
