"""Memory: whether a process that works on one store handle for long grows: `python -m bench.memory [--minutes N]`.

Turns, facts, notes, searches, lists, forks and erasures, over and over, in one session after the other. Two figures per
stretch: what Python has allocated (every object of ours; a cache without a bound would show here), and the resident
size of the process (with SQLite's page caches and what the allocator keeps for later).
"""

from __future__ import annotations

import argparse
import gc
import random
import sys
import tempfile
import time
import tracemalloc
from pathlib import Path

import onrecord
from onrecord.session.handle import Session
from onrecord.session.session_store import SessionStore

MEGABYTE = 1e6
TURNS = 30
"""How many turns a session gets before it is left or closed."""
GROWTH_AIM = 1.10
"""The resident size at the end, against the middle of the run."""
WORDS = ("invite", "accept", "membership", "cookie", "cache", "request", "response", "header", "retry")


def work(records: SessionStore, chance: random.Random, turns: int = TURNS) -> None:
    """One session from its opening to its end, with everything a day of work does."""
    session = records.open(f"work-{chance.randrange(10**12)}", objective="Fix the intermittent 403")
    for number in range(turns):
        asked, answered = said(chance, 800), said(chance, 300)
        session.record_turn([{"role": "user", "content": asked}, {"role": "assistant", "content": answered}])
        if number % 5 == 0:
            _facts(session, chance, number)
            assert session.note()
            assert session.brief()
    _read(records, session)
    fork = session.fork(f"{session.name[:50]}-f")
    fork.decide(said(chance, 60))
    fork.leave()
    session.log.erase("a test", positions=[3])
    if int(session.name[5:]) % 2:
        session.leave()
    else:
        session.close(anyway="a benchmark")


def said(chance: random.Random, letters: int) -> str:
    """Some text, different every time."""
    return " ".join(chance.choice(WORDS) + str(chance.randrange(1_000)) for _word in range(letters // 10))


def _facts(session: Session, chance: random.Random, number: int) -> None:
    session.decide(said(chance, 80))
    session.findings.state(f"claim {number}: {said(chance, 60)}")


def _read(records: SessionStore, session: Session) -> None:
    records.entries(records.sessions())
    records.store.search(WORDS[0])
    session.transcript()
    assert session.verify().ok
    session.log.checkpoint()


def resident() -> float:
    """The resident size of this process, in MB."""
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * 4096 / MEGABYTE


def allocated() -> float:
    """What Python has allocated, in MB; 0 unless it is traced."""
    gc.collect()
    return tracemalloc.get_traced_memory()[0] / MEGABYTE


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--trace", action="store_true", help="also what Python has allocated (three times as slow)")
    arguments = parser.parse_args()
    if arguments.trace:
        tracemalloc.start()
    chance, begun, sizes, sessions = random.Random(1), time.monotonic(), list[float](), 0  # not a secret
    with tempfile.TemporaryDirectory() as place, onrecord.connect(f"{place}/x.db", project="bench") as records:
        while (passed := time.monotonic() - begun) < arguments.minutes * 60:
            work(records, chance)
            sessions += 1
            if passed >= len(sizes) * arguments.minutes * 3:  # twenty lines
                sizes.append(resident())
                facts = records.store.describe()  # type: ignore[attr-defined]  # a file describes itself
                done = f"{passed / 60:6.1f} min {sessions:6,} sessions {facts['events']:9,} events"
                print(f"{done} {sizes[-1]:7.1f} MB {allocated():7.2f} MB of Python", flush=True)
    growth = sizes[-1] / sizes[len(sizes) // 2]
    print(f"{'+' if growth <= GROWTH_AIM else '!'} at the end / in the middle: {growth:.3f}x (aim {GROWTH_AIM}x)")
    return 0 if growth <= GROWTH_AIM else 1


if __name__ == "__main__":
    sys.exit(main())
