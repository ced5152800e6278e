"""pydantic-ai-harness: `StepPersistence` on its `SqliteStepStore`, and on our `OnrecordStepStore`."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from pydantic_ai import Agent
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import FunctionModel
from pydantic_ai_harness.step_persistence import (
    ContinuableSnapshot,
    RunRecord,
    SqliteStepStore,
    StepPersistence,
    continue_run,
)

from onrecord.frameworks.pydantic_steps import OnrecordStepStore
from onrecord.testing.torture.driver import Driver
from onrecord.testing.torture.drivers.ours import Ours
from onrecord.testing.torture.drivers.pydantic_messages import messages_of, texts

if TYPE_CHECKING:
    from collections.abc import Callable

    from onrecord.testing.torture.driver import Turn

VERSION = version("pydantic-ai-harness")


class SqliteStepsDriver(Driver):
    """A turn is a run of a conversation: it is registered, and its history saved as a snapshot, as the capability does.

    Its ids are the same when it is saved again. After a crash the ledger of tool effects is asked first.
    """

    name = f"pydantic-ai-harness {VERSION} SqliteStepStore"

    def __init__(self, directory: str) -> None:
        super().__init__(directory)
        self._steps: Any = self._made()

    def _made(self) -> Any:
        return SqliteStepStore(database=f"{self.directory}/steps.db")

    def write(self, session: str, turn: Turn) -> None:
        asyncio.run(self.awrite(session, turn))

    async def awrite(self, session: str, turn: Turn) -> None:
        run = f"{session}-{turn.key}"
        history = await self._history(session, before=run)
        if await self._steps.get_run(run_id=run) is None:
            now = datetime.fromtimestamp(time.time(), UTC)
            await self._steps.register_run(RunRecord(run_id=run, conversation_id=session, started_at=now))
        messages = [*history, *messages_of(turn)]
        kept = {"run_id": run, "conversation_id": session, "idempotency_key": "0:1:complete"}
        await self._steps.save_snapshot(ContinuableSnapshot(step_index=1, messages=messages, **kept))

    async def _history(self, session: str, before: str = "") -> list[Any]:
        """The messages to continue a conversation with: those of its last run that has a snapshot."""
        for run in reversed(await self._steps.list_runs(conversation_id=session)):
            if run.run_id != before:
                try:
                    return await continue_run(self._steps, run_id=run.run_id)
                except LookupError:
                    continue  # it died before there was a snapshot
        return []

    def read(self, session: str) -> list[str]:
        return texts(asyncio.run(self._history(session)))

    def sessions(self, limit: int) -> list[str]:
        runs = asyncio.run(self._steps.list_runs())
        return list(dict.fromkeys(run.conversation_id for run in reversed(runs)))[:limit]

    def work(self, session: str, tool: Callable[[], str]) -> None:
        asyncio.run(self._run(session, tool, "pay"))

    async def _run(self, session: str, tool: Callable[[], str], prompt: str) -> None:
        def model(messages: list[Any], _info: Any) -> Any:
            told = any(part.part_kind == "tool-return" for message in messages for part in message.parts)
            calls = not told and messages[-1].parts[-1].content == "pay"
            return ModelResponse(parts=[ToolCallPart("pay", {}, tool_call_id="call-1") if calls else TextPart("done")])

        agent = Agent(FunctionModel(model), capabilities=[StepPersistence(store=self._steps)])

        @agent.tool_plain
        def pay() -> str:
            return tool()

        await agent.run(prompt, message_history=await self._history(session), conversation_id=session)

    def go_on(self, session: str, tool: Callable[[], str]) -> None:
        async def run() -> None:
            runs = await self._steps.list_runs(conversation_id=session)
            unknown = [await self._steps.list_unresolved_tool_effects(run_id=run.run_id) for run in runs]
            names = [effect.tool_name for effects in unknown for effect in effects]
            await self._run(session, tool, f"The outcome of {names[0]} is unknown." if names else "pay")

        asyncio.run(run())

    def knows(self, session: str) -> bool:
        history = asyncio.run(self._history(session))
        parts = [part for message in history for part in message.parts]
        return any(part.part_kind == "tool-return" for part in parts) or any(
            "unknown" in text for text in texts(history)
        )


class OurStepsDriver(Ours, SqliteStepsDriver):
    """The same on our log, each turn inside `alone`."""

    name = f"onrecord on pydantic-ai-harness {VERSION}"

    def _made(self) -> Any:
        return OnrecordStepStore(self.store)

    async def awrite(self, session: str, turn: Turn) -> None:
        async with self._steps.alone(session):
            await super().awrite(session, turn)
