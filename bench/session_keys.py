"""Sessions with keys of their own: the same work with and without, in alternation, in one process."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from bench.report import Figure, pair, ratio, timed
from bench.workload import turns
from onrecord.machine.session_keys import SessionKeys
from onrecord.session.session_store import SessionStore
from onrecord.stores.sqlite import SQLiteStore

AIM = 1.25
KEY = bytes(range(32))
TURNS = 1_000
PAIRED = "in a session with a key / without"


def with_session_keys(place: Path, *, quick: bool) -> list[Figure]:
    """Recording a turn, resuming from the whole transcript in a fresh handle, and verifying."""
    files = (place / "keyed.db", place / "plain.db")
    stores = [_opened(file) for file in files]
    stores[0].store.use_session_keys()  # type: ignore[attr-defined]  # it is a store in a file
    sessions = [records.open("work") for records in stores]
    taken: tuple[list[float], list[float]] = ([], [])
    for number, items in enumerate(turns(200 if quick else TURNS)):
        for which in (0, 1) if number % 2 else (1, 0):
            taken[which].append(timed(partial(sessions[which].record_turn, items)))
    for records in stores:
        records.close()
    rounds = 10 if quick else 30
    return [
        Figure(f"record_turn {PAIRED}", ratio(*taken), "x", AIM),
        *pair(f"resume {PAIRED}", [partial(_resume, file) for file in files], rounds, AIM),
        *pair(f"verify {PAIRED}", [partial(_verify, file) for file in files], rounds, AIM),
    ]


def _opened(file: Path) -> SessionStore:
    store = SQLiteStore(str(file), session_keys=lambda beside: SessionKeys(beside, lambda: KEY))
    return SessionStore(store, project="bench")


def _resume(file: Path) -> None:
    records = _opened(file)
    session = records.open("work")
    session.note()
    for _turn in session.transcript():
        pass
    records.close()


def _verify(file: Path) -> None:
    records = _opened(file)
    records.get("work").verify()
    records.close()
