"""Encryption at rest: the same work on an encrypted store and on a plain one, in alternation, in one process.

It needs the apsw with ciphers, so it runs in a process that has it (`tools/ciphers.py`).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path

from bench.report import Figure, pair, ratio, timed
from bench.workload import turns
from onrecord.session.session_store import SessionStore
from onrecord.stores.sqlite import SQLiteStore

ROOT = Path(__file__).resolve().parent.parent
AIM = 1.25
KEY = bytes(range(32))
TURNS = 1_000
PAIRED = "on an encrypted store / on a plain one"


def at_rest(place: Path, *, quick: bool) -> list[Figure]:
    """The figures of a process with ciphers."""
    library = subprocess.run([sys.executable, "tools/ciphers.py"], cwd=ROOT, check=True, stdout=-1, text=True)
    done = subprocess.run(
        [sys.executable, "-m", "bench.encryption", str(place), *(["--quick"] if quick else [])], cwd=ROOT, check=True,
        stdout=-1, text=True, env=os.environ | {"PYTHONPATH": library.stdout.strip()},
    )  # fmt: skip
    return [Figure(*row) for row in json.loads(done.stdout)]


def _measured(place: Path, *, quick: bool) -> list[Figure]:
    """Recording a turn, resuming from the whole transcript in a fresh handle, and searching."""
    files = (place / "encrypted.db", place / "plain.db")
    stores = [_opened(file) for file in files]
    sessions = [records.open("work") for records in stores]
    taken: tuple[list[float], list[float]] = ([], [])
    stock = turns(200 if quick else TURNS)
    for number, items in enumerate(stock):
        for which in (0, 1) if number % 2 else (1, 0):
            taken[which].append(timed(partial(sessions[which].record_turn, items)))
    figures = [Figure(f"record_turn {PAIRED}", ratio(*taken), "x", AIM)]
    for records in stores:
        records.search("token", project="")
    figures += pair(f"search {PAIRED}", [partial(_search, records) for records in stores], 30 if quick else 150, AIM)
    for records in stores:
        records.close()
    figures += pair(f"resume {PAIRED}", [partial(_resume, file) for file in files], 10 if quick else 30, AIM)
    return figures


def _opened(file: Path) -> SessionStore:
    key = (lambda: KEY) if file.name == "encrypted.db" else None
    return SessionStore(SQLiteStore(str(file), key=key), project="bench")


def _search(records: SessionStore) -> None:
    records.search("middleware retry", project="")


def _resume(file: Path) -> None:
    records = _opened(file)
    session = records.open("work")
    session.note()
    for _turn in session.transcript():
        pass
    records.close()


if __name__ == "__main__":
    print(json.dumps(_measured(Path(sys.argv[1]), quick="--quick" in sys.argv)))
