"""A rollout killed at any statement, or at any write to the disk, continues with identical ids."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from onrecord.errors import InvalidInput, SessionRetired
from onrecord.rollout.recording import open_rollout
from onrecord.session.session_store import SessionStore
from onrecord.stores.sqlite import SQLiteStore
from tests.crash.conftest import memory_disk
from tests.crash.nursery import Nursery
from tests.rollout.crash_script import STEPS, expected_after, found_in

__all__ = ["memory_disk"]

NEVER = 1 << 60


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    """A nursery with workers for rollouts."""
    found = Nursery("tests.rollout.crash_workers")
    yield found
    found.close()


def steps_in(nursery: Nursery, path: str, level: str) -> int:
    """How many statements, or writes of the disk, the whole script takes."""
    lines = nursery.start("play_a_rollout", path=path, kill_at=NEVER, level=level, hasty=False).wait()
    assert lines[-2] == f"done {len(STEPS)}", lines[-1]
    return int(lines[-1].removeprefix("steps "))


def differences(nursery: Nursery, disk: Path, level: str, stride: int, *, hasty: bool) -> Iterator[str]:
    """Crash at every `stride`-th step: returns each rollout that differs from what was acknowledged."""
    for kill_at in range(1, steps_in(nursery, str(disk / "whole" / "log.db"), level) + 1, stride):
        path = str(disk / str(kill_at) / "log.db")
        lines = nursery.start("play_a_rollout", path=path, kill_at=kill_at, level=level, hasty=hasty).wait()
        assert not any(line.startswith("error") for line in lines), lines
        acknowledged = len([line for line in lines if line.startswith("done")])
        store = SQLiteStore(path)
        # The step in progress may have landed completely, without its acknowledgement; never in part.
        possible = (acknowledged, min(acknowledged + 1, len(STEPS)))
        if not any(matches(store, done) for done in possible):
            yield f"killed at {level} {kill_at}, {acknowledged} steps acknowledged"
        store.close()


def matches(store: SQLiteStore, done: int) -> bool:
    """Whether the next process finds the state after so many steps, and can continue."""
    expected = expected_after(done)
    try:
        rollout = open_rollout(SessionStore(store), "scripted")
    except SessionRetired:
        return expected is None
    try:
        return found_in(rollout, done) == expected
    except InvalidInput:
        return False  # a request that was answered does not fit what is there
    finally:
        rollout.leave()


@pytest.mark.timeout(900)
@pytest.mark.parametrize(("level", "ci_stride"), [("statement", 2), ("disk", 5)])
def test_a_killed_rollout_goes_on_with_the_identical_ids(
    nursery: Nursery, memory_disk: Path, count: Callable[[int, int], int], level: str, ci_stride: int
):
    """Killed anywhere: ids, provisional tail, lost answer and the next prompt are the reference's, bit for bit."""
    assert list(differences(nursery, memory_disk, level, count(ci_stride, 1), hasty=False)) == []


@pytest.mark.timeout(300)
def test_control_a_reply_that_is_answered_before_it_is_committed_is_caught(nursery: Nursery, memory_disk: Path):
    """Control: a player that acknowledges a reply before it is on disk differs from the reference."""
    assert any(differences(nursery, memory_disk, "statement", 7, hasty=True))
