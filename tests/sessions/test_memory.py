"""A process that works on one store for long does not grow: what is remembered between calls has a bound."""

import random
import tracemalloc

import onrecord
from bench.memory import allocated, work
from onrecord.session.session_store import SessionStore

ROUNDS, TURNS = 4, 4
BOUND_KILOBYTES = 10
"""A round records about 8 KB. What remains of four rounds is less than 3 KB; a cache without a bound keeps 30."""


def test_rounds_of_work_leave_nothing_behind(tmp_path):
    """Many short sessions on one handle cost no memory for good; a dictionary that keeps their payloads is noticed."""
    chance, cache = random.Random(7), dict[str, bytes]()

    def rounds(records: SessionStore, *, leak: bool = False) -> float:
        before = allocated()
        for _round in range(ROUNDS):
            work(records, chance, TURNS)
            for head in records.sessions(limit=1) if leak else ():
                cache.update((record.id, bytes(record.payload or b"")) for record in records.store.read(head.session))
        return (allocated() - before) * 1e3

    tracemalloc.start()
    try:
        with onrecord.connect(str(tmp_path / "x.db"), project="p") as records:
            rounds(records)  # modules, statements and compiled rules are loaded once
            assert rounds(records) < BOUND_KILOBYTES
            assert rounds(records, leak=True) > BOUND_KILOBYTES, "the control"
    finally:
        tracemalloc.stop()
