"""The same verbs, awaited: many at once, cancelled at any moment, and the caller always knows whether an append landed."""

import asyncio
import inspect
from threading import Event as Flag

import pytest

from onrecord import aio
from onrecord.aio.calls import THREADS
from onrecord.aio.deriving import CHAPTER, kind_of, members_of
from onrecord.aio.deriving import awaited as awaited_form
from onrecord.errors import EffectUnknown, OnrecordError, SessionClosed, TurnConflict
from onrecord.session.handle import Session
from onrecord.session.session_store import SessionStore
from onrecord.session.turns import Turn

HELLO = [{"role": "user", "content": "hello"}]


@pytest.fixture
def store(records):
    return aio.over(records)


def run(coroutine):
    return asyncio.run(coroutine)


CHAPTERS = [
    type(getattr(Session.__new__(Session), name))
    for name, member in members_of(Session).items()
    if kind_of(name, member) == CHAPTER
]


@pytest.mark.parametrize(
    ("sync", "awaited"),
    [
        (Session, aio.AsyncSession),
        (SessionStore, aio.AsyncSessionStore),
        (Turn, aio.AsyncTurn),
        *((chapter, awaited_form(chapter)) for chapter in CHAPTERS),
    ],
    ids=lambda it: it.__name__,
)
def test_every_verb_can_be_awaited(sync, awaited):
    """The async form has every verb and every property of the synchronous one, under the same name."""
    names = {name for name in dir(sync) if not name.startswith("_")}
    missing = {name for name in names if not hasattr(awaited, name)}
    assert missing == set()
    for name in names:
        if inspect.isfunction(getattr(sync, name)):
            assert getattr(sync, name).__doc__


def test_a_session_is_worked_in_by_coroutines(store):
    """Open, turn, facts, note, close: as in the synchronous form, each step is durable once it was awaited (A02, A14)."""

    async def work():
        session = await store.open("work", objective="find it")
        async with session.turn() as turn:
            await turn.user("look")
            await turn.assistant("looking", tool_calls=[{"id": "c1", "name": "bash", "arguments": {}}])
            await turn.tool("c1", "found")
            assert turn.position > 0
        await session.record_turn(HELLO)
        await session.decide("done")
        assert len((await session.transcript()).items) == 4
        assert "done" in await session.note()
        kinds = [event.kind async for event in session.events()]
        assert kinds[:2] == ["session.opened", "agent.joined"]
        assert (await session.context(4_000)).items
        fork = await session.fork("fork")
        assert (await fork.verify()).ok
        await session.close("found")
        with pytest.raises(SessionClosed):
            await session.record_turn(HELLO)
        assert {head.name for head in await store.sessions()} == {"work", "fork"}
        assert (await store.find("work")).status == "closed"
        return session.status

    assert run(work()) == "closed"


def test_fifty_coroutines_share_a_session(store, records):
    """Fifty coroutines of one process append at once: every event is there, without gaps, and the views are right (B08)."""

    async def work():
        session = await store.open("work")

        async def one(number):
            await session.decide(f"decision {number}")
            await session.record_turn([{"role": "user", "content": f"turn {number}"}])
            return await session.once(f"effect {number}", lambda: answer(number))

        async def answer(number):
            await asyncio.sleep(0)
            return number

        return await asyncio.gather(*(one(number) for number in range(50)))

    assert run(work()) == list(range(50))
    session = records.get("work")
    assert sorted(decision["text"] for decision in session.views.facts.decisions) == sorted(
        f"decision {n}" for n in range(50)
    )
    assert len(session.transcript()) == 50
    assert [event.position for event in session.events()] == list(range(1, session.head.position + 1))
    assert session.verify().ok


def test_effects_that_use_the_session_do_not_wait_for_each_other(store):
    """More coroutines than threads, each in an effect that appends: none waits for ever."""

    async def work():
        session = await store.open("work")

        async def effect(number):
            await asyncio.sleep(0.01)
            await session.decide(f"in effect {number}")
            return number

        calls = [
            session.once(f"effect {number}", lambda number=number: effect(number)) for number in range(THREADS + 16)
        ]
        return await asyncio.wait_for(asyncio.gather(*calls), 60)

    assert run(work()) == list(range(THREADS + 16))


def slowed(records: SessionStore, monkeypatch: pytest.MonkeyPatch, *, fails: bool) -> tuple[Flag, Flag]:
    """Appends wait until they are released, then land or fail."""
    begun, go = Flag(), Flag()
    append = records.store.append

    def wait_and_append(*args, **kwargs):
        begun.set()
        go.wait(90)
        if fails:
            raise OnrecordError("the disk said no")
        return append(*args, **kwargs)

    monkeypatch.setattr(records.store, "append", wait_and_append)
    return begun, go


@pytest.mark.parametrize("fails", [False, True], ids=["it landed", "it failed"])
@pytest.mark.parametrize("insist", [1, 3])
def test_a_cancelled_append_tells_whether_it_landed(records, store, monkeypatch, *, fails, insist):
    """A coroutine that is cancelled, even several times, learns the outcome of its append before it ends (B08)."""

    async def work():
        session = await store.open("work")
        begun, go = slowed(records, monkeypatch, fails=fails)
        task = asyncio.create_task(session.decide("was it recorded?"))
        await asyncio.to_thread(begun.wait, 30)
        for _ in range(insist):
            task.cancel()
            await asyncio.sleep(0.01)
        assert not task.done()
        go.set()
        with pytest.raises(asyncio.CancelledError) as cancelled:
            await task
        monkeypatch.undo()
        assert type(cancelled.value) is asyncio.CancelledError
        return aio.outcome_of(cancelled.value), await session.views()

    outcome, views = run(work())
    assert outcome.landed is not fails
    if fails:
        assert str(outcome.error) == "the disk said no"
        assert views.facts.decisions == []
    else:
        assert outcome.result.kind == "decision.made"
        assert views.facts.decisions[0]["position"] == outcome.result.position


def test_a_timeout_is_still_a_timeout(records, store, monkeypatch):
    """The timeouts of asyncio work as usual: the caller sees TimeoutError, and the append is finished in the background."""

    async def work():
        session = await store.open("work")
        _begun, go = slowed(records, monkeypatch, fails=False)
        asyncio.get_running_loop().call_later(0.2, go.set)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await session.decide("in time?")
        monkeypatch.undo()
        return await session.views()

    assert run(work()).facts.decisions[0]["text"] == "in time?"


def test_a_cancelled_effect_is_finished_and_recorded(store):
    """An effect that has begun is finished and recorded even if the coroutine that waited for it is cancelled."""

    async def work():
        session = await store.open("work")
        begun, go = asyncio.Event(), asyncio.Event()

        async def charge():
            begun.set()
            await go.wait()
            return "paid"

        task = asyncio.create_task(session.once("charge", charge))
        await begun.wait()
        task.cancel()
        await asyncio.sleep(0)
        go.set()
        with pytest.raises(asyncio.CancelledError) as cancelled:
            await task
        outcome = aio.outcome_of(cancelled.value)
        assert outcome is not None
        assert outcome.result == "paid"

        async def never():
            pytest.fail("it ran twice")

        return await session.once("charge", never)

    assert run(work()) == "paid"


def test_once_is_once_for_coroutines(store):
    """An effect runs once; a failed one may be tried again; of coroutines that ask at the same moment only one runs it."""

    async def work():
        session = await store.open("work")
        ran = []

        async def failing():
            ran.append("failed")
            raise ValueError("no")

        async def charge():
            ran.append("charged")
            await asyncio.sleep(0.01)
            return {"paid": 1}

        with pytest.raises(ValueError, match="no"):
            await session.once("charge", failing)
        answers = await asyncio.gather(*(session.once("charge", charge) for _ in range(10)), return_exceptions=True)
        assert ran == ["failed", "charged"]
        assert all(answer == {"paid": 1} or isinstance(answer, EffectUnknown) for answer in answers)
        assert {"paid": 1} in answers
        names = [event.data["name"] async for event in session.events() if event.kind == "effect.started"]
        assert names == ["failing", "charge"]

    run(work())


@pytest.mark.parametrize(
    ("problem", "reason"),
    [(ValueError("no such tool"), "ValueError: no such tool"), (asyncio.CancelledError(), "cancelled"),
     (asyncio.CancelledError("shutting down"), "CancelledError: shutting down")],
)  # fmt: skip
def test_an_exception_aborts_an_awaited_turn(store, records, problem, reason):
    """An error or a cancellation inside a turn aborts it, with the reason and the items that had arrived (G07)."""

    async def work():
        session = await store.open("work")
        async with session.turn() as turn:
            await turn.user("try")
            raise problem

    with pytest.raises(type(problem)):
        run(work())
    (tail,) = records.get("work").transcript().provisional
    assert tail.status == "aborted"
    assert tail.reason == reason
    assert tail.items == [{"role": "user", "content": "try"}]


def test_a_turn_that_is_not_entered_begins_nothing(store):
    """A turn begins when its block is entered, and not before (B08)."""

    async def work():
        session = await store.open("work")
        session.turn()
        assert (await session.agents.lane())["open"] is None
        async with session.turn(request="q", base=0) as turn:
            await turn.user("x")
        async with session.turn(request="q", base=0) as again:
            assert again.answered
            assert again.answer == [{"role": "user", "content": "x"}]
            with pytest.raises(TurnConflict):
                await again.user("more")

    run(work())


def test_other_cancellations_have_no_outcome():
    """A cancellation outside our calls says nothing about an append."""
    assert aio.outcome_of(asyncio.CancelledError()) is None
    assert aio.outcome_of(asyncio.CancelledError("stop")) is None


def test_waiting_does_not_block_the_loop(records, store, monkeypatch):
    """While a store persists, other coroutines keep running (B08)."""

    async def work():
        session = await store.open("work")
        _begun, go = slowed(records, monkeypatch, fails=False)
        task = asyncio.create_task(session.decide("slow"))
        for _ in range(10):
            await asyncio.sleep(0.005)
        assert not task.done()
        go.set()
        await task

    run(work())


def test_chapters_are_awaited_too(store):
    """Verbs of chapters are awaited, their iterators are asynchronous, and a block settles its attempt at its end."""

    async def work():
        session = await store.open("work")
        await session.facts.set_objective("find it")
        async with session.attempts.record("make") as attempt:
            attempt.metric("loss", 0.5)
        with pytest.raises(ZeroDivisionError):
            async with session.attempts.record("make again"):
                raise ZeroDivisionError
        outcomes = [one["status"] for one in await session.attempts.all()]
        newest = [event.kind async for event in session.log.newest()]
        await (await store.child(session, "below", budget={"steps": 5})).acquire()
        assert (await session.views()).spend.sliced == {"steps": 5}
        return outcomes, newest[:2], (await session.agents.get())["here"], session.log.url == store.url

    assert run(work()) == (["succeeded", "failed"], ["attempt.settled", "attempt.started"], True, True)


def test_a_cancelled_block_settles_its_attempt(store, records):
    """A coroutine that is cancelled inside the block of an attempt leaves it failed, not unresolved."""
    inside = asyncio.Event()

    async def work():
        session = await store.open("work")
        async with session.attempts.record("sleep"):
            inside.set()
            await asyncio.sleep(60)

    async def cancelled():
        task = asyncio.ensure_future(work())
        await inside.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run(cancelled())
    (attempt,) = records.get("work").attempts.all()
    assert attempt["status"] == "interrupted"
    assert "CancelledError" in str(attempt["reason"])
