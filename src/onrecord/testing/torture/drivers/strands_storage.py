"""Strands: `SnapshotSessionManager` on its `LocalFileStorage`, and on our `OnrecordStorage`."""

from __future__ import annotations

import asyncio
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from strands import Agent
from strands.hooks import MessageAddedEvent
from strands.session.snapshot_session_manager import SnapshotSessionManager
from strands.storage.local_file_storage import LocalFileStorage

from onrecord.frameworks.strands import OnrecordHooks
from onrecord.frameworks.strands_storage import OnrecordStorage
from onrecord.testing.torture.drivers.ours import Ours
from onrecord.testing.torture.drivers.strands import ScriptedModel, StrandsDriver, messages_of

if TYPE_CHECKING:
    from onrecord.testing.torture.driver import Turn


class StorageDriver(StrandsDriver):
    """A turn is its messages, each followed by a snapshot of the agent: the most durable way (`save_latest_on`)."""

    name = f"strands-agents {version('strands-agents')} LocalFileStorage"

    def __init__(self, directory: str) -> None:
        super().__init__(directory)
        self._storage: Any = self._made()

    def _made(self) -> Any:
        return LocalFileStorage(self.directory)

    def _hooks(self, _session: str) -> list[Any]:
        return []

    def _agent(self, session: str, tools: list[Any] | None = None) -> tuple[Any, Any]:
        if tools is not None or session not in self._open:
            manager = SnapshotSessionManager(session, storage=self._storage, save_latest_on="message")
            agent = Agent(
                agent_id="main", model=ScriptedModel(), session_manager=manager, tools=tools or [],
                hooks=self._hooks(session), callback_handler=None,
            )  # fmt: skip
            self._open[session] = agent, manager
        return self._open[session]

    def write(self, session: str, turn: Turn) -> None:
        asyncio.run(self.awrite(session, turn))

    async def awrite(self, session: str, turn: Turn) -> None:
        agent, _manager = self._agent(session)
        for message in messages_of(turn):
            agent.messages.append(message)
            await agent.hooks.invoke_callbacks_async(MessageAddedEvent(agent=agent, message=message))


class OurStorageDriver(Ours, StorageDriver):
    """The same on our log, each turn inside `alone`, by an agent that was restored there."""

    name = f"onrecord on strands-agents {version('strands-agents')} Storage"

    def _made(self) -> Any:
        return OnrecordStorage(self.store, on_conflict="queue")

    def _hooks(self, session: str) -> list[Any]:
        return [OnrecordHooks(self._storage, session)]

    async def awrite(self, session: str, turn: Turn) -> None:
        async with self._storage.alone(session):
            self._open.pop(session, None)
            await super().awrite(session, turn)
