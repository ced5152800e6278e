"""Stores of every kind for tests that run on all of them: empty, and not shared."""

from collections.abc import Callable
from pathlib import Path

import pytest

from onrecord.log.store import Store
from onrecord.stores.memory import MemoryStore
from onrecord.stores.sqlite import SQLiteStore

SHARED = ("sqlite", "postgres")
"""Where several processes can meet."""
EVERY = ("memory", *SHARED)


def url_of(kind: str, request: pytest.FixtureRequest, tmp_path: Path, name: str = "x") -> str:
    """The URL of an empty store; the PostgreSQL server starts with the first test that needs one."""
    if kind == "memory":
        return "memory:"
    if kind == "sqlite":
        return f"sqlite:///{tmp_path}/{name}.db"
    url: str = request.getfixturevalue("postgres").empty_store()
    return url


def timed_store(kind: str, request: pytest.FixtureRequest, tmp_path: Path, clock: Callable[[], float]) -> Store:
    """An empty store on a clock that the test moves."""
    if kind == "memory":
        return MemoryStore(clock=clock)
    if kind == "sqlite":
        return SQLiteStore(str(tmp_path / "timed.db"), clock=clock)
    from onrecord.stores.postgres import PostgresStore  # only where the extra is installed

    return PostgresStore(url_of(kind, request, tmp_path), clock=clock)
