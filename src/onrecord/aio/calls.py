"""The outcome of a call that runs on a thread, and the queue for more calls than there are hands."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from onrecord import machine

if TYPE_CHECKING:
    from collections.abc import Callable

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


class Settling(asyncio.Future[Outcome]):
    """The outcome of a call on a thread; a task that is cancelled meanwhile learns of it when the outcome is there."""

    def cancel(self, msg: object = None) -> bool:
        """Refuse: the call has begun. The task then raises the cancellation at its next step."""
        return False


def made(call: Callable[[], Any]) -> Outcome:
    """Make a call; whatever it raises is raised where the call is awaited."""
    try:
        return Outcome(call(), None)
    except BaseException as problem:  # noqa: BLE001  # as above
        return Outcome(None, problem)


def queue(loop: asyncio.AbstractEventLoop, future: Settling, call: Callable[[], Any]) -> None:
    """Make a call on the next free thread of the queue; the loop gets its outcome."""
    _threads.submit(lambda: loop.call_soon_threadsafe(future.set_result, made(call)))


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
