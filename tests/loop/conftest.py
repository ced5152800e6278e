"""A session in memory with a clock that can be set."""

import pytest

from onrecord.session.session_store import SessionStore
from onrecord.stores.memory import MemoryStore
from onrecord.testing import FakeClock


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def store(clock):
    with SessionStore(MemoryStore(clock=clock), project="/project", clock=clock) as opened:
        yield opened


@pytest.fixture
def session(store):
    return store.open("work", agent="main")
