"""The stores that `bench/frameworks.py` measures: our adapter for each framework, and the framework's own store.

Each function makes a store in a directory and returns two calls: one saves a turn as the framework does it, one reads
the session from its file, as a new process does, and returns how many messages there are. What a framework has instead
of the turns of the workload is made before, outside of what is measured.
"""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import onrecord

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    Turn = list[dict[str, Any]]
    Write = Callable[[Any], Awaitable[object]]
    Read = Callable[[], Awaitable[int]]
    Pair = tuple[Write, Read]

OPENED: list[Any] = []
STEPPING: dict[str, Any] = {}
"""The savers of a run, by the name of their directory."""


def connected(place: Path) -> Any:
    """Our store in a directory; it is closed before its files are measured."""
    OPENED.append(onrecord.connect(str(place / "x.db"), project="bench"))
    return OPENED[-1]


async def plain(place: Path) -> Pair:
    """Our own record_turn."""
    store = connected(place)
    session = store.open("s")

    async def write(turn: Turn) -> None:
        session.record_turn(turn)

    async def read() -> int:
        with onrecord.connect(str(place / "x.db"), project="bench") as again:
            return len(again.get("s").transcript().items)

    return write, read


async def plain_steps(place: Path) -> Pair:
    """The same, each message of a turn in a durable step of its own."""
    write_all, read = await plain(place)

    async def write(turn: Turn) -> None:
        for item in turn:
            await write_all([item])

    return write, read


async def openai_ours(place: Path) -> Pair:
    from onrecord.frameworks.openai_agents import OnrecordSession

    store = connected(place)
    session = OnrecordSession("s", store)

    async def write(items: list[Any]) -> None:
        await session.add_items(items)

    async def read() -> int:
        with onrecord.connect(str(place / "x.db"), project="bench") as again:
            return len(await OnrecordSession("s", again).get_items())

    return write, read


async def openai_theirs(place: Path) -> Pair:
    from agents import SQLiteSession

    session = SQLiteSession("s", place / "x.db")

    async def write(items: list[Any]) -> None:
        await session.add_items(items)

    async def read() -> int:
        return len(await SQLiteSession("s", place / "x.db").get_items())

    return write, read


def run_on(session: Any, make: Callable[[], Any]) -> Pair:
    """What a run of openai-agents does with its session: read it, save the prompt, save what the model said."""

    async def write(items: list[Any]) -> None:
        await session.get_items()
        await session.add_items(items[:1])
        await session.add_items(items[1:])

    async def read() -> int:
        return len(await make().get_items())

    return write, read


async def run_ours(place: Path) -> Pair:
    from onrecord.frameworks.openai_agents import OnrecordSession

    def make() -> Any:
        return OnrecordSession("s", connected(place))

    return run_on(make(), make)


async def run_theirs(place: Path) -> Pair:
    from agents import SQLiteSession

    def make() -> Any:
        return SQLiteSession("s", place / "x.db")

    return run_on(make(), make)


def answering(saver: Any, given: list[Any]) -> Any:
    """A graph that answers with what it is given: one model step."""
    from langgraph.graph import START, MessagesState, StateGraph

    def model(_state: Any) -> Any:
        return {"messages": list(given)}

    builder: Any = StateGraph(MessagesState)
    builder.add_node("model", model)
    builder.add_edge(START, "model")
    return builder.compile(checkpointer=saver)


def langgraph_messages(turn: Turn) -> list[Any]:
    """A turn as messages of LangChain."""
    from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

    user, assistant, result = turn
    call = assistant["tool_calls"][0]
    calls: Any = [{"id": call["id"], "name": call["name"], "args": call["arguments"]}]
    return [
        HumanMessage(user["content"], id=f"user-{time.time_ns()}"),
        AIMessage(assistant["content"], id=f"ai-{time.time_ns()}", tool_calls=calls),
        ToolMessage(result["content"], tool_call_id=call["id"], id=f"tool-{time.time_ns()}"),
    ]


def graph_on(saver: Any) -> Any:
    """A graph that adds the turn it is given."""
    given: list[Any] = []
    graph = answering(saver, given)
    config: Any = {"configurable": {"thread_id": "s"}}

    def write(turn: Turn) -> None:
        user, *given[:] = langgraph_messages(turn)
        graph.invoke({"messages": [user]}, config)

    return write, lambda: len(graph.get_state(config).values["messages"])


def langgraph_at_once(place: Path, stock: list[Turn]) -> None:
    """Turns in one step of LangGraph's own store, whose file would grow with the square of their number.

    A reader reads the newest checkpoint and nothing before it, so a resume does not take less for it.
    """
    from langgraph.checkpoint.sqlite import SqliteSaver

    with sqlite3.connect(place / "x.db", check_same_thread=False) as database:
        graph = answering(SqliteSaver(database), [])
        said = [message for turn in stock for message in langgraph_messages(turn)]
        graph.update_state({"configurable": {"thread_id": "s"}}, {"messages": said}, as_node="model")
    database.close()


def step_messages(turn: Turn) -> list[Any]:
    """A turn as messages that a graph has given ids."""
    from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

    user, assistant, result = turn
    return [
        HumanMessage(user["content"], id=str(uuid4())),
        AIMessage(assistant["content"], id=str(uuid4())),
        ToolMessage(result["content"], tool_call_id="c", id=str(uuid4())),
    ]


def stepping(saver: Any) -> Write:
    """The durable calls of one step, without the graph around them: the writes of a task, then a checkpoint."""
    from langgraph.checkpoint.base.id import uuid6

    found = saver.get_tuple({"configurable": {"thread_id": "s", "checkpoint_ns": ""}})
    config, checkpoint = found.config, found.checkpoint
    state = list(checkpoint["channel_values"]["messages"])

    async def write(new: list[Any]) -> None:
        nonlocal config, checkpoint
        state.extend(new)
        versions = checkpoint["channel_versions"]
        at = saver.get_next_version(max(versions.values()), None)
        checkpoint = checkpoint | {
            "id": str(uuid6(clock_seq=len(state))), "channel_values": {"messages": list(state)},
            "channel_versions": versions | {"messages": at},
        }  # fmt: skip
        saver.put_writes(config, [("messages", new)], str(uuid4()))
        config = saver.put(config, checkpoint, {"source": "loop", "step": len(state)}, {"messages": at})

    return write


async def langgraph_ours(place: Path) -> Pair:
    from onrecord.frameworks.langgraph import OnrecordSaver

    saver = OnrecordSaver(connected(place))
    put, _read = graph_on(saver)

    async def write(turn: Turn) -> None:
        put(turn)

    STEPPING[place.name] = saver

    async def read() -> int:
        with onrecord.connect(str(place / "x.db"), project="bench") as again:
            count: int = graph_on(OnrecordSaver(again))[1]()
            return count

    return write, read


async def langgraph_ours_going_on(place: Path, turn: Turn) -> int:
    """A resume and the turn that it is for."""
    from onrecord.frameworks.langgraph import OnrecordSaver

    with onrecord.connect(str(place / "x.db"), project="bench") as again:
        return read_and_put(OnrecordSaver(again), turn)


async def langgraph_theirs_going_on(place: Path, turn: Turn) -> int:
    """The same with the framework's own store."""
    from langgraph.checkpoint.sqlite import SqliteSaver

    with closing(sqlite3.connect(place / "x.db", check_same_thread=False)) as database:
        return read_and_put(SqliteSaver(database), turn)


def read_and_put(saver: Any, turn: Turn) -> int:
    """Read the state of a graph and add a turn to it."""
    put, read = graph_on(saver)
    count: int = read()
    put(turn)
    return count


async def langgraph_theirs(place: Path) -> Pair:
    from langgraph.checkpoint.sqlite import SqliteSaver

    def saver() -> Any:
        return SqliteSaver(sqlite3.connect(place / "x.db", check_same_thread=False))

    put, _read = graph_on(one := saver())

    async def write(turn: Turn) -> None:
        put(turn)

    STEPPING[place.name] = one

    async def read() -> int:
        count: int = graph_on(saver())[1]()
        return count

    return write, read


async def adk_on(make: Callable[[], Any]) -> Pair:
    """A session service of ADK: three events a turn, each durable."""
    service = make()
    session = await service.create_session(app_name="a", user_id="u", session_id="s")

    async def write(events: list[Any]) -> None:
        for event in events:
            await service.append_event(session, event.model_copy())  # each service changes the one it is given

    async def read() -> int:
        return len((await make().get_session(app_name="a", user_id="u", session_id="s")).events)

    return write, read


async def adk_ours(place: Path) -> Pair:
    from onrecord.frameworks.google_adk import OnrecordSessionService

    return await adk_on(lambda: OnrecordSessionService(connected(place)))


async def adk_theirs(place: Path) -> Pair:
    from google.adk.sessions.sqlite_session_service import SqliteSessionService

    return await adk_on(lambda: SqliteSessionService(str(place / "x.db")))


def strands_on(repository: Any, make: Callable[[], Any]) -> Pair:
    """A repository of Strands: three messages a turn, each durable, as its session manager saves them."""
    from strands.types.session import Session, SessionAgent, SessionMessage, SessionType

    if repository.read_session("s") is None:  # the manager of files makes it itself
        repository.create_session(Session(session_id="s", session_type=SessionType.AGENT))
    repository.create_agent("s", SessionAgent(agent_id="a", state={}, conversation_manager_state={}))
    count = 0

    async def write(messages: list[Any]) -> None:
        nonlocal count
        for message in messages:
            repository.create_message("s", "a", SessionMessage.from_message(message, count))
            count += 1

    async def read() -> int:
        return len(make().list_messages("s", "a"))

    return write, read


async def strands_ours(place: Path) -> Pair:
    from onrecord.frameworks.strands import OnrecordRepository

    return strands_on(OnrecordRepository(connected(place)), lambda: OnrecordRepository(connected(place)))


async def strands_theirs(place: Path) -> Pair:
    from strands.session.file_session_manager import FileSessionManager

    def make() -> Any:
        return FileSessionManager("s", storage_dir=str(place))

    return strands_on(make(), make)


async def pydantic_ours(place: Path) -> Pair:
    from pydantic_ai.conversation import Conversation

    from onrecord.frameworks.pydantic_ai import OnrecordConversationStore

    conversations, conversation = OnrecordConversationStore(connected(place)), Conversation(conversation_id="s")

    async def write(messages: list[Any]) -> None:
        conversation.messages += messages
        await conversations.save(conversation)

    async def read() -> int:
        found: Any = await OnrecordConversationStore(connected(place)).load("s")
        return len(found.messages)

    return write, read


def steps_on(steps: Any, make: Callable[[], Any]) -> Pair:
    """A step store of the harness: after each turn a snapshot of one long run, with all of its messages."""
    from pydantic_ai_harness.step_persistence import ContinuableSnapshot, RunRecord

    said: list[Any] = []

    async def write(messages: list[Any]) -> None:
        if not said:
            await steps.register_run(RunRecord(run_id="r", conversation_id="s"))
        said.extend(messages)
        made: dict[str, Any] = {"run_id": "r", "conversation_id": "s", "step_index": len(said)}
        await steps.save_snapshot(ContinuableSnapshot(messages=list(said), **made))

    async def read() -> int:
        return len((await make().latest_snapshot(run_id="r")).messages)

    return write, read


async def steps_ours(place: Path) -> Pair:
    from onrecord.frameworks.pydantic_steps import OnrecordStepStore

    return steps_on(OnrecordStepStore(connected(place)), lambda: OnrecordStepStore(connected(place)))


async def steps_theirs(place: Path) -> Pair:
    from pydantic_ai_harness.step_persistence import SqliteStepStore

    return steps_on(SqliteStepStore(database=place / "x.db"), lambda: SqliteStepStore(database=place / "x.db"))


def history_on(provider: Any, make: Callable[[], Any]) -> Pair:
    """A history provider of agent-framework: the messages of a run in one call."""

    async def write(messages: list[Any]) -> None:
        await provider.save_messages("s", messages)

    async def read() -> int:
        return len(await make().get_messages("s"))

    return write, read


async def history_ours(place: Path) -> Pair:
    from onrecord.frameworks.agent_framework import OnrecordHistoryProvider

    return history_on(OnrecordHistoryProvider(connected(place)), lambda: OnrecordHistoryProvider(connected(place)))


async def history_theirs(place: Path) -> Pair:
    from agent_framework import FileHistoryProvider

    return history_on(FileHistoryProvider(place), lambda: FileHistoryProvider(place))


async def claude_ours(place: Path) -> Pair:
    from onrecord.frameworks.claude_agent_sdk import OnrecordSessionStore

    kept, key = OnrecordSessionStore(connected(place)), {"project_key": "p", "session_id": "s"}

    async def write(entries: list[Any]) -> None:
        await kept.append(key, entries)

    async def read() -> int:
        return len(await OnrecordSessionStore(connected(place)).load(key) or ())

    return write, read


async def mcp_ours(place: Path) -> Pair:
    from onrecord.frameworks.mcp_events import OnrecordEventStore

    events = OnrecordEventStore("s", connected(place))

    async def write(message: Any) -> None:
        await events.store_event("1", message)

    async def read() -> int:
        found: list[Any] = []

        async def send(event: Any) -> None:
            found.append(event)

        await OnrecordEventStore("s", connected(place)).replay_events_after("1", send)
        return len(found)

    return write, read
