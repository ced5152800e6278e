"""Fixtures of the crash tests: a nursery of worker processes, a path for a store, and seeded randomness."""

import random
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash.nursery import Nursery
from tests.scratch import MEMORY, on_disk


@pytest.fixture(scope="session")
def nursery() -> Iterator[Nursery]:
    found = Nursery()
    yield found
    found.close()


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """A directory on disk: a sync takes its time there, and a crash finds writers in the middle of one."""
    with on_disk() as place:
        yield place


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A path at which a test can create a store."""
    return str(tmp_path / "store" / "log.db")


@pytest.fixture
def chance(request: pytest.FixtureRequest) -> random.Random:
    """Randomness that is the same in every run of the same test."""
    return random.Random(request.node.nodeid)


@pytest.fixture
def memory_disk(tmp_path: Path) -> Iterator[Path]:
    """A directory for images, in memory where the machine has a memory file system: they need not survive anything."""
    # A name of its own: two runs on one machine may execute the same test at once.
    place = Path(tempfile.mkdtemp(prefix="onrecord-images-", dir=MEMORY if MEMORY.is_dir() else tmp_path))
    yield place
    shutil.rmtree(place)
