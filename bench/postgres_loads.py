"""What is measured on PostgreSQL: appends, writers, resume, lists, growth. `bench/postgres.py` runs it."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

import psycopg

import onrecord
from bench.postgres_peer import RawWriter, payloads, statements
from bench.report import Figure, ratio, timed
from bench.workload import turns
from onrecord.session.handle import Session

PAGE = 50
WRITER = """
import json, sys, time, onrecord
from bench.workload import turns
url, name, agent, begin, seconds = *sys.argv[1:4], float(sys.argv[4]), float(sys.argv[5])
session = onrecord.connect(url, project="bench").open(name, agent=agent)
stock = turns(50)
session.record_turn(stock[0])
time.sleep(max(0, begin - time.time()))
samples, end = [], begin + seconds
while time.time() < end:
    start = time.perf_counter()
    session.record_turn(stock[len(samples) % 50])
    samples.append(time.perf_counter() - start)
print(json.dumps({"count": len(samples), "worst": max(samples, default=0)}))
"""
RESUME = """
import sys, time
import onrecord.connect, onrecord.session.moment, onrecord.session.reading, onrecord.stores.postgres.store
import onrecord.views.context, onrecord.views.note, onrecord.views.transcript, zstandard
start = time.perf_counter()
session = onrecord.connect.connect(sys.argv[1], project="bench").get("long", agent="main")
brief = session.brief()
context = session.context(tokens=8000)
assert context.items and brief
print(time.perf_counter() - start)
"""


class Size(NamedTuple):
    """How much of everything."""

    appends: int
    seconds: float
    writers: tuple[int, ...]
    resume: tuple[int, ...]
    sessions: tuple[int, ...]
    events: tuple[int, ...]


class Place(NamedTuple):
    """Where it is measured: a store, and the same database for whoever may do everything."""

    url: str
    admin: str


def append(place: Place, size: Size) -> list[Figure]:
    """Appends of one turn each, ours and raw in alternation, in the same database."""
    records = onrecord.connect(place.url, project="bench")
    session, recorded = records.open("append"), records.open("recorded")
    raw = RawWriter(place.admin, "append")
    stock, packed = turns(200), payloads(200)
    found: dict[str, list[float]] = {name: [] for name in ("append", "record_turn", "raw", "by hand")}
    for number in range(size.appends):
        draft = session.draft("turn.recorded", {"items": stock[number % 200]})
        calls: dict[str, Callable[[], object]] = {
            "append": partial(session.store.append, session.id, [draft], lease=session.lease),
            "raw": partial(raw.append, packed[number % 200]),
            "record_turn": partial(recorded.record_turn, stock[number % 200]),
            "by hand": partial(raw.append_by_hand, packed[number % 200]),
        }
        names = list(calls) if number % 2 else list(reversed(calls))
        for name in names:
            found[name].append(timed(calls[name]))
    raw.close()
    told = ", ".join(f"{name} {statistics.median(samples) * 1e6:.0f} us" for name, samples in found.items())
    return [
        Figure(
            "append, rate against the same rows in one raw statement", ratio(found["raw"], found["append"]), "x", 0.7,
            at_least=True, detail=f"medians: {told}",
        ),
        Figure("record_turn, rate against the same", ratio(found["raw"], found["record_turn"]), "x"),
        Figure(
            "append, rate against a raw transaction of two statements", ratio(found["by hand"], found["append"]), "x"
        ),
    ]  # fmt: skip


def writers(place: Place, size: Size) -> list[Figure]:
    """1 to 16 processes, on sessions of their own and on one session; and the raw program with as many."""
    figures = []
    for kind in ("own sessions", "one session", "raw, own sessions"):
        for count in size.writers:
            results = list(_race(place, kind, count, size.seconds))
            done = [result["count"] for result in results]
            fairness = sum(done) ** 2 / (len(done) * sum(one * one for one in done))
            worst = max(result["worst"] for result in results) * 1e3
            detail = f"{min(done):.0f} to {max(done):.0f} each, fairness {fairness:.3f}, slowest {worst:.0f} ms"
            figures.append(Figure(f"{count} writers, {kind}", sum(done) / size.seconds, " turns/s", detail=detail))
    return figures


def _race(place: Place, kind: str, count: int, seconds: float) -> Iterator[dict[str, float]]:
    begin = time.time() + 1.5 + count * 0.25
    if kind.startswith("raw"):
        command = [sys.executable, "-m", "bench.postgres_peer", place.admin]
        words = [[f"raw-{count}-{n}", str(begin), str(seconds)] for n in range(count)]
    else:
        command = [sys.executable, "-c", WRITER, place.url]
        own = kind.startswith("own")
        words = [
            [f"own-{count}-{n}" if own else f"one-{count}", f"w{n}", str(begin), str(seconds)] for n in range(count)
        ]
    started = [subprocess.Popen([*command, *one], stdout=subprocess.PIPE, stderr=subprocess.PIPE) for one in words]
    for process in started:
        out, problem = process.communicate(timeout=300)
        if process.returncode:
            raise SystemExit(problem.decode())
        yield json.loads(out)


def resume(place: Place, size: Size) -> list[Figure]:
    """Brief and context ready in a fresh process, over the import cost, for sessions of different lengths."""
    session = onrecord.connect(place.url, project="bench").open("long", objective="measure")
    stock = turns(500)
    figures = []
    done = 0
    for count in size.resume:
        for number in range(done, count):
            session.record_turn(stock[number % 500])
        done = count
        samples = []
        for _ in range(9):
            answer = subprocess.run([sys.executable, "-c", RESUME, place.url], capture_output=True, check=True)
            samples.append(float(answer.stdout) * 1e3)
        figures.append(Figure(f"resume of {count:,} turns in a fresh process", statistics.median(samples), " ms"))
    session.leave()
    return figures


def listing(place: Place, size: Size) -> list[Figure]:
    """The newest 50 sessions, and the page after the first tenth, with few and with many sessions in the store."""
    records = onrecord.connect(place.url, project="bench")
    medians: list[list[float]] = []
    figures = []
    made = 0
    for count in size.sessions:
        make_sessions(place, made, count)
        made = count
        newest = [timed(partial(records.sessions, project="", limit=PAGE)) * 1e3 for _ in range(51)]
        project = [timed(partial(records.sessions, project="bulk-7", limit=PAGE)) * 1e3 for _ in range(51)]
        medians.append([statistics.median(newest), statistics.median(project)])
        name = f"newest {PAGE} of {count:,} sessions"
        figures.append(Figure(name, medians[-1][0], " ms", detail=f"of one project {medians[-1][1]:.2f} ms"))
    for what, few, many in zip(("all projects", "one project"), medians[0], medians[-1], strict=True):
        name = f"a page of {size.sessions[-1]:,} sessions against {size.sessions[0]:,}, {what}"
        figures.append(Figure(name, many / few, "x", 1.5))
    return figures


def growth(place: Place, size: Size) -> list[Figure]:
    """Appends and reads in stores of different sizes; the rows around them are made in bulk."""
    samples: dict[int, dict[str, list[float]]] = {}
    figures = []
    made = 0
    stock = turns(200)
    for count in size.events:
        make_events(place, made, count)
        made = count
        session = onrecord.connect(place.url, project="bench").open(f"grow-{count}")
        found = samples[count] = _measured(session, stock, size.appends)
        told = ", ".join(f"{name} {statistics.median(one) * 1e6:.0f} us" for name, one in found.items())
        bytes_ = _size_of(place)
        figures.append(
            Figure(f"append in a store of {count:,} events", statistics.median(found["append"]) * 1e6, " us",
                   detail=f"{told}; {bytes_ / count:,.0f} B per event on disk, {bytes_ / 1e9:.2f} GB")
        )  # fmt: skip
        session.leave()
    first, last = samples[size.events[0]], samples[size.events[-1]]
    for name in first:
        what = f"{name} at {size.events[-1]:,} events against {size.events[0]:,}"
        figures.append(Figure(what, ratio(last[name], first[name]), "x", 1.5))
    return figures


def _measured(session: Session, stock: list[list[dict[str, object]]], count: int) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {"append": [], "read": [], "find": []}
    old = session.store.heads(project="bulk", limit=1_000)
    for number in range(count):
        found["append"].append(timed(partial(session.record_turn, stock[number % 200], id=f"turn-{number}")))
        other = old[number * 7919 % len(old)].session if old else session.id
        found["read"].append(timed(partial(session.store.read, other, limit=PAGE)))
        found["find"].append(timed(partial(session.store.find, session.id, f"turn-{number // 2}")))
    return found


BULK_EVENTS = 100
"""How many events a session has that is made in bulk."""


def make_sessions(place: Place, start: int, end: int) -> None:
    """Heads and names in bulk, without events: a list reads nothing else."""
    _bulk(place, "sessions", start, end)


def make_events(place: Place, start: int, end: int) -> None:
    """Sessions of a hundred events each. Their rows have the shape and size of real ones; their hashes are no chain."""
    _bulk(place, "events", start // BULK_EVENTS, end // BULK_EVENTS)


BULK_STEP = 10_000
"""How many sessions one statement makes."""


def _bulk(place: Place, what: str, start: int, end: int) -> None:
    made = statements(what)
    with psycopg.connect(place.admin, autocommit=True) as admin:
        for low in range(start, end, BULK_STEP):
            for statement in made:
                admin.execute(statement, {"low": low, "high": min(low + BULK_STEP, end) - 1})
        # What a store in use has had for a long time: statistics, and pages marked as all visible.
        admin.execute("VACUUM (ANALYZE)")
        admin.execute("CHECKPOINT")


def _size_of(place: Place) -> int:
    with psycopg.connect(place.admin) as admin:
        row = admin.execute("SELECT pg_total_relation_size('onrecord.events')").fetchone()
        assert row is not None
        return int(row[0])
