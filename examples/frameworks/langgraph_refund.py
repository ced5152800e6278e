"""A LangGraph graph pays a refund and is killed inside the tool; run it again and it continues, and pays nothing twice.

    pip install "onrecord[langgraph]"
    python examples/frameworks/langgraph_refund.py /tmp/refund --kill      # dies inside the tool
    python examples/frameworks/langgraph_refund.py /tmp/refund             # continues

The model is scripted, so no key is needed; everything else is real.
"""

import os
import signal
import sys
from pathlib import Path

from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition

import onrecord
from onrecord.frameworks.langgraph import OnrecordSaver
from onrecord.frameworks.langgraph_tools import aonce, once

place = Path(sys.argv[1] if sys.argv[1:] else sys.exit(__doc__))
place.mkdir(exist_ok=True)


@tool
def pay(order: int) -> str:
    """Pay the refund of an order."""
    with (place / "payments.txt").open("a") as payments:
        payments.write(f"order {order}\n")
    if "--kill" in sys.argv:
        os.kill(os.getpid(), signal.SIGKILL)
    return "paid"


def model(state: MessagesState) -> dict[str, list[AIMessage]]:
    """Call the tool once, then report what it answered: a model that always does the same."""
    last = state["messages"][-1]
    if isinstance(last, ToolMessage):
        return {"messages": [AIMessage(f"The bank said: {last.content}")]}
    return {"messages": [AIMessage("", tool_calls=[{"id": "call-1", "name": "pay", "args": {"order": 42}}])]}


saver = OnrecordSaver(onrecord.connect(str(place / "record.db"), project="refunds"))
builder = StateGraph(MessagesState)
builder.add_node("model", model)
builder.add_node("tools", ToolNode([pay], wrap_tool_call=once(saver), awrap_tool_call=aonce(saver)))
builder.add_edge(START, "model")
builder.add_conditional_edges("model", tools_condition)
builder.add_edge("tools", "model")
graph = builder.compile(checkpointer=saver)

config: RunnableConfig = {"configurable": {"thread_id": "refund-42"}}
begun = graph.get_state(config).next
question = MessagesState(messages=[HumanMessage("Refund order 42.")])
result = graph.invoke(None if begun else question, config, durability="sync")
print(result["messages"][-1].content)
