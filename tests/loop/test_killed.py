"""The loop is killed anywhere and continued: nothing is paid twice, nothing is forgotten."""

import multiprocessing
from typing import Any

import pytest

from tests.loop import killed

FIRST, LAST, STRIDE = 3, 130, 8


@pytest.fixture(scope="module")
def processes():
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.loop.killed"])
    return context


def ran(processes: Any, target: Any, *arguments: Any) -> Any:
    """What a process reported; None if it was killed before it could."""
    ours, theirs = processes.Pipe(duplex=False)
    child = processes.Process(target=target, args=(theirs, *arguments))
    child.start()
    theirs.close()
    child.join(60)
    try:
        return ours.recv()
    except EOFError:
        return None


def test_a_loop_that_is_killed_anywhere_is_continued(processes, tmp_path):
    """Killed at any call into the database, the loop ends with one committed turn and at most one payment."""
    outcomes = set()
    for kill_at in range(FIRST, LAST, STRIDE):
        url, ledger = f"sqlite:///{tmp_path}/{kill_at}.db", tmp_path / f"{kill_at}.payments"
        survived = ran(processes, killed.killed, url, str(ledger), kill_at)
        told, turns, sound = ran(processes, killed.continued, url, str(ledger))
        payments = len(ledger.read_text().splitlines()) if ledger.exists() else 0
        assert sound
        if survived:
            outcomes.add("finished")
            break
        assert (turns, payments <= 1) == (1, True), f"killed at call {kill_at}"
        if "outcome unknown" in told:
            outcomes.add("unknown")
        else:
            assert (told, payments) == ("paid", 1), f"killed at call {kill_at}"
            outcomes.add("paid")
    assert outcomes >= {"paid", "finished"}
