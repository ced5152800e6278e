"""Reading: resume in a fresh process, whole transcripts, verification, lists, bytes on disk."""

from __future__ import annotations

import gc
import json
import statistics
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, cast

import onrecord
from bench.report import Figure, ratio, timed
from bench.workload import RawWriter, turns
from onrecord.log.head import LIVE
from onrecord.session.standing import standing

if TYPE_CHECKING:
    from onrecord.stores.sqlite import SQLiteStore

RESUME = """
import sys, time
import onrecord.connection, onrecord.session.moment, onrecord.session.reading, onrecord.stores.sqlite.store
import onrecord.views.context, onrecord.views.note, onrecord.views.transcript, zstandard
start = time.perf_counter()
session = onrecord.connection.connect(sys.argv[1], project="bench").get("long", agent="main")
brief = session.brief()
context = session.context(tokens=8000)
assert context.items and brief
print(time.perf_counter() - start)
"""


def fill(place: Path, count: int) -> onrecord.Session:
    """A session of `count` turns."""
    session = onrecord.connect(str(place / "ours.db"), project="bench").open("long", objective="measure")
    stock = turns(min(count, 1_000))
    for number in range(count):
        session.record_turn(stock[number % len(stock)])
        if number % 50 == 0:
            session.decide(f"decision {number}")
    return session


def resume(place: Path, *, quick: bool) -> list[Figure]:
    """Brief and context ready in a new process, without the import cost, for sessions of different lengths."""
    figures = []
    for count in (10, 1_000) if quick else (10, 5_000, 50_000):
        folder = place / str(count)
        folder.mkdir()
        fill(folder, count).leave()
        samples = []
        for _ in range(9):
            done = subprocess.run(
                [sys.executable, "-c", RESUME, str(folder / "ours.db")], capture_output=True, check=True
            )
            samples.append(float(done.stdout) * 1e3)
        figures.append(Figure(f"resume of {count:,} turns, brief and context", statistics.median(samples), " ms", 15))
    return figures


def transcript(place: Path, *, quick: bool) -> list[Figure]:
    """The full transcript against SELECT and json.loads of the same rows; and bytes on disk against JSON lines."""
    count = 1_000 if quick else 5_000
    raw = RawWriter(place / "raw.db")
    stock = turns(count)
    session = onrecord.connect(str(place / "ours.db"), project="bench").open("long")
    lines = 0
    for items in stock:
        raw.commit(items)
        session.record_turn(items)
        lines += sum(len(json.dumps(item, ensure_ascii=False).encode()) + 1 for item in items)
    ours: list[float] = []
    theirs: list[float] = []
    for _ in range(7):
        for samples, read in ((theirs, raw.read), (ours, lambda: session.transcript().items)):
            gc.collect()
            samples.append(timed(read))
    assert session.transcript().items == raw.read()
    verified = [timed(session.verify) for _ in range(3)]
    session.leave()
    raw.close()
    cast("SQLiteStore", session.store).tidy()
    session.store.close()
    size = sum(path.stat().st_size for path in place.glob("ours.db*"))
    again = onrecord.connect(str(place / "ours.db"), project="bench")
    again.search("membership")
    cast("SQLiteStore", again.store).tidy()
    again.close()
    searched = sum(path.stat().st_size for path in place.glob("ours.db*"))
    detail = f"raw {statistics.median(theirs) * 1e3:.0f} ms, ours {statistics.median(ours) * 1e3:.0f} ms"
    return [
        Figure(f"transcript of {count:,} turns against SELECT + decode", ratio(ours, theirs), "x", 1.3, detail=detail),
        Figure(
            "bytes on disk against JSON lines of the items",
            size / lines,
            "x",
            0.65,
            detail=f"{size / count:,.0f} B per turn",
        ),
        Figure("the same once the search index has caught up", searched / lines, "x"),
        Figure("raw database against JSON lines", (place / "raw.db").stat().st_size / lines, "x"),
        Figure("verify, recorded turns of 5.7 KB", (count + 2) / statistics.median(verified), " events/s"),
    ]


def verify(place: Path, *, quick: bool) -> list[Figure]:
    """Verification of small events."""
    count = 20_000 if quick else 100_000
    session = onrecord.connect(str(place / "ours.db"), project="bench").open("facts")
    for start in range(0, count, 1_000):
        session.log.append(*[session.log.draft("worklog.written", {"text": f"line {start + n}"}) for n in range(1_000)])
    samples = [timed(session.verify) for _ in range(3)]
    return [Figure("verify", count / statistics.median(samples), " events/s", 100_000, at_least=True)]


def listing(place: Path, *, quick: bool) -> list[Figure]:
    """The newest 50 of many sessions, with status, title and last activity, in a warm process."""
    count = 1_000 if quick else 10_000
    records = onrecord.connect(str(place / "ours.db"), project="bench")
    for number in range(count):
        records.create(f"session-{number}", objective=f"objective of {number}")
    records.sessions()
    samples = [timed(lambda: records.sessions(limit=50)) * 1e3 for _ in range(51)]
    newest = Figure(f"newest 50 of {count:,} sessions", statistics.median(samples), " ms", 3)
    return [newest, *_needing(records, count)]


def _needing(records: onrecord.SessionStore, count: int) -> list[Figure]:
    """What needs a person, over all sessions: the first time, when each is folded, and after a few have grown."""

    def look() -> list[str]:
        entries = records.entries(records.every(LIVE))
        stand = [standing(entry, list, 0) for entry in entries]
        return [one.entry.head.name for one in stand if one.needs]

    for number in range(0, count, count // 10):
        records.get(f"session-{number}").findings.state("No access", label="blocked")
    first = timed(look) * 1e3
    assert len(look()) == 10
    records.get("session-7").facts.set_next_action("Run it")
    again = [timed(look) * 1e3 for _ in range(7)]
    return [
        Figure(f"what needs a person, of {count:,} sessions, first time", first, " ms"),
        Figure("the same again", statistics.median(again), " ms", 500),
    ]
