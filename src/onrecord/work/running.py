"""Running a command: its output goes through and is kept, its time is limited, its descendants end with it.

A command is *held* first: its process is there, waits, and can be put on record; only `go` lets it start. When the
process that holds it dies before that, the command never runs.
"""

from __future__ import annotations

import errno
import os
import select
import shutil
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

from onrecord.work.groups import Child, end_group
from onrecord.work.outputs import Kept

NOT_FOUND, NOT_EXECUTABLE, TIMED_OUT = 127, 126, 124
"""Exit codes as shells and `timeout` give them."""
ORPHAN_SECONDS = 0.2
"""How long output is still awaited after the command itself has ended, when a descendant holds the pipe."""
SHOWN_AHEAD = 64 * 1024
"""How much output may wait for a reader that is slower than the command, before the command has to wait too."""
STDERR_KEPT = 16 * 1024
"""How many bytes of the end of standard error are kept apart, to find the error in."""
_TICK = 0.05
_CHUNK = 4_096
"""A pipe that is ready to be written takes this much without blocking."""
_READ = 65_536
_OUT, _ERR = 1, 2
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Ran(NamedTuple):
    """How a command ended."""

    exit_code: int
    """Of the shell's kind: 128 + signal for a killed one, 127 when there is no such command, 124 when out of time."""
    seconds: float
    output: str
    """The beginning and the end of what it printed."""
    error_output: str
    """The end of what it printed to standard error."""
    size: int
    """How many bytes it printed."""
    left_out: int
    timed_out: bool = False
    stopped_by: int = 0
    """The signal that onrecord itself was stopped with, if it was."""
    killed_by: int = 0
    """The signal that ended the command, if one did."""
    traceback: bool = False
    unshown: tuple[tuple[int, bytes], ...] = ()
    """Output whose reader was too slow to take it while the command ran."""


class Stop:
    """Notes that somebody wants to stop, instead of acting at once: what is under way is ended and recorded first."""

    def __init__(self) -> None:
        self.signal = 0
        self.count = 0
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        for number in _SIGNALS:
            try:
                if signal.getsignal(number) is not signal.SIG_IGN:
                    self._before[number] = signal.signal(number, self._note)
            except ValueError:
                break  # not the main thread: whoever owns it sees the signals
        return self

    def __exit__(self, *_problem: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, _frame: object) -> None:
        self.signal = self.signal or number
        self.count += 1


class Held:
    """A command whose process is there and waits to be let go. Use it as a context manager."""

    def __init__(self, command: Sequence[str], *, cwd: Path) -> None:
        self.command = list(command)
        self._child: Child | None = None
        self.problem = ""
        program = _program(self.command[0], cwd)
        if program is None:
            self.problem = f"{self.command[0]}: command not found"
            return
        # Python's output comes as it is printed, so that what a killed run printed is not lost.
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
        """The process that the command will be; None when there can be none."""
        return self._child.pid if self._child else None

    def go(self, *, timeout: float | None = None, show: bool = True, stop: Stop | None = None) -> Ran:
        """Let it run to its end; nothing of its process group outlives it."""
        child = self._child
        if child is None:
            said = f"{self.problem}\n"
            return Ran(NOT_FOUND, 0.0, said, said, len(said), 0, unshown=((_ERR, said.encode()),) if show else ())
        started = time.monotonic()
        pump = _Pump(child, show=show, stop=stop or Stop())
        child.go()
        timed_out = pump.run(None if timeout is None else started + timeout)
        # Also after an ordinary end: a descendant left behind would go on writing under a settled attempt.
        asked = pump.stop.count
        end_group(child, pump.stop.signal or signal.SIGTERM, hurry=lambda: pump.stop.count > asked)
        pump.drain()
        return _ran(pump, time.monotonic() - started, timed_out=timed_out)


def _ran(pump: _Pump, seconds: float, *, timed_out: bool) -> Ran:
    code, stopped = pump.child.returncode or 0, pump.stop.signal
    if timed_out:
        passed_on = TIMED_OUT
    elif stopped:
        passed_on = 128 + stopped
    else:
        passed_on = code if code >= 0 else 128 - code
    killed = -code if code < 0 and not timed_out and not stopped else 0
    kept = pump.kept
    return Ran(
        passed_on, seconds, kept.text(), pump.errors.text(), kept.size, kept.left_out, timed_out, stopped, killed,
        kept.traceback, tuple(pump.waiting),
    )  # fmt: skip


class _Pump:
    """Passes output on and keeps it, until the command has ended, its time has run out, or somebody stops it."""

    def __init__(self, child: Child, *, show: bool, stop: Stop) -> None:
        self.child = child
        self.show = show
        self.stop = stop
        self.kept = Kept()
        self.errors = Kept(head=0, tail=STDERR_KEPT)
        self.waiting: list[tuple[int, bytes]] = []
        self._ahead = 0
        self._sources = {child.out: _OUT, child.err: _ERR}
        for source in self._sources:
            os.set_blocking(source, False)

    def run(self, deadline: float | None) -> bool:
        """Whether the time ran out first, however much is printed and whoever does not read it."""
        ended_at: float | None = None
        while self._sources or self.child.poll() is None:
            now = time.monotonic()
            if self.stop.signal:
                return False
            if deadline is not None and now >= deadline and self.child.poll() is None:
                return True
            moved = self._move(_TICK if deadline is None else max(0.001, min(_TICK, deadline - now)))
            if not moved and self.child.poll() is not None:
                # A descendant may hold the pipe open; what the child itself printed has been read by now.
                ended_at = ended_at or now
                if now - ended_at > ORPHAN_SECONDS:
                    break
        return False

    def drain(self) -> None:
        """Take what still stands in the pipes after everything has ended."""
        for source in list(self._sources):
            while self._take(source):
                pass

    def _move(self, patience: float) -> bool:
        poll = select.poll()
        for source in self._sources if self._ahead < SHOWN_AHEAD else ():
            poll.register(source, select.POLLIN)
        if self.waiting:
            poll.register(self.waiting[0][0], select.POLLOUT)
        moved = False
        for ready, _event in poll.poll(patience * 1000):
            if ready in self._sources:
                moved = self._take(ready) or moved
            elif self.waiting:
                self._show_some()
                moved = True
        return moved

    def _take(self, source: int) -> bool:
        if source not in self._sources:
            return False
        try:
            part = os.read(source, _READ)
        except BlockingIOError:
            return False
        if not part:
            del self._sources[source]
            return False
        target = self._sources[source]
        self.kept.add(part)
        if target == _ERR:
            self.errors.add(part)
        if self.show:
            self.waiting.append((target, part))
            self._ahead += len(part)
        return True

    def _show_some(self) -> None:
        target, part = self.waiting.pop(0)
        try:
            count = os.write(target, part[:_CHUNK])
        except OSError as problem:
            if problem.errno not in (errno.EAGAIN, errno.EINTR):
                # Nobody reads any more. The command goes on and its output is kept.
                self.show, self.waiting, self._ahead = False, [], 0
                return
            count = 0
        self._ahead -= count
        if count < len(part):
            self.waiting.insert(0, (target, part[count:]))


def _program(name: str, cwd: Path) -> str | None:
    """The file that is meant; a name with a slash is taken from the directory the command runs in."""
    if os.sep in name:
        file = cwd / name
        return str(file.absolute()) if file.is_file() else None
    return shutil.which(name)


def show_rest(ran: Ran) -> None:
    """Write what a slow reader has not taken yet. The result is on record by then, so this may wait."""
    for target, part in ran.unshown:
        rest = part
        while rest:
            try:
                rest = rest[os.write(target, rest) :]
            except OSError:
                return
