"""Workbenches on stores in PostgreSQL."""

from collections.abc import Callable, Iterator

import pytest

from onrecord.stores.postgres import PostgresStore
from onrecord.testing.tools import Workbench
from tests.postgres.servers import Stores


class Bench(Workbench):
    """A workbench on one store, on the database's own clock."""

    store: PostgresStore

    def __init__(self, url: str) -> None:
        self.url = url
        self.setup_method()

    def make_store(self) -> PostgresStore:
        return PostgresStore(self.url)


@pytest.fixture
def make_bench() -> Iterator[Callable[[str], Bench]]:
    """Makes workbenches on URLs, and lets go of them."""
    made: list[Bench] = []

    def make(url: str) -> Bench:
        made.append(Bench(url))
        return made[-1]

    yield make
    for bench in made:
        bench.teardown_method()


@pytest.fixture
def bench(postgres: Stores, make_bench: Callable[[str], Bench]) -> Bench:
    """A workbench on an empty store."""
    return make_bench(postgres.empty_store())
