"""Process groups: a command leads a group of its own, waits to be started, and its whole group ends with it."""

from __future__ import annotations

import fcntl
import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from onrecord.machine import ending
from onrecord.machine.ending import GRACE_SECONDS

_LOOK = 0.01
_ABOVE = 10
"""Pipes are moved above the descriptors that the child uses for them."""
# The shell waits for a line, then becomes the command: the recorded process is the one that runs.
_WAIT_FOR_GO = 'IFS= read -r go <&3 || exit 125; exec 3<&-; cd -- "$1" || exit 126; shift; exec "$@"'
_DEFAULTS = [getattr(signal, name) for name in ("SIGPIPE", "SIGXFSZ") if hasattr(signal, name)]


class Child:
    """A process that waits for `go`, in a session of its own. If its parent dies before that, it never runs."""

    def __init__(self, program: str, arguments: Sequence[str], cwd: Path, env: Mapping[str, str]) -> None:
        wait, self._go = _pipe()
        self.out, out = _pipe()
        self.err, err = _pipe()
        self.returncode: int | None = None
        self.collected = False
        words = ["sh", "-c", _WAIT_FOR_GO, "sh", str(cwd), program, *arguments]
        moves = [(os.POSIX_SPAWN_DUP2, wait, 3), (os.POSIX_SPAWN_DUP2, out, 1), (os.POSIX_SPAWN_DUP2, err, 2)]
        try:
            try:
                self.pid = os.posix_spawn("/bin/sh", words, env, file_actions=moves, setsid=True, setsigdef=_DEFAULTS)
            except NotImplementedError:
                self.pid = os.posix_spawn("/bin/sh", words, env, file_actions=moves, setpgroup=0, setsigdef=_DEFAULTS)
        except BaseException:
            self.close()
            raise
        finally:
            for end in (wait, out, err):
                os.close(end)

    def go(self) -> None:
        """Let the command run."""
        with suppress(BrokenPipeError):
            os.write(self._go, b"go\n")
        os.close(self._go)
        self._go = -1

    def poll(self) -> int | None:
        """How it ended, the signal as a negative number; None while it runs.

        The process is not collected yet: as long as it is not, no other group can get its number.
        """
        if self.returncode is None:
            try:
                self.returncode = self._look()
            except ChildProcessError:
                self.returncode = 0  # other code in this process collects all children; how it ended is unknown
        return self.returncode

    def _look(self) -> int | None:
        if not hasattr(os, "waitid"):
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            return os.waitstatus_to_exitcode(status) if pid else None
        seen = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if seen is None:
            return None
        return seen.si_status if seen.si_code == os.CLD_EXITED else -seen.si_status

    def collect(self) -> None:
        """Wait for the end and release the process number."""
        while self.poll() is None:
            time.sleep(_LOOK)
        with suppress(ChildProcessError):
            os.waitpid(self.pid, 0)
        self.collected = True

    def close(self) -> None:
        """Close the pipes; a command that still waits will never run."""
        for end in (self._go, self.out, self.err):
            if end >= 0:
                os.close(end)
        self._go = self.out = self.err = -1


def end_group(
    child: Child, first: int = signal.SIGTERM, *, grace: float = GRACE_SECONDS, hurry: Callable[[], bool] = bool
) -> None:
    """End a child and its group: ask first, kill what is left, and collect it. `hurry` cuts the wait short."""
    if child.collected:
        return
    ending.end_group(
        child.pid, lambda: child.poll() is not None and not _group_lives(child.pid), first, grace=grace, hurry=hurry
    )
    child.collect()


def _group_lives(group: int) -> bool:
    """Whether any process of a group still runs; a zombie does not."""
    if not ending.signal_group(group, 0):
        return False
    try:
        processes = [name for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208 - names are all it needs
    except OSError:
        return True
    return any(_belongs(process, group) for process in processes)


def _belongs(process: str, group: int) -> bool:
    try:
        with open(f"/proc/{process}/stat", "rb") as file:  # noqa: PTH123 - hundreds of them, ten times a second
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return False
    return int(fields[2]) == group and fields[0] not in (b"Z", b"X")


def _pipe() -> tuple[int, int]:
    ends = os.pipe()
    try:
        moved = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, _ABOVE) for end in ends]
    finally:
        for end in ends:
            os.close(end)
    return moved[0], moved[1]
