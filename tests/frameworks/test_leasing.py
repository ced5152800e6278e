"""`alone`, which the adapters share: one run of a conversation at a time, in one process too."""

import asyncio
import os
import threading
from collections.abc import Callable
from typing import Any

import pytest

import onrecord
from onrecord.aio import settled
from onrecord.aio.calls import THREADS
from onrecord.errors import LeaseHeld, LeaseLost
from onrecord.frameworks import leasing
from onrecord.frameworks.conversation import Conversation
from onrecord.frameworks.leasing import aalone, alone


@pytest.fixture
def store():
    with onrecord.connect("memory:", project="p") as found:
        yield found


def conversation(store: Any, policy: str = "refuse") -> Conversation:
    return Conversation(store, "framework", "c", on_conflict=policy)


def kept(one: Conversation, text: str) -> Callable[[], list[Any]]:
    return lambda: [one.session.log.draft("payload.kept", one.kept([f'"{text}"'], [text], []))]


def test_a_second_task_of_the_same_process_is_refused(store):
    """Two users of one conversation object are in each other's way like two processes; the first keeps its lease."""
    one = conversation(store)
    with alone(one):
        with pytest.raises(LeaseHeld, match="another task of this process has the lease") as found, alone(one):
            raise AssertionError("nobody refused it")
        assert found.value.holder == {"pid": os.getpid()}
        with pytest.raises(LeaseHeld, match=r"process .* has held the lease"), alone(conversation(store)):
            raise AssertionError("nobody refused it")
        one.write(kept(one, "mine"))
        assert one.session.lease is not None
    with alone(one):
        assert list(one.entries) == ["mine"]


def test_a_fork_is_another_conversation_and_leaves_the_first_alone(store):
    """With a maker of forks, the one inside continues undisturbed; without one, only a foreign lease is forked around."""
    one = conversation(store, "fork")
    with alone(one):
        one.write(kept(one, "mine"))
        with pytest.raises(LeaseHeld), alone(one):
            raise AssertionError("nobody refused it")
        with alone(one, lambda: Conversation(store, "framework", one.fork(None).name)) as beside:
            assert (beside.name, list(beside.entries)) == ("c-fork-1", ["mine"])
            beside.write(kept(beside, "yours"))
        with alone(conversation(store, "fork")) as other:
            assert other.name == "c-fork-2"
        assert (one.name, list(one.entries)) == ("c", ["mine"])


def test_more_tasks_than_threads_wait_for_one_another(store):
    """Waiting takes no thread of the pool: the one inside can still write, and all of them get their turn."""
    one = conversation(store, "queue")
    inside: list[int] = []

    async def run(number: int) -> None:
        async with aalone(one, settled):
            inside.append(number)
            assert len(inside) == 1
            await settled(lambda: one.write(kept(one, str(number))))
            inside.remove(number)

    async def story() -> None:
        await asyncio.gather(*(run(number) for number in range(THREADS + 6)))

    asyncio.run(story())
    assert len(one.entries) == THREADS + 6


def test_a_task_that_is_cancelled_while_it_waits_leaves_nothing(store, monkeypatch):
    """Cancelled at any moment, a waiting task has no lease; one that waits too long reads who has it."""
    one = conversation(store, "queue")

    async def story() -> None:
        async def run() -> None:
            async with aalone(one, settled):
                await asyncio.sleep(0.001)

        for number in range(12):
            task = asyncio.ensure_future(run())
            await asyncio.sleep(number * 0.0005)
            task.cancel()
            await asyncio.wait([task])
        monkeypatch.setattr(leasing, "QUEUE_SECONDS", 0.1)
        async with aalone(one, settled):
            with pytest.raises(LeaseHeld):
                await run()

    asyncio.run(story())


def test_a_thread_waits_and_one_that_lost_its_lease_is_refused(store):
    """A blocked thread continues when the lease is free; after a takeover, what the first one writes is refused."""
    one, seen = conversation(store, "queue"), list[str]()

    def second() -> None:
        with alone(one):
            seen.extend(one.entries)

    with alone(one):
        thread = threading.Thread(target=second)
        thread.start()
        one.write(kept(one, "first"))
    thread.join(90)
    assert seen == ["first"]
    with alone(one):
        store.open("c", agent="main", takeover=True).leave()
        with pytest.raises(LeaseLost):
            one.write(kept(one, "too late"))
    assert list(conversation(store).entries or one.entries) == ["first"]
