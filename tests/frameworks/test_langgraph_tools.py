"""Tools of a LangGraph graph that do not run twice: what they returned is returned again, whatever it was."""

import asyncio
import time
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Annotated, Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import InjectedToolCallId, tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.types import Command, Send

import onrecord
from onrecord.frameworks.langgraph import OnrecordSaver
from onrecord.frameworks.langgraph_tools import aonce, once


def test_a_server_that_gives_every_call_the_same_id(tmp_path):
    """Each call runs, once, with its own result: two of one message, those of one thread, those of the next process."""
    ran: list[int] = []

    @tool
    def look(n: int) -> str:
        """Look."""
        ran.append(n)
        return f"saw {n}"

    def model(state: MessagesState) -> Any:
        last = state["messages"][-1]
        if isinstance(last, ToolMessage):
            return {"messages": [AIMessage("done")]}
        calls: Any = [{"id": "call_0", "name": "look", "args": {"n": int(n)}} for n in str(last.content).split()]
        return {"messages": [AIMessage("", tool_calls=calls)]}

    def ask(store: Any, *prompts: str) -> list[str]:
        saver = OnrecordSaver(store)
        builder = StateGraph(MessagesState)
        builder.add_node("model", model)
        builder.add_node("tools", ToolNode([look], wrap_tool_call=once(saver)))
        builder.add_edge(START, "model")
        builder.add_conditional_edges("model", tools_condition)
        builder.add_edge("tools", "model")
        graph = builder.compile(checkpointer=saver)
        for one in prompts:
            state = graph.invoke({"messages": [HumanMessage(one)]}, {"configurable": {"thread_id": "t"}})
        return [str(one.content) for one in state["messages"] if isinstance(one, ToolMessage)]

    with onrecord.connect(str(tmp_path / "x.db"), project="p") as store:
        assert ask(store, "1 2", "1") == ["saw 1", "saw 2", "saw 1"]
        assert ask(store, "1") == ["saw 1", "saw 2", "saw 1", "saw 1"]
        assert sorted(ran) == [1, 1, 1, 2]
        assert list(store.get("t").effects.unknown()) == []


PARTS: Any = [{"type": "text", "text": "hello"}, {"type": "image_url", "image_url": {"url": "https://x.test/y.png"}}]


class Chosen(MessagesState):
    """A state with more than messages."""

    language: str


@dataclass
class Found:
    """What a tool leaves beside its text."""

    rows: int


@pytest.mark.parametrize("is_async", [False, True])
def test_what_a_tool_changed_is_there_after_a_crash(is_async):
    """The update of a `Command`, content parts and an artifact: the repeated step has them, and no tool ran again."""
    ran: list[str] = []

    @tool
    def choose(language: str, call: Annotated[str, InjectedToolCallId]) -> Any:
        """Choose a language."""
        ran.append("choose")
        said = ToolMessage(f"language is {language}", tool_call_id=call)
        return Command(update={"language": language, "messages": [said]})

    @tool
    def show() -> Any:
        """Show an image."""
        ran.append("show")
        return PARTS

    @tool(response_format="content_and_artifact")
    def find() -> Any:
        """Find rows."""
        ran.append("find")
        return "found", Found(3)

    @tool
    def die() -> str:
        """End the run, the first time."""
        time.sleep(0.2)
        raise KeyboardInterrupt

    def model(state: Chosen) -> Any:
        if isinstance(state["messages"][-1], ToolMessage):
            return {"messages": [AIMessage("done")]}
        named = {"choose": {"language": "de"}, "show": {}, "find": {}, "die": {}}
        return {"messages": [AIMessage("", tool_calls=[{"id": n, "name": n, "args": a} for n, a in named.items()])]}

    def graph(store: Any) -> Any:
        saver = OnrecordSaver(store, types=[Found])
        builder = StateGraph(Chosen)
        builder.add_node("model", model)
        tools = ToolNode([choose, show, find, die], wrap_tool_call=once(saver), awrap_tool_call=aonce(saver))
        builder.add_node("tools", tools)
        builder.add_edge(START, "model")
        builder.add_conditional_edges("model", tools_condition)
        builder.add_edge("tools", "model")
        return builder.compile(checkpointer=saver)

    def run(store: Any, given: Any) -> Any:
        config: Any = {"configurable": {"thread_id": "t"}}
        if is_async:
            return asyncio.run(graph(store).ainvoke(given, config))
        return graph(store).invoke(given, config)

    store = onrecord.connect("memory:")
    with pytest.raises(KeyboardInterrupt):
        run(store, {"messages": [HumanMessage("go")]})
    state = run(store, None)
    by_call = {one.tool_call_id: one for one in state["messages"] if isinstance(one, ToolMessage)}
    assert state["language"] == "de"
    assert (by_call["choose"].content, by_call["show"].content) == ("language is de", PARTS)
    assert (by_call["find"].content, by_call["find"].artifact) == ("found", Found(3))
    assert [by_call[one].status for one in ("choose", "show", "find", "die")] == [*["success"] * 3, "error"]
    assert "outcome unknown" in by_call["die"].content
    assert sorted(ran) == ["choose", "find", "show"]


def request_of(call: str) -> Any:
    """A request as a `ToolNode` makes it."""
    config = {"configurable": {"thread_id": "t", "__pregel_task_id": "task"}}
    return SimpleNamespace(runtime=SimpleNamespace(config=config), tool_call={"id": call, "name": "pay", "args": {}})


@pytest.mark.parametrize(
    "made",
    [
        ToolMessage("", name="pay", tool_call_id="c"),
        ToolMessage("said", name="other", tool_call_id="c", id="own", additional_kwargs={"n": 1.0}),
        ToolMessage("said", name="pay", tool_call_id="c", note={"message": (1, {2})}),
        ToolMessage(PARTS, name="pay", tool_call_id="c", artifact=Found(2**60)),
        Command(goto=[Send("n", {"x": b"1"}), "m"], graph=Command.PARENT, resume={"a": True}),
        Command(update=[("messages", [HumanMessage("\ud800", id="1")]), ("x", None)]),
        [Command(update={"x": 1}), ToolMessage("said", tool_call_id="c")],
    ],
    ids=repr,
)
def test_what_a_tool_returned_is_returned_again(made):
    """Equal and of the same classes, by another saver; text is text on record."""
    store = onrecord.connect("memory:")
    assert once(OnrecordSaver(store, types=[Found]))(request_of("c"), lambda _request: made) is made
    again = once(OnrecordSaver(store, types=[Found]))(request_of("c"), lambda _request: pytest.fail("it ran again"))
    assert again == made
    assert repr(again) == repr(made)


def test_what_cannot_be_recorded_is_an_honest_error():
    """Also in a record of an earlier version, which had nothing of a `Command`; its texts are read as before."""
    store = onrecord.connect("memory:")
    saver = OnrecordSaver(store)
    made: Any = Command(update={"x": object()})
    assert once(saver)(request_of("c"), lambda _request: made) is made
    thread = saver.thread("t")
    for call, result in (("old", None), ("text", "paid")):
        thread.start_effect(f"task/{call}", "pay", {}, answered=0)
        thread.finish_effect(f"task/{call}", {}, result=result)
    said = {
        call: once(OnrecordSaver(store))(request_of(call), lambda _request: pytest.fail("it ran again"))
        for call in ("c", "old", "text")
    }
    assert {(one.status, one.content) for one in (said["c"], said["old"])} == {
        ("error", "the tool ran; its update could not be recorded: check what it changed before you call it again")
    }
    assert (said["text"].status, said["text"].content) == ("success", "paid")


def test_a_call_that_a_person_changed_before_it_was_made_is_not_shown(tmp_path):
    """The transcript has the call that was made. Older checkpoints have the other one, and so has who goes back."""
    config: Any = {"configurable": {"thread_id": "edited"}}

    def model(state: Any) -> Any:
        last = state["messages"][-1]
        if isinstance(last, ToolMessage):
            return {"messages": [AIMessage(f"done: {last.content}")]}
        return {"messages": [AIMessage("I pay 100", tool_calls=[{"id": "c1", "name": "pay", "args": {"amount": 100}}])]}

    def pay(state: Any) -> Any:
        (call,) = state["messages"][-1].tool_calls
        return {"messages": [ToolMessage(f"paid {call['args']['amount']}", tool_call_id=call["id"])]}

    def graph(saver: Any) -> Any:
        builder: Any = StateGraph(MessagesState)
        builder.add_node("model", model)
        builder.add_node("pay", pay)
        builder.add_edge(START, "model")
        builder.add_conditional_edges("model", lambda state: "pay" if state["messages"][-1].tool_calls else "__end__")
        builder.add_edge("pay", "model")
        return builder.compile(checkpointer=saver, interrupt_before=["pay"])

    def edit(on: Any, text: str, amount: int) -> None:
        call = {"id": "c1", "name": "pay", "args": {"amount": amount}}
        id_ = on.get_state(config).values["messages"][-1].id
        on.update_state(config, {"messages": [AIMessage(text, id=id_, tool_calls=[call])]})

    with onrecord.connect(str(tmp_path / "x.db"), project="p") as store:
        first = graph(OnrecordSaver(store))
        first.invoke({"messages": [HumanMessage("pay")]}, config)
        edit(first, "I pay 50", 50)
        edit(graph(OnrecordSaver(store)), "I pay 10", 10)
        wanted = ["pay", "I pay 10", "paid 10", "done: paid 10"]
        assert [one.content for one in graph(OnrecordSaver(store)).invoke(None, config)["messages"]] == wanted
        assert [item["content"] for item in store.get("edited").transcript().items] == wanted
        assert "100" not in str(store.get("edited").messages("openai"))
        states = [state.values["messages"] for state in graph(OnrecordSaver(store)).get_state_history(config)]
        assert [one[1].content for one in states if len(one) == 2] == ["I pay 10", "I pay 50", "I pay 100"]
        assert [one.content for one in graph(OnrecordSaver(store)).get_state(config).values["messages"]] == wanted
