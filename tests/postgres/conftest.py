"""Workbenches on stores in PostgreSQL, the workers of the crash tests, and servers for single tests."""

from collections.abc import Callable, Iterator

import pytest

from onrecord.stores.postgres import PostgresStore
from onrecord.testing.tools import Workbench
from tests.crash.conftest import chance
from tests.crash.nursery import Nursery
from tests.postgres.servers import Server, Stores, running

__all__ = ["chance"]


@pytest.fixture(scope="session")
def nursery() -> Iterator[Nursery]:
    """A nursery that has imported the store too: each worker would take longer for that than for its work."""
    found = Nursery("onrecord.stores.postgres.store")
    yield found
    found.close()


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
    """Creates workbenches on URLs, and closes them."""
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


@pytest.fixture
def url(postgres: Stores) -> str:
    """An empty store on the server that the whole run shares."""
    return postgres.empty_store()


@pytest.fixture
def own_server() -> Iterator[Server]:
    """A server that a test may do anything to."""
    with running() as server:
        yield server
