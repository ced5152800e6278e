"""A pytest plugin for the tests of langgraph-checkpoint-sqlite: its stores and savers become ours.

`./dev frameworks langgraph` runs them with it. Left out are tests of its tables, its statements and its migrations, of
vectors (we have none), and of the thread that sweeps expired values.
"""

from __future__ import annotations

import sys
import tempfile
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import onrecord
from onrecord.frameworks.langgraph import OnrecordSaver
from onrecord.frameworks.langgraph_store import OnrecordStore

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

_place = Path(tempfile.mkdtemp())
_made = iter(range(10_000))
NOT_PORTABLE = (
    "vector", "embed", "migration", "escape_glob", "match_pattern", "indexable", "sweeper", "primary_key",
    "no_running_loop", "sql_injection_vulnerability",
)  # fmt: skip


def _file(given: str) -> str:
    return f"{given}.onrecord" if given != ":memory:" else str(_place / f"{next(_made)}.db")


class Store(OnrecordStore):
    """Our store, opened like theirs."""

    @classmethod
    @contextmanager
    def from_conn_string(cls, given: str, **options: Any) -> Iterator[Store]:
        """A store in a file."""
        with onrecord.connect(_file(given), project="upstream") as store:
            yield cls(store, **options)

    def setup(self) -> None:
        """Do nothing."""


class AsyncStore(OnrecordStore):
    """The same, awaited."""

    @classmethod
    @asynccontextmanager
    async def from_conn_string(cls, given: str, **options: Any) -> AsyncIterator[AsyncStore]:
        """A store in a file."""
        with onrecord.connect(_file(given), project="upstream") as store:
            yield cls(store, **options)

    async def setup(self) -> None:
        """Do nothing."""

    async def sweep_ttl(self) -> int:  # type: ignore[override]  # theirs is awaited
        """Theirs is awaited."""
        return super().sweep_ttl()


class Saver(OnrecordSaver):
    """Our saver, opened like theirs."""

    @classmethod
    @contextmanager
    def from_conn_string(cls, given: str) -> Iterator[Saver]:
        """A saver on a file."""
        with onrecord.connect(_file(given), project="upstream") as store:
            yield cls(store)


class AsyncSaver(OnrecordSaver):
    """The same, awaited."""

    @classmethod
    @asynccontextmanager
    async def from_conn_string(cls, given: str) -> AsyncIterator[AsyncSaver]:
        """A saver on a file."""
        with onrecord.connect(_file(given), project="upstream") as store:
            yield cls(store)


OURS = {"SqliteStore": Store, "AsyncSqliteStore": AsyncStore, "SqliteSaver": Saver, "AsyncSqliteSaver": AsyncSaver}


def pytest_configure(config: Any) -> None:
    """Some tests carry the mark of a plugin that we do not install."""
    config.addinivalue_line("markers", "flaky: may be tried again")


def pytest_collection_modifyitems(config: Any, items: list[Any]) -> None:
    """Put ours into the modules of the tests, and leave out what is not portable."""
    for module in list(sys.modules.values()):
        if getattr(module, "__name__", "").startswith("tests."):
            for name, ours in OURS.items():
                if hasattr(module, name):
                    setattr(module, name, ours)
    out = [
        one for one in items
        if any(part in one.name for part in NOT_PORTABLE) or "fake_embeddings" in getattr(one, "fixturenames", ())
    ]  # fmt: skip
    config.hook.pytest_deselected(items=out)
    items[:] = [one for one in items if one not in out]
