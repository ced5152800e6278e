"""The Claude Agent SDK on our log: `OnrecordSessionStore`, used as the SDK's mirror and hooks use it."""

from __future__ import annotations

import asyncio
import json
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from claude_agent_sdk import project_key_for_directory

from onrecord.frameworks.claude_agent_sdk import OnrecordSessionStore
from onrecord.testing.torture.drivers.ours import Ours

if TYPE_CHECKING:
    from collections.abc import Callable

    from onrecord.testing.torture.driver import Turn

PROJECT = project_key_for_directory("/torture")


class OurClaudeDriver(Ours):
    """A turn is a batch of entries; the command line itself is not run, its entries and hook calls are."""

    name = f"onrecord on claude-agent-sdk {version('claude-agent-sdk')}"

    def __init__(self, directory: str) -> None:
        super().__init__(directory)
        self._kept = OnrecordSessionStore(self.store)

    def sessions(self, limit: int) -> list[str]:
        return [one["session_id"] for one in asyncio.run(self._kept.list_sessions(PROJECT))[:limit]]

    def _key(self, session: str) -> dict[str, str]:
        return {"project_key": PROJECT, "session_id": session}

    def write(self, session: str, turn: Turn) -> None:
        asyncio.run(self.awrite(session, turn))

    async def awrite(self, session: str, turn: Turn) -> None:
        batch = [
            entry(f"{turn.key}-{number}", "assistant" if number else "user", text)
            for number, text in enumerate(turn.texts)
        ]
        await self._kept.append(self._key(session), batch)

    def _entries(self, session: str) -> list[Any]:
        return asyncio.run(self._kept.load(self._key(session))) or []

    def read(self, session: str) -> list[str]:
        return [one["message"]["content"] for one in self._entries(session)]

    def work(self, session: str, tool: Callable[[], str]) -> None:
        asyncio.run(self._work(session, tool))

    async def _work(self, session: str, tool: Callable[[], str]) -> None:
        hooks, key = self._kept.hooks("/torture"), self._key(session)
        use = {"type": "tool_use", "id": "call-1", "name": "pay", "input": {}}
        if not await self._kept.load(key):
            await self._kept.append(key, [entry("u1", "user", "pay"), entry("u2", "assistant", [use])])
        given = {"session_id": session, "tool_name": "pay", "tool_input": {}, "tool_use_id": "call-1"}
        before = {**given, "hook_event_name": "PreToolUse"}
        if not await hooks["PreToolUse"][0].hooks[0](before, "call-1", None):
            said = tool()
            after = {**given, "hook_event_name": "PostToolUse", "tool_response": said}
            await hooks["PostToolUse"][0].hooks[0](after, "call-1", None)
            result = {"type": "tool_result", "tool_use_id": "call-1", "content": said}
            await self._kept.append(key, [entry("u3", "user", [result])])

    def go_on(self, session: str, tool: Callable[[], str]) -> None:
        self.work(session, tool)

    def knows(self, session: str) -> bool:
        return "tool_use" in json.dumps(self._entries(session))


def entry(uuid: str, role: str, content: Any) -> dict[str, Any]:
    """One entry of a transcript."""
    return {"type": role, "uuid": uuid, "message": {"role": role, "content": content}}
