"""The loop is killed anywhere and continued: nothing is paid twice, nothing is forgotten."""

import multiprocessing
from typing import Any

import pytest

from tests.loop import killed

LAST = 200
"""More calls into the database than any of the programs makes."""


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


@pytest.mark.parametrize("program", ["called", "awaited", "streamed"])
def test_a_loop_that_is_killed_anywhere_is_continued(processes, tmp_path, program):
    """Killed at any call into the database and started again twice, a program has one committed turn and paid once.

    It may be awaited, and the streams of its answers may break.
    """
    outcomes = set()
    for kill_at in range(1, LAST):
        url, ledger = f"sqlite:///{tmp_path}/{kill_at}.db", tmp_path / f"{kill_at}.payments"
        survived = ran(processes, killed.killed, program, url, str(ledger), kill_at)
        told, again, turns, sound = ran(processes, killed.continued, program, url, str(ledger))
        payments = len(ledger.read_text().splitlines()) if ledger.exists() else 0
        assert (sound, turns, again) == (True, 1, told), f"killed at call {kill_at}"
        if "outcome unknown" in told:
            outcomes.add("unknown")
            assert payments <= 1, f"killed at call {kill_at}"
        else:
            outcomes.add("paid")
            assert (told, payments) == ("paid", 1), f"killed at call {kill_at}"
        if survived:
            outcomes.add("finished")
            assert payments == 1
            break
    assert outcomes == {"unknown", "paid", "finished"}
