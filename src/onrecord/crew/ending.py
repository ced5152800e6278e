"""Ending agents with everything they started: asked first, then whatever is left is killed.

What an agent started is found twice: as descendants, and by what its environment carries, which also finds those that
put themselves into sessions of their own or lost their parent.
"""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from onrecord.machine import started

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

END_SECONDS = 15.0
"""How long an agent has between being asked to end and being killed: its wrapper ends it, and records that."""
_LOOK = 0.05


def end(asked: Iterable[int], belonging: Callable[[], Iterable[int]], *, grace: float = END_SECONDS) -> list[int]:
    """Ask processes to end, wait for them, then kill all that belongs to them; what had to be killed."""
    heads = {pid: started(pid) for pid in asked}
    family = {pid: started(pid) for pid in belonging()}
    for pid in heads:
        _signal(pid, signal.SIGTERM)
    deadline = time.monotonic() + grace
    while any(_same(pid, began) for pid, began in heads.items()) and time.monotonic() < deadline:
        time.sleep(_LOOK)
    killed: list[int] = []
    while rest := {pid for pid, began in (heads | family).items() if _same(pid, began)} | set(belonging()):
        killed += [pid for pid in sorted(rest) if pid not in killed]
        for pid in rest:
            _signal(pid, signal.SIGKILL)
        time.sleep(_LOOK)
    return killed


def _same(pid: int, began: str | None) -> bool:
    return began is not None and started(pid) == began


def _signal(pid: int, number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)
