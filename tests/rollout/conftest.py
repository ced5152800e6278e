"""Rollouts run on every store that a process can have for itself."""

from pathlib import Path

import pytest

import onrecord
from onrecord.rollout.recording import Rollout, open_rollout


@pytest.fixture(params=["memory", "sqlite"])
def records(request: pytest.FixtureRequest, tmp_path: Path):
    """The sessions of an empty store."""
    url = "memory:" if request.param == "memory" else f"sqlite:///{tmp_path}/x.db"
    with onrecord.connect(url, project="/project") as found:
        yield found


@pytest.fixture
def rollout(records) -> Rollout:
    return open_rollout(records, "task-17", metadata={"task": 17})
