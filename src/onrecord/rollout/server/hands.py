"""Hands: the threads on which the steps of turns run.

    async  `settled(call)` ──> an idle hand ──> call() ──> the loop gets the result ──> then()

Two steps of every turn take this way, so it has to be short: a future, a lock and a wake-up of the loop. The hand that
was used last is used first: the processor's caches still have what it needs. More calls than there are hands take the
way of `onrecord.aio`, whose threads have a queue.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from threading import Lock, Thread
from time import sleep
from typing import TYPE_CHECKING, Any, TypeVar

from onrecord import machine
from onrecord.aio import Outcome
from onrecord.aio import settled as queued

if TYPE_CHECKING:
    from collections.abc import Callable

    Then = Callable[[], object] | None

R = TypeVar("R")
HANDS = 32
"""How many calls run on hands at the same time."""
FEW = 2
"""Up to so many hands at work, what comes after a call follows it soon; with more, the next step does it."""
PAUSE_SECONDS = 0.0005
"""How long a hand waits before it does what comes after a call: first the loop passes on the result."""


class Settling(asyncio.Future[Any]):
    """The outcome of a call. A task that waits for it is cancelled only afterwards: the call cannot be stopped."""

    def cancel(self, msg: Any = None) -> bool:  # asyncio's signature
        """Refuse: the task that waits gets its cancellation together with the outcome."""
        return False


class Hand:
    """A thread that waits for a call, and makes it."""

    def __init__(self) -> None:
        self._given = Lock()
        self._given.acquire()
        self._job: tuple[asyncio.AbstractEventLoop, Settling, Callable[[], Any], Then] | None = None
        Thread(target=self._work, name="onrecord-hand", daemon=True).start()

    def give(
        self, loop: asyncio.AbstractEventLoop, future: Settling, call: Callable[[], Any], then: Then = None
    ) -> None:
        """Make this call; the loop gets its outcome. `then` follows when the loop has had time for it."""
        self._job = (loop, future, call, then)
        self._given.release()

    def _work(self) -> None:
        while True:
            self._given.acquire()
            self._serve()

    def _serve(self) -> None:
        # In a method of its own: a waiting thread must not keep the last call and its result alive.
        job, self._job = self._job, None
        assert job is not None  # noqa: S101  # the lock is released after it was set
        loop, future, call, then = job
        try:
            result = call()
        except BaseException as problem:  # noqa: BLE001  # whatever it is, the one who waits gets it
            told: tuple[Any, ...] = (future.set_exception, problem)
        else:
            told = (future.set_result, result)
        if then is not None and len(_all) - len(_idle) > FEW:
            then = None  # the next step does it: to sleep first and wake up among so many would cost more than it does
        if then is None:
            _idle.append(self)
        with suppress(RuntimeError):  # the loop was closed: no one waits any more
            loop.call_soon_threadsafe(*told)
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

    As in `onrecord.aio`: a cancellation in the meantime is delivered afterwards, with the outcome. `then` is called
    afterwards, unless there is too much else to do, and no one hears of its errors.
    """
    try:
        hand = _idle.pop()
    except IndexError:
        if len(_all) >= HANDS:
            return await queued(call)
        hand = Hand()
        _all.append(hand)
    loop = asyncio.get_running_loop()
    future = Settling(loop=loop)
    hand.give(loop, future, call, then)
    try:
        result: R = await future
    except asyncio.CancelledError:
        # Its own cancellation, or one that the call raised.
        error = future.exception()
        raise asyncio.CancelledError(Outcome(None if error else future.result(), error)) from None
    return result
