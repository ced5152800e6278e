"""The threads of awaited calls: results, errors, cancellations, and many calls at once."""

import asyncio
import contextlib
import gc
import threading
import weakref

import pytest

from onrecord.aio import Outcome
from onrecord.aio.calls import Settling
from onrecord.aio.hands import FEW, HANDS, Hand, settled


def test_a_call_runs_on_another_thread_and_is_awaited():
    """The result of a call, or what it raises; the thread that was used last is used first."""

    async def both():
        threads = {await settled(threading.get_ident) for _ in range(20)}
        with pytest.raises(ZeroDivisionError):
            await settled(lambda: 1 // 0)
        return threads

    (used,) = asyncio.run(both())
    assert used != threading.get_ident()


def test_what_comes_after_a_call_does_not_delay_its_result():
    """The result is there before `then` has ended; `then` follows on the same thread, and its errors reach no one."""
    go_on, ended, threads = threading.Event(), threading.Event(), []

    def then():
        assert go_on.wait(60)
        threads.append(threading.get_ident())
        ended.set()
        raise ZeroDivisionError

    async def both():
        threads.append(await settled(threading.get_ident, then))
        assert not ended.is_set()
        assert await settled(threading.get_ident) != threads[0], "a thread is idle when it has done everything"
        go_on.set()
        assert await asyncio.to_thread(ended.wait, 60)

    asyncio.run(both())
    assert threads[0] == threads[1]


def test_while_many_calls_run_nothing_comes_after_one():
    """What comes after a call only saves time: while several others run, it is left to the next call."""
    go_on, after = threading.Event(), []

    async def many():
        others = [asyncio.create_task(settled(lambda: go_on.wait(60))) for _ in range(FEW)]
        await asyncio.sleep(0.05)
        used = await settled(threading.get_ident, lambda: after.append(1))
        again = await settled(threading.get_ident, lambda: after.append(2))
        go_on.set()
        await asyncio.gather(*others)
        return used, again

    used, again = asyncio.run(many())
    assert used == again, "the thread was idle at once"
    assert not after


@pytest.mark.parametrize("fails", [False, True])
def test_a_cancellation_comes_after_the_call_and_has_its_outcome(fails):
    """A task that is cancelled, even twice, ends when its call has ended, and knows how."""
    begun, go_on = threading.Event(), threading.Event()

    def call():
        begun.set()
        assert go_on.wait(60)
        return 1 // 0 if fails else 7

    async def cancelled():
        task = asyncio.create_task(settled(call))
        await asyncio.to_thread(begun.wait, 60)
        for _time in range(2):
            task.cancel()
            await asyncio.sleep(0)
        assert not task.done()
        go_on.set()
        with pytest.raises(asyncio.CancelledError) as raised:
            await task
        return raised.value.args[0]

    outcome = asyncio.run(cancelled())
    assert isinstance(outcome, Outcome)
    assert (outcome.landed, outcome.result) == (not fails, None if fails else 7)
    assert isinstance(outcome.error, ZeroDivisionError) is fails


def test_a_task_that_is_cancelled_before_it_begins_makes_no_call():
    """A cancellation that comes first wins."""
    made = []

    async def early():
        task = asyncio.create_task(settled(lambda: made.append(1)))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(early())
    assert not made


def test_more_calls_than_hands():
    """Calls for which there is no hand run all the same, beside the others: each waits for all of them to begin."""
    count = HANDS + 8
    together = threading.Barrier(count, timeout=60)

    async def many():
        return await asyncio.gather(*(settled(together.wait) for _ in range(count)))

    assert sorted(asyncio.run(many())) == list(range(count))


def test_a_loop_that_is_closed_meanwhile():
    """A call whose loop is gone ends without a word, and its thread serves the next loop."""
    loop, served = asyncio.new_event_loop(), threading.Event()
    future = Settling(loop)
    future.add_done_callback(print)
    loop.close()
    Hand().give(future, served.set)
    assert served.wait(60)
    assert asyncio.run(settled(lambda: 3)) == 3


def test_a_call_may_raise_what_no_future_can_hold():
    """`StopIteration` cannot be the exception of a future: who awaits the call gets an error all the same."""

    async def stopped():
        with pytest.raises(RuntimeError, match="StopIteration"):
            await asyncio.wait_for(settled(lambda: next(iter(()))), 60)

    asyncio.run(stopped())


def test_an_error_does_not_outlive_its_handler():
    """No cycle keeps an error, and what its frames hold, until the garbage collector comes."""

    class Held:
        pass

    gone = []

    def fail():
        held = Held()
        gone.append(weakref.ref(held))
        raise ValueError(held)

    async def failing():
        with contextlib.suppress(ValueError):
            await settled(fail)
        await settled(int)  # the hand has left its last call
        return gone[0]()

    gc.disable()
    try:
        assert asyncio.run(failing()) is None
    finally:
        gc.enable()
