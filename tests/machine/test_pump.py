"""A child's output is read completely and passed on in order, and no reader can block it for ever."""

import os
import subprocess
import sys

from onrecord.machine.pump import SHOWN_AHEAD, Pump


def pumped(code, *, show=False, target=1, stdin=None, limit=None):
    """What a child printed, by our descriptor; and the pump, after all output was copied."""
    child = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        stdin=subprocess.PIPE if stdin is not None else subprocess.DEVNULL,
    )  # fmt: skip
    taken: dict[int, bytes] = {target: b"", 2: b""}

    def took(descriptor, part):
        taken[descriptor] += part

    with child:
        assert child.stdout
        assert child.stderr
        outputs = {child.stdout.fileno(): target, child.stderr.fileno(): 2}
        pump = Pump(outputs, took, show=show, stdin=child.stdin, feed=stdin or b"")
        while pump.is_open and (limit is None or len(taken[target]) < limit):
            if not pump.move(5.0):
                break
        if limit is not None:
            child.kill()
        child.wait()
        pump.drain()
    return taken, pump


def test_both_outputs_are_taken_whole():
    """Standard output and standard error are kept apart, every byte of them."""
    taken, _pump = pumped("import sys; sys.stdout.write('o' * 300000); sys.stderr.write('e' * 200000)")
    assert (taken[1], taken[2]) == (b"o" * 300_000, b"e" * 200_000)


def test_a_child_is_fed_its_input():
    """Input larger than a pipe arrives complete, followed by its end."""
    taken, _pump = pumped("import sys; sys.stdout.write(str(len(sys.stdin.read())))", stdin=b"x" * 500_000)
    assert taken[1] == b"500000"


def test_output_is_passed_on_in_order():
    """The shown output is the printed output."""
    read, write = os.pipe()
    taken, pump = pumped("print('a\\n' * 1000, end='')", show=True, target=write)
    for descriptor, part in pump.unshown:
        os.write(descriptor, part)
    os.close(write)
    with os.fdopen(read, "rb") as file:
        assert file.read() == taken[write] == b"a\n" * 1000


def test_a_reader_that_does_not_read_bounds_the_memory():
    """When the reader does not read, a child that prints without end waits: only so much is ahead of the reader."""
    read, write = os.pipe()
    try:
        _taken, pump = pumped("while True: print('x' * 1000)", show=True, target=write, limit=8 * SHOWN_AHEAD)
        ahead = sum(len(part) for _descriptor, part in pump.unshown)
        assert ahead < 3 * SHOWN_AHEAD
    finally:
        os.close(read)
        os.close(write)


def test_a_reader_that_is_gone_does_not_end_the_child():
    """When the reader is gone the child continues, and its output is still read."""
    read, write = os.pipe()
    os.close(read)
    taken, pump = pumped("print('x' * 200000)", show=True, target=write)
    os.close(write)
    assert len(taken[write]) == 200_001
    assert pump.unshown == []
