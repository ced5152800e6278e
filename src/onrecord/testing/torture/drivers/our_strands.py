"""Strands on our log: `OnrecordRepository`, used as the hooks of an agent use it, each turn inside `alone`."""

from __future__ import annotations

from contextlib import contextmanager
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from strands import Agent
from strands.session.repository_session_manager import RepositorySessionManager
from strands.types.exceptions import SessionException

from onrecord.frameworks.strands import OnrecordHooks, OnrecordRepository
from onrecord.testing.torture.driver import Refused
from onrecord.testing.torture.drivers.ours import Ours
from onrecord.testing.torture.drivers.strands import ScriptedModel, StrandsDriver

if TYPE_CHECKING:
    from collections.abc import Iterator

    from onrecord.testing.torture.driver import Turn


class OurStrandsDriver(Ours, StrandsDriver):
    """A turn is its messages, appended by the session manager one by one."""

    name = f"onrecord on strands-agents {version('strands-agents')}"

    def __init__(self, directory: str) -> None:
        super().__init__(directory)
        self._open: dict[str, tuple[Any, Any]] = {}
        self._repository = OnrecordRepository(self.store)

    def _agent(self, session: str, tools: list[Any] | None = None) -> tuple[Any, Any]:
        if tools is not None or session not in self._open:
            manager = RepositorySessionManager(session_id=session, session_repository=self._repository)
            agent = Agent(
                agent_id="main", model=ScriptedModel(), session_manager=manager, tools=tools or [],
                hooks=[OnrecordHooks(self._repository, session)], callback_handler=None,
            )  # fmt: skip
            self._open[session] = agent, manager
        return self._open[session]

    def write(self, session: str, turn: Turn) -> None:
        with self._alone(session):
            super().write(session, turn)

    async def awrite(self, session: str, turn: Turn) -> None:
        with self._alone(session):
            await super().awrite(session, turn)

    @contextmanager
    def _alone(self, session: str) -> Iterator[None]:
        self._agent(session)
        try:
            with self._repository.alone(session):
                yield
        except SessionException as problem:
            self._open.pop(session, None)
            raise Refused(str(problem)) from problem
