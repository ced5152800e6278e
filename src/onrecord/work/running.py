"""Running a command as an attempt: its output goes through and is kept, and its descendants end with it."""

from __future__ import annotations

import math
import os
import re
import selectors
import signal
import subprocess
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

OUTPUT_KEPT = 64 * 1024
"""How many bytes of the end of the output are kept."""
HEAD_KEPT = 8 * 1024
"""How many bytes of the beginning are kept besides."""
ERROR_LIMIT = 500
"""The longest error line that is kept, in characters."""
ORPHAN_SECONDS = 0.2
"""How long output is still awaited after the command itself has ended, when a descendant holds the pipe."""
GRACE_SECONDS = 5.0
"""How long a process group has between being asked to end and being killed."""

_TRACEBACK = re.compile(r"^Traceback \(most recent call last\):", re.MULTILINE)
_ERROR_LINE = re.compile(
    r"^(?:\w+\.)*\w*(?:Error|Exception|Interrupt|Exit|Warning)\b.*|^(?:error|fatal|FAILED)\b.*", re.IGNORECASE
)
_VARYING = re.compile(r"0x[0-9a-fA-F]+|\b[0-9a-f]{7,64}\b|\d+(?:\.\d+)?|/\S+")


class Ran(NamedTuple):
    """How a command ended."""

    exit_code: int
    """Of the shell's kind: 128 + signal for a killed one, 127 when it could not be started."""
    seconds: float
    output: str
    """The end of what it printed, and its beginning when something had to be left out in between."""
    left_out: int
    timed_out: bool
    interrupted: bool


def run(
    command: Sequence[str], *, cwd: Path, timeout: float | None = None, show: Callable[[bytes], None] | None = None
) -> Ran:
    """Run a command to its end in a process group of its own; nothing of that group outlives it."""
    started = time.monotonic()
    try:
        child = subprocess.Popen(
            list(command), cwd=cwd, stdin=subprocess.DEVNULL if not os.isatty(0) else None,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
    except OSError as problem:
        return Ran(127, 0.0, f"{command[0]}: {problem.strerror}", 0, timed_out=False, interrupted=False)
    kept = _Kept()
    timed_out = interrupted = False
    try:
        timed_out = _pump(child, kept, show, None if timeout is None else started + timeout)
    except KeyboardInterrupt:
        interrupted = True
    finally:
        # Also after an ordinary end: a descendant left behind would go on writing under a settled attempt.
        _end_group(child)
    code = child.returncode
    return Ran(
        code if code >= 0 else 128 - code,
        time.monotonic() - started,
        kept.text(),
        kept.left_out,
        timed_out,
        interrupted,
    )


def _pump(
    child: subprocess.Popen[bytes], kept: _Kept, show: Callable[[bytes], None] | None, deadline: float | None
) -> bool:
    """Pass the output on until the child has ended; whether its time ran out first, however much it prints."""
    assert child.stdout is not None  # noqa: S101 - it was asked for
    with selectors.DefaultSelector() as selector:
        os.set_blocking(child.stdout.fileno(), False)
        selector.register(child.stdout, selectors.EVENT_READ)
        ended_at: float | None = None
        while True:
            now = time.monotonic()
            if deadline is not None and now >= deadline and child.poll() is None:
                return True
            ready = selector.select(0.05 if deadline is None else max(0.0, min(0.05, deadline - now)))
            if ready:
                part = os.read(child.stdout.fileno(), 65_536)
                if not part:
                    child.wait(None if deadline is None else max(0.0, deadline - time.monotonic()))
                    return False
                kept.add(part)
                if show is not None:
                    show(part)
            elif child.poll() is not None:
                # A descendant may hold the pipe open; what the child itself printed has been read by now.
                ended_at = ended_at or now
                if now - ended_at > ORPHAN_SECONDS:
                    return False


def _end_group(child: subprocess.Popen[bytes]) -> None:
    for how, patience in ((signal.SIGTERM, GRACE_SECONDS), (signal.SIGKILL, None)):
        try:
            os.killpg(child.pid, how)
        except (ProcessLookupError, PermissionError):
            break
        try:
            child.wait(patience)
        except subprocess.TimeoutExpired:
            continue
        if not _group_lives(child.pid):
            break
    child.wait()


def _group_lives(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except (ProcessLookupError, PermissionError):
        return False
    return True


class _Kept:
    """The beginning and the end of an output, within bounds."""

    def __init__(self) -> None:
        self._head = b""
        self._tail: deque[bytes] = deque()
        self._size = 0
        self.left_out = 0

    def add(self, part: bytes) -> None:
        room = HEAD_KEPT - len(self._head)
        self._head += part[:room]
        part = part[room:] if room < len(part) else b""
        if part:
            self._tail.append(part)
            self._size += len(part)
        while self._size > OUTPUT_KEPT and len(self._tail) > 1:
            gone = self._tail.popleft()
            self._size -= len(gone)
            self.left_out += len(gone)
        if self._size > OUTPUT_KEPT:
            gone_count = self._size - OUTPUT_KEPT
            self._tail[0] = self._tail[0][gone_count:]
            self._size -= gone_count
            self.left_out += gone_count

    def text(self) -> str:
        end = b"".join(self._tail).decode(errors="replace")
        if not self.left_out:
            return self._head.decode(errors="replace") + end
        return f"{self._head.decode(errors='replace')}\n… {self.left_out:,} bytes left out …\n{end}"


def error_of(output: str, exit_code: int) -> str:
    """The exact error: the last line of a traceback, else the last that reads like an error, else the last line."""
    lines = [line.rstrip() for line in output.splitlines() if line.strip()]
    if not lines:
        return f"exit code {exit_code}, no output"
    trace = [number for number, line in enumerate(lines) if _TRACEBACK.match(line.strip())]
    if trace:
        after = [line for line in lines[trace[-1] + 1 :] if not line.startswith((" ", "\t"))]
        if after:
            return after[0][:ERROR_LIMIT]
    errors = [line for line in lines if _ERROR_LINE.match(line.strip())]
    return (errors[-1] if errors else lines[-1]).strip()[:ERROR_LIMIT]


def signature_of(error: str) -> str:
    """An error without what differs from run to run: numbers, addresses, paths, hashes."""
    return _VARYING.sub("#", error).strip().casefold()[:ERROR_LIMIT]


def has_traceback(output: str) -> bool:
    """Whether a Python traceback was printed."""
    return _TRACEBACK.search(output) is not None


def bad_metrics(metrics: dict[str, Any]) -> list[str]:
    """Metrics that are not finite numbers."""
    return [name for name, value in metrics.items() if isinstance(value, float) and not math.isfinite(value)]
