"""Appending: whole turns, streamed turns, growth, group commit."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from threading import Barrier, Thread
from time import perf_counter

import onrecord
from bench.redaction import OpenFunnel
from bench.report import Figure, ratio, timed
from bench.workload import LeastWriter, RawWriter, turns

ROUNDS = 5
"""A file's location on the disk changes a figure by some percent: each figure is the median of several file pairs."""

MEDIAN_AIM, MEAN_AIM = 1.47, 1.31
"""1.4x and 1.25x, and the 5 % that one way to place an event may cost (decision 23)."""
SEARCH = 1.1
"""What the search for secrets may add (decision 55)."""

Samples = list[list[float]]


def whole_turns(place: Path, *, quick: bool) -> list[Figure]:
    """`record_turn` of three items, without and with the search for secrets, against raw and the minimal program."""
    stock = turns(600 if quick else 3_000)
    rounds = _rounds(place, partial(_whole_turns, stock=stock), 1 if quick else ROUNDS)
    promises = (
        f"which takes {_middle(rounds, 3, 2):.2f}x of raw, mean {_middle(rounds, 3, 2, statistics.fmean):.2f}x: "
        "JSON, commitment, chain, compression, ids"
    )
    return [
        *_against_raw("record_turn", rounds),
        Figure("record_turn against the least that promises the same", _middle(rounds, 0, 3), "x", detail=promises),
    ]


def _whole_turns(place: Path, stock: list[list[dict[str, object]]]) -> Samples:
    raw, least = RawWriter(place / "raw.db"), LeastWriter(place / "least.db")
    with _sessions(place) as (without, searched):
        taken = _in_turn([without.record_turn, searched.record_turn, raw.commit, least.commit], stock)
    raw.close()
    return taken


def streamed_turns(place: Path, *, quick: bool) -> list[Figure]:
    """`with session.turn()`: five durable commits, against the raw program with five commits of the same bytes."""
    stock = turns(150 if quick else 600)
    rounds = _rounds(place, partial(_streamed_turns, stock=stock), 1 if quick else ROUNDS)
    return _against_raw("streamed turn", rounds)


def _streamed_turns(place: Path, stock: list[list[dict[str, object]]]) -> Samples:
    raw = RawWriter(place / "raw.db")

    def streamed(session: onrecord.Session, items: list[dict[str, object]]) -> None:
        with session.turn() as turn:
            for item in items:
                turn.add(item)

    def by_hand(items: list[dict[str, object]]) -> None:
        raw.commit([{"begun": True, "base": 1}])
        for item in items:
            raw.commit([item])
        raw.commit([{"committed": True}])

    with _sessions(place) as (without, searched):
        taken = _in_turn([partial(streamed, without), partial(streamed, searched), by_hand], stock)
    raw.close()
    return taken


@contextmanager
def _sessions(place: Path) -> Iterator[tuple[onrecord.Session, onrecord.Session]]:
    """A session without the search for secrets, and one as it is by default; each in a file of its own."""
    with (
        onrecord.connect(str(place / "without.db"), project="bench") as first,
        onrecord.connect(str(place / "searched.db"), project="bench") as second,
    ):
        without, searched = first.open("without"), second.open("searched")
        without.funnel = OpenFunnel(lambda: b"")
        yield without, searched


def _in_turn(
    calls: Sequence[Callable[[list[dict[str, object]]], object]], stock: list[list[dict[str, object]]]
) -> Samples:
    """The times of each program, turn by turn, each time another one first."""
    taken: Samples = [[] for _call in calls]
    for number, items in enumerate(stock):
        for index in range(len(calls)):
            which = (index + number) % len(calls)
            taken[which].append(timed(partial(calls[which], items)))
    return taken


def _against_raw(what: str, rounds: list[Samples]) -> list[Figure]:
    """The four figures: without and with the search, median and mean."""
    mean, detail = statistics.fmean, _medians(rounds)
    return [
        Figure(
            f"{what} without the search, against raw, median", _middle(rounds, 0, 2), "x", MEDIAN_AIM, detail=detail
        ),
        Figure(f"{what} without the search, against raw, mean", _middle(rounds, 0, 2, mean), "x", MEAN_AIM),
        Figure(f"{what} against raw, median", _middle(rounds, 1, 2), "x", round(MEDIAN_AIM * SEARCH, 2)),
        Figure(f"{what} against raw, mean", _middle(rounds, 1, 2, mean), "x", round(MEAN_AIM * SEARCH, 2)),
    ]


def _medians(rounds: list[Samples]) -> str:
    without, searched, raw = (
        statistics.median([sample for found in rounds for sample in found[which]]) * 1e6 for which in range(3)
    )
    return f"medians: raw {raw:.0f} us, ours {without:.0f} us, with the search {searched:.0f} us"


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
