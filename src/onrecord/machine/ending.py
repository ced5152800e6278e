"""Ending processes: ask with a signal first, wait for a while, then kill what is left.

By group for children that lead one; by process for an agent's descendants, which may have left the group.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from onrecord.machine import started

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

GRACE_SECONDS = 5.0
"""How long processes have between being asked to end and being killed."""
KILL_SECONDS = 5.0
"""How long killing is repeated. A process that hangs in the kernel cannot be waited for."""
_PROCESS_INTERVAL = 0.05
_GROUP_INTERVAL = 0.01


def signal_process(pid: int, number: int) -> None:
    """Send a signal to a process, if it is still there."""
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def signal_group(group: int, number: int) -> bool:
    """Send a signal to a process group; False when the group is gone."""
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def end_group(
    group: int, has_ended: Callable[[], bool], first: int = signal.SIGTERM, *, grace: float = GRACE_SECONDS,
    hurry: Callable[[], bool] = bool,
) -> None:  # fmt: skip
    """Ask a process group to end and kill what is left of it. `hurry` cuts the wait short."""
    deadline = time.monotonic() + grace
    if not signal_group(group, first):
        return
    while time.monotonic() < deadline and not hurry() and not has_ended():
        time.sleep(_GROUP_INTERVAL)
    signal_group(group, signal.SIGKILL)


def end_child(
    child: subprocess.Popen[bytes], first: int = signal.SIGTERM, *, grace: float = GRACE_SECONDS,
    hurry: Callable[[], bool] = bool,
) -> int:  # fmt: skip
    """Ask a child to end, kill it when it does not, and return its exit status. `hurry` cuts the wait short."""
    deadline = time.monotonic() + grace
    child.send_signal(first)
    while time.monotonic() < deadline and not hurry():
        with suppress(subprocess.TimeoutExpired):
            return child.wait(min(_PROCESS_INTERVAL, grace))
    child.kill()
    return child.wait()


def end_processes(
    asked: Iterable[int], belonging: Callable[[], Iterable[int]], *, grace: float = GRACE_SECONDS,
    patience: float | None = None,
) -> list[int]:  # fmt: skip
    """Ask processes to end, wait for them, then kill all that belong to them. Returns what had to be killed.

    `belonging` is called again after each round, so that processes started in the meantime are found. `patience`
    limits the rounds, in seconds; without it they continue until nothing is left.
    """
    heads = {pid: started(pid) for pid in asked}
    family = {pid: started(pid) for pid in belonging()}
    for pid in heads:
        signal_process(pid, signal.SIGTERM)
    deadline = time.monotonic() + grace
    while any(_is_same(pid, start) for pid, start in heads.items()) and time.monotonic() < deadline:
        time.sleep(_PROCESS_INTERVAL)
    killed: list[int] = []
    deadline = time.monotonic() + (float("inf") if patience is None else patience)
    while time.monotonic() < deadline:
        rest = {pid for pid, start in (heads | family).items() if _is_same(pid, start)} | set(belonging())
        if not rest:
            break
        killed += [pid for pid in sorted(rest) if pid not in killed]
        for pid in rest:
            signal_process(pid, signal.SIGKILL)
        time.sleep(_PROCESS_INTERVAL)
    return killed


def _is_same(pid: int, start: str | None) -> bool:
    """Whether the process is still the one that was seen: numbers are used again."""
    return start is not None and started(pid) == start
