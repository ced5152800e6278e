"""Ending processes: a request first, a kill only if they stay."""

import signal
import subprocess
import sys

from onrecord.machine import started
from onrecord.machine.ending import end_child, end_group, end_processes
from tests.waiting import until_gone

STUBBORN = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(60)"
WILLING = "import time; print('up', flush=True); time.sleep(60)"
PARENT = (
    "import subprocess, sys; child = subprocess.Popen([sys.executable, '-c', sys.argv[1]], stdout=subprocess.PIPE);"
    "child.stdout.readline(); print(child.pid, flush=True); child.wait()"
)


def spawn(code, *words):
    child = subprocess.Popen(
        [sys.executable, "-c", code, *words], stdout=subprocess.PIPE, start_new_session=True, text=True
    )
    assert child.stdout
    return child, child.stdout.readline().strip()


def test_a_willing_child_ends_by_the_signal():
    """A process that ends on request is not killed."""
    child, _line = spawn(WILLING)
    with child:
        assert end_child(child, grace=20) == -signal.SIGTERM


def test_a_stubborn_child_is_killed():
    """A process that ignores the request is killed at the deadline."""
    child, _line = spawn(STUBBORN)
    with child:
        assert end_child(child, grace=0.1) == -signal.SIGKILL


def test_a_child_in_a_hurry_is_killed_at_once():
    """A caller in a hurry does not wait for the deadline."""
    child, _line = spawn(STUBBORN)
    with child:
        assert end_child(child, grace=3_600, hurry=lambda: True) == -signal.SIGKILL


def test_a_group_ends_with_its_stubborn_members():
    """No process of a group remains, whatever its leader did with the request."""
    child, line = spawn(PARENT, STUBBORN)
    with child:
        end_group(child.pid, lambda: False, grace=0.1)
        child.wait(90)
    until_gone(int(line))


def test_what_had_to_be_killed_is_said():
    """Heads that ended on request are not in the answer; a descendant that stayed is, and is killed."""
    child, line = spawn(PARENT, STUBBORN)
    stubborn = int(line)
    with child:
        alive = lambda: [stubborn] if started(stubborn) is not None else []  # noqa: E731 - as its caller gives it
        assert end_processes([child.pid], alive, grace=20) == [stubborn]
    assert started(stubborn) is None


def test_a_number_that_was_used_again_is_left_alone(monkeypatch):
    """A process is killed only while it is the one that was seen: process ids are used again."""
    from onrecord.machine import ending

    child, _line = spawn(STUBBORN)
    with child:
        starts = iter(["then", "now", "now", "now"])
        monkeypatch.setattr(ending, "started", lambda _pid: next(starts, "now"))
        monkeypatch.setattr(ending, "signal_process", lambda _pid, number: seen.append(number))
        seen: list[int] = []
        assert end_processes([child.pid], list, grace=0.2) == []
        assert signal.SIGKILL not in seen
        child.kill()
