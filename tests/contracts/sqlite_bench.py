"""A workbench on a SQLite store, and what a plain connection sees of it."""

from pathlib import Path
from typing import Any

import apsw

from onrecord.stores.sqlite import SQLiteStore, write_lock
from onrecord.testing.tools import Workbench


class Bench(Workbench):
    """A workbench on a SQLite store."""

    store: SQLiteStore

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self.setup_method()

    def make_store(self) -> SQLiteStore:
        return SQLiteStore(self.path, clock=lambda: self.clock.now)


def asked(path: Path, question: str) -> list[tuple[Any, ...]]:
    """What a plain SQLite connection sees."""
    plain = apsw.Connection(str(path))
    try:
        return plain.execute(question).fetchall()
    finally:
        plain.close()


class shut:  # noqa: N801  # reads as a word in a with statement
    """Another process's write, as far as the write lock can see."""

    def __init__(self, store: SQLiteStore) -> None:
        self.lock = write_lock.WriteLock(store.path + ".lock")

    def __enter__(self) -> None:
        assert self.lock.acquire(1)

    def __exit__(self, *_problem: object) -> None:
        self.lock.close()
