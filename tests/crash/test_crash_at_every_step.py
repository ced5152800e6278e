"""After a crash at any statement, or at any write of the disk, the lane holds exactly what was acknowledged (P24)."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from onrecord.session.session_store import SessionStore
from onrecord.stores.sqlite import SQLiteStore
from tests.crash.nursery import Nursery
from tests.crash.script import STEPS, expected_after, found_in

NEVER = 1 << 60


def steps_in(nursery: Nursery, path: str, level: str) -> int:
    """How many statements, or writes of the disk, the whole script takes."""
    lines = nursery.start("play_the_script", path=path, kill_at=NEVER, level=level, forgetful=False).wait()
    assert lines[-2] == f"done {len(STEPS)}", lines[-1]
    return int(lines[-1].removeprefix("steps "))


def differences(nursery: Nursery, memory_disk: Path, level: str, stride: int, *, forgetful: bool) -> Iterator[str]:
    """For a crash at every `stride`-th step: what the lane holds, where that differs from what was acknowledged."""
    for kill_at in range(1, steps_in(nursery, str(memory_disk / "whole" / "log.db"), level) + 1, stride):
        path = str(memory_disk / str(kill_at) / "log.db")
        worker = nursery.start("play_the_script", path=path, kill_at=kill_at, level=level, forgetful=forgetful)
        lines = worker.wait()
        assert not any(line.startswith("error") for line in lines), lines
        acknowledged = len([line for line in lines if line.startswith("done")])
        store = SQLiteStore(path)
        session = SessionStore(store).open("scripted")
        found = found_in(session)
        # The step in progress may have landed in full, without its acknowledgement; never in part.
        if found not in (expected_after(acknowledged), expected_after(acknowledged + 1)) or not session.verify().ok:
            yield f"killed at {level} {kill_at}, {acknowledged} steps acknowledged: {found}"
        # And the lane is not only right, it is usable: the next commit supersedes the tail.
        session.record_turn([{"role": "user", "content": "the next process goes on"}])
        if session.transcript().provisional:
            yield f"killed at {level} {kill_at}: the tail was not superseded"
        store.close()


@pytest.mark.timeout(900)
@pytest.mark.parametrize(("level", "ci_stride"), [("statement", 1), ("disk", 3)])
def test_the_lane_holds_what_was_acknowledged(
    nursery: Nursery, memory_disk: Path, count: Callable[[int, int], int], level: str, ci_stride: int
):
    """Killed before any statement or at any disk write, a lane has the model's committed turns and tail, and takes new turns (P24)."""
    assert list(differences(nursery, memory_disk, level, count(ci_stride, 1), forgetful=False)) == []


@pytest.mark.timeout(300)
def test_control_items_kept_in_memory_are_caught(nursery: Nursery, memory_disk: Path):
    """Control: a writer that acknowledges items it has not written yet differs from the model (P24)."""
    assert list(differences(nursery, memory_disk, "statement", 5, forgetful=True)) != []
