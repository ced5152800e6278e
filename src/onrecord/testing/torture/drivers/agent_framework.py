"""agent-framework: `FileHistoryProvider`, and our `OnrecordHistoryProvider` in its place."""

from __future__ import annotations

import asyncio
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from agent_framework import (
    Agent,
    BaseChatClient,
    ChatResponse,
    Content,
    FileHistoryProvider,
    FunctionInvocationLayer,
    Message,
    tool,
)

from onrecord.frameworks.agent_framework import OnrecordHistoryProvider, OnrecordMiddleware
from onrecord.testing.torture.driver import Driver, Turn
from onrecord.testing.torture.drivers.ours import Ours

if TYPE_CHECKING:
    from collections.abc import Callable

VERSION = version("agent-framework-core")


class Scripted(FunctionInvocationLayer, BaseChatClient):
    """Calls the tool until the conversation has a result for it."""

    def _inner_get_response(self, *, messages: Any, stream: bool, options: Any, **_more: Any) -> Any:
        async def answer() -> Any:
            told = any(part.type == "function_result" for one in messages for part in one.contents)
            said = Content.from_text("done") if told else Content.from_function_call("call-1", "pay", arguments={})
            return ChatResponse(messages=[Message("assistant", [said])])

        return answer()


class FileHistoryDriver(Driver):
    """A turn is its messages, saved in one call after the run; answers have the ids that models give them."""

    name = f"agent-framework {VERSION} FileHistoryProvider"

    def __init__(self, directory: str) -> None:
        super().__init__(directory)
        self._history: Any = self._provider()
        self._middleware: list[Any] = []

    def _provider(self) -> Any:
        return FileHistoryProvider(self.directory)

    def write(self, session: str, turn: Turn) -> None:
        asyncio.run(self.awrite(session, turn))

    async def awrite(self, session: str, turn: Turn) -> None:
        asked, *answers = turn.texts
        said = [Message("assistant", [text], message_id=f"{turn.key}-{at}") for at, text in enumerate(answers)]
        await self._history.save_messages(session, [Message("user", [asked]), *said])

    def _messages(self, session: str) -> list[Any]:
        return list(asyncio.run(self._provider().get_messages(session)))

    def read(self, session: str) -> list[str]:
        return [message.text for message in self._messages(session)]

    def _run(self, session: str, function: Callable[[], str], prompt: str) -> None:
        @tool(approval_mode="never_require")
        def pay() -> str:
            """Pay."""
            return function()

        agent: Any = Agent(
            Scripted(), tools=[pay], context_providers=[self._history], middleware=list(self._middleware)
        )
        asyncio.run(agent.run(prompt, session=agent.create_session(session_id=session)))

    def work(self, session: str, tool: Callable[[], str]) -> None:
        self._run(session, tool, "pay")

    def go_on(self, session: str, tool: Callable[[], str]) -> None:
        self._run(session, tool, "Continue.")

    def knows(self, session: str) -> bool:
        return any(part.type == "function_call" for one in self._messages(session) for part in one.contents)


class OurAgentFrameworkDriver(Ours, FileHistoryDriver):
    """The same on our log, each turn inside `alone`."""

    name = f"onrecord on agent-framework {VERSION}"

    def __init__(self, directory: str) -> None:
        super().__init__(directory)
        self._middleware = [OnrecordMiddleware(self._history)]

    def _provider(self) -> Any:
        return OnrecordHistoryProvider(self.store, on_conflict="queue")

    async def awrite(self, session: str, turn: Turn) -> None:
        async with self._history.alone(session):
            await super().awrite(session, turn)
