"""Tools of a LangGraph graph whose calls all have the same id."""

from typing import Any

from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition

import onrecord
from onrecord.frameworks.langgraph import OnrecordSaver
from onrecord.frameworks.langgraph_tools import once


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
