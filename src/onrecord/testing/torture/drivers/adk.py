"""Google ADK: its runner on `SqliteSessionService` and `DatabaseSessionService` (SQLite), and on our service."""

from __future__ import annotations

import asyncio
import time
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from google.adk.agents import LlmAgent
from google.adk.apps import App, ResumabilityConfig
from google.adk.events import Event
from google.adk.models import BaseLlm, LlmResponse
from google.adk.runners import Runner
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.genai import types

from onrecord import __version__
from onrecord.frameworks.google_adk import OnrecordPlugin, OnrecordSessionService
from onrecord.testing.torture.driver import Driver, Turn
from onrecord.testing.torture.drivers.ours import store_in

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Sequence

APP, USER = "torture", "user"
SIDE_BY_SIDE = 32
"""How many sessions are begun at the same time."""


class ScriptedLlm(BaseLlm):
    """Calls the tool until the conversation has a result for it."""

    model: str = "scripted"

    async def generate_content_async(self, llm_request: Any, stream: bool = False) -> AsyncGenerator[Any, None]:  # noqa: FBT001, FBT002  # the framework's signature
        """One answer."""
        told = any(part.function_response for content in llm_request.contents for part in content.parts or ())
        part = types.Part(text="done") if told else types.Part(function_call=types.FunctionCall(name="pay", args={}))
        yield LlmResponse(content=types.Content(role="model", parts=[part]))


class SqliteDriver(Driver):
    """A turn is its events, appended one by one as the runner does; a resume is by invocation id."""

    name = f"google-adk {version('google-adk')} SqliteSessionService"

    def __init__(self, directory: str) -> None:
        super().__init__(directory)
        self._loop = asyncio.new_event_loop()
        self._services: dict[Any, Any] = {}
        self._known: dict[tuple[Any, str], Any] = {}

    def make(self) -> Any:
        """The service."""
        return SqliteSessionService(f"{self.directory}/sessions.db")

    def _service(self) -> Any:
        return self._services.setdefault(asyncio.get_running_loop(), None) or self._made()

    def _made(self) -> Any:
        made = self._services[asyncio.get_running_loop()] = self.make()
        return made

    async def _session(self, session: str, *, fresh: bool = False) -> Any:
        key = (asyncio.get_running_loop(), session)
        if fresh or key not in self._known:
            service = self._service()
            about = {"app_name": APP, "user_id": USER, "session_id": session}
            self._known[key] = await service.get_session(**about) or await service.create_session(**about)
        return self._known[key]

    def write(self, session: str, turn: Turn) -> None:
        self._loop.run_until_complete(self.awrite(session, turn))

    async def awrite(self, session: str, turn: Turn) -> None:
        kept = await self._session(session)
        for number, text in enumerate(turn.texts):
            content = types.Content(role="model" if number else "user", parts=[types.Part(text=text)])
            event = Event(
                id=f"{turn.key}-{number}", invocation_id=turn.key, author="torture" if number else "user",
                content=content, timestamp=time.time(),
            )  # fmt: skip
            await self._service().append_event(kept, event)

    def read(self, session: str) -> list[str]:
        async def events() -> list[str]:
            kept = await self._session(session, fresh=True)
            return [event.content.parts[0].text for event in kept.events]

        return self._loop.run_until_complete(events())

    def fill(self, sessions: Sequence[str]) -> None:
        """Some at the same time: the service has no faster way."""

        async def begin(session: str) -> None:
            made = await self._service().create_session(app_name=APP, user_id=USER, session_id=session)
            content = types.Content(role="user", parts=[types.Part(text="x")])
            event = Event(invocation_id="x", author="user", content=content, timestamp=time.time())
            await self._service().append_event(made, event)

        async def all_of_them() -> None:
            for at in range(0, len(sessions), SIDE_BY_SIDE):
                await asyncio.gather(*(begin(session) for session in sessions[at : at + SIDE_BY_SIDE]))

        self._loop.run_until_complete(all_of_them())

    def sessions(self, limit: int) -> list[str]:
        async def listed() -> list[str]:
            found = await self._service().list_sessions(app_name=APP, user_id=USER)
            newest = sorted(found.sessions, key=lambda one: -one.last_update_time)
            return [one.id for one in newest[:limit]]

        return self._loop.run_until_complete(listed())

    def _runner(self, tool: Callable[[], str]) -> Any:
        def pay() -> str:
            """Pay."""
            return tool()

        agent = LlmAgent(name="torture", model=ScriptedLlm(), tools=[pay])
        resumable = ResumabilityConfig(is_resumable=True)
        app = App(name=APP, root_agent=agent, resumability_config=resumable, plugins=self.plugins())
        return Runner(app=app, session_service=self._service())

    def plugins(self) -> list[Any]:
        """What the app uses besides."""
        return []

    def work(self, session: str, tool: Callable[[], str]) -> None:
        async def run() -> None:
            await self._session(session)
            said = types.Content(role="user", parts=[types.Part(text="pay")])
            async for _event in self._runner(tool).run_async(user_id=USER, session_id=session, new_message=said):
                pass

        self._loop.run_until_complete(run())

    def go_on(self, session: str, tool: Callable[[], str]) -> None:
        async def run() -> None:
            kept = await self._session(session, fresh=True)
            last = kept.events[-1].invocation_id
            async for _event in self._runner(tool).run_async(user_id=USER, session_id=session, invocation_id=last):
                pass

        self._loop.run_until_complete(run())

    def knows(self, session: str) -> bool:
        async def called() -> bool:
            kept = await self._session(session, fresh=True)
            parts = [part for event in kept.events if event.content for part in event.content.parts or ()]
            return any(part.function_call for part in parts)

        return self._loop.run_until_complete(called())

    def close(self) -> None:
        self._loop.close()


class DatabaseDriver(SqliteDriver):
    """The same on SQLAlchemy."""

    name = f"google-adk {version('google-adk')} DatabaseSessionService"

    def make(self) -> Any:
        """The service."""
        from google.adk.sessions import DatabaseSessionService  # it needs SQLAlchemy

        return DatabaseSessionService(f"sqlite+aiosqlite:///{self.directory}/sessions.db")


class OnrecordAdkDriver(SqliteDriver):
    """The same on our service: turns of a session wait for one another (`alone`), tools are on record (the plugin)."""

    name = f"google-adk {version('google-adk')} on onrecord {__version__}"

    durability = "full"

    def __init__(self, directory: str) -> None:
        super().__init__(directory)
        self.store = store_in(directory, self.durability)

    def fill(self, sessions: Sequence[str]) -> None:
        """The same without syncs; they are listed once, as an application that has so many has done before."""
        quick = type("Quick", (type(self),), {"durability": "fast"})(self.directory)
        super(OnrecordAdkDriver, quick).fill(sessions)
        quick.sessions(len(sessions))
        quick.close()

    def make(self) -> Any:
        """The service."""
        return OnrecordSessionService(self.store, on_conflict="queue")

    def plugins(self) -> list[Any]:
        """Tool calls are on record."""
        return [OnrecordPlugin(self._service())]

    async def awrite(self, session: str, turn: Turn) -> None:
        await self._session(session)
        async with self._service().alone(app_name=APP, user_id=USER, session_id=session):
            await self._session(session, fresh=True)
            await super().awrite(session, turn)

    def is_sound(self) -> bool:
        return all(self.store.get(head.session).verify().ok for head in self.store.sessions(limit=20))

    def close(self) -> None:
        super().close()
        self.store.close()
