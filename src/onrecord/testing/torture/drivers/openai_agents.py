"""openai-agents: `SQLiteSession`, used as its runner uses it."""

from __future__ import annotations

import asyncio
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from agents import Agent, Runner, SQLiteSession, function_tool, set_tracing_disabled
from agents.testing import ScriptedModel, assistant_message, function_call

from onrecord.testing.torture.driver import Driver, Turn

if TYPE_CHECKING:
    from collections.abc import Callable

set_tracing_disabled(True)


class OpenAIAgentsDriver(Driver):
    """The runner saves what the user said first, and the answers after the tools have run."""

    name = f"openai-agents {version('openai-agents')} SQLiteSession"

    def _session(self, session: str) -> Any:
        return SQLiteSession(session, f"{self.directory}/sessions.db")

    def write(self, session: str, turn: Turn) -> None:
        asyncio.run(self.awrite(session, turn))

    async def awrite(self, session: str, turn: Turn) -> None:
        kept = self._session(session)
        try:
            await kept.add_items([{"role": "user", "content": turn.texts[0]}])
            answers: list[Any] = [
                {"id": f"{turn.key}-{number}", "role": "assistant", "type": "message", "status": "completed",
                 "content": [{"type": "output_text", "text": text, "annotations": []}]}
                for number, text in enumerate(turn.texts[1:], 1)
            ]  # fmt: skip
            await kept.add_items(answers)
        finally:
            kept.close()

    def _items(self, session: str) -> list[Any]:
        kept = self._session(session)
        try:
            return list(asyncio.run(kept.get_items()))
        finally:
            kept.close()

    def read(self, session: str) -> list[str]:
        said = [item["content"] for item in self._items(session)]
        return [one if isinstance(one, str) else one[0]["text"] for one in said]

    def _run(self, session: str, tool: Callable[[], str], prompt: str, steps: list[Any]) -> None:
        def pay() -> str:
            return tool()

        agent = Agent(name="torture", model=ScriptedModel(steps), tools=[function_tool(pay)])
        kept = self._session(session)
        asyncio.run(Runner.run(agent, prompt, session=kept))
        kept.close()

    def work(self, session: str, tool: Callable[[], str]) -> None:
        steps = [[function_call("pay", {}, call_id="call-1")], [assistant_message("done")]]
        self._run(session, tool, "pay", steps)

    def go_on(self, session: str, tool: Callable[[], str]) -> None:
        if self.knows(session):
            self._run(session, tool, "Continue.", [[assistant_message("done")]])
        else:
            self.work(session, tool)

    def knows(self, session: str) -> bool:
        return any(item.get("type", "").startswith("function_call") for item in self._items(session))
