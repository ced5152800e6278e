"""Following a log while others write it: every event once, in order, whatever the writers do."""

import asyncio
import threading
from contextlib import contextmanager

import pytest

from onrecord import aio
from onrecord.aio import own
from onrecord.session import following
from onrecord.session.following import Follower


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Poll again soon."""
    monkeypatch.setattr(following, "POLL_SECONDS", 0.001)


def writing(session, count):
    def write():
        for number in range(count):
            session.decide(f"decision {number}")

    thread = threading.Thread(target=write)
    thread.start()
    return thread


def test_a_follower_sees_every_event_once(session, again):
    """A follower sees existing events and those of four writing threads: each once, in order, without a gap (B07)."""
    end = session.head.position + 100
    threads = [writing(again.get(session.id), 25) for _ in range(4)]
    seen = [event.position for event in session.follow(upto=end)]
    assert seen == list(range(1, end + 1))
    for thread in threads:
        thread.join()


def test_kinds_and_places(session):
    """A follower sees only the requested kinds after the requested position; other events only move its cursor."""
    start = session.head.position
    for number in range(3):
        session.decide(f"decision {number}")
        session.phases.log_work(f"line {number}")
    end = session.head.position
    found = list(session.follow(start + 1, end, ["decision.made"]))
    assert [event.data["text"] for event in found] == ["decision 1", "decision 2"]
    follower = Follower(session, 0, None, ["session.archived"])
    assert list(follower.look()) == []
    assert follower.seen == end
    session.decide("more")
    assert list(follower.look()) == []
    assert follower.seen == end + 1


def test_an_older_head_takes_nothing_back(session, monkeypatch):
    """A follower of a store that shows an older head for a moment, as a replica may, returns nothing twice."""
    follower = Follower(session, 0, None, None)
    before = session.store.head(session.id)
    session.decide("one more")
    assert len(list(follower.look())) == before.position + 1
    monkeypatch.setattr(session.store, "head", lambda _id: before)
    assert list(follower.look()) == []
    monkeypatch.undo()
    assert list(follower.look()) == []
    session.decide("and one more")
    assert len(list(follower.look())) == 1


def test_a_follower_is_woken_by_a_store_that_can(session, again, monkeypatch):
    """A store that can wake its followers is asked to wait; a false wake-up and a missed one change nothing."""
    woken = []

    @contextmanager
    def waking(_self, _session):
        def wait(seconds):
            woken.append(seconds)
            if len(woken) == 3:
                again.get(session.id).decide("it went on")

        yield wait

    monkeypatch.setattr(type(session.store), "waking", waking, raising=False)
    end = session.head.position + 1
    assert [event.position for event in session.follow(end - 1, end)] == [end]
    assert len(woken) == 3


def test_coroutines_follow_too(session, records, again, monkeypatch):
    """The async form sees every event once, several followers share the loop, and one that is cancelled ends (B08)."""
    monkeypatch.setattr(own, "POLL_SECONDS", 0.001)

    async def work():
        followed = await aio.over(records).get(session.id)
        end = session.head.position + 50

        async def seen():
            return [event.position async for event in followed.follow(upto=end)]

        async def forever():
            async for _event in followed.follow():
                pass

        endless = asyncio.create_task(forever())
        thread = writing(again.get(session.id), 50)
        both = await asyncio.gather(seen(), seen())
        endless.cancel()
        with pytest.raises(asyncio.CancelledError):
            await endless
        thread.join()
        return both, end

    both, end = asyncio.run(work())
    assert both == [list(range(1, end + 1))] * 2
