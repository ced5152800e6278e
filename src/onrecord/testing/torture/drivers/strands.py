"""Strands: `FileSessionManager`, used as the hooks of an agent use it."""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING, Any
from uuid import NAMESPACE_OID, uuid5

from strands import Agent, tool
from strands.hooks import MessageAddedEvent
from strands.models import Model
from strands.session.file_session_manager import FileSessionManager

from onrecord.testing.torture.driver import Driver, Turn

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable


class ScriptedModel(Model):
    """Calls the tool until the conversation has a result for it."""

    def update_config(self, **model_config: Any) -> None:
        """Nothing to configure."""

    def get_config(self) -> Any:
        """Nothing is configured."""
        return {}

    async def structured_output(self, *_args: Any, **_named: Any) -> Any:
        """Not used."""
        raise NotImplementedError
        yield

    async def stream(self, messages: Any, *_args: Any, **_named: Any) -> AsyncIterator[Any]:
        """One answer."""
        told = any("toolResult" in block for message in messages for block in message["content"])
        yield {"messageStart": {"role": "assistant"}}
        if told:
            yield {"contentBlockStart": {"start": {}}}
            yield {"contentBlockDelta": {"delta": {"text": "done"}}}
        else:
            yield {"contentBlockStart": {"start": {"toolUse": {"name": "pay", "toolUseId": "call-1"}}}}
            yield {"contentBlockDelta": {"delta": {"toolUse": {"input": "{}"}}}}
        yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": "end_turn" if told else "tool_use"}}


def messages_of(turn: Turn) -> list[Any]:
    """A turn as messages, each with the id that the agent gave it, which a retry has too."""
    return [
        {"role": "assistant" if number else "user", "content": [{"text": text}],
         "tracking_id": str(uuid5(NAMESPACE_OID, f"{turn.key}/{number}"))}
        for number, text in enumerate(turn.texts)
    ]  # fmt: skip


class StrandsDriver(Driver):
    """A turn is its messages, appended by the session manager one by one."""

    name = f"strands-agents {version('strands-agents')} FileSessionManager"

    def __init__(self, directory: str) -> None:
        super().__init__(directory)
        self._open: dict[str, tuple[Any, Any]] = {}

    def _agent(self, session: str, tools: list[Any] | None = None) -> tuple[Any, Any]:
        if tools is not None or session not in self._open:
            manager = FileSessionManager(session_id=session, storage_dir=self.directory)
            agent = Agent(
                agent_id="main",
                model=ScriptedModel(),
                session_manager=manager,
                tools=tools or [],
                callback_handler=None,
            )
            self._open[session] = agent, manager
        return self._open[session]

    def write(self, session: str, turn: Turn) -> None:
        agent, manager = self._agent(session)
        for message in messages_of(turn):
            manager.append_message(message, agent)

    async def awrite(self, session: str, turn: Turn) -> None:
        """As `invoke_async` does: each message by the hooks of the agent."""
        agent, _manager = self._agent(session)
        for message in messages_of(turn):
            await agent.hooks.invoke_callbacks_async(MessageAddedEvent(agent=agent, message=message))

    def read(self, session: str) -> list[str]:
        return [message["content"][0].get("text", "") for message in self._fresh(session).messages]

    def _fresh(self, session: str) -> Any:
        return self._agent(session, [])[0]

    def _run(self, session: str, function: Callable[[], str], prompt: str) -> None:
        @tool
        def pay() -> str:
            """Pay."""
            return function()

        self._agent(session, [pay])[0](prompt)

    def work(self, session: str, tool: Callable[[], str]) -> None:
        self._run(session, tool, "pay")

    def go_on(self, session: str, tool: Callable[[], str]) -> None:
        self._run(session, tool, "Continue.")

    def knows(self, session: str) -> bool:
        blocks = [block for message in self._fresh(session).messages for block in message["content"]]
        return any("toolUse" in block or "toolResult" in block for block in blocks)
