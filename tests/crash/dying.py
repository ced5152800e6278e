"""A process that is killed at the k-th SQL statement, or at the k-th write or sync of the disk."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import apsw

from tests.crash.disks import READ, Disk, Step


@contextmanager
def dying_at(kill_at: int, level: str) -> Iterator[Callable[[], int]]:
    """Count the steps of the block and end this process by SIGKILL at one of them; yields a function that returns the count."""
    seen = 0

    def one_more(*_details: object) -> bool:
        nonlocal seen
        seen += 1
        if seen == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
        return True

    def count_steps(step: Step) -> None:
        if step.what != READ:
            one_more()

    if level == "statement":
        apsw.connection_hooks.append(lambda made: made.set_exec_trace(one_more))
    with Disk(count_steps if level == "disk" else None):
        yield lambda: seen
