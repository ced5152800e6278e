"""LangGraph on our log: checkpoints, writers and tools of a real graph."""

import asyncio
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.conformance import checkpointer_test, validate
from langgraph.errors import InvalidUpdateError
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command, interrupt

import onrecord
from onrecord.frameworks.langgraph import OnrecordSaver
from onrecord.frameworks.langgraph_values import Values
from tests.stores import url_of

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "frameworks" / "langgraph_refund.py"
SUITE = {
    "put": 17, "put_writes": 10, "get_tuple": 10, "list": 16, "delete_thread": 5, "delete_for_runs": 7,
    "copy_thread": 8, "prune": 8,
}  # fmt: skip


@pytest.fixture
def store(tmp_path):
    with onrecord.connect(str(tmp_path / "x.db"), project="p") as found:
        yield found


def at(thread: str = "t", **more: Any) -> Any:
    return {"configurable": {"thread_id": thread, **more}}


def talk(saver: OnrecordSaver, say: Any = None) -> Any:
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
    """All 81 tests of LangGraph's own suite run and pass: it says FULL even when it skips, so they are counted."""

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
    assert {name: sum(one[0] == name for one in seen) for name in SUITE} == SUITE
    assert sum(SUITE.values()) == len(seen) == 81
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
            assert go.wait(20)

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
    assert inside.wait(20)
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


def test_a_tool_that_was_killed_does_not_run_again(tmp_path):
    """Killed inside the tool: LangGraph repeats the step, the tool does not run, and the model reads why."""
    command = [sys.executable, str(EXAMPLE), str(tmp_path)]
    killed = subprocess.run([*command, "--kill"], capture_output=True, text=True, check=False, timeout=60)
    assert killed.returncode == -9, killed.stderr
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "The bank said: started, outcome unknown: the process ended before pay answered" in done.stdout
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


def test_bytes_grow_with_what_is_said(store):
    """The second hundred turns takes as many bytes as the first: O(n), not O(n²)."""
    graph = talk(OnrecordSaver(store))

    def size(turns: int) -> int:
        for number in range(turns):
            graph.invoke({"messages": [HumanMessage(f"turn {number} " + "word " * 40)]}, at())
        return sum(len(str(event.data)) for event in store.get("t").events())

    first = size(20)
    assert size(20) - first < 1.15 * first


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


def test_wrong_input_is_one_sentence(store):
    """A closed session and a wrong policy are refused with our code and hint; nothing is half-written."""
    graph = talk(OnrecordSaver(store))
    graph.invoke({"messages": [HumanMessage("one")]}, at())
    store.get("t").close()
    before = store.get("t").head.position
    with pytest.raises(InvalidUpdateError, match=r"is closed \[session_closed\]; .*reopen"):
        graph.invoke({"messages": [HumanMessage("two")]}, at())
    assert store.get("t").head.position == before
    for policy, words in (("queue", "does not say when a run ends"), ("drop", "refuse, queue, fork")):
        with pytest.raises(onrecord.errors.InvalidInput, match=words):
            OnrecordSaver(store, on_conflict=policy)
