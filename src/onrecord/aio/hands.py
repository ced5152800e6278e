"""Hands: the threads on which awaited calls run.

    async  `settled(call)` ──> an idle hand ──> call() ──> the task gets the result ──> then()

Every awaited verb takes this way, so it has to be short: two locks and a wake-up of the loop, in half the time of an
executor. The hand that was used last is used first: the processor's caches still have what it needs. More calls
than there are hands wait in the queue of an executor.

A call that is cancelled still finishes: the cancellation is delivered after the outcome is known, and carries it, so
the caller never has to guess whether an append landed.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from itertools import islice
from threading import Lock, Thread
from time import sleep
from typing import TYPE_CHECKING, Any, TypeVar

from onrecord import machine
from onrecord.aio.calls import Settling, made, queue

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    Then = Callable[[], object] | None

R = TypeVar("R")

PAGE = 100
"""How many events an asynchronous reader fetches at a time."""
HANDS = 32
"""How many calls run on hands at the same time."""
FEW = 2
"""Up to so many hands at work, what comes after a call follows it soon; with more, the next step does it."""
PAUSE_SECONDS = 0.0005
"""How long a hand waits before it does what comes after a call: first the loop passes on the result."""


class Hand:
    """A thread that waits for a call, and makes it."""

    def __init__(self) -> None:
        self._given = Lock()
        self._given.acquire()
        self._job: tuple[Settling, Callable[[], Any], Then] | None = None
        Thread(target=self._work, name="onrecord-hand", daemon=True).start()

    def give(self, future: Settling, call: Callable[[], Any], then: Then = None) -> None:
        """Make this call; who awaits it gets its outcome. `then` follows when there was time for that."""
        self._job = (future, call, then)
        self._given.release()

    def _work(self) -> None:
        while True:
            self._given.acquire()
            self._serve()

    def _serve(self) -> None:
        # In a method of its own: a waiting thread must not keep the last call and its result alive.
        job, self._job = self._job, None
        assert job is not None  # noqa: S101  # the lock is released after it was set
        future, call, then = job
        outcome = made(call)
        if then is not None and len(_all) - len(_idle) > FEW:
            then = None  # the next step does it: to sleep first and wake up among so many would cost more than it does
        if then is None:
            _idle.append(self)
        with suppress(RuntimeError):  # the loop was closed: no one waits any more
            future.settle(outcome)
        # A result must not live as long as what comes after. An error refers to this frame: that would be a cycle.
        del outcome, future, job, call
        if then is not None:
            sleep(PAUSE_SECONDS)
            with suppress(Exception):  # it only saves time: the next step does it, or meets the error
                then()
            _idle.append(self)


_idle: list[Hand] = []
_all: list[Hand] = []


def _forget() -> None:
    _idle.clear()
    _all.clear()


machine.after_fork(_forget)


async def settled(call: Callable[[], R], then: Then = None) -> R:
    """Run a blocking call to its end, also when the caller is cancelled, and return its result.

    A cancellation in the meantime is delivered afterwards, with the outcome. `then` is called afterwards, unless there
    is too much else to do, and no one hears of its errors.
    """
    future = Settling(asyncio.get_running_loop())
    hand = _free_hand()
    if hand is None:
        queue(future, call)
    else:
        hand.give(future, call, then)
    try:
        result, error = await future
        if error is not None:
            raise error
    except asyncio.CancelledError:  # its own cancellation, or one that the call raised
        raise asyncio.CancelledError(future.result()) from None
    else:
        answer: R = result
        return answer
    finally:
        error = future = None  # type: ignore[assignment]  # an error refers to this frame, too


def _free_hand() -> Hand | None:
    """The hand that was used last, or a new one; None if all of them are at work."""
    with suppress(IndexError):
        return _idle.pop()
    if len(_all) >= HANDS:
        return None
    _all.append(Hand())
    return _all[-1]


async def paged(found: Iterator[R]) -> AsyncIterator[R]:
    """What a synchronous iterator yields, fetched a page at a time."""
    while page := await settled(lambda: list(islice(found, PAGE))):
        for one in page:
            yield one
