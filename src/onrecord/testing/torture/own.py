"""The driver for onrecord's own store: the plain loop on a SQLite file."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from onrecord import __version__, aio, connection
from onrecord.log.items import text_of
from onrecord.testing.torture.driver import Driver, Turn

if TYPE_CHECKING:
    from collections.abc import Callable

    from onrecord.session.handle import Session


class OnrecordDriver(Driver):
    """A turn is a recorded turn; an agent is the loop of docs/guide/loop.md."""

    name = f"onrecord {__version__}"

    def __init__(self, directory: str) -> None:
        super().__init__(directory)
        self.store = connection.connect(f"{directory}/record.db", project="/torture")
        self._open: dict[str, Session] = {}

    def _session(self, name: str) -> Session:
        if name not in self._open:
            self._open[name] = self.store.open(name, agent="main")
        return self._open[name]

    def write(self, session: str, turn: Turn) -> None:
        self._session(session).record_turn(messages(turn), id=turn.key)

    async def awrite(self, session: str, turn: Turn) -> None:
        opened = await aio.settled(lambda: self._session(session))
        await aio.AsyncSession(opened).record_turn(messages(turn), id=turn.key)

    def read(self, session: str) -> list[str]:
        return [text_of(item) for item in self.store.get(session).transcript("main").items]

    def sessions(self, limit: int) -> list[str]:
        return [head.name for head in self.store.sessions(limit=limit)]

    def work(self, session: str, tool: Callable[[], str]) -> None:
        self._loop(session, tool, [call_of("pay"), {"content": "done"}])

    def go_on(self, session: str, tool: Callable[[], str]) -> None:
        self._loop(session, tool, [{"content": "done"}])

    def _loop(self, session: str, tool: Callable[[], str], answers: list[dict[str, Any]]) -> None:
        opened = self._session(session)
        pay = opened.tool(tool, name="pay")
        with opened.turn(resume=True) as turn:
            if not turn.resumed:
                turn.user("pay")
            while not turn.done:
                turn.run_tools(pay)
                answer = answers.pop(0)
                turn.messages("openai")
                turn.reply({"choices": [{"message": {"role": "assistant", **answer}}], "model": "scripted"})

    def knows(self, session: str) -> bool:
        return any(item["role"] == "tool" for item in self.store.get(session, agent="main").messages())

    def is_sound(self) -> bool:
        return all(self.store.get(head.session).verify().ok for head in self.store.sessions(limit=20))

    def close(self) -> None:
        for session in self._open.values():
            session.leave()
        self.store.close()


def messages(turn: Turn) -> list[dict[str, Any]]:
    """The texts of a turn as messages: the user's first."""
    return [{"role": "assistant" if number else "user", "content": text} for number, text in enumerate(turn.texts)]


def call_of(name: str, **arguments: Any) -> dict[str, Any]:
    """A message that calls a tool."""
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {"tool_calls": [{"id": "call_1", "type": "function", "function": function}]}
