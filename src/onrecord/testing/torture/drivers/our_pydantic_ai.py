"""pydantic-ai on our log: `OnrecordConversationStore`, loaded before and saved after each run."""

from __future__ import annotations

import asyncio
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from pydantic_ai import Agent
from pydantic_ai.conversation import Conversation
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import FunctionModel

from onrecord.frameworks.pydantic_ai import OnrecordCapability, OnrecordConversationStore
from onrecord.testing.torture.drivers.ours import Ours
from onrecord.testing.torture.drivers.pydantic_messages import messages_of, texts

if TYPE_CHECKING:
    from collections.abc import Callable

    from onrecord.testing.torture.driver import Turn


class OurPydanticDriver(Ours):
    """A turn is its messages, with the id of their run, saved in one step inside `alone`."""

    name = f"onrecord on pydantic-ai {version('pydantic-ai-slim')}"

    def __init__(self, directory: str) -> None:
        super().__init__(directory)
        self._conversations = OnrecordConversationStore(self.store, on_conflict="queue")

    async def _load(self, session: str) -> Any:
        return await self._conversations.load(session) or Conversation(conversation_id=session)

    def sessions(self, limit: int) -> list[str]:
        return [one.conversation_id for one in asyncio.run(self._conversations.read_records(limit=limit))]

    def write(self, session: str, turn: Turn) -> None:
        asyncio.run(self.awrite(session, turn))

    async def awrite(self, session: str, turn: Turn) -> None:
        async with self._conversations.alone(session):
            conversation = await self._load(session)
            conversation.messages += messages_of(turn)
            await self._conversations.save(conversation)

    def read(self, session: str) -> list[str]:
        return texts(asyncio.run(self._load(session)).messages)

    def work(self, session: str, tool: Callable[[], str]) -> None:
        def model(messages: list[Any], _info: Any) -> Any:
            if any(part.part_kind == "tool-return" for message in messages for part in message.parts):
                return ModelResponse(parts=[TextPart("done")])
            return ModelResponse(parts=[ToolCallPart("pay", {}, tool_call_id="call-1")])

        agent = Agent(FunctionModel(model), capabilities=[OnrecordCapability(self._conversations)])

        @agent.tool_plain
        def pay() -> str:
            return tool()

        async def run() -> None:
            await self._conversations.save(await agent.run("pay", conversation=await self._load(session)))

        asyncio.run(run())

    def go_on(self, session: str, tool: Callable[[], str]) -> None:
        self.work(session, tool)

    def knows(self, session: str) -> bool:
        messages = asyncio.run(self._load(session)).messages
        return any(part.part_kind == "tool-return" for message in messages for part in message.parts)
