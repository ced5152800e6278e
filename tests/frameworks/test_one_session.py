"""One session, every framework: begun with LangGraph, continued with openai-agents, a plain loop and Claude's store."""

import asyncio
import json
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


def seen_by(saver: OnrecordSaver, given: list[Any]) -> list[str]:
    """What a graph's state has when its model is called with these messages."""
    state = graph_on(saver, "from the graph again").invoke({"messages": given}, {"configurable": {"thread_id": NAME}})
    return [str(message.content) for message in state["messages"][:-1]]


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


def test_what_only_a_deleted_run_had_is_given_again(store):
    """A turn of another writer is given until a state has it; one that a run had which was deleted has it no more."""
    saver = OnrecordSaver(store)

    def run(given: list[Any], name: str) -> list[str]:
        config: Any = {"configurable": {"thread_id": NAME}, "metadata": {"run_id": name}}
        state = graph_on(saver, "answer").invoke({"messages": given}, config)
        return [str(message.content) for message in state["messages"]]

    def of_others(of: OnrecordSaver) -> list[str]:
        return [str(message.content) for message in messages_of_others(of, NAME)]

    run([HumanMessage("first")], "r1")
    said = [{"role": "user", "content": "other question"}, {"role": "assistant", "content": "other answer"}]
    asyncio.run(OnrecordSession(NAME, store).add_items(said))  # type: ignore[arg-type]  # dicts, as the SDK passes them
    others = [str(one["content"]) for one in said]
    run([*messages_of_others(saver, NAME), HumanMessage("second")], "r2")
    assert of_others(saver) == []
    saver.delete_for_runs(["r2"])
    assert of_others(saver) == of_others(OnrecordSaver(store)) == others
    whole = ["first", "answer", *others, "third", "answer"]
    assert run([*messages_of_others(saver, NAME), HumanMessage("third")], "r3") == whole
    assert of_others(saver) == of_others(OnrecordSaver(store)) == []
    again = graph_on(OnrecordSaver(store), "").get_state({"configurable": {"thread_id": NAME}}).values["messages"]
    assert [message.content for message in again] == whole
    assert [item["content"] for item in store.get(NAME).transcript().items] == whole
    saver.delete_for_runs(["r1"])
    assert of_others(OnrecordSaver(store)) == []


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
    assert {found.session.name for found in store.search("claude")} == {NAME}
    assert ours.verify().ok


def test_messages_that_a_graph_was_given_of_others_are_not_said_twice(store):
    """They are given until a state has them; the transcript, other frameworks and forks have each of them once."""
    config: Any = {"configurable": {"thread_id": NAME}}
    saver = OnrecordSaver(store)
    graph_on(saver, "from the graph").invoke({"messages": [HumanMessage("one")]}, config)

    def others_say(asked: str, answered: str) -> list[str]:
        model = ScriptedModel([[assistant_message(answered)]])
        asyncio.run(Runner.run(Agent(name="a", model=model), asked, session=OnrecordSession(NAME, store)))
        return read_by(model)

    others_say("two", "from the agents")
    assert [one.content for one in messages_of_others(saver, NAME)] == ["two", "from the agents"]  # not passed in yet
    first = ["one", "from the graph", "two", "from the agents", "three"]
    assert seen_by(saver, [*messages_of_others(saver, NAME), HumanMessage("three")]) == first
    assert messages_of_others(OnrecordSaver(store), NAME) == []
    again = [*first, "from the graph again", "two"]
    assert seen_by(OnrecordSaver(store), [*messages_of_others(saver, NAME), HumanMessage("two")]) == again
    said = [*again, "from the graph again"]
    assert [item["content"] for item in store.get(NAME).transcript().items] == said
    assert others_say("four", "the end") == [*said, "four"]

    saver.copy_thread(NAME, "copy")
    assert [one.content for one in messages_of_others(saver, "copy")] == ["four", "the end"]
    given = messages_of_others(saver, NAME)
    graph_on(saver, "elsewhere").invoke({"messages": given}, {"configurable": {"thread_id": "another"}})
    assert [item["content"] for item in store.get("another").transcript().items] == ["four", "the end", "elsewhere"]


DOT = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
DATA = f"data:image/png;base64,{DOT}"
IMAGE = {"type": "image_url", "image_url": {"url": DATA}}


@pytest.mark.parametrize(
    "part", [IMAGE, {"type": "image", "base64": DOT, "mime_type": "image/png"}, {"type": "image", "url": DATA}]
)
def test_an_image_of_a_graph_is_an_image_for_the_others(store, part):
    """It is in the transcript, openai-agents and the plain loop get it as an image, and the log has its data once."""
    saver = OnrecordSaver(store)
    asked: Any = [{"type": "text", "text": "what is this?"}, part]
    graph_on(saver, "a dot").invoke({"messages": [HumanMessage(asked)]}, {"configurable": {"thread_id": NAME}})
    session = store.get(NAME, agent="main")
    said = session.transcript().items[0]["content"]
    assert [one["type"] for one in said] == ["text", part["type"]]
    source = {"type": "base64", "media_type": "image/png", "data": DOT}
    assert session.messages("anthropic")[0]["content"][1] == {"type": "image", "source": source}
    given: Any = asyncio.run(OnrecordSession(NAME, store).get_items())
    assert given[0]["content"][1] == {"type": "input_image", "image_url": DATA, "detail": "auto"}
    assert sum(str(event.data).count(DOT) for event in session.events()) == 1


def test_an_image_of_others_is_an_image_for_a_graph(store):
    """A graph gets it in the form of LangChain; where only texts are possible, it is a word and no base64."""
    with store.open(NAME, agent="main") as plain, plain.turn() as turn:
        turn.user([{"type": "text", "text": "what is this?"}, IMAGE])
        turn.assistant("", tool_calls=[{"id": "c", "name": "look"}])
        turn.add({"role": "tool", "call": "c", "content": [IMAGE]})
        turn.assistant("a dot")
    asked, call, result, answer = messages_of_others(OnrecordSaver(store), NAME)
    assert asked.content == [{"type": "text", "text": "what is this?"}, IMAGE]
    assert (call.content, result.content, answer.content) == ("", "[image]", "a dot")
    given: Any = asyncio.run(OnrecordSession(NAME, store).get_items())
    assert given[0]["content"][1] == {"type": "input_image", "image_url": DATA, "detail": "auto"}
    assert given[2]["output"] == "[image]"


def test_what_subagents_said_is_not_part_of_the_conversation(store):
    """Transcripts of Claude's subagents are lanes of their own: other frameworks and loops read the main one."""
    kept, key = OnrecordSessionStore(store), {"project_key": "p", "session_id": "1f1e4728-015a-619c-8003-45420c15c057"}

    def entry(number: int, role: str, said: str) -> dict[str, Any]:
        about = {"type": role, "uuid": f"{key['session_id'][:-1]}{number}", "timestamp": "2026-01-01T00:00:00Z"}
        return {**about, "message": {"role": role, "content": said}}

    async def claude() -> None:
        await kept.append(key, [entry(1, "user", "question")])
        beside = [entry(2, "user", "of a subagent"), entry(3, "assistant", "by a subagent")]
        await kept.append({**key, "subpath": "subagents/agent-a1"}, beside)
        await kept.append(key, [entry(4, "assistant", "answer")])

    store.create(NAME)
    kept.keep_in(key["project_key"], key["session_id"], NAME)
    asyncio.run(claude())
    texts = ["question", "answer"]
    items: list[Any] = asyncio.run(OnrecordSession(NAME, store).get_items())
    assert [item["content"] for item in items] == texts
    assert [message.content for message in messages_of_others(OnrecordSaver(store), NAME)] == texts
    assert [message["content"] for message in store.get(NAME).messages("openai")] == texts


def test_others_read_what_a_tool_answered_before_its_run_was_killed(store):
    """The result is in the ledger and not in the conversation: it is the answer. Of the other call it is unknown."""
    session = OnrecordSession(NAME, store)
    calls: list[Any] = [
        {"type": "function_call", "call_id": f"c{n}", "name": "pay", "arguments": json.dumps({"n": n})}
        for n in (1, 2, 3)
    ]
    asyncio.run(session.add_items([{"role": "user", "content": "pay all"}, *calls]))
    for number in (1, 2, 3):
        session._kept.start_effect(f"c{number}", "pay", {"n": number})
    session._kept.finish_effect("c1", {"n": 1}, result="paid 1")
    session._kept.finish_effect("c2", {"n": 2}, error="no money")
    asyncio.run(session.add_items([{"role": "user", "content": "well?"}, {"role": "assistant", "content": "so so"}]))
    said = [message["content"] for message in store.get(NAME).messages("openai") if message["role"] == "tool"]
    assert said[:2] == ["paid 1", "failed: no money"]
    assert "outcome is unknown" in said[2]
    with store.open(NAME, agent="main") as loop, loop.turn() as turn:
        assert [one["content"] for one in turn.messages("openai") if one["role"] == "tool"] == said
    assert [one.content for one in messages_of_others(OnrecordSaver(store), NAME) if one.type == "tool"] == said
