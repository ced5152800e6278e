"""Turns through the adapters against our own `record_turn` and against each framework's own durable SQLite store.

One workload for all: the turns of `workload.turns`. A program of its own, because a framework lives in its own
environment: `.venvs/NAME/bin/python bench/frameworks.py [openai-agents] [langgraph] [google-adk] [--turns N]`.
Ratios are of one run; the medians alternate between the stores, so that a busy machine slows all of them.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import onrecord  # noqa: E402 - as above
from bench.workload import turns  # noqa: E402 - the path above makes this a program of its own

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    Write = Callable[[list[dict[str, Any]]], Awaitable[object]]


OPENED: list[Any] = []


def connected(place: Path) -> Any:
    """Our store in a directory; it is closed before its files are measured."""
    OPENED.append(onrecord.connect(str(place / "x.db"), project="bench"))
    return OPENED[-1]


def size_of(place: Path) -> int:
    """The bytes of a store's files."""
    return sum(file.stat().st_size for file in place.iterdir() if file.is_file())


def responses_items(turn: list[dict[str, Any]]) -> list[Any]:
    """A turn as items of openai-agents."""
    user, assistant, result = turn
    call = assistant["tool_calls"][0]
    return [
        {"role": "user", "content": user["content"]},
        {"role": "assistant", "content": assistant["content"]},
        {
            "type": "function_call",
            "call_id": call["id"],
            "name": call["name"],
            "arguments": json.dumps(call["arguments"]),
        },
        {"type": "function_call_output", "call_id": call["id"], "output": result["content"]},
    ]


async def plain(place: Path) -> tuple[Write, Callable[[], Awaitable[int]]]:
    """Our own record_turn."""
    store = connected(place)
    session = store.open("s")

    async def write(turn: list[dict[str, Any]]) -> None:
        session.record_turn(turn)

    async def read() -> int:
        with onrecord.connect(str(place / "x.db"), project="bench") as again:
            return len(again.get("s").transcript().items)

    return write, read


async def openai_ours(place: Path) -> tuple[Write, Callable[[], Awaitable[int]]]:
    from onrecord.frameworks.openai_agents import OnrecordSession

    store = connected(place)
    session = OnrecordSession("s", store)

    async def write(turn: list[dict[str, Any]]) -> None:
        await session.add_items(responses_items(turn))

    async def read() -> int:
        with onrecord.connect(str(place / "x.db"), project="bench") as again:
            return len(await OnrecordSession("s", again).get_items())

    return write, read


async def openai_theirs(place: Path) -> tuple[Write, Callable[[], Awaitable[int]]]:
    from agents import SQLiteSession

    session = SQLiteSession("s", place / "x.db")

    async def write(turn: list[dict[str, Any]]) -> None:
        await session.add_items(responses_items(turn))

    async def read() -> int:
        return len(await SQLiteSession("s", place / "x.db").get_items())

    return write, read


def graph_on(saver: Any) -> Any:
    """A graph that adds the turn it is given: one model step."""
    from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
    from langgraph.graph import START, MessagesState, StateGraph

    given: list[Any] = []

    def model(_state: MessagesState) -> Any:
        return {"messages": given}

    builder = StateGraph(MessagesState)
    builder.add_node("model", model)
    builder.add_edge(START, "model")
    graph = builder.compile(checkpointer=saver)
    config: Any = {"configurable": {"thread_id": "s"}}

    def write(turn: list[dict[str, Any]]) -> None:
        user, assistant, result = turn
        call = assistant["tool_calls"][0]
        given[:] = [
            AIMessage(
                assistant["content"], id=f"ai-{time.time_ns()}",
                tool_calls=[{"id": call["id"], "name": call["name"], "args": call["arguments"]}],
            ),
            ToolMessage(result["content"], tool_call_id=call["id"], id=f"tool-{time.time_ns()}"),
        ]  # fmt: skip
        graph.invoke({"messages": [HumanMessage(user["content"], id=f"user-{time.time_ns()}")]}, config)

    return write, lambda: len(graph.get_state(config).values["messages"])


async def langgraph_ours(place: Path) -> tuple[Write, Callable[[], Awaitable[int]]]:
    from onrecord.frameworks.langgraph import OnrecordSaver

    put, _read = graph_on(OnrecordSaver(connected(place)))

    async def write(turn: list[dict[str, Any]]) -> None:
        put(turn)

    async def read() -> int:
        with onrecord.connect(str(place / "x.db"), project="bench") as again:
            count: int = graph_on(OnrecordSaver(again))[1]()
            return count

    return write, read


async def langgraph_theirs(place: Path) -> tuple[Write, Callable[[], Awaitable[int]]]:
    import sqlite3

    from langgraph.checkpoint.sqlite import SqliteSaver  # type: ignore[import-not-found]  # only where it is measured

    def saver() -> Any:
        return SqliteSaver(sqlite3.connect(place / "x.db", check_same_thread=False))

    put, _read = graph_on(saver())

    async def write(turn: list[dict[str, Any]]) -> None:
        put(turn)

    async def read() -> int:
        count: int = graph_on(saver())[1]()
        return count

    return write, read


def adk_events(turn: list[dict[str, Any]]) -> list[Any]:
    """A turn as events of ADK."""
    from google.adk.events.event import Event
    from google.genai import types

    user, assistant, result = turn
    call = assistant["tool_calls"][0]
    parts = (
        ("user", [types.Part(text=user["content"])]),
        ("a", [
            types.Part(text=assistant["content"]),
            types.Part(function_call=types.FunctionCall(id=call["id"], name=call["name"], args=call["arguments"])),
        ]),
        ("a", [types.Part(function_response=types.FunctionResponse(
            id=call["id"], name=call["name"], response={"result": result["content"]}))]),
    )  # fmt: skip
    return [Event(author=author, content=types.Content(role="user", parts=made)) for author, made in parts]


async def adk_on(make: Callable[[], Any]) -> tuple[Write, Callable[[], Awaitable[int]]]:
    """A session service of ADK: three events a turn, each durable."""
    service = make()
    session = await service.create_session(app_name="a", user_id="u", session_id="s")

    async def write(turn: list[dict[str, Any]]) -> None:
        for event in adk_events(turn):
            await service.append_event(session, event)

    async def read() -> int:
        return len((await make().get_session(app_name="a", user_id="u", session_id="s")).events)

    return write, read


async def adk_ours(place: Path) -> tuple[Write, Callable[[], Awaitable[int]]]:
    from onrecord.frameworks.google_adk import OnrecordSessionService

    return await adk_on(lambda: OnrecordSessionService(connected(place)))


async def adk_theirs(place: Path) -> tuple[Write, Callable[[], Awaitable[int]]]:
    from google.adk.sessions.sqlite_session_service import SqliteSessionService

    return await adk_on(lambda: SqliteSessionService(str(place / "x.db")))


MEASURED = {
    "openai-agents": (openai_ours, openai_theirs),
    "langgraph": (langgraph_ours, langgraph_theirs),
    "google-adk": (adk_ours, adk_theirs),
}


async def measured(name: str, count: int, place: Path) -> None:
    """Append the same turns to three stores in alternation, then read each from its file, and print ratios."""
    stores = {"plain": plain, "ours": MEASURED[name][0], "theirs": MEASURED[name][1]}
    made: dict[str, Any] = {}
    for which, store in stores.items():
        (place / which).mkdir()
        made[which] = await store(place / which)
    spent: dict[str, list[float]] = {which: [] for which in stores}
    for turn in turns(count):
        for which, (write, _read) in made.items():
            begun = time.perf_counter()
            await write(turn)
            spent[which].append(time.perf_counter() - begun)
    median = {which: statistics.median(times) * 1e3 for which, times in spent.items()}
    resumed: dict[str, float] = {}
    for which, (_write, read) in made.items():
        begun = time.perf_counter()
        await read()
        resumed[which] = (time.perf_counter() - begun) * 1e3
    for store in OPENED:
        store.close()
    OPENED.clear()
    size = {which: size_of(place / which) for which in stores}
    against = {which: median["ours"] / median[which] for which in ("plain", "theirs")}
    print(f"{name}, {count} turns, each ratio of one run")
    print(
        f"  append {median['ours']:.2f} ms: {against['plain']:.1f}x record_turn, {against['theirs']:.2f}x its own store"
    )
    print(f"  resume {resumed['ours']:.0f} ms: {resumed['ours'] / resumed['theirs']:.2f}x its own store")
    print(f"  {size['ours']:,} bytes: {size['ours'] / size['theirs']:.2f}x its own store")


def main() -> None:
    """Measure what is installed in this environment, or what was named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of {', '.join(MEASURED)}")
    parser.add_argument("--turns", type=int, default=1_000)
    chosen = parser.parse_args()
    for name in chosen.names:
        if name not in MEASURED:
            parser.error(f"{name!r} is not measured; there are {', '.join(MEASURED)}")
    for name in chosen.names:
        with tempfile.TemporaryDirectory(prefix="onrecord-bench-", ignore_cleanup_errors=True) as place:
            asyncio.run(measured(name, chosen.turns, Path(place)))


if __name__ == "__main__":
    main()
