"""Rollouts run on every store."""

from pathlib import Path

import pytest

import onrecord
from onrecord.rollout.recording import Rollout, open_rollout
from tests.stores import EVERY, url_of


@pytest.fixture(params=EVERY)
def records(request: pytest.FixtureRequest, tmp_path: Path):
    """The sessions of an empty store."""
    with onrecord.connect(url_of(str(request.param), request, tmp_path), project="/project") as found:
        yield found


@pytest.fixture
def rollout(records) -> Rollout:
    return open_rollout(records, "task-17", metadata={"task": 17})
