"""One session, every framework: begun with LangGraph, continued with openai-agents, a plain loop and Claude's store."""

import asyncio
from typing import Any

import pytest
from agents import Agent, Runner
from agents.testing import ScriptedModel, assistant_message
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.graph import START, MessagesState, StateGraph

import onrecord
from onrecord.frameworks.claude_agent_sdk import OnrecordSessionStore
from onrecord.frameworks.langgraph import OnrecordSaver
from onrecord.frameworks.langgraph_tools import messages_of_others
from onrecord.frameworks.openai_agents import OnrecordSession

NAME = "order-42"


def graph_on(saver: OnrecordSaver, answer: str) -> Any:
    builder = StateGraph(MessagesState)
    builder.add_node("model", lambda _state: {"messages": [AIMessage(answer)]})
    builder.add_edge(START, "model")
    return builder.compile(checkpointer=saver)


@pytest.fixture
def store(tmp_path):
    with onrecord.connect(str(tmp_path / "x.db"), project="p") as found:
        yield found


def read_by(model: ScriptedModel) -> list[str]:
    """What a model of openai-agents was given, as texts."""
    call = model.first_call
    assert call is not None
    assert isinstance(call.input, list)
    said = [item.get("content") or item.get("output") or item.get("name") for item in call.input]
    return [str(one[0]["text"]) if isinstance(one, list) else str(one) for one in said]


def test_each_framework_continues_what_the_others_began(store):
    """Every one reads what was said before, in order; the whole is one transcript, found by search and verified."""
    config: Any = {"configurable": {"thread_id": NAME}}
    saver = OnrecordSaver(store)
    graph_on(saver, "from the graph").invoke({"messages": [HumanMessage("one: begin")]}, config)

    model = ScriptedModel([[assistant_message("from the agents")]])
    session = OnrecordSession(NAME, store)
    asyncio.run(Runner.run(Agent(name="a", model=model), "two: continue", session=session))
    assert read_by(model) == ["one: begin", "from the graph", "two: continue"]

    with store.open(NAME, agent="main") as ours, ours.turn() as turn:
        turn.user("three: plain")
        assert [one["content"] for one in turn.messages("openai")] == [
            "one: begin",
            "from the graph",
            "two: continue",
            "from the agents",
            "three: plain",
        ]
        turn.assistant("from the loop", tool_calls=[{"id": "c", "name": "look", "arguments": {"at": 1}}])
        turn.tool("c", "seen")

    model = ScriptedModel([[assistant_message("again")]])
    asyncio.run(Runner.run(Agent(name="a", model=model), "four: back", session=OnrecordSession(NAME, store)))
    assert read_by(model) == [
        "one: begin", "from the graph", "two: continue", "from the agents", "three: plain", "from the loop", "look",
        "seen", "four: back",
    ]  # fmt: skip

    carried = [message.content for message in messages_of_others(saver, NAME)]
    assert carried == [
        "two: continue",
        "from the agents",
        "three: plain",
        "from the loop",
        "seen",
        "four: back",
        "again",
    ]

    claude = OnrecordSessionStore(store)
    claude.keep_in("p", "5a7c", NAME)
    entry = {"type": "user", "uuid": "u1", "message": {"role": "user", "content": "five: claude"}}
    asyncio.run(claude.append({"project_key": "p", "session_id": "5a7c"}, [entry]))

    ours = store.get(NAME)
    transcript = ours.transcript()
    said = [item["content"] for turn in (*transcript.committed, *transcript.provisional) for item in turn.items]
    assert [text.partition(":")[0] for text in said if ": " in text] == ["one", "two", "three", "four", "five"]
    assert [found.session.name for found in store.search("claude")] == [NAME]
    assert ours.verify().ok
