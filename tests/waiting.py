"""Waiting for what another process or thread does, however busy the machine is."""

import time
from collections.abc import Callable
from typing import TypeVar

from onrecord.machine import started

Found = TypeVar("Found")
PATIENCE_SECONDS = 90.0
REST_SECONDS = 0.02


def until(met: Callable[[], Found], patience: float = PATIENCE_SECONDS) -> Found:
    """Wait until `met` returns something true; return it."""
    deadline = time.monotonic() + patience
    while not (found := met()):
        assert time.monotonic() < deadline, f"it did not happen within {patience:.0f} s"
        time.sleep(REST_SECONDS)
    return found


def until_gone(pid: int) -> None:
    """Wait until a process has ended. One whose parent was killed ends a moment after it."""
    until(lambda: started(pid) is None)
