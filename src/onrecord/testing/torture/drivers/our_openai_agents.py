"""openai-agents on our log: `OnrecordSession`, used as the runner uses it, each turn inside `async with`."""

from __future__ import annotations

import asyncio
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from agents import Agent, Runner, function_tool
from agents.testing import ScriptedModel

from onrecord.frameworks.openai_agents import OnrecordSession
from onrecord.testing.torture.drivers.openai_agents import OpenAIAgentsDriver
from onrecord.testing.torture.drivers.ours import Ours

if TYPE_CHECKING:
    from collections.abc import Callable

    from onrecord.testing.torture.driver import Turn


class OurOpenAIAgentsDriver(Ours, OpenAIAgentsDriver):
    """The runner saves what the user said first, and the answers after the tools have run."""

    name = f"onrecord on openai-agents {version('openai-agents')}"

    def __init__(self, directory: str) -> None:
        super().__init__(directory)
        self._open: dict[str, Any] = {}

    def _session(self, session: str) -> Any:
        if session not in self._open:
            self._open[session] = OnrecordSession(session, self.store, on_conflict="queue")
        return self._open[session]

    async def awrite(self, session: str, turn: Turn) -> None:
        async with self._session(session):
            await super().awrite(session, turn)

    def _run(self, session: str, tool: Callable[[], str], prompt: str, steps: list[Any]) -> None:
        def pay() -> str:
            return tool()

        agent = Agent(name="torture", model=ScriptedModel(steps), tools=[function_tool(pay)])
        kept = self._session(session)
        asyncio.run(Runner.run(agent, prompt, session=kept, hooks=kept.hooks()))
