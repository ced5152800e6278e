"""The outcome of a call that runs on a thread, and the queue for more calls than there are hands."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from onrecord import machine

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from contextvars import Context

    from onrecord.views.values import Json

R = TypeVar("R")

THREADS = 64
"""How many calls of one process run on the threads of the queue, besides those on hands."""

_threads = ThreadPoolExecutor(THREADS, "onrecord")


def _renew_threads() -> None:
    global _threads  # noqa: PLW0603 - one pool per process, and a fork makes a new process
    _threads = ThreadPoolExecutor(THREADS, "onrecord")


machine.after_fork(_renew_threads)


class Outcome(NamedTuple):
    """How a call ended after its caller was cancelled: the cancellation carries it, see `outcome_of`."""

    result: Json
    error: BaseException | None

    @property
    def landed(self) -> bool:
        """Whether the call succeeded, so that its events are on record."""
        return self.error is None


def outcome_of(cancelled: asyncio.CancelledError) -> Outcome | None:
    """The outcome of the call that was cancelled; None if it was no call of ours, or had not begun."""
    # A class of its own would not pass through asyncio.timeout, which asks for exactly CancelledError.
    carried = cancelled.args[0] if cancelled.args else None
    return carried if isinstance(carried, Outcome) else None


class Settling:
    """The outcome of a call on a thread, awaited by one task; a cancellation meanwhile comes with the outcome.

    A task awaits everything that has these methods. A future of asyncio would take the loop two rounds: one to set the
    result, one to wake the task. Here the thread asks the loop to wake the task.
    """

    __slots__ = ("_asyncio_future_blocking", "_loop", "_meeting", "_outcome", "_wake")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._asyncio_future_blocking = False
        self._loop = loop
        self._meeting = Lock()
        """Taken by the first of two who meet here, the thread with its outcome and the task: the second is too late for
        it, and wakes the task."""
        self._outcome: Outcome | None = None
        self._wake: tuple[Callable[[Settling], object], Context | None] | None = None

    def settle(self, outcome: Outcome) -> None:
        """Give the outcome, from any thread; `RuntimeError` if the loop is closed and a task waits in it."""
        self._outcome = outcome
        if not self._meeting.acquire(blocking=False):
            assert self._wake is not None  # noqa: S101  # the task has left it before it took the lock
            wake, context = self._wake
            self._loop.call_soon_threadsafe(wake, self, context=context)

    def __await__(self) -> Generator[Settling, None, Outcome]:
        self._asyncio_future_blocking = True
        yield self
        return self.result()

    def add_done_callback(self, wake: Callable[[Settling], object], *, context: Context | None = None) -> None:
        """Wake the task that awaits this, with the outcome."""
        self._wake = wake, context
        if not self._meeting.acquire(blocking=False):
            self._loop.call_soon(wake, self, context=context)

    def get_loop(self) -> asyncio.AbstractEventLoop:
        """The loop of the task."""
        return self._loop

    def done(self) -> bool:
        """Whether the outcome is there."""
        return self._outcome is not None

    def result(self) -> Outcome:
        """The outcome."""
        assert self._outcome is not None  # noqa: S101  # the task is woken when it is there
        return self._outcome

    def cancel(self, msg: object = None) -> bool:
        """Refuse: the call has begun. The task then raises the cancellation at its next step."""
        return False


def made(call: Callable[[], Any]) -> Outcome:
    """Make a call; whatever it raises is raised where the call is awaited."""
    try:
        return Outcome(call(), None)
    except BaseException as problem:  # noqa: BLE001  # as above
        return Outcome(None, problem)


def queue(future: Settling, call: Callable[[], Any]) -> None:
    """Make a call on the next free thread of the queue; the loop gets its outcome."""
    _threads.submit(lambda: future.settle(made(call)))


async def finished(future: asyncio.Future[R]) -> R:
    """The result of a call that has begun; a cancellation meanwhile is delivered with the outcome."""
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        while not future.done():
            try:
                await asyncio.wait([future])
            except asyncio.CancelledError:  # cancelled again: the outcome is still worth a moment
                continue
        if future.cancelled():
            raise
        error = future.exception()
        raise asyncio.CancelledError(Outcome(None if error else future.result(), error)) from None
