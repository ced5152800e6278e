"""Running a command: its output is passed on and kept, its time is limited, its descendants end with it.

A command is suspended first: its process exists, waits, and can be recorded; only `go` lets it start. If our process
dies before that, the command never runs.
"""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from onrecord.machine.pump import Pump
from onrecord.machine.signals import NotedSignals
from onrecord.views.render import visible
from onrecord.work.groups import Child, end_group
from onrecord.work.outputs import Kept
from onrecord.work.ran import Ran

NOT_FOUND, NOT_EXECUTABLE, TIMED_OUT = 127, 126, 124
"""Exit codes as shells and `timeout` give them."""
ORPHAN_SECONDS = 0.2
"""How long to wait for output after the command itself has ended, if a descendant keeps the pipe open."""
STDERR_KEPT = 16 * 1024
"""How many bytes of the end of standard error are kept apart, to search for the error."""
_TICK = 0.05
_OUT, _ERR = 1, 2


def noted_stops() -> NotedSignals:
    """Signals that stop us, noted while a command runs, so that it is ended and recorded first."""
    return NotedSignals((signal.SIGINT, signal.SIGTERM, signal.SIGHUP), keep_ignored=True)


class SuspendedCommand:
    """A command whose process exists and waits to be started. Use it as a context manager."""

    def __init__(self, command: Sequence[str], *, cwd: Path) -> None:
        self.command = list(command)
        self._child: Child | None = None
        self.problem = ""
        program = _program(self.command[0], cwd)
        if program is None:
            self.problem = f"{self.command[0]}: command not found"
            return
        # Unbuffered, so that what a killed Python program printed is not lost.
        environment = {"PYTHONUNBUFFERED": "1", **os.environ}
        self._child = Child(program, self.command[1:], cwd.resolve(), environment)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_problem: object) -> None:
        if self._child is not None:
            self._child.close()
            end_group(self._child, grace=0)

    @property
    def pid(self) -> int | None:
        """The process that becomes the command; None if the program does not exist."""
        return self._child.pid if self._child else None

    def go(self, *, timeout: float | None = None, show: bool = True, stop: NotedSignals | None = None) -> Ran:
        """Let it run to its end; nothing of its process group outlives it."""
        child = self._child
        if child is None:
            said = f"{visible(self.problem)}\n"
            return Ran(NOT_FOUND, 0.0, said, said, len(said), 0, unshown=((_ERR, said.encode()),) if show else ())
        started = time.monotonic()
        watch = _Watch(child, show=show, stop=stop or noted_stops())
        child.go()
        timed_out = watch.run(None if timeout is None else started + timeout)
        # Also after an ordinary end: a descendant that stayed would keep writing under a settled attempt.
        asked = watch.stop.count
        end_group(child, watch.stop.signal or signal.SIGTERM, hurry=lambda: watch.stop.count > asked)
        watch.pump.drain()
        return _ran(watch, time.monotonic() - started, timed_out=timed_out)


def _ran(watch: _Watch, seconds: float, *, timed_out: bool) -> Ran:
    code, stopped = watch.child.returncode or 0, watch.stop.signal
    if timed_out:
        passed_on = TIMED_OUT
    elif stopped:
        passed_on = 128 + stopped
    else:
        passed_on = code if code >= 0 else 128 - code
    killed = -code if code < 0 and not timed_out and not stopped else 0
    kept = watch.kept
    return Ran(
        passed_on, seconds, kept.text(), watch.errors.text(), kept.size, kept.left_out, timed_out, stopped, killed,
        kept.traceback, tuple(watch.pump.unshown),
    )  # fmt: skip


class _Watch:
    """Keeps the output of a command until it has ended, its time has run out, or a signal stops it."""

    def __init__(self, child: Child, *, show: bool, stop: NotedSignals) -> None:
        self.child = child
        self.stop = stop
        self.kept = Kept()
        self.errors = Kept(head=0, tail=STDERR_KEPT)
        self.pump = Pump({child.out: _OUT, child.err: _ERR}, self._keep, show=show)

    def _keep(self, target: int, part: bytes) -> None:
        self.kept.add(part)
        if target == _ERR:
            self.errors.add(part)

    def run(self, deadline: float | None) -> bool:
        """Whether the time ran out first, however much is printed and however slowly it is read."""
        ended_at: float | None = None
        while self.pump.is_open or self.child.poll() is None:
            now = time.monotonic()
            if self.stop.signal:
                return False
            if deadline is not None and now >= deadline and self.child.poll() is None:
                return True
            moved = self.pump.move(_TICK if deadline is None else max(0.001, min(_TICK, deadline - now)))
            if not moved and self.child.poll() is not None:
                # A descendant may keep the pipe open; everything the child itself printed has been read by now.
                ended_at = ended_at or now
                if now - ended_at > ORPHAN_SECONDS:
                    break
        return False


def _program(name: str, cwd: Path) -> str | None:
    """The program's file; a name with a slash is relative to the directory the command runs in."""
    if os.sep in name:
        file = cwd / name
        return str(file.absolute()) if file.is_file() else None
    return shutil.which(name)


def show_rest(ran: Ran) -> None:
    """Write what a slow reader has not taken yet. The result is recorded by then, so this may wait."""
    for target, part in ran.unshown:
        rest = part
        while rest:
            try:
                rest = rest[os.write(target, rest) :]
            except OSError:
                return
