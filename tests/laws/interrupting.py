"""Group commit under interrupts: writes, callers, and a handler that runs wherever CPython checks for signals."""

import dis
import itertools
import sys
from collections.abc import Callable
from threading import Thread
from typing import Any

from onrecord.stores import group_commit
from onrecord.stores.group_commit import GroupCommit, Pending

SECONDS = 10.0
"""How long a thread may take that nothing should block."""


class Interrupt(BaseException):
    """What the signal handler raises."""


class Write(Pending):
    """A write that may share a transaction; its answer is its name."""

    def __init__(self, name: str, *, alone: bool = False, size: int = 1) -> None:
        super().__init__()
        self.name = name
        self.alone = alone
        self.bytes = size

    @property
    def size(self) -> int:
        return self.bytes


class Commits:
    """Writes batches, and keeps which writes shared one."""

    def __init__(self, group: type[GroupCommit[Write]] = GroupCommit) -> None:
        self.batches: list[list[str]] = []
        self.abandoned = 0
        self.interrupter: Interrupter | None = None
        self.group = group(self.commit, self.abandon)

    def commit(self, batch: list[Write]) -> None:
        self.batches.append([write.name for write in batch])
        if self.interrupter is not None and not self.interrupter.raised:
            self.interrupter.raised += 1
            raise Interrupt
        for write in batch:
            write.answer = write.name

    def abandon(self) -> None:
        self.abandoned += 1

    def is_idle(self) -> bool:
        group = self.group
        return (group._leader, group._next, group._batch, len(group._queue)) == (0, None, [], 0)


class Caller:
    """A thread that runs one write, and its outcome."""

    def __init__(self, commits: Commits, write: Write, before: Callable[[], Any] = lambda: None) -> None:
        self.write = write
        self.answer: Any = None
        self.problem: BaseException | None = None
        self._run, self._before = commits.group.run, before
        queue = commits.group._queue
        waiting = len(queue)
        self.thread = Thread(target=self._call, daemon=True)
        self.thread.start()
        while self.thread.is_alive() and write not in queue and len(queue) == waiting:
            pass  # it is in the queue before the next one comes; another may leave it at the same moment

    def _call(self) -> None:
        self._before()
        try:
            self.answer = self._run(self.write)
        except BaseException as problem:  # noqa: BLE001 - it is looked at
            self.problem = problem
        finally:
            sys.settrace(None)

    def ended(self) -> bool:
        self.thread.join(SECONDS)
        return not self.thread.is_alive()


def raise_interrupt() -> None:
    raise Interrupt


class Interrupter:
    """Runs a handler at the points where CPython checks for signals, counted over one thread's way through the module."""

    CHECKED = ("CALL", "JUMP_BACKWARD", "RESUME")

    def __init__(self, *points: int, handler: Callable[[], None] = raise_interrupt) -> None:
        self._points = points
        self._handler = handler
        self._count = itertools.count()
        self._last: dict[Any, str] = {}
        self._names: dict[Any, dict[int, str]] = {}
        self.raised = 0

    def arm(self) -> None:
        """Watch this thread from here on."""
        sys.settrace(self._watch)

    def _watch(self, frame: Any, event: str, _argument: object) -> Any:
        if frame.f_code.co_filename != group_commit.__file__:
            return None
        if event == "call":
            frame.f_trace_opcodes, frame.f_trace_lines = True, False
            self._last[frame] = "RESUME"
        elif event == "opcode":
            code = frame.f_code
            if code not in self._names:
                self._names[code] = {one.offset: one.opname for one in dis.get_instructions(code)}
            last, self._last[frame] = self._last.get(frame, ""), self._names[code].get(frame.f_lasti, "")
            if last.startswith(self.CHECKED) and next(self._count) in self._points:
                self.raised += 1
                self._handler()  # one that raises also ends the watch: `Watched` begins it again
        return self._watch


class Watched(GroupCommit[Write]):
    """Keeps watching the thread where it recovers from an interrupt."""

    interrupter = Interrupter()

    def _recover(self, own: Pending, me: int) -> None:
        if isinstance(own, Write) and own.name == "victim":
            self.interrupter.arm()
        super()._recover(own, me)
