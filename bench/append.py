"""Appending: whole turns, streamed turns, growth, group commit."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from functools import partial
from pathlib import Path
from threading import Barrier, Thread
from time import perf_counter

import onrecord
from bench.report import Figure, ratio, timed
from bench.workload import LeastWriter, RawWriter, turns


def whole_turns(place: Path, *, quick: bool) -> list[Figure]:
    """`record_turn` of three items against the raw program and the least one, turn by turn in alternation."""
    count = 600 if quick else 3_000
    raw, least = RawWriter(place / "raw.db"), LeastWriter(place / "least.db")
    session = onrecord.connect(str(place / "ours.db"), project="bench").open("append")
    calls: list[Callable[[list[dict[str, object]]], object]] = [session.record_turn, raw.commit, least.commit]
    taken: list[list[float]] = [[] for _call in calls]
    for number, items in enumerate(turns(count)):
        for index in range(len(calls)):
            which = (index + number) % len(calls)
            taken[which].append(timed(partial(calls[which], items)))
    ours, theirs, floor = taken
    detail = f"raw median {statistics.median(theirs) * 1e6:.0f} us, ours {statistics.median(ours) * 1e6:.0f} us"
    promises = (
        f"which takes {ratio(floor, theirs):.2f}x of raw, mean {ratio(floor, theirs, statistics.fmean):.2f}x: "
        "JSON, commitment, chain, compression, ids"
    )
    return [
        Figure("record_turn against raw, median", ratio(ours, theirs), "x", 1.4, detail=detail),
        Figure("record_turn against raw, mean", ratio(ours, theirs, statistics.fmean), "x", 1.25),
        Figure("record_turn against the least that promises the same", ratio(ours, floor), "x", detail=promises),
    ]


def streamed_turns(place: Path, *, quick: bool) -> list[Figure]:
    """`with session.turn()`: five durable commits, against the raw program with five commits of the same bytes."""
    count = 150 if quick else 600
    raw = RawWriter(place / "raw.db")
    session = onrecord.connect(str(place / "ours.db"), project="bench").open("stream")
    ours: list[float] = []
    theirs: list[float] = []
    for items in turns(count):

        def streamed(items: list[dict[str, object]] = items) -> None:
            with session.turn() as turn:
                for item in items:
                    turn.add(item)

        def by_hand(items: list[dict[str, object]] = items) -> None:
            raw.commit([{"begun": True, "base": 1}])
            for item in items:
                raw.commit([item])
            raw.commit([{"committed": True}])

        theirs.append(timed(by_hand))
        ours.append(timed(streamed))
    detail = f"raw median {statistics.median(theirs) * 1e6:.0f} us, ours {statistics.median(ours) * 1e6:.0f} us"
    return [
        Figure("streamed turn against raw with as many commits, median", ratio(ours, theirs), "x", 1.4, detail=detail),
        Figure("streamed turn against raw, mean", ratio(ours, theirs, statistics.fmean), "x", 1.25),
    ]


def growth(place: Path, *, quick: bool) -> list[Figure]:
    """The last tenth of a long session against the first tenth."""
    count = 5_000 if quick else 50_000
    session = onrecord.connect(str(place / "ours.db"), project="bench").open("grow")
    stock = turns(500)
    samples = [timed(partial(session.record_turn, stock[number % 500])) for number in range(count)]
    tenth = count // 10
    first, last = samples[:tenth], samples[-tenth:]
    detail = f"first {statistics.median(first) * 1e6:.0f} us, last {statistics.median(last) * 1e6:.0f} us"
    name = f"append, last tenth of {count:,} turns against the first"
    return [Figure(name, ratio(last, first), "x", 1.1, detail=detail)]


def group_commit(place: Path, *, quick: bool) -> list[Figure]:
    """64 threads that append one event after the other against one that does; each append acknowledged on its own."""
    count = 1_280 if quick else 6_400
    session = onrecord.connect(str(place / "ours.db"), project="bench").open("group")
    session.decide("warm up")
    rates: dict[int, list[float]] = {1: [], 64: []}
    for _round in range(3):
        for threads, found in rates.items():
            found.append(_rate(session, threads, count // threads))
    single, many = (statistics.median(found) for found in rates.values())
    detail = f"{single:,.0f} and {many:,.0f} appends/s"
    return [Figure("group commit, 64 threads against one", many / single, "x", 4, at_least=True, detail=detail)]


def _rate(session: onrecord.Session, threads: int, each: int) -> float:
    """Appends per second of so many threads together."""
    start = Barrier(threads + 1)

    def work() -> None:
        start.wait()
        for number in range(each):
            session.decide(f"decision {number}")

    workers = [Thread(target=work) for _ in range(threads)]
    for worker in workers:
        worker.start()
    start.wait()
    began = perf_counter()
    for worker in workers:
        worker.join()
    return threads * each / (perf_counter() - began)
