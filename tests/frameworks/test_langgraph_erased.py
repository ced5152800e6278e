"""Threads of LangGraph of which events were erased: every text keeps its number, and the thread can be continued."""

import shutil
from collections.abc import Sequence
from functools import partial
from typing import Any, Literal

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition

import onrecord
from onrecord.errors import PayloadErased
from onrecord.frameworks.langgraph import OnrecordSaver
from onrecord.frameworks.langgraph_gaps import mended
from onrecord.frameworks.langgraph_puts import FRAMEWORK, Pooling
from onrecord.frameworks.langgraph_values import ERASED
from tests.frameworks.test_langgraph import at, talk

TURNS = 4


@tool
def weather(city: str) -> str:
    """The weather."""
    return f"rain in {city}"


def asking(saver: OnrecordSaver) -> Any:
    """A graph whose model uses a tool in each turn, and refuses a history that a vendor would refuse."""

    def model(state: MessagesState) -> Any:
        said = state["messages"]
        check_calls(said)
        number = sum(isinstance(one, HumanMessage) for one in said)
        if isinstance(said[-1], ToolMessage):
            return {"messages": [AIMessage(f"an umbrella {number}")]}
        return {
            "messages": [AIMessage("", tool_calls=[{"id": f"c{len(said)}", "name": "weather", "args": {"city": "B"}}])]
        }

    builder = StateGraph(MessagesState)
    builder.add_node("model", model)
    builder.add_node("tools", ToolNode([weather]))
    builder.add_edge(START, "model")
    builder.add_conditional_edges("model", tools_condition)
    builder.add_edge("tools", "model")
    return builder.compile(checkpointer=saver)


def check_calls(messages: Sequence[BaseMessage]) -> None:
    """Each result follows its call, and each call that is not the last word has its result."""
    open_: set[str | None] = set()
    for one in messages:
        if isinstance(one, ToolMessage):
            assert one.tool_call_id in open_
            open_.remove(one.tool_call_id)
            continue
        assert not open_
        open_ = {call["id"] for call in one.tool_calls} if isinstance(one, AIMessage) else set()


def payloads_before(pooling: Pooling, **more: Any) -> list[dict[str, Any]]:
    """What versions up to 0.9 wrote: shapes in the event that uses them first, and no number of the first text."""
    data: dict[str, Any] = {"vendor": FRAMEWORK, **more}
    if pooling.lines:
        data["lines"] = pooling.lines
    if pooling.ids:
        data["ids"] = [list(one) for one in pooling.ids.items()]
    if pooling.reading:
        data |= {"vendor_id": pooling.thread.id, "reading": pooling.reading}
    return [data]


def kept(store: Any, thread: str = "t") -> list[int]:
    return [event.position for event in store.get(thread).events() if event.kind == "payload.kept"]


def contents(snapshot: Any) -> list[Any]:
    return [(one.id, one.content) for one in snapshot.values.get("messages", [])]


def check_history(graph: Any, original: dict[str, Any]) -> None:
    """Every message of every checkpoint is one of the original ones in their order, or says that it was erased."""
    for snapshot in graph.get_state_history(at()):
        before = [*original.get(snapshot.config["configurable"]["checkpoint_id"], contents(snapshot))]
        left = iter(before)
        assert all(any(map(partial(is_same, one), left)) for one in contents(snapshot) if one[1] != ERASED), before


def is_same(one: tuple[str, Any], before: tuple[str, Any]) -> bool:
    """Whether a message is what it was; its id is another one if it was on record with something that was erased."""
    return one[1] == before[1] and (one[0] == before[0] or one[0].startswith("erased-"))


@pytest.mark.parametrize("build", [talk, asking])
@pytest.mark.parametrize("form", ["now", "before"])
def test_whatever_is_erased_no_message_is_another_one(
    build: Any, form: Literal["now", "before"], tmp_path, monkeypatch
):
    """Each event of a thread is erased in turn: nothing is mixed up, and the graph continues, also in a new process."""
    first = tmp_path / "first"
    with onrecord.connect(str(first / "x.db"), project="p") as store, monkeypatch.context() as earlier:
        if form == "before":
            earlier.setattr(Pooling, "payloads", payloads_before)
        graph = build(OnrecordSaver(store))
        for number in range(TURNS):
            graph.invoke({"messages": [HumanMessage(f"question {number}")]}, at())
        original = {one.config["configurable"]["checkpoint_id"]: contents(one) for one in graph.get_state_history(at())}
        positions = kept(store)
        shapes = {one.position for one in store.get("t").events() if set(one.data) == {"vendor", "lines", "start"}}
    for erased in [[one] for one in positions] + [positions[3::3], positions[-5:], positions]:
        url = str(shutil.copytree(first, tmp_path / f"{erased[0]}-{len(erased)}") / "x.db")
        with onrecord.connect(url, project="p") as store:
            running = build(OnrecordSaver(store))
            running.get_state(at())
            store.get("t").log.erase("x", positions=erased)
            for graph in (running, build(OnrecordSaver(store))):
                check_history(graph, original)
            for graph, text in ((running, "one more"), (running, "again"), (build(OnrecordSaver(store)), "new")):
                try:
                    found = graph.invoke({"messages": [HumanMessage(text)]}, at())["messages"]
                except PayloadErased:
                    assert form == "before" or shapes.intersection(erased)
                    break
                assert text in [one.content for one in found[-4:]]
                read = build(OnrecordSaver(store)).get_state(at()).values["messages"]
                assert [one.content for one in read] == [one.content for one in found]
                check_history(graph, original)
            else:
                check_history(build(OnrecordSaver(store)), original)


def test_only_what_was_said_is_gone(tmp_path):
    """The event of a question is erased: all else is as before, and the message says that it was erased."""
    with onrecord.connect(str(tmp_path / "x.db"), project="p") as store:
        graph = talk(OnrecordSaver(store))
        for number in range(TURNS):
            graph.invoke({"messages": [HumanMessage(f"question {number}")]}, at())
        before = contents(graph.get_state(at()))
        session = store.get("t")
        session.log.erase("x", positions=[one.position for one in session.events() if "question 1" in str(one.data)])
        for saver in (OnrecordSaver(store), graph.checkpointer):
            read = contents(talk(saver).get_state(at()))
            wanted = [(id_, ERASED if text == "question 1" else text) for id_, text in before]
            assert len(read) == len(wanted)
            assert all(map(is_same, read, wanted)), read


def test_a_thread_whose_shapes_were_erased_says_so_and_can_be_continued(tmp_path, monkeypatch):
    """In a log of an earlier version, shapes are with what was said: one clear error, and a way to continue."""
    with onrecord.connect(str(tmp_path / "x.db"), project="p") as store:
        with monkeypatch.context() as earlier:
            earlier.setattr(Pooling, "payloads", payloads_before)
            for number in range(TURNS):
                talk(OnrecordSaver(store)).invoke({"messages": [HumanMessage(f"question {number}")]}, at())
        session = store.get("t")
        session.log.erase("x", positions=[one.position for one in session.events() if '"up":' in str(one.data)])
        graph = talk(OnrecordSaver(store))
        with pytest.raises(PayloadErased, match="__copy__"):
            graph.invoke({"messages": [HumanMessage("more")]}, at())
        left = next(graph.get_state_history(at()))
        graph.update_state(left.config, None, as_node="__copy__")
        for one_more in (graph, talk(OnrecordSaver(store))):
            found = one_more.invoke({"messages": [HumanMessage("more")]}, at())["messages"]
            assert [one.content for one in found][: len(contents(left))] == [text for _id, text in contents(left)]


def test_calls_and_results_stay_pairs():
    """An erased call is made up from its result, an erased result from its call; half of a pair is no pair."""

    def call(*ids: str) -> AIMessage:
        return AIMessage("", tool_calls=[{"id": one, "name": "weather", "args": {}} for one in ids])

    def result(id_: str) -> ToolMessage:
        return ToolMessage("rain", tool_call_id=id_, name="weather")

    gone, go, end = HumanMessage(ERASED), HumanMessage("go"), AIMessage("an umbrella")
    for said in (
        [gone, call("a"), result("a"), end], [go, gone, result("a"), result("b"), end], [go, call("a"), gone, end],
        [go, call("a", "b"), gone, result("b"), end], [go, result("a"), end], [go, call("a"), end],
        [go, call("a", "b"), result("a"), go, gone], [gone, gone, result("a"), gone],
    ):  # fmt: skip
        found = mended(said, [one is gone for one in said])
        check_calls(found)
        assert len(found) == len(said)
        assert [one.content for one in found if one.content == ERASED] == [ERASED] * said.count(gone)
    waiting = [go, call("a")]
    assert mended(waiting, [False, False]) == waiting
