"""What the tests of PostgreSQL's promises may ask for: the workers of the crash tests, and stores with a server of their own."""

from collections.abc import Iterator

import pytest

from tests.crash.conftest import chance, nursery
from tests.postgres.servers import Server, Stores, running

__all__ = ["chance", "nursery"]


@pytest.fixture
def url(postgres: Stores) -> str:
    """An empty store on the server that the whole run shares."""
    return postgres.empty_store()


@pytest.fixture
def own_server() -> Iterator[Server]:
    """A server that a test may do anything to."""
    with running() as server:
        yield server
