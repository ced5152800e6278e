"""Measuring on a machine that also does other things: go first, and know how much the others did.

A duration says little if other programs have the processors. `going_first` lets this process and the servers it starts
go before all other programs, where the system allows that (it takes an administrator). `Others` says how much of the
processors those programs still had, so that the quietest rounds can be chosen.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

_IDLE = slice(3, 5)
"""The columns of `/proc/stat` that count idle time: idle, and waiting for a disk."""


@contextmanager
def going_first() -> Iterator[bool]:
    """Go before all other programs, with every process that is started meanwhile; yields whether that is so."""
    try:
        before = os.sched_getscheduler(0), os.sched_getparam(0)
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    except (AttributeError, OSError):  # another system, or not an administrator
        yield False
        return
    try:
        yield True
    finally:
        os.sched_setscheduler(0, *before)


class Others:
    """How many processors other programs use. `own` is the processor time of ours so far, in seconds."""

    def __init__(self, own: Callable[[], float]) -> None:
        self._own = own
        self._before = self._now()

    def since(self) -> float:
        """How many processors they used, on average, since the last call."""
        before, self._before = self._before, self._now()
        (began, busy, ours), (ended, busy_now, ours_now) = before, self._before
        return max(0.0, (busy_now - busy) - (ours_now - ours)) / max(ended - began, 1e-9)

    def _now(self) -> tuple[float, float, float]:
        try:
            counted = [int(one) for one in Path("/proc/stat").read_text(encoding="ascii").split("\n")[0].split()[1:9]]
        except OSError:
            return time.monotonic(), 0.0, 0.0
        busy = (sum(counted) - sum(counted[_IDLE])) / os.sysconf("SC_CLK_TCK")
        return time.monotonic(), busy, self._own() + time.process_time()
