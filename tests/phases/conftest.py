"""Sessions with a profile, in memory, on a clock that the test moves."""

from typing import Any

import pytest

from onrecord.connection import load_profile
from onrecord.session.session_store import SessionStore
from onrecord.stores.memory import MemoryStore
from onrecord.testing import FakeClock

SMALL: dict[str, Any] = {
    "name": "small",
    "phases": [{"name": "Plan", "checkpoint": ["Design"]}, {"name": "Do", "checkpoint": ["Runs"]}, {"name": "Tell"}],
    "sections": [
        {"name": "Spec", "description": "What is wanted.", "rule": "append"},
        {"name": "Design", "description": "How it is done."},
        {"name": "Runs", "description": "What ran.", "rule": "generated", "from": "attempts"},
    ],
}


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def records(clock):
    with SessionStore(MemoryStore(clock=clock), project="/project", clock=clock) as found:
        yield found


@pytest.fixture
def session(records):
    """A session with a profile of three phases."""
    opened = records.create("work", agent="main", objective="Make the thing work")
    opened.phases.choose_profile(SMALL)
    return opened


@pytest.fixture
def building(records):
    """A session of the shipped profile `build`, with two features."""
    opened = records.create("app", agent="main", objective="A small app")
    opened.phases.choose_profile(load_profile("build"))
    opened.phases.add_feature("login", "A user can log in")
    opened.phases.add_feature("logout", "A user can log out")
    opened.evidence.record("run", id="run-1", captured=True)
    return opened
