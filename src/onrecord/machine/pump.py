"""Moving a child's output: what it prints is handed to a callback and, if wanted, passed on to our own output.

No reader can block the child for ever and no child can fill the memory: what a slow reader has not taken waits here,
and beyond a limit the child has to wait too.
"""

from __future__ import annotations

import errno
import os
import select
from contextlib import suppress
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

SHOWN_AHEAD = 64 * 1024
"""How many bytes may wait for a reader that is slower than the child before the child has to wait too."""
_READ = 65_536
_WRITE = 4_096
"""A pipe that is ready to be written takes this much without blocking."""


class Pump:
    """The output pipes of one child, and its input if there is something to feed it."""

    def __init__(
        self, outputs: Mapping[int, int], took: Callable[[int, bytes], None], *, show: bool,
        stdin: IO[bytes] | None = None, feed: bytes = b"", instead: Callable[[int, bytes], bytes] | None = None,
    ) -> None:  # fmt: skip
        """`outputs` maps the child's pipes to our descriptors; `took` is called with the latter and what was read.

        `instead` says what is passed on in place of it.
        """
        self._outputs = dict(outputs)
        self._took = took
        self._show = show
        self._instead = instead
        self._stdin, self._feed = stdin, feed
        self.unshown: list[tuple[int, bytes]] = []
        """Output that its reader has not taken yet, with our descriptor it is for."""
        self._ahead = 0
        for pipe in (*self._outputs, *([stdin.fileno()] if stdin is not None else [])):
            os.set_blocking(pipe, False)

    @property
    def is_open(self) -> bool:
        """Whether the child, or a descendant of it, can still print something."""
        return bool(self._outputs)

    def move(self, seconds: float) -> bool:
        """Wait until something can be moved, at most for so long, and move it; False when nothing was moved."""
        poll = select.poll()
        for pipe in self._outputs if self._ahead < SHOWN_AHEAD else ():
            poll.register(pipe, select.POLLIN)
        if self.unshown:
            poll.register(self.unshown[0][0], select.POLLOUT)
        stdin = self._stdin.fileno() if self._stdin is not None else -1
        if stdin >= 0:
            poll.register(stdin, select.POLLOUT)
        moved = False
        for ready, _event in poll.poll(seconds * 1000):
            if ready == stdin:
                self._feed_some()
                moved = True
            elif ready in self._outputs:
                moved = self._take(ready) or moved
            elif self.unshown:
                self._show_some()
                moved = True
        return moved

    def drain(self) -> None:
        """Take what is left in the pipes after everything has ended."""
        for pipe in list(self._outputs):
            while self._take(pipe):
                pass

    def _take(self, pipe: int) -> bool:
        if pipe not in self._outputs:
            return False
        try:
            part = os.read(pipe, _READ)
        except BlockingIOError:
            return False
        if not part:
            del self._outputs[pipe]
            return False
        target = self._outputs[pipe]
        self._took(target, part)
        self.show(target, part if self._instead is None else self._instead(target, part))
        return True

    def show(self, target: int, part: bytes) -> None:
        """Pass something on to one of our descriptors, as soon as its reader takes it."""
        if self._show and part:
            self.unshown.append((target, part))
            self._ahead += len(part)

    def _show_some(self) -> None:
        target, part = self.unshown.pop(0)
        try:
            count = os.write(target, part[:_WRITE])
        except OSError as problem:
            if problem.errno not in (errno.EAGAIN, errno.EINTR):
                # The reader is gone. The child continues, and its output is still taken.
                self._show, self.unshown, self._ahead = False, [], 0
                return
            count = 0
        self._ahead -= count
        if count < len(part):
            self.unshown.insert(0, (target, part[count:]))

    def _feed_some(self) -> None:
        if self._stdin is None:
            return
        try:
            self._feed = self._feed[os.write(self._stdin.fileno(), self._feed[:_READ]) :] if self._feed else b""
        except BlockingIOError:
            return
        except OSError:
            self._feed = b""  # the child closed its standard input
        if not self._feed:
            with suppress(OSError):
                self._stdin.close()
            self._stdin = None
