"""What is measured on PostgreSQL: appends, writers, resume, lists, growth. `bench/postgres.py` runs it."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
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
url, name, agent, seconds = *sys.argv[1:4], float(sys.argv[4])
session = onrecord.connect(url, project="bench").open(name, agent=agent)
stock = turns(50)
session.record_turn(stock[0])
print("ready", flush=True)
sys.stdin.readline()
samples, end = [], time.perf_counter() + seconds
while time.perf_counter() < end:
    start = time.perf_counter()
    session.record_turn(stock[len(samples) % 50])
    samples.append(time.perf_counter() - start)
print(json.dumps({"count": len(samples), "worst": max(samples)}))
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
    another: Callable[[], Place]
    """Makes another empty store on the same server."""


def append(place: Place, size: Size) -> list[Figure]:
    """Appends of one turn each, ours and raw in alternation, in the same database."""
    records = onrecord.connect(place.url, project="bench")
    session, recorded = records.open("append"), records.open("recorded")
    raw = RawWriter(place.admin, "append")
    stock, packed = turns(200), payloads(200)
    found: dict[str, list[float]] = {name: [] for name in ("append", "record_turn", "raw", "by hand")}
    for number in range(size.appends):
        draft = session.log.draft("turn.recorded", {"items": stock[number % 200]})
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
    """Start all of them, let them go at once when the last one is ready, and collect what each got done."""
    if kind.startswith("raw"):
        command = [sys.executable, "-m", "bench.postgres_peer", place.admin]
        words = [[f"raw-{count}-{n}"] for n in range(count)]
    else:
        command = [sys.executable, "-c", WRITER, place.url]
        own = kind.startswith("own")
        words = [[f"own-{count}-{n}" if own else f"one-{count}", f"w{n}"] for n in range(count)]
    started = [
        subprocess.Popen([*command, *one, str(seconds)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for one in words
    ]
    for process in started:
        assert process.stdout is not None
        if process.stdout.readline() != "ready\n":
            raise SystemExit("a writer did not start")
    for process in started:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in started:
        yield json.loads(process.communicate(timeout=300)[0])


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
    """The newest 50 sessions, of all projects and of one, in stores of different sizes, looked at in turn."""
    stores = {count: onrecord.connect(_filled(place.another(), count).url, project="bulk-7") for count in size.sessions}
    found: dict[str, dict[int, list[float]]] = {"all projects": {}, "one project": {}}
    for _round in range(201):
        for count, records in stores.items():
            for what, project in (("all projects", ""), ("one project", None)):
                seconds = timed(partial(records.sessions, project=project, limit=PAGE))
                found[what].setdefault(count, []).append(seconds)
    few, many = size.sessions[0], size.sessions[-1]
    figures = []
    for what, samples in found.items():
        told = ", ".join(f"{count:,}: {statistics.median(one) * 1e3:.2f} ms" for count, one in samples.items())
        name = f"page of {PAGE} of {many:,} sessions against {few:,}, {what}"
        figures.append(Figure(name, ratio(samples[many], samples[few]), "x", 1.5, detail=told))
    return figures


def _filled(place: Place, sessions: int) -> Place:
    """Heads and names in bulk, without events: a list reads nothing else."""
    _bulk(place, "sessions", 0, sessions)
    return place


def growth(place: Place, size: Size) -> list[Figure]:
    """Appends and reads in stores of different sizes, in turn; the rows around them are made in bulk."""
    stores = {count: _grown(place.another(), count) for count in size.events}
    found: dict[str, dict[int, list[float]]] = {"append": {}, "read": {}, "find": {}}
    stock = turns(200)
    for number in range(size.appends // 2):
        for count, (session, old, _bytes) in stores.items():
            calls: dict[str, Callable[[], object]] = {
                "append": partial(session.record_turn, stock[number % 200], id=f"turn-{number}"),
                "read": partial(session.store.read, old[number * 7919 % len(old)], limit=PAGE),
                "find": partial(session.store.find, session.id, f"turn-{number // 2}"),
            }
            for name, call in calls.items():
                found[name].setdefault(count, []).append(timed(call))
    figures = []
    for count, (_session, _old, bytes_) in stores.items():
        medians = {name: statistics.median(samples[count]) * 1e6 for name, samples in found.items()}
        told = ", ".join(f"{name} {median:.0f} us" for name, median in medians.items())
        detail = f"{told}; {bytes_ / count:,.0f} B per event on disk, {bytes_ / 1e9:.2f} GB"
        figures.append(Figure(f"append in a store of {count:,} events", medians["append"], " us", detail=detail))
    few, many = size.events[0], size.events[-1]
    for name, samples in found.items():
        what = f"{name} at {many:,} events against {few:,}"
        figures.append(Figure(what, ratio(samples[many], samples[few]), "x", 1.5))
    return figures


def _grown(place: Place, events: int) -> tuple[Session, list[str], int]:
    """A session to work in, ids of sessions to read, and the bytes of everything around them."""
    make_events(place, 0, events)
    session = onrecord.connect(place.url, project="bench").open("grow")
    old = [head.session for head in session.store.heads(project="bulk", limit=1_000)]
    return session, old, _size_of(place)


BULK_EVENTS = 100
"""How many events a session has that is made in bulk."""


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
