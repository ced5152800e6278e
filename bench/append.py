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

ROUNDS = 5
"""A file's location on the disk changes a figure by some percent: each figure is the median of several file pairs."""

Samples = list[list[float]]


def whole_turns(place: Path, *, quick: bool) -> list[Figure]:
    """`record_turn` of three items against the raw and the minimal program, turn by turn in alternation."""
    stock = turns(600 if quick else 3_000)
    rounds = _rounds(place, partial(_whole_turns, stock=stock), 1 if quick else ROUNDS)
    promises = (
        f"which takes {_middle(rounds, 2, 1):.2f}x of raw, mean {_middle(rounds, 2, 1, statistics.fmean):.2f}x: "
        "JSON, commitment, chain, compression, ids"
    )
    return [
        Figure(
            "record_turn against raw, median", _middle(rounds, 0, 1), "x", 1.4,
            detail=_medians(rounds),
        ),
        Figure("record_turn against raw, mean", _middle(rounds, 0, 1, statistics.fmean), "x", 1.25),
        Figure("record_turn against the least that promises the same", _middle(rounds, 0, 2), "x", detail=promises),
    ]  # fmt: skip


def _whole_turns(place: Path, stock: list[list[dict[str, object]]]) -> Samples:
    raw, least = RawWriter(place / "raw.db"), LeastWriter(place / "least.db")
    store = onrecord.connect(str(place / "ours.db"), project="bench")
    calls: list[Callable[[list[dict[str, object]]], object]] = [
        store.open("append").record_turn, raw.commit, least.commit
    ]  # fmt: skip
    taken: Samples = [[] for _call in calls]
    for number, items in enumerate(stock):
        for index in range(len(calls)):
            which = (index + number) % len(calls)
            taken[which].append(timed(partial(calls[which], items)))
    store.close()
    raw.close()
    return taken


def streamed_turns(place: Path, *, quick: bool) -> list[Figure]:
    """`with session.turn()`: five durable commits, against the raw program with five commits of the same bytes."""
    stock = turns(150 if quick else 600)
    rounds = _rounds(place, partial(_streamed_turns, stock=stock), 1 if quick else ROUNDS)
    return [
        Figure(
            "streamed turn against raw with as many commits, median", _middle(rounds, 0, 1), "x", 1.4,
            detail=_medians(rounds),
        ),
        Figure("streamed turn against raw, mean", _middle(rounds, 0, 1, statistics.fmean), "x", 1.25),
    ]  # fmt: skip


def _streamed_turns(place: Path, stock: list[list[dict[str, object]]]) -> Samples:
    raw = RawWriter(place / "raw.db")
    store = onrecord.connect(str(place / "ours.db"), project="bench")
    session = store.open("stream")
    taken: Samples = [[], []]
    for items in stock:

        def streamed(items: list[dict[str, object]] = items) -> None:
            with session.turn() as turn:
                for item in items:
                    turn.add(item)

        def by_hand(items: list[dict[str, object]] = items) -> None:
            raw.commit([{"begun": True, "base": 1}])
            for item in items:
                raw.commit([item])
            raw.commit([{"committed": True}])

        taken[1].append(timed(by_hand))
        taken[0].append(timed(streamed))
    store.close()
    raw.close()
    return taken


def _medians(rounds: list[Samples]) -> str:
    ours, raw = (statistics.median([sample for found in rounds for sample in found[which]]) * 1e6 for which in (0, 1))
    return f"raw median {raw:.0f} us, ours {ours:.0f} us"


def _rounds(place: Path, measure: Callable[[Path], Samples], count: int) -> list[Samples]:
    """The same with new files, several times."""
    found = []
    for number in range(count):
        fresh = place / str(number)
        fresh.mkdir(mode=0o700)
        found.append(measure(fresh))
    return found


def _middle(
    rounds: list[Samples], ours: int, theirs: int, by: Callable[[list[float]], float] = statistics.median
) -> float:
    """The median of the rounds."""
    return statistics.median(ratio(found[ours], found[theirs], by) for found in rounds)


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
    """64 threads that append one event after another against one such thread; each append acknowledged separately."""
    count = 1_280 if quick else 3_200
    session = onrecord.connect(str(place / "ours.db"), project="bench").open("group")
    session.decide("warm up")
    rates: dict[int, list[float]] = {1: [], 64: []}
    for _round in range(9):
        for threads, found in rates.items():
            found.append(_rate(session, threads, count // threads))
    single, many = (statistics.median(found) for found in rates.values())
    detail = f"{single:,.0f} and {many:,.0f} appends/s"
    return [Figure("group commit, 64 threads against one", many / single, "x", 4, at_least=True, detail=detail)]


def _rate(session: onrecord.Session, threads: int, each: int) -> float:
    """Appends per second of all threads together."""
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
