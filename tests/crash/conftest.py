"""What every crash test may ask for: a nursery of worker processes, a place for a store, and seeded randomness."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash.nursery import Nursery


@pytest.fixture(scope="session")
def nursery() -> Iterator[Nursery]:
    found = Nursery()
    yield found
    found.close()


@pytest.fixture
def path(tmp_path: Path) -> str:
    """Where a store may be made."""
    return str(tmp_path / "store" / "log.db")


@pytest.fixture
def chance(request: pytest.FixtureRequest) -> random.Random:
    """Randomness that is the same in every run of the same test."""
    return random.Random(request.node.nodeid)
