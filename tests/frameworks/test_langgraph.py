"""LangGraph on our log: checkpoints, writers and tools of a real graph."""

import asyncio
import random
import subprocess
import sys
import threading
import time
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.checkpoint.conformance import checkpointer_test, validate
from langgraph.checkpoint.conformance.capabilities import Capability
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.errors import InvalidUpdateError
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.types import Command, interrupt

import onrecord
from onrecord.frameworks.langgraph import OnrecordSaver
from onrecord.frameworks.langgraph_store import OnrecordStore
from onrecord.frameworks.langgraph_tools import aonce, messages_of_others
from onrecord.frameworks.langgraph_values import Values
from onrecord.session import bundle
from onrecord.session.session_store import SessionStore
from onrecord.stores.sqlite import SQLiteStore
from tests.crash.disks import Disk
from tests.crash.test_full_and_read_only_disk import Space
from tests.frameworks.looping import never_blocked
from tests.frameworks.refusing import check_refused
from tests.stores import url_of

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "frameworks" / "langgraph_refund.py"
FIRST_FORM = Path(__file__).parent / "data" / "langgraph-first-form.jsonl"
SECOND = Path(__file__).with_name("second_writer.py")
SUITE = {
    "put": 17, "put_writes": 10, "get_tuple": 10, "list": 16, "delete_thread": 5, "delete_for_runs": 7,
    "copy_thread": 8, "prune": 8,
}  # fmt: skip
NOT_PUBLISHED = {"delta_channel_history": 8}
"""What the suite has in LangGraph's repository besides: `./dev frameworks langgraph-repository=DIRECTORY`."""


@pytest.fixture
def store(tmp_path):
    with onrecord.connect(str(tmp_path / "x.db"), project="p") as found:
        yield found


def at(thread: str = "t", **more: Any) -> Any:
    return {"configurable": {"thread_id": thread, **more}}


def talk(saver: OnrecordSaver | InMemorySaver, say: Any = None) -> Any:
    """A graph that answers what it is asked."""

    def model(state: MessagesState) -> Any:
        if say:
            say(state)
        return {"messages": [AIMessage(f"answer {len(state['messages'])}")]}

    builder = StateGraph(MessagesState)
    builder.add_node("model", model)
    builder.add_edge(START, "model")
    return builder.compile(checkpointer=saver)


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_the_conformance_suite_passes_with_no_capability_skipped(kind, request, tmp_path):
    """All 81 tests of LangGraph's own suite, or 89, run and pass: it says FULL even when it skips; we count them."""

    @checkpointer_test(name=f"onrecord on {kind}")
    async def ours():
        number = len(list(tmp_path.iterdir()))
        with onrecord.connect(url_of(kind, request, tmp_path, f"x{number}"), project="p") as store:
            yield OnrecordSaver(store)

    seen: list[tuple[str, str, bool]] = []

    def note(capability: str, test: str, passed: bool, _trace: object = None) -> None:
        seen.append((capability, test, passed))

    from langgraph.checkpoint.conformance.report import ProgressCallbacks

    report = asyncio.run(validate(ours, progress=ProgressCallbacks(on_test_result=note)))
    assert [one for one in seen if not one[2]] == []
    wanted = SUITE | (NOT_PUBLISHED if hasattr(Capability, "DELTA_CHANNEL_HISTORY") else {})
    assert {name: sum(one[0] == name for one in seen) for name in wanted} == wanted
    assert sum(wanted.values()) == len(seen) == (81 if wanted == SUITE else 89)
    assert report.conformance_level() == "FULL"


def test_a_graph_remembers_and_another_process_continues(store):
    """State, history and time travel work; a new saver sees the same; the transcript has the conversation once."""
    graph = talk(OnrecordSaver(store))
    for text in ("one", "two", "one"):
        graph.invoke({"messages": [HumanMessage(text)]}, at())
    again = talk(OnrecordSaver(store))
    said = [message.content for message in again.get_state(at()).values["messages"]]
    assert said == ["one", "answer 1", "two", "answer 3", "one", "answer 5"]
    assert len(list(again.get_state_history(at()))) == 9
    ours = store.get("t")
    assert [item["content"] for item in ours.transcript().items] == said
    assert ours.verify().ok
    earlier = next(one for one in again.get_state_history(at()) if len(one.values["messages"]) == 2)
    again.invoke({"messages": [HumanMessage("instead")]}, earlier.config)
    said = [message.content for message in again.get_state(at()).values["messages"]]
    assert said == ["one", "answer 1", "instead", "answer 3"]


def test_the_asynchronous_graph_is_the_same(store):
    """`ainvoke`, `astream` and interrupts work with the same saver."""

    def ask(state: MessagesState) -> Any:
        return {"messages": [AIMessage(f"you said {interrupt('sure?')}")]}

    builder = StateGraph(MessagesState)
    builder.add_node("ask", ask)
    builder.add_edge(START, "ask")
    graph = builder.compile(checkpointer=OnrecordSaver(store))

    async def story() -> Any:
        await graph.ainvoke({"messages": [HumanMessage("go")]}, at())
        waiting = await graph.aget_state(at())
        assert waiting.tasks[0].interrupts[0].value == "sure?"
        return await graph.ainvoke(Command(resume="yes"), at())

    assert asyncio.run(story())["messages"][-1].content == "you said yes"


def test_the_event_loop_is_never_blocked(store):
    """A run with a tool, the state and its history, a lease, a copy, memory: the loop's thread never waits."""

    @tool
    def weather(city: str) -> str:
        """The weather."""
        return f"rain in {city}"

    async def model(state: MessagesState) -> Any:
        if isinstance(state["messages"][-1], ToolMessage):
            return {"messages": [AIMessage("an umbrella")]}
        return {"messages": [AIMessage("", tool_calls=[{"id": "c", "name": "weather", "args": {"city": "Bergen"}}])]}

    async def story() -> None:
        saver, memory = OnrecordSaver(store, on_conflict="queue"), OnrecordStore(store)
        builder = StateGraph(MessagesState)
        builder.add_node("model", model)
        builder.add_node("tools", ToolNode([weather], awrap_tool_call=aonce(saver)))
        builder.add_edge(START, "model")
        builder.add_conditional_edges("model", tools_condition)
        builder.add_edge("tools", "model")
        graph = builder.compile(checkpointer=saver, store=memory)
        async with saver.aalone("t"):
            found = await graph.ainvoke({"messages": [HumanMessage("the weather?")]}, at())
        assert [one.content for one in found["messages"]] == ["the weather?", "", "rain in Bergen", "an umbrella"]
        assert len([one async for one in graph.aget_state_history(at())]) == 5
        await saver.acopy_thread("t", "u")
        await saver.aprune(["u"])
        await saver.adelete_thread("u")
        await memory.aput(("a",), "k", {"v": 1})
        assert (await memory.asearch(("a",)))[0].value == {"v": 1}

    with never_blocked(store):
        asyncio.run(story())


def test_the_newest_checkpoint_is_the_last_one_put_whatever_its_id(store):
    """After a clock went backwards, ids are smaller than before; the head still moves with every put."""
    saver = OnrecordSaver(store)
    config = at(checkpoint_ns="")
    for number in range(5):
        id_ = f"1f000000-0000-6000-8000-00000000000{9 - number}"
        checkpoint: Any = {"v": 4, "id": id_, "ts": "", "channel_values": {"n": number}, "channel_versions": {"n": 1}}
        checkpoint |= {"versions_seen": {}}
        config = saver.put(config, checkpoint, {"step": number}, {"n": 1})
        found = OnrecordSaver(store).get_tuple(at(checkpoint_ns=""))
        assert found is not None
        assert found.checkpoint["channel_values"] == {"n": number}
    assert [one.metadata["step"] for one in saver.list(at())] == [4, 3, 2, 1, 0]


@pytest.mark.parametrize("policy", ["refuse", "fork"])
@pytest.mark.parametrize("saved", [False, True])
def test_a_second_run_of_a_thread_never_vanishes(store, policy, saved):
    """Two runs from one head: the overtaken one is refused, or moved to a fork; the first one is always there."""
    inside, go = threading.Event(), threading.Event()

    def wait(state: MessagesState) -> None:
        if state["messages"][-1].content == "slow":
            inside.set()
            assert go.wait(90)

    graph = talk(saver := OnrecordSaver(store, on_conflict=policy), wait)
    if saved:
        graph.invoke({"messages": [HumanMessage("before")]}, at())
    outcome: list[Any] = []

    def slow() -> None:
        try:
            outcome.append(graph.invoke({"messages": [HumanMessage("slow")]}, at(), durability="sync"))
        except InvalidUpdateError as problem:
            outcome.append(problem)

    runner = threading.Thread(target=slow)
    runner.start()
    assert inside.wait(90)
    graph.invoke({"messages": [HumanMessage("quick")]}, at())
    go.set()
    runner.join()
    said = [message.content for message in graph.get_state(at()).values["messages"]]
    assert said[-2:] == ["quick", f"answer {len(said) - 1}"]
    if policy == "refuse":
        assert isinstance(outcome[0], onrecord.errors.LogMoved)
        assert "another run continued thread 't'" in str(outcome[0])
        assert "[log_moved]" in str(outcome[0])
    else:
        (fork,) = saver.forks
        forked = [message.content for message in graph.get_state(at(fork)).values["messages"]]
        assert forked[-2] == "slow"
        assert "quick" not in forked


def test_two_processes_take_turns_by_policy(store, tmp_path):
    """The other process is refused, works in a fork, or waits, as it chose; the run that was overtaken is refused."""
    saver = OnrecordSaver(store)
    graph = talk(saver)
    command = [sys.executable, str(SECOND), str(tmp_path / "x.db")]
    with (
        ExitStack() as held,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other,
    ):
        thread = held.enter_context(saver.alone("t"))
        assert thread == "t"
        said, told = other.stdout, other.stdin
        assert said is not None
        assert told is not None
        graph.invoke({"messages": [HumanMessage("zero")]}, at(thread))
        assert said.readline() == "refused lease_held\n"
        assert said.readline().startswith("fork t-fork-1 ")
        assert said.readline() == "waiting\n"
        graph.invoke({"messages": [HumanMessage("first")]}, at(thread))
        held.close()
        assert said.readline() == "queued t zero answer 1 first answer 3 second answer 5\n"
        told.write("go on\n")
        told.flush()
        assert said.readline() == "inside\n"
        graph.invoke({"messages": [HumanMessage("quick")]}, at())
        told.write("go on\n")
        told.flush()
        assert said.readline() == "overtaken log_moved True\n"
    contents = [message.content for message in talk(OnrecordSaver(store)).get_state(at()).values["messages"]]
    assert contents[::2][:3] == ["zero", "first", "second"]
    assert contents[-2] == "quick"


def test_a_tool_that_was_killed_does_not_run_again(tmp_path):
    """Killed inside the tool: LangGraph repeats the step, the tool does not run, and the model reads why."""
    command = [sys.executable, str(EXAMPLE), str(tmp_path)]
    killed = subprocess.run([*command, "--kill"], capture_output=True, text=True, check=False, timeout=60)
    assert killed.returncode == -9, killed.stderr
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "The bank said: started, outcome unknown: the run ended before pay answered" in done.stdout
    assert (tmp_path / "payments.txt").read_text() == "order 42\n"


@dataclass
class Order:
    """A class of a user's state."""

    number: int
    paid: bool = False


def test_only_named_classes_are_kept_and_none_is_ever_called(store):
    """An unknown class is refused when it is written; a stored name of any class or function is only data."""

    class State(TypedDict):
        order: Annotated[Any, lambda _old, new: new]

    def build(saver: OnrecordSaver) -> Any:
        builder = StateGraph(State)
        builder.add_node("n", lambda _state: {"order": Order(7, paid=True)})
        builder.add_edge(START, "n")
        return builder.compile(checkpointer=saver)

    with pytest.raises(InvalidUpdateError, match=r"test_langgraph.Order cannot be kept.*types=\[Order\]"):
        build(OnrecordSaver(store)).invoke({"order": None}, at("one"))
    graph = build(OnrecordSaver(store, types=[Order]))
    graph.invoke({"order": None}, at("two"))
    assert graph.get_state(at("two")).values["order"] == Order(7, paid=True)
    with pytest.raises(InvalidUpdateError, match="class 'Order' that was not named to this saver"):
        build(OnrecordSaver(store)).get_state(at("two"))
    hostile = {"@": "type", "name": "os.system", "v": {"command": "touch /tmp/x"}}
    with pytest.raises(onrecord.errors.InvalidInput, match=r"os\.system"):
        Values().decode(hostile, None)  # type: ignore[arg-type]  # no pool is needed
    assert Values().decode(Values().encode(hostile, None), None) == hostile  # type: ignore[arg-type]  # as above


def test_the_writes_of_a_task_ride_with_the_next_checkpoint(store):
    """Writes that wait for the next checkpoint are in its event: one durable step for both, and both are read back."""
    saver = OnrecordSaver(store)

    def checkpoint(id_: str, version: int) -> Any:
        return {"v": 4, "id": id_, "ts": "", "channel_values": {"n": version}, "channel_versions": {"n": version},
                "versions_seen": {}}  # fmt: skip

    first = saver.put(at(checkpoint_ns=""), checkpoint("a", 1), {"step": 0}, {"n": 1})
    running = {"configurable": first["configurable"] | {"__pregel_task_id": "x"}}
    thread = saver.thread("t")
    for number in range(50):  # on a busy machine the wait may end too early
        before = store.get("t").head.position
        task = threading.Thread(target=saver.put_writes, args=(running, [("n", 2)], f"task {number}"))
        task.start()
        while task.is_alive() and not thread.riding._waiting:
            time.sleep(0.0001)
        if task.is_alive():
            break
    saver.put(first, checkpoint("b", 2), {"step": 1}, {"n": 2})
    task.join()
    added = [event.data.keys() for event in store.get("t").events(after=before)]
    assert ["lines" in one for one in added] == [True, False]  # its new shape is an event of its own
    assert "step" in added[1]
    for one in (saver, OnrecordSaver(store)):
        found = one.get_tuple(first)
        assert found is not None
        assert (f"task {number}", "n", 2) in (found.pending_writes or ())
        newest: Any = one.get_tuple(at(checkpoint_ns=""))
        assert newest.checkpoint["channel_values"] == {"n": 2}


def test_a_deleted_thread_is_gone_for_readers_and_can_begin_again(store):
    """After `delete_thread`, state and transcript are empty; the log has all of it; the thread may be used again."""
    saver = OnrecordSaver(store)
    graph = talk(saver)
    graph.invoke({"messages": [HumanMessage("secret plan")]}, at())
    saver.delete_thread("t")
    assert graph.get_state(at()).values == {}
    assert store.get("t").transcript().items == []
    graph.invoke({"messages": [HumanMessage("new")]}, at())
    assert [m.content for m in talk(OnrecordSaver(store)).get_state(at()).values["messages"]] == ["new", "answer 1"]
    assert [item["content"] for item in store.get("t").transcript().items] == ["new", "answer 1"]


def test_a_copied_thread_continues_by_itself_and_loses_a_deleted_run(store):
    """A copy shares history and costs nothing; `delete_for_runs` finds the run in the copy too."""
    saver = OnrecordSaver(store)
    graph = talk(saver)
    graph.invoke({"messages": [HumanMessage("one")]}, {**at(), "metadata": {"run_id": "r1"}})
    saver.copy_thread("t", "odd id / é")
    graph.invoke({"messages": [HumanMessage("two")]}, at("odd id / é"))
    assert len(graph.get_state(at()).values["messages"]) == 2
    assert len(graph.get_state(at("odd id / é")).values["messages"]) == 4
    assert {one.config["configurable"]["thread_id"] for one in saver.list(None)} == {"t", "odd id / é"}
    saver.delete_for_runs(["r1"])
    assert list(OnrecordSaver(store).list(at())) == []
    assert len(list(OnrecordSaver(store).list(at("odd id / é")))) == 3
    with pytest.raises(InvalidUpdateError, match="already exists"):
        saver.copy_thread("odd id / é", "t")


def test_a_thread_in_the_first_form_is_read_and_continued(store):
    """A thread that was written before steps were kept as shapes has the same messages and checkpoints, and can be continued."""
    with FIRST_FORM.open(encoding="utf-8") as lines:
        bundle.take_in(store, lines)
    saver = OnrecordSaver(store)
    graph = talk(saver)
    said = ["question 0", "answer 1", "question 1", "answer 3", "question 2", "answer 5"]
    assert [message.content for message in graph.get_state(at()).values["messages"]] == said
    assert len(list(saver.list(at()))) == 9
    graph.invoke({"messages": [HumanMessage("question 3")]}, at())
    again = talk(OnrecordSaver(store)).get_state(at()).values["messages"]
    assert [message.content for message in again] == [*said, "question 3", "answer 7"]


def test_a_circle_of_parents_ends(store):
    """A checkpoint that continues its own successor does not make the history of a channel endless."""
    saver = OnrecordSaver(store)
    for id_, parent in (("a", None), ("b", "a"), ("a", "b")):
        checkpoint: Any = {"v": 4, "id": id_, "ts": "", "channel_values": {}, "channel_versions": {}}
        saver.put(at(checkpoint_ns="", checkpoint_id=parent), checkpoint | {"versions_seen": {}}, {}, {})
    assert saver.get_delta_channel_history(config=at(checkpoint_id="a"), channels=["x"]) == {"x": {"writes": []}}


def test_wrong_input_is_one_sentence(store, monkeypatch):
    """Wrong types, no thread, too large, closed: LangGraph's own error with our code and hint, nothing half-written."""
    saver = OnrecordSaver(store)
    graph = talk(saver)
    assert saver.get_tuple(at("unknown")) is None
    saver.delete_thread("unknown")
    assert store.sessions() == []
    graph.invoke({"messages": [HumanMessage("one")]}, at())
    before = store.get("t").head.position
    wrong: Any = saver
    for call, words in (
        (lambda: wrong.get_tuple({"configurable": {}}), r"names no thread \[invalid_input\]; pass .*thread_id"),
        (lambda: wrong.put(at(), "text", {}, {}), r"a checkpoint is a dict with an id, not str \[invalid_input\]"),
        (lambda: wrong.put_writes(at(), [("c", 1)], "task"), r"no checkpoint_id \[invalid_input\]; use the config"),
    ):
        with pytest.raises(InvalidUpdateError, match=words):
            call()
    wrong_id: Any = None
    calls: list[Any] = [partial(of, bad) for of in (wrong.alone, wrong.aalone) for bad in (None, "")]
    calls += [partial(wrong.delete_for_runs, [7]), partial(wrong.delete_thread, None), partial(wrong.list, "x")]
    calls += [partial(wrong.copy_thread, "t", None), lambda: messages_of_others(wrong, wrong_id)]
    asyncio.run(check_refused(InvalidUpdateError, "invalid_input", *calls))
    with monkeypatch.context() as patched:
        patched.setattr("onrecord.log.codec.PAYLOAD_LIMIT", 20_000)
        with pytest.raises(InvalidUpdateError, match=r"\[too_large\]; split it"):
            graph.invoke({"messages": [HumanMessage("x" * 30_000)]}, at())
    assert store.get("t").head.position == before
    store.get("t").close()
    before = store.get("t").head.position
    with pytest.raises(
        InvalidUpdateError, match=r"is closed \[session_closed\]; store.get\(\"t\"\).resume\(reopen=True\) "
    ):
        graph.invoke({"messages": [HumanMessage("two")]}, at())
    assert store.get("t").head.position == before
    with pytest.raises(ValueError, match=r"'Order' cannot be kept as data \[invalid_input\]; use dataclasses"):
        OnrecordSaver(store, types=["Order"])  # type: ignore[list-item]  # that is the point
    with pytest.raises(ValueError, match=r"types as a list of classes, not int \[invalid_input\]"):
        OnrecordSaver(store, types=7)  # type: ignore[arg-type]  # as above
    with pytest.raises(ValueError, match=r"refuse, queue, fork, not 'drop' \[invalid_input\]"):
        OnrecordSaver(store, on_conflict="drop")


def test_a_lost_lease_refuses_the_run(store):
    """A process that lost the lease of its thread cannot write: LangGraph's error says so, and nothing is written."""
    saver = OnrecordSaver(store)
    graph = talk(saver)
    with saver.alone("t") as thread:
        graph.invoke({"messages": [HumanMessage("one")]}, at(thread))
        other = store.get("t", agent="main").acquire(takeover=True)
        before = other.head.position
        with pytest.raises(InvalidUpdateError, match=r"\[lease_lost\]; open the session again"):
            graph.invoke({"messages": [HumanMessage("two")]}, at(thread))
        assert store.get("t").head.position == before
        other.leave()


def test_a_full_disk_is_an_error_of_langgraph_and_loses_nothing(tmp_path):
    """When the disk is full the run fails with our code; what was saved is readable, and later runs work again."""
    space = Space(1 << 40)
    with Disk(space):
        ours = SQLiteStore(str(tmp_path / "full.db"))
        graph = talk(OnrecordSaver(SessionStore(ours)))
        graph.invoke({"messages": [HumanMessage("one")]}, at())
        space.room = 0
        with pytest.raises(InvalidUpdateError, match=r"\[store_full\]; free some space"):
            graph.invoke({"messages": [HumanMessage(random.Random(1).randbytes(4_000_000).hex())]}, at())
        space.room = 1 << 40
        again = talk(OnrecordSaver(SessionStore(ours)))
        assert [one.content for one in again.get_state(at()).values["messages"]] == ["one", "answer 1"]
        again.invoke({"messages": [HumanMessage("three")]}, at())
        assert len(again.get_state(at()).values["messages"]) == 4
        assert SessionStore(ours).get("t").verify().ok
        ours.close()
