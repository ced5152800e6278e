"""Commands that really run: their output, how they end, and what remains of them."""

import os
import signal
import sys
import threading
import time
from pathlib import Path

import pytest

from onrecord.work.outputs import HEAD_KEPT, TAIL_KEPT, Kept, error_of, failure_of
from onrecord.work.running import SuspendedCommand, noted_stops
from tests.waiting import until_gone


def run(*command, timeout=None, stop=None, cwd=Path()):
    with SuspendedCommand(command, cwd=cwd) as suspended:
        return suspended.go(timeout=timeout, show=False, stop=stop)


def python(code, **options):
    return run(sys.executable, "-c", code, **options)


def test_nothing_runs_before_it_is_let_go(tmp_path):
    """A suspended command has a process and has done nothing; `go` turns this same process into the command (F03)."""
    with SuspendedCommand(["sh", "-c", f"echo $$ > {tmp_path}/pid"], cwd=tmp_path) as suspended:
        time.sleep(0.2)
        assert not (tmp_path / "pid").exists()
        assert suspended.go(show=False).exit_code == 0
        assert int((tmp_path / "pid").read_text()) == suspended.pid


def test_a_held_command_never_runs_when_it_is_not_let_go(tmp_path):
    """If the process that started a suspended command gives up, the command never runs (F03)."""
    with SuspendedCommand(["touch", str(tmp_path / "ran")], cwd=tmp_path) as suspended:
        pid = suspended.pid
    assert pid is not None
    until_gone(pid)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("command", "code"),
    [(("true",), 0), (("sh", "-c", "exit 7"), 7), (("sh", "-c", "kill -9 $$"), 137), (("no-such-command",), 127),
     (("./no-such-file",), 127)],
)  # fmt: skip
def test_exit_codes_are_those_of_a_shell(command, code):
    """A signal gives 128 plus its number; a missing command gives 127."""
    assert run(*command).exit_code == code


def test_arguments_directory_and_environment_arrive_as_they_are(tmp_path):
    """No shell interprets the arguments, and the command runs in the given directory."""
    words = ["a b", "$HOME", "*", "'q'", "-c", "é", ""]
    ran = run(sys.executable, "-c", "import sys, os; print(sys.argv[1:], os.getcwd())", *words, cwd=tmp_path)
    assert ran.output == f"{words} {tmp_path}\n"


def test_time_runs_out_while_the_child_prints():
    """A child that prints without end is ended on time (T12)."""
    before = time.monotonic()
    ran = run("yes", "x" * 1000, timeout=0.7)
    assert (ran.timed_out, ran.exit_code) == (True, 124)
    assert time.monotonic() - before > 0.6
    assert ran.left_out > 0
    assert len(ran.output.encode()) < HEAD_KEPT + TAIL_KEPT + 100


def test_time_runs_out_though_nobody_reads():
    """A reader that has stopped reading does not keep a command alive beyond its time (T12)."""
    reader, writer = os.pipe()
    saved = os.dup(1)
    os.dup2(writer, 1)
    try:
        with SuspendedCommand(["yes"], cwd=Path()) as suspended:
            ran = suspended.go(timeout=0.5, show=True)
    finally:
        os.dup2(saved, 1)
        for end in (reader, writer, saved):
            os.close(end)
    assert ran.timed_out
    assert ran.unshown


def test_descendants_end_with_the_command(tmp_path):
    """Every process that the command left in its group is ended, even one that ignores SIGTERM."""
    script = f"(trap '' TERM; echo $BASHPID > {tmp_path}/deaf; while :; do sleep 0.1; done) & sleep 600 & echo $! > {tmp_path}/child; until [ -s {tmp_path}/deaf ]; do sleep 0.05; done"
    ran = run("bash", "-c", script)
    assert ran.exit_code == 0
    for name in ("deaf", "child"):
        until_gone(int((tmp_path / name).read_text()))


def test_descendants_end_when_time_runs_out(tmp_path):
    """A timeout ends grandchildren too, and what was printed before is kept."""
    ran = run("sh", "-c", f"sleep 600 & echo $! > {tmp_path}/child; echo partial; wait", timeout=5)
    assert (ran.exit_code, ran.output) == (124, "partial\n")
    until_gone(int((tmp_path / "child").read_text()))


def test_a_descendant_that_holds_the_pipe_does_not_hold_us():
    """Once the command itself has ended, a background process that keeps the output open does not delay the result."""
    assert run("sh", "-c", "sleep 600 & echo done").output == "done\n"


def test_a_signal_ends_the_command_and_is_told(tmp_path):
    """Ctrl-C reaches the command as Ctrl-C, and all output until its end is kept."""
    code = (
        "import signal, sys, time, pathlib\n"
        "signal.signal(signal.SIGINT, lambda *_: (print('tidy'), sys.exit(3)))\n"
        f"pathlib.Path({str(tmp_path / 'ready')!r}).touch()\n"
        "time.sleep(60)\n"
    )

    def interrupt():
        while not (tmp_path / "ready").exists():
            time.sleep(0.02)
        os.kill(os.getpid(), signal.SIGINT)

    with noted_stops() as stop:
        threading.Thread(target=interrupt).start()
        ran = python(code, stop=stop)
    assert (ran.exit_code, ran.stopped_by, ran.output) == (130, signal.SIGINT, "tidy\n")
    assert "Ctrl-C" in str(failure_of(ran, timeout=None))


def test_output_is_kept_within_bounds():
    """The beginning and the end are kept, omitted bytes are counted exactly, and an omitted traceback is noticed."""
    kept = Kept(head=10, tail=20)
    text = b"0123456789" + b"x" * 50 + b"Traceback (most recent call last):" + b"y" * 50 + b"the very end of it ."
    for start in range(0, len(text), 7):
        kept.add(text[start : start + 7])
    assert kept.size == len(text)
    assert kept.left_out == len(text) - 30
    assert kept.text().startswith("0123456789\n")
    assert kept.text().endswith("the very end of it .")
    assert kept.traceback
    small = Kept(head=10, tail=20)
    small.add(b"0123456789abc")
    assert small.text() == "0123456789abc"


@pytest.mark.parametrize(
    ("output", "error"),
    [
        ("Traceback (most recent call last):\n  File 'x', line 1, in <module>\n    1/0\n    ~^~\nZeroDivisionError: division by zero\nbye\n",
         "ZeroDivisionError: division by zero"),
        ("Traceback (most recent call last):\n  a\nKeyError: 1\n\nDuring handling\n\nTraceback (most recent call last):\n  b\nmy.pkg.Odd: two\n",
         "my.pkg.Odd: two"),
        ("compiling\nerror: expected ;\nmake: *** stopped\n", "error: expected ;"),
        ("FAILED tests/test_a.py::test_x - AssertionError: 1 != 2\n=== 1 failed in 0.1s ===\n",
         "FAILED tests/test_a.py::test_x - AssertionError: 1 != 2"),
        ("all is lost\n\n", "all is lost"),
        ("", "exit code 9, no output"),
    ],
)  # fmt: skip
def test_the_exact_error_is_found(output, error):
    """The last line of the traceback, else the line that reads like an error, else the last line (F04)."""
    assert error_of(output, 9) == error


def test_the_error_is_looked_for_on_stderr_first():
    """Even if other output follows a traceback, the error is the traceback's."""
    ran = python(
        "import sys, os; sys.stderr.write('ValueError: bad\\n'); sys.stderr.flush(); print('Error: of an earlier step'); sys.exit(1)"
    )
    assert failure_of(ran, timeout=None) == "ValueError: bad"
