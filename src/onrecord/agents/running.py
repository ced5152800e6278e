"""Running an agent's program: on the user's terminal, or headless with its output passed on and examined.

On a terminal the agent shares our process group: Ctrl-C and Ctrl-Z are between the terminal and the agent, and this
process only waits. A headless agent has a session of its own and is ended as a whole.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self

from onrecord.errors import NotFound
from onrecord.machine.ending import GRACE_SECONDS, end_child, signal_group
from onrecord.machine.pump import Pump
from onrecord.machine.signals import NotedSignals

if TYPE_CHECKING:
    from collections.abc import Mapping

    from onrecord.agents.printing import Printer
    from onrecord.vendors.port import Launch

TAIL_LINES = 200
"""How many lines of the end of a stream are kept, to learn why it ended."""
LINE_BYTES = 1024 * 1024
"""Only so many bytes of a line are examined; what is passed on is whole."""
TICK_SECONDS = 0.2
# Leave the alternate screen, show the cursor, no bracketed paste, no mouse, plain colours.
_PLAIN_SCREEN = b"\x1b[?1049l\x1b[?25h\x1b[?2004l\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1006l\x1b[0m"


class Watch(Protocol):
    """Gets what happens while an agent runs."""

    def started(self, pid: int) -> None:
        """Its process was started."""

    def line(self, text: str) -> None:
        """A line of its standard output."""

    def tick(self) -> bool:
        """Called several times a second; True: end it."""


class Ran(NamedTuple):
    """How the process ended."""

    status: int
    """Exit status; a signal as a negative number."""
    lines: list[str]
    """The last lines it printed, standard error included."""
    stopped_by: int = 0
    """The signal that this process was stopped with, if it was."""
    ended_by_us: bool = False


def program_of(launch: Launch, env: Mapping[str, str], title: str) -> str:
    """The file that will be run, or one clear error."""
    found = shutil.which(launch.argv[0], path=env.get("PATH"))
    if found is None:
        raise NotFound(f"{title} is not installed: no program {launch.argv[0]!r} is on PATH", hint="install it first")
    return found


def run_on_terminal(launch: Launch, env: Mapping[str, str], watch: Watch) -> Ran:
    """Run an agent for the person at the terminal, and give the terminal back as it was."""
    with _Terminal(), NotedSignals((signal.SIGTERM, signal.SIGHUP), (signal.SIGINT, signal.SIGQUIT)) as stops:
        child = subprocess.Popen(launch.argv, cwd=launch.cwd, env=dict(env))
        watch.started(child.pid)
        ended_by_us = False
        while child.poll() is None:
            if stops.signal or watch.tick():
                ended_by_us = True
                end_child(child, stops.signal or signal.SIGTERM, hurry=lambda: stops.count > 1)
            else:
                _stop_with(child)
                _wait(child, TICK_SECONDS)
        watch.tick()
    if child.returncode < 0 or ended_by_us:
        with suppress(OSError):
            os.write(sys.stderr.fileno(), _PLAIN_SCREEN if sys.stderr.isatty() else b"")
    return Ran(child.returncode, [], stops.signal, ended_by_us)


def _stop_with(child: subprocess.Popen[bytes]) -> None:
    """An agent that was suspended (Ctrl-Z) suspends us too, so that the shell comes back; both continue together."""
    with suppress(ChildProcessError, AttributeError):
        seen = os.waitid(os.P_PID, child.pid, os.WSTOPPED | os.WNOHANG)
        if seen is not None and seen.si_code == os.CLD_STOPPED:
            os.kill(os.getpid(), signal.SIGTSTP)
            child.send_signal(signal.SIGCONT)


def _wait(child: subprocess.Popen[bytes], seconds: float) -> None:
    with suppress(subprocess.TimeoutExpired):
        child.wait(seconds)


class _Terminal:
    """Remembers the terminal's settings and restores them, whatever the agent left behind."""

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

        # A background process that touches the terminal is stopped, unless it ignores this signal.
        before = signal.signal(signal.SIGTTOU, signal.SIG_IGN)
        try:
            with suppress(OSError, termios.error):
                os.tcsetpgrp(self._file, os.getpgrp())
                termios.tcsetattr(self._file, termios.TCSADRAIN, self._settings)
        finally:
            signal.signal(signal.SIGTTOU, before)


def run_headless(
    launch: Launch, env: Mapping[str, str], watch: Watch, *, show: bool, printer: Printer | None = None
) -> Ran:
    """Run an agent without a terminal; its output is examined line by line and passed on (`show`).

    With a `printer` it is passed on as the text that the printer makes of its stream.
    """
    with NotedSignals((signal.SIGINT, signal.SIGTERM, signal.SIGHUP)) as stops:
        child = subprocess.Popen(
            launch.argv, cwd=launch.cwd, env=dict(env), start_new_session=True, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, stdin=subprocess.DEVNULL if launch.stdin is None else subprocess.PIPE,
        )  # fmt: skip
        try:
            watch.started(child.pid)
            stream = _Stream(child, watch, launch.stdin, show=show, printer=printer)
            ended_by_us = stream.run(stops)
        finally:
            if child.poll() is None:
                signal_group(child.pid, signal.SIGKILL)
            child.wait()
            for pipe in (child.stdin, child.stdout, child.stderr):
                if pipe is not None:
                    with suppress(OSError):
                        pipe.close()
    return Ran(child.returncode, list(stream.tail), stops.signal, ended_by_us)


class _Stream:
    """What a headless agent prints: passed on, cut into lines and examined, however slow its reader is."""

    def __init__(
        self, child: subprocess.Popen[bytes], watch: Watch, stdin: str | None, *, show: bool, printer: Printer | None
    ) -> None:
        self.child = child
        self._printer = printer
        self._printed = ""
        self.watch = watch
        self.tail: deque[str] = deque(maxlen=TAIL_LINES)
        outputs = [pipe.fileno() for pipe in (child.stdout, child.stderr) if pipe is not None]
        feed = (stdin or "").encode("utf-8", "surrogateescape")
        self._pump = Pump(
            dict(zip(outputs, (1, 2), strict=True)), self._split, show=show, stdin=child.stdin, feed=feed,
            instead=self._print if printer is not None else None,
        )  # fmt: skip
        self._lines = {1: bytearray(), 2: bytearray()}

    def run(self, stops: NotedSignals) -> bool:
        """Run until the agent has ended; True when this process ended it."""
        asked_at = quiet_since = next_tick = 0.0
        while True:
            now, over = time.monotonic(), self.child.poll() is not None
            if over and not self._pump.is_open and not self._pump.unshown:
                break
            moved = self._pump.move(TICK_SECONDS)
            if over and not moved:
                # A descendant may keep the pipe open; everything the agent itself printed has been read by now.
                quiet_since = quiet_since or now
                if now - quiet_since > 2 * TICK_SECONDS:
                    break
            if now >= next_tick:
                next_tick = now + TICK_SECONDS
                wrong = self.watch.tick()
                if not asked_at and (stops.signal or wrong) and not over:
                    asked_at = now
                    signal_group(self.child.pid, stops.signal or signal.SIGTERM)
            if asked_at and not over and (now - asked_at > GRACE_SECONDS or stops.count > 1):
                signal_group(self.child.pid, signal.SIGKILL)
        for target in self._lines:
            self._end_line(target)
        if self._printer is not None:
            self._printed += self._printer.end()
            self._pump.show(1, self._print(1, b""))
            while self._pump.unshown:
                self._pump.move(TICK_SECONDS)
        self.watch.tick()
        return bool(asked_at)

    def _print(self, target: int, part: bytes) -> bytes:
        """What is passed on instead of a part of its output: of standard output, what the printer made of its lines."""
        if target != 1:
            return part
        said, self._printed = self._printed, ""
        return said.encode(errors="replace")

    def _split(self, target: int, part: bytes) -> None:
        begun = self._lines[target]
        *whole, rest = part.split(b"\n")
        for piece in whole:
            begun += piece[: LINE_BYTES - len(begun)]
            self._end_line(target)
        begun += rest[: LINE_BYTES - len(begun)]

    def _end_line(self, target: int) -> None:
        begun = self._lines[target]
        if begun:
            text = begun.decode(errors="replace")
            self.tail.append(text)
            if self._printer is not None and target == 1:
                self._printed += self._printer.line(text)
            self.watch.line(text)
            begun.clear()
