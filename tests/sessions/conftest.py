"""Every test of this directory runs on every store that a process can have for itself."""

from pathlib import Path

import pytest

import onrecord
from onrecord.connection import open_store
from onrecord.session.session_store import SessionStore
from onrecord.testing import FakeClock
from tests.stores import EVERY, timed_store, url_of

PROJECT = "/project"


@pytest.fixture(params=EVERY)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def url(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty store."""
    return url_of(kind, request, tmp_path)


@pytest.fixture
def records(url: str):
    """The sessions of an empty store, on the real clock."""
    with onrecord.connect(url, project=PROJECT) as found:
        yield found


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def timed(kind: str, request: pytest.FixtureRequest, tmp_path: Path, clock: FakeClock):
    """The sessions of an empty store on a clock that the test moves, its leases included."""
    with SessionStore(timed_store(kind, request, tmp_path, clock), project=PROJECT, clock=clock) as found:
        yield found


@pytest.fixture
def again(kind: str, records: SessionStore, url: str):
    """The same store as another process would open it; in memory there is only one."""
    if kind == "memory":
        yield records
        return
    with SessionStore(open_store(url), project=PROJECT) as found:
        yield found


@pytest.fixture
def session(records: SessionStore):
    return records.open("fix-invite-403", objective="Fix intermittent 403 after invite acceptance")
