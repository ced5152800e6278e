"""A SQLite store for one test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contracts.sqlite_bench import Bench
from tests.scratch import on_disk


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "place" / "store.db"


@pytest.fixture
def bench(path: Path) -> Iterator[Bench]:
    bench = Bench(path)
    yield bench
    bench.teardown_method()


@pytest.fixture
def bench_on_disk() -> Iterator[Bench]:
    """The same on disk: what a power cut loses in memory is everything."""
    with on_disk() as place:
        yield (bench := Bench(place / "store.db"))
        bench.teardown_method()
