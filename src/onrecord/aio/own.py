"""The few members of the awaited classes that do not follow from a synchronous verb by rule."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Self

from onrecord.aio.calls import finished, paged, settled
from onrecord.aio.deriving import Awaited
from onrecord.session import effects
from onrecord.session.following import POLL_SECONDS, Follower
from onrecord.session.turns import told

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Collection

    from onrecord.aio import AsyncTurn
    from onrecord.log.events import Event
    from onrecord.log.items import Item
    from onrecord.session.handle import Session
    from onrecord.session.turns import Turn
    from onrecord.views.values import Json


class OwnTurn(Awaited):
    """A turn with awaited steps. Leaving its `async with` block commits it; an exception aborts it."""

    sync: Turn

    def __init__(self, begin: Callable[[], Turn]) -> None:
        self._begin = begin

    async def __aenter__(self) -> Self:
        self.sync = await settled(self._begin)
        return self

    async def __aexit__(self, kind: type[BaseException] | None, problem: BaseException | None, trace: object) -> None:
        await settled(partial(self.sync.__exit__, kind, problem, trace))

    @property
    def position(self) -> int:
        """Where the turn was begun."""
        return self.sync.position

    @property
    def base(self) -> int:
        """The committed position it builds on."""
        return self.sync.base

    @property
    def answer(self) -> list[Item] | None:
        """The items of the committed answer, when this request was answered before and only the reply was lost."""
        return self.sync.answer


class OwnSession(Awaited):
    """A session with awaited verbs."""

    sync: Session

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_problem: object) -> None:
        await settled(self.sync.leave)

    @property
    def id(self) -> str:
        """The session's id."""
        return self.sync.id

    @property
    def agent(self) -> str:
        """The agent that this handle appends as."""
        return self.sync.agent

    def turn(
        self, *, request: Json = None, base: int | None = None, rollback: int = 0, id: str | None = None
    ) -> AsyncTurn:
        """Begin a turn; use it with `async with`. The arguments are those of `Session.turn`."""
        from onrecord.aio import AsyncTurn

        return AsyncTurn(partial(self.sync.turn, request=request, base=base, rollback=rollback, id=id))

    async def follow(
        self, after: int = 0, upto: int | None = None, kinds: Collection[str] | None = None
    ) -> AsyncIterator[Event]:
        """The log, in order, and then new events as they are appended; it ends at `upto`, or never."""
        # A look lasts a moment and the wait between two is a coroutine's: a follower occupies no thread.
        follower = Follower(self.sync, after, upto, kinds)
        while True:
            async for event in paged(follower.look()):
                yield event
            if follower.done:
                return
            await asyncio.sleep(POLL_SECONDS)

    async def once(self, key: str, fn: Callable[[], Awaitable[Json]], *, rerun_unknown: bool = False) -> Json:
        """The recorded result under this key; if there is none, await `fn` and record what it returns."""
        return await finished(asyncio.ensure_future(self._once(key, fn, rerun_unknown=rerun_unknown)))

    async def _once(self, key: str, fn: Callable[[], Awaitable[Json]], *, rerun_unknown: bool) -> Json:
        # No thread waits for `fn`: it may need one itself.
        name = getattr(fn, "__name__", "")
        done, result = await settled(partial(effects.prepare, self.sync, key, name, rerun_unknown=rerun_unknown))
        if done:
            return result
        with effects.running(self.sync, key):
            try:
                made = await fn()
            except Exception as problem:
                await settled(partial(effects.settle, self.sync, key, error=told(problem)))
                raise
            return await settled(partial(effects.conclude, self.sync, key, made))


class OwnStore(Awaited):
    """The sessions of a store, awaited."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_problem: object) -> None:
        await settled(self.sync.close)
