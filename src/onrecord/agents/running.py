"""Running an agent's program: on the person's terminal, or headless with its stream passed on and looked at.

On a terminal the agent shares our process group: Ctrl-C and Ctrl-Z are between the terminal and the agent, and we only
wait. Headless it has a session of its own and is ended as a whole.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self

from onrecord.agents.processes import END_SECONDS
from onrecord.errors import NotFound

if TYPE_CHECKING:
    from collections.abc import Mapping

    from onrecord.vendors.port import Launch

TAIL_LINES = 200
"""How many lines of the end of a stream are kept to tell why it ended."""
LINE_BYTES = 1024 * 1024
"""A longer line of a stream is looked at up to here; what is passed on is whole."""
TICK_SECONDS = 0.2
_READ = 65_536
_WRITE = 4_096
"""A pipe that is ready to be written takes this much without blocking."""
# Leave the alternate screen, show the cursor, no bracketed paste, no mouse, plain colours.
_PLAIN_SCREEN = b"\x1b[?1049l\x1b[?25h\x1b[?2004l\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1006l\x1b[0m"


class Watch(Protocol):
    """Who looks on while an agent runs."""

    def started(self, pid: int) -> None:
        """Its process is there."""

    def line(self, text: str) -> None:
        """A line of its standard output."""

    def tick(self) -> bool:
        """A moment passed; True: end it."""


class Ran(NamedTuple):
    """How the process ended."""

    status: int
    """Exit status; a signal as a negative number."""
    lines: list[str]
    """The end of what it said, standard error included."""
    stopped_by: int = 0
    """The signal we were stopped with, if we were."""
    ended_by_us: bool = False


class Stops:
    """Notes signals instead of acting on them, so that what is under way is ended and recorded first."""

    def __init__(self, numbers: tuple[int, ...], ignored: tuple[int, ...] = ()) -> None:
        self.signal = 0
        self.count = 0
        self._numbers, self._ignored = numbers, ignored
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        with suppress(ValueError):  # not the main thread: whoever owns it sees the signals
            for number in self._numbers:
                self._before[number] = signal.signal(number, self._note)
            for number in self._ignored:
                # A function, not SIG_IGN: that would be inherited by the agent.
                self._before[number] = signal.signal(number, lambda *_: None)
        return self

    def __exit__(self, *_problem: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, _frame: object) -> None:
        self.signal = self.signal or number
        self.count += 1


def program_of(launch: Launch, env: Mapping[str, str], title: str) -> str:
    """The file that will be run, or one clear error."""
    found = shutil.which(launch.argv[0], path=env.get("PATH"))
    if found is None:
        raise NotFound(
            f"{title} is not installed: there is no program {launch.argv[0]!r} on PATH", hint="install it first"
        )
    return found


def run_on_terminal(launch: Launch, env: Mapping[str, str], watch: Watch) -> Ran:
    """Run an agent for the person at the terminal, and give the terminal back as it was."""
    with _Terminal(), Stops((signal.SIGTERM, signal.SIGHUP), (signal.SIGINT, signal.SIGQUIT)) as stops:
        child = subprocess.Popen(launch.argv, cwd=launch.cwd, env=dict(env))
        watch.started(child.pid)
        ended_by_us = False
        while child.poll() is None:
            if not ended_by_us and (stops.signal or watch.tick()):
                ended_by_us = True
                child.send_signal(stops.signal or signal.SIGTERM)
                deadline = time.monotonic() + END_SECONDS
            elif ended_by_us and (time.monotonic() > deadline or stops.count > 1):
                child.kill()
            _stop_with(child)
            _wait(child, TICK_SECONDS)
        watch.tick()
    if child.returncode < 0 or ended_by_us:
        with suppress(OSError):
            os.write(sys.stderr.fileno(), _PLAIN_SCREEN if sys.stderr.isatty() else b"")
    return Ran(child.returncode, [], stops.signal, ended_by_us)


def _stop_with(child: subprocess.Popen[bytes]) -> None:
    """An agent that stopped itself (Ctrl-Z) stops us too, so that the shell is there again; both go on together."""
    with suppress(ChildProcessError, AttributeError):
        seen = os.waitid(os.P_PID, child.pid, os.WSTOPPED | os.WNOHANG)
        if seen is not None and seen.si_code == os.CLD_STOPPED:
            os.kill(os.getpid(), signal.SIGTSTP)
            child.send_signal(signal.SIGCONT)


def _wait(child: subprocess.Popen[bytes], seconds: float) -> None:
    with suppress(subprocess.TimeoutExpired):
        child.wait(seconds)


class _Terminal:
    """Remembers how the terminal was set, and sets it so again whatever the agent left behind."""

    def __init__(self) -> None:
        self._file = sys.stdin.fileno() if sys.stdin.isatty() else -1
        self._settings: list[Any] | None = None

    def __enter__(self) -> Self:
        if self._file >= 0:
            import termios

            with suppress(termios.error):
                self._settings = termios.tcgetattr(self._file)
        return self

    def __exit__(self, *_problem: object) -> None:
        if self._settings is None:
            return
        import termios

        # Whoever is not in the foreground is stopped for touching the terminal, unless it does not care.
        before = signal.signal(signal.SIGTTOU, signal.SIG_IGN)
        try:
            with suppress(OSError, termios.error):
                os.tcsetpgrp(self._file, os.getpgrp())
                termios.tcsetattr(self._file, termios.TCSADRAIN, self._settings)
        finally:
            signal.signal(signal.SIGTTOU, before)


def run_headless(launch: Launch, env: Mapping[str, str], watch: Watch, *, show: bool) -> Ran:
    """Run an agent without a terminal; its output goes through (`show`) and is looked at line by line."""
    with Stops((signal.SIGINT, signal.SIGTERM, signal.SIGHUP)) as stops:
        child = subprocess.Popen(
            launch.argv, cwd=launch.cwd, env=dict(env), start_new_session=True, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, stdin=subprocess.DEVNULL if launch.stdin is None else subprocess.PIPE,
        )  # fmt: skip
        try:
            watch.started(child.pid)
            stream = _Stream(child, watch, launch.stdin, show=show)
            ended_by_us = stream.run(stops)
        finally:
            if child.poll() is None:
                _signal_group(child, signal.SIGKILL)
            child.wait()
            for pipe in (child.stdin, child.stdout, child.stderr):
                if pipe is not None:
                    with suppress(OSError):
                        pipe.close()
    return Ran(child.returncode, list(stream.tail), stops.signal, ended_by_us)


def _signal_group(child: subprocess.Popen[bytes], number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, number)


class _Stream:
    """What a headless agent reads and prints, whoever is slow."""

    def __init__(self, child: subprocess.Popen[bytes], watch: Watch, stdin: str | None, *, show: bool) -> None:
        self.child = child
        self.watch = watch
        self.tail: deque[str] = deque(maxlen=TAIL_LINES)
        self._input = (stdin or "").encode("utf-8", "surrogateescape")
        self._show = show
        self._waiting: list[tuple[int, bytes]] = []
        """Output whose reader has not taken it yet."""
        outputs = [pipe.fileno() for pipe in (child.stdout, child.stderr) if pipe is not None]
        self._sources = dict(zip(outputs, (1, 2), strict=True))
        self._lines = {source: bytearray() for source in self._sources}
        for source in self._sources:
            os.set_blocking(source, False)
        if child.stdin is not None:
            os.set_blocking(child.stdin.fileno(), False)

    def run(self, stops: Stops) -> bool:
        """Until the agent has ended; True when it was we who ended it."""
        asked_at = quiet_since = next_tick = 0.0
        while True:
            now, over = time.monotonic(), self.child.poll() is not None
            if over and not self._sources:
                break
            moved = self._move(TICK_SECONDS)
            if over and not moved:
                # A descendant may hold the pipe open; what the agent itself printed has been read by now.
                quiet_since = quiet_since or now
                if now - quiet_since > 2 * TICK_SECONDS:
                    break
            if now >= next_tick:
                next_tick = now + TICK_SECONDS
                wrong = self.watch.tick()
                if not asked_at and (stops.signal or wrong) and not over:
                    asked_at = now
                    _signal_group(self.child, stops.signal or signal.SIGTERM)
            if asked_at and not over and (now - asked_at > END_SECONDS or stops.count > 1):
                _signal_group(self.child, signal.SIGKILL)
        for source in self._lines:
            self._end_line(source)
        self.watch.tick()
        return bool(asked_at)

    def _move(self, patience: float) -> bool:
        poll = select.poll()
        if not self._waiting:
            for source in self._sources:
                poll.register(source, select.POLLIN)
        else:
            poll.register(self._waiting[0][0], select.POLLOUT)
        feeding = self.child.stdin if self.child.stdin is not None and not self.child.stdin.closed else None
        if feeding is not None:
            poll.register(feeding.fileno(), select.POLLOUT)
        ready = [file for file, _event in poll.poll(patience * 1000)]
        if feeding is not None and feeding.fileno() in ready:
            self._feed()
        for file in ready:
            if file in self._sources:
                self._take(file)
            elif self._waiting and file == self._waiting[0][0]:
                self._pass_on()
        return bool(ready)

    def _feed(self) -> None:
        pipe = self.child.stdin
        if pipe is None:
            return
        try:
            self._input = self._input[os.write(pipe.fileno(), self._input[:_READ]) :] if self._input else b""
        except BlockingIOError:
            return
        except OSError:
            self._input = b""  # it does not want to read
        if not self._input:
            with suppress(OSError):
                pipe.close()

    def _take(self, source: int) -> None:
        try:
            part = os.read(source, _READ)
        except BlockingIOError:
            return
        if not part:
            del self._sources[source]
            return
        if self._show:
            self._waiting.append((self._sources[source], part))
        held = self._lines[source]
        *whole, rest = part.split(b"\n")
        for piece in whole:
            held += piece[: LINE_BYTES - len(held)]
            self._end_line(source)
        held += rest[: LINE_BYTES - len(held)]

    def _end_line(self, source: int) -> None:
        held = self._lines[source]
        if held:
            text = held.decode(errors="replace")
            self.tail.append(text)
            self.watch.line(text)
            held.clear()

    def _pass_on(self) -> None:
        target, part = self._waiting.pop(0)
        try:
            count = os.write(target, part[:_WRITE])
        except BlockingIOError:
            count = 0
        except OSError:
            self._show, self._waiting = False, []  # nobody reads any more; the agent goes on
            return
        if count < len(part):
            self._waiting.insert(0, (target, part[count:]))
