"""Every test of this directory runs on every store that a process can have for itself."""

from pathlib import Path

import pytest

import onrecord
from onrecord.connect import open_store
from onrecord.session.records import Records
from onrecord.stores.memory import MemoryStore
from onrecord.stores.sqlite import SQLiteStore
from onrecord.testing import FakeClock

PROJECT = "/project"


@pytest.fixture(params=["memory", "sqlite"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def records(kind: str, tmp_path: Path):
    """The sessions of an empty store, on the real clock."""
    url = "memory:" if kind == "memory" else f"sqlite:///{tmp_path}/x.db"
    with onrecord.connect(url, project=PROJECT) as found:
        yield found


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def timed(kind: str, tmp_path: Path, clock: FakeClock):
    """The sessions of an empty store whose time is turned by hand, its leases included."""
    store = MemoryStore(clock=clock) if kind == "memory" else SQLiteStore(str(tmp_path / "timed.db"), clock=clock)
    with Records(store, project=PROJECT, clock=clock) as found:
        yield found


@pytest.fixture
def again(kind: str, records: Records, tmp_path: Path):
    """The same store as another process would open it; in memory there is only the one."""
    if kind == "memory":
        yield records
        return
    with Records(open_store(f"sqlite:///{tmp_path}/x.db"), project=PROJECT) as found:
        yield found


@pytest.fixture
def session(records: Records):
    return records.open("fix-invite-403", objective="Fix intermittent 403 after invite acceptance")
