"""LangGraph: a graph of messages on its `SqliteSaver` (`AsyncSqliteSaver` where it is awaited), and on our saver."""

from __future__ import annotations

import sqlite3
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import ormsgpack
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.tools import StructuredTool
from langgraph.checkpoint.base.id import uuid6
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.errors import InvalidUpdateError
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode

from onrecord import __version__
from onrecord.frameworks.langgraph import OnrecordSaver
from onrecord.frameworks.langgraph_tools import once
from onrecord.testing.torture.driver import Driver, Refused, Turn
from onrecord.testing.torture.drivers.ours import store_in

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class LangGraphDriver(Driver):
    """A turn is one run of a graph; an agent is a model node and a tool node; a resume is `invoke(None)`."""

    name = f"langgraph {version('langgraph')}, checkpoint-sqlite {version('langgraph-checkpoint-sqlite')}"

    def __init__(self, directory: str) -> None:
        super().__init__(directory)
        self.open()

    def open(self) -> None:
        """Open the store."""
        self._path = f"{self.directory}/checkpoints.db"
        self._database = sqlite3.connect(self._path, check_same_thread=False)
        self.saver: Any = SqliteSaver(self._database)

    def _config(self, session: str) -> Any:
        return {"configurable": {"thread_id": session}}

    def _speaker(self, turn: Turn, saver: Any) -> Any:
        def speak(_state: Any) -> Any:
            return {"messages": [AIMessage(text, id=f"{turn.key}-{n}") for n, text in enumerate(turn.texts[1:], 1)]}

        graph = StateGraph(MessagesState)
        graph.add_node("speak", speak)
        graph.add_edge(START, "speak")
        return graph.compile(checkpointer=saver)

    def _asked(self, turn: Turn) -> Any:
        return {"messages": [HumanMessage(turn.texts[0], id=f"{turn.key}-0")]}

    def write(self, session: str, turn: Turn) -> None:
        self._speaker(turn, self.saver).invoke(self._asked(turn), self._config(session), durability="sync")

    async def awrite(self, session: str, turn: Turn) -> None:
        async with AsyncSqliteSaver.from_conn_string(self._path) as saver:
            graph = self._speaker(turn, saver)
            await graph.ainvoke(self._asked(turn), self._config(session), durability="sync")

    def _messages(self, session: str) -> list[Any]:
        state = self._speaker(Turn("", ("",)), self.saver).get_state(self._config(session))
        return list(state.values.get("messages", []))

    def read(self, session: str) -> list[str]:
        return [message.content for message in self._messages(session)]

    def fill(self, sessions: Sequence[str]) -> None:
        """The last checkpoint of a run, put into each thread under a new id."""
        self.write("first", Turn("x", ("x",)))
        made = self.saver.get_tuple(self._config("first"))
        for session in sessions:
            config = {"configurable": {"thread_id": session, "checkpoint_ns": ""}}
            checkpoint = {**made.checkpoint, "id": str(uuid6(clock_seq=-2))}
            self.saver.put(config, checkpoint, made.metadata, made.checkpoint["channel_versions"])

    def sessions(self, limit: int) -> list[str]:
        found: dict[str, None] = {}
        for one in self.saver.list(None):
            found.setdefault(one.config["configurable"]["thread_id"])
            if len(found) >= limit:
                break
        return list(found)

    def _agent(self, tool: Callable[[], str]) -> Any:
        def model(state: Any) -> Any:
            called = any(getattr(message, "tool_calls", None) for message in state["messages"])
            call = {"name": "pay", "args": {}, "id": "call-1", "type": "tool_call"}
            return {"messages": [AIMessage("done") if called else AIMessage("", tool_calls=[call])]}

        def route(state: Any) -> str:
            return "tools" if state["messages"][-1].tool_calls else END

        pay = StructuredTool.from_function(tool, name="pay", description="Pay.")
        graph = StateGraph(MessagesState)
        graph.add_node("model", model)
        graph.add_node("tools", self.tool_node(pay))
        graph.add_edge(START, "model")
        graph.add_conditional_edges("model", route)
        graph.add_edge("tools", "model")
        return graph.compile(checkpointer=self.saver)

    def tool_node(self, tool: Any) -> Any:
        """The node that runs the tool."""
        return ToolNode([tool])

    def work(self, session: str, tool: Callable[[], str]) -> None:
        self._agent(tool).invoke({"messages": [HumanMessage("pay")]}, self._config(session), durability="sync")

    def go_on(self, session: str, tool: Callable[[], str]) -> None:
        self._agent(tool).invoke(None, self._config(session), durability="sync")

    def knows(self, session: str) -> bool:
        return any(getattr(message, "tool_calls", None) for message in self._messages(session))

    @classmethod
    def bombs(cls, command: str) -> list[bytes]:
        named = ormsgpack.Ext(0, ormsgpack.packb(("os", "system", command)))
        return [*super().bombs(command), ormsgpack.packb(named)]

    def close(self) -> None:
        self._database.close()


class OnrecordLangGraphDriver(LangGraphDriver):
    """The same graph on our saver: runs of a thread wait for one another (`alone`), tools are wrapped by `once`."""

    name = f"langgraph {version('langgraph')} on onrecord {__version__}"
    durability = "full"

    def open(self) -> None:
        """Open the store."""
        self.store = store_in(self.directory, self.durability)
        self.saver = OnrecordSaver(self.store, on_conflict="queue")

    def fill(self, sessions: Sequence[str]) -> None:
        """The same, without syncs."""
        quick = type("Quick", (type(self),), {"durability": "fast"})(self.directory)
        super(OnrecordLangGraphDriver, quick).fill(sessions)
        quick.close()

    def write(self, session: str, turn: Turn) -> None:
        try:
            with self.saver.alone(session):
                super().write(session, turn)
        except InvalidUpdateError as problem:
            raise Refused(str(problem)) from problem

    async def awrite(self, session: str, turn: Turn) -> None:
        graph = self._speaker(turn, self.saver)
        async with self.saver.aalone(session):
            await graph.ainvoke(self._asked(turn), self._config(session), durability="sync")

    def tool_node(self, tool: Any) -> Any:
        """The node that runs the tool."""
        return ToolNode([tool], wrap_tool_call=once(self.saver))

    def is_sound(self) -> bool:
        return all(self.store.get(head.session).verify().ok for head in self.store.sessions(limit=20))

    def close(self) -> None:
        self.store.close()
