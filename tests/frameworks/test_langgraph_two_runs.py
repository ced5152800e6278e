"""Two runs of one thread of LangGraph in one process: what befalls one of them is no concern of the other."""

import asyncio
import gc
import operator
import weakref
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Annotated, Any, TypedDict

import pytest
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.errors import InvalidUpdateError
from langgraph.graph import START, StateGraph
from langgraph.types import Command, interrupt

import onrecord
from onrecord.frameworks.langgraph import OnrecordSaver
from tests.waiting import until

THREAD: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}


def checkpoint(id_: str, value: int) -> Any:
    return {**empty_checkpoint(), "id": id_, "channel_values": {"n": value}, "channel_versions": {"n": value}}


def at(config: Any, id_: str) -> Any:
    """What a graph passes when it saves in the background: the config that its run has read, and a checkpoint."""
    return {"configurable": {**config["configurable"], "checkpoint_id": id_, "__pregel_runtime": 1}}


def put(saver: OnrecordSaver, config: Any, parent: str, id_: str, value: int) -> Any:
    return saver.put(at(config, parent), checkpoint(id_, value), {"step": value}, {"n": value})


@pytest.fixture
def store(monkeypatch):
    monkeypatch.setattr("onrecord.frameworks.langgraph.PUT_SECONDS", 30.0)  # a busy machine may need more than usual
    with onrecord.connect("memory:") as found:
        yield found


def two_runs(saver: OnrecordSaver) -> tuple[Any, Any]:
    saver.put(THREAD, checkpoint("0", 0), {"step": 0}, {"n": 0})
    first, second = saver.get_tuple(THREAD), saver.get_tuple(THREAD)
    assert first is not None
    assert second is not None
    return first.config, second.config


def waits(saver: OnrecordSaver) -> bool:
    return bool(saver.thread("t")._waiters)


def test_writes_of_the_run_that_won_do_not_fail_with_the_other_one(store):
    """Writes that wait for a checkpoint of their run are kept, although another run is refused meanwhile."""
    saver = OnrecordSaver(store)
    one, other = two_runs(saver)
    put(saver, one, "0", "a1", 1)
    with ThreadPoolExecutor(1) as beside:
        saver.thread("t").riding._off = 1  # they do not ride with the checkpoint, so they wait for it
        writes = beside.submit(saver.put_writes, at(one, "a2"), [("n", 5)], "task")
        until(lambda: waits(saver))
        with pytest.raises(InvalidUpdateError, match="another run continued"):
            put(saver, other, "0", "b1", 1)
        put(saver, one, "a1", "a2", 2)
        writes.result()
    found = saver.get_tuple(THREAD)
    assert found is not None
    assert found.pending_writes == [("task", "n", 5)]


def test_writes_for_a_checkpoint_that_was_refused_are_refused(store):
    """Also after the run that won has continued; nothing of the refused run is on record."""
    saver = OnrecordSaver(store)
    one, other = two_runs(saver)
    put(saver, one, "0", "a1", 1)
    with pytest.raises(InvalidUpdateError, match="another run continued"):
        put(saver, other, "0", "b1", 9)
    put(saver, one, "a1", "a2", 2)
    saver.thread("t").riding._off = 1
    with pytest.raises(InvalidUpdateError, match="another run continued"):
        saver.put_writes(at(other, "b1"), [("n", 5)], "task")
    assert [kept.checkpoint["id"] for kept in saver.list(THREAD)] == ["a2", "a1", "0"]


def test_writes_of_a_run_that_is_moved_go_to_its_fork(store):
    """With the policy `fork`, writes that wait for a checkpoint are kept where the checkpoint is put in the end."""
    saver = OnrecordSaver(store, on_conflict="fork")
    one, other = two_runs(saver)
    put(saver, one, "0", "a1", 1)
    with ThreadPoolExecutor(1) as beside:
        saver.thread("t").riding._off = 1
        writes = beside.submit(saver.put_writes, at(other, "b1"), [("n", 5)], "task")
        until(lambda: waits(saver))
        put(saver, other, "0", "b1", 9)
        writes.result()
    (fork,) = saver.forks
    found = saver.get_tuple({"configurable": {"thread_id": fork, "checkpoint_ns": ""}})
    assert found is not None
    assert (found.checkpoint["id"], found.pending_writes) == ("b1", [("task", "n", 5)])


class Spoken(TypedDict):
    """What was said."""

    said: Annotated[list[str], operator.add]


class Numbers(TypedDict):
    """Numbers, in their order."""

    numbers: Annotated[list[int], operator.add]


def two_steps(saver: OnrecordSaver) -> Any:
    async def first(state: Spoken) -> Any:
        return {"said": ["a"]}

    async def second(state: Spoken) -> Any:
        await asyncio.sleep(0.05)
        return {"said": ["b"]}

    builder = StateGraph(Spoken)
    builder.add_node("first", first)
    builder.add_node("second", second)
    builder.add_edge(START, "first")
    builder.add_edge("first", "second")
    return builder.compile(checkpointer=saver)


@pytest.mark.parametrize("policy", ["refuse", "fork", "queue"])
def test_a_run_after_a_stream_that_was_left_works(tmp_path, policy):
    """Leaving the loop of a stream, on a new thread and later: the next run is neither refused nor moved."""

    async def main(saver: OnrecordSaver) -> None:
        for number in range(10):
            async for _part in two_steps(saver).astream({"said": [f"left {number}"]}, THREAD):
                break
            state = await two_steps(saver).ainvoke({"said": [f"next {number}"]}, THREAD)
            assert state["said"][-3:] == [f"next {number}", "a", "b"]
        said = (await two_steps(saver).aget_state(THREAD)).values["said"]
        assert [one for one in said if one.startswith("next")] == [f"next {number}" for number in range(10)]

    with onrecord.connect(str(tmp_path / "x.db"), project="p") as kept:
        asyncio.run(main(OnrecordSaver(kept, on_conflict=policy)))


def of_run(runtime: object, thread: str = "t", **more: Any) -> Any:
    """What LangGraph passes when a run reads and writes; each run has a runtime of its own."""
    return {"configurable": {"thread_id": thread, "checkpoint_ns": "", "__pregel_runtime": runtime, **more}}


def test_what_a_run_that_was_left_saves_later_is_refused_with_a_hint(store):
    """Only of a run whose task has begun another one; the error says how to leave a stream."""
    saver = OnrecordSaver(store)
    left, other, new = object(), object(), object()

    async def main() -> None:
        await saver.aget_tuple(of_run(left))
        await saver.aget_tuple(of_run(new))
        with pytest.raises(InvalidUpdateError, match=r"was left.*`async with contextlib.aclosing\(graph.astream"):
            await saver.aput(of_run(left), checkpoint("a", 1), {"step": -1}, {"n": 1})
        await asyncio.create_task(saver.aget_tuple(of_run(other)))
        await saver.aput(of_run(new), checkpoint("b", 2), {"step": -1}, {"n": 2})
        await saver.aput_writes(of_run(new, checkpoint_id="b"), [("n", 3)], "task")
        with pytest.raises(InvalidUpdateError, match="another run continued"):
            await saver.aput(of_run(other), checkpoint("c", 3), {"step": -1}, {"n": 3})

    asyncio.run(main())
    assert [kept.checkpoint["id"] for kept in saver.list(THREAD)] == ["b"]


def test_the_first_run_of_a_thread_that_is_moved_takes_no_other_thread_along(store):
    """Two first runs of one thread with the policy `fork`: the first run of another thread is in that thread."""
    saver = OnrecordSaver(store, on_conflict="fork")
    one, other, third = object(), object(), object()
    for runtime in (one, other):
        saver.get_tuple(of_run(runtime))
    saver.put(of_run(one), checkpoint("a", 1), {"step": -1}, {"n": 1})
    saver.put(of_run(other), checkpoint("b", 2), {"step": -1}, {"n": 2})
    saver.get_tuple(of_run(third, "x"))
    saver.put(of_run(third, "x"), checkpoint("c", 3), {"step": -1}, {"n": 3})
    (fork,) = saver.forks
    kept = {
        name: [found.checkpoint["id"] for found in saver.list({"configurable": {"thread_id": name}})]
        for name in ("t", "x", fork)
    }
    assert kept == {"t": ["a"], "x": ["c"], fork: ["b"]}


@pytest.mark.parametrize("seconds", [0, 0.002, 0.02])
def test_a_stream_that_was_left_at_a_question_is_resumed_with_all_it_said(tmp_path, seconds):
    """A client leaves the stream when it sees the interrupt and answers at once: input, question and answer are there."""

    async def ask(state: Numbers) -> Any:
        await asyncio.sleep(seconds)
        return {"numbers": [0]}

    async def wait(state: Numbers) -> Any:
        return {"numbers": [interrupt("which?")]}

    with onrecord.connect(str(tmp_path / "x.db"), project="p") as store:
        builder = StateGraph(Numbers)
        builder.add_node("ask", ask)
        builder.add_node("wait", wait)
        builder.add_edge(START, "ask")
        builder.add_edge("ask", "wait")
        graph = builder.compile(checkpointer=OnrecordSaver(store))

        async def work(thread: str) -> Any:
            config: Any = {"configurable": {"thread_id": thread}}
            async for part in graph.astream({"numbers": [7]}, config):
                if "__interrupt__" in part:
                    break
            return await graph.ainvoke(Command(resume=9), config)

        for number in range(6):
            assert asyncio.run(work(f"t{number}"))["numbers"] == [7, 0, 9]


def test_a_saver_lets_go_of_what_its_runs_had(tmp_path):
    """The context of a run is freed when the task that ran it has ended."""

    @dataclass
    class Context:
        said: str

    seen: list[Any] = []
    with onrecord.connect(str(tmp_path / "x.db"), project="p") as store:
        builder = StateGraph(Numbers, context_schema=Context)
        builder.add_node("step", lambda _state: {"numbers": [1]})
        builder.add_edge(START, "step")
        graph = builder.compile(checkpointer=OnrecordSaver(store))

        async def run(number: int) -> None:
            context = Context(str(number))
            seen.append(weakref.ref(context))
            await graph.ainvoke({"numbers": [1]}, {"configurable": {"thread_id": f"t{number}"}}, context=context)

        async def work() -> None:
            for number in range(20):
                await asyncio.create_task(run(number))

        asyncio.run(work())
        gc.collect()
        assert sum(one() is not None for one in seen) <= 1
