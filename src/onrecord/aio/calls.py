"""Blocking calls, awaited: each runs on a thread, so coroutines share the store's group commit.

A call that is cancelled still finishes: the cancellation is delivered after the outcome is known, and carries it, so
the caller never has to guess whether an append landed.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from onrecord import machine

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from onrecord.views.values import Json

R = TypeVar("R")

PAGE = 100
"""How many events an asynchronous reader fetches at a time."""
THREADS = 64
"""How many calls of one process wait for a store at the same time."""

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


class _Waiting(asyncio.Future[Outcome]):
    """The outcome of a call on a thread; a task that is cancelled meanwhile learns of it when the outcome is there."""

    def cancel(self, msg: object = None) -> bool:
        """Refuse: the call has begun. The task then raises the cancellation at its next step."""
        return False


async def settled(call: Callable[[], R]) -> R:
    """Run a blocking call to its end, also when the caller is cancelled, and return its result."""
    loop = asyncio.get_running_loop()
    waiting = _Waiting(loop=loop)
    _threads.submit(_deliver, call, loop, waiting)  # half the time of `run_in_executor` and `shield`
    try:
        result, error = await waiting
        if error is not None:
            raise error
    except asyncio.CancelledError:
        raise asyncio.CancelledError(waiting.result()) from None
    else:
        answer: R = result
        return answer
    finally:
        error = waiting = None  # type: ignore[assignment]  # an error refers to this frame: no cycle keeps both alive


def _deliver(call: Callable[[], R], loop: asyncio.AbstractEventLoop, waiting: _Waiting) -> None:
    """Run a call, and wake the coroutine that waits for it."""
    try:
        outcome = Outcome(call(), None)
    except BaseException as problem:  # noqa: BLE001  # it is raised where the call is awaited
        outcome = Outcome(None, problem)
    loop.call_soon_threadsafe(waiting.set_result, outcome)
    del outcome  # as above


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


async def paged(found: Iterator[R]) -> AsyncIterator[R]:
    """What a synchronous iterator yields, fetched a page at a time."""
    while page := await settled(lambda: list(islice(found, PAGE))):
        for one in page:
            yield one
