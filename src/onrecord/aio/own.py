"""The few members of the awaited classes that do not follow from a synchronous verb by rule."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, NoReturn, ParamSpec, Protocol, Self, TypeVar, overload

from onrecord.aio import tools
from onrecord.aio.deriving import Awaited
from onrecord.aio.hands import paged, settled
from onrecord.errors import TurnConflict
from onrecord.session.following import POLL_SECONDS, Follower

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Collection

    from onrecord.aio import AsyncTurn
    from onrecord.log.events import Event
    from onrecord.log.item_values import Item
    from onrecord.session.handle import Session
    from onrecord.session.turns import Turn
    from onrecord.views.values import Json


P = ParamSpec("P")
R = TypeVar("R")


class Decorator(Protocol):
    """Makes a tool of a function."""

    @overload
    def __call__(self, fn: Callable[P, Awaitable[R]], /) -> tools.AsyncTool[P, R]: ...

    @overload
    def __call__(self, fn: Callable[P, R], /) -> tools.AsyncTool[P, R]: ...


class OwnTurn(Awaited):
    """A turn with awaited steps. Leaving its `async with` block commits it; an exception aborts it."""

    sync: Turn

    def __init__(self, begin: Callable[[], Turn]) -> None:
        self._begin = begin

    if not TYPE_CHECKING:  # a type checker would take every misspelt name for an attribute

        def __getattr__(self, name: str) -> NoReturn:
            if name == "sync":
                raise TurnConflict("this turn has not begun", hint="`async with session.turn() as turn:` begins it")
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)

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

    @property
    def committed(self) -> Event | None:
        """The event that committed it, once it is committed."""
        return self.sync.committed

    @property
    def aborted(self) -> Event | None:
        """The event that aborted it, once it is aborted."""
        return self.sync.aborted

    @property
    def items(self) -> list[Item]:
        """What was said in this turn so far."""
        return self.sync.items

    @property
    def resumed(self) -> int:
        """Where the turn began that this one continues; 0 if it is a new one."""
        return self.sync.resumed

    async def run_tools(self, /, *functions: Callable[..., Json]) -> int:
        """Run every tool call that has no result yet, at the same time, and add the results.

        The functions may be coroutine functions; see `Turn.run_tools` for the rest.
        """
        self.sync.must_be_open()
        return await tools.run_tools(self.sync, functions)


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
        self, *, request: Json = None, base: int | None = None, rollback: int = 0, id: str | None = None,
        resume: bool = False,
    ) -> AsyncTurn:  # fmt: skip
        """Begin a turn; use it with `async with`. The arguments are those of `Session.turn`."""
        from onrecord.aio import AsyncTurn

        begin = partial(self.sync.turn, request=request, base=base, rollback=rollback, id=id, resume=resume)
        return AsyncTurn(begin)

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

    async def once(
        self, key: str, fn: Callable[[], Awaitable[Json]], *, rerun_unknown: bool = False, arguments: Json = None
    ) -> Json:
        """The recorded result under this key; if there is none, await `fn` and record what it returns."""
        name = getattr(fn, "__name__", "")
        return await tools.once(self.sync, key, fn, name, rerun=rerun_unknown, arguments=arguments)

    @overload
    def tool(
        self, fn: Callable[P, Awaitable[R]], /, *, name: str = "", safe_to_repeat: bool = False,
        timeout: float | None = None,
    ) -> tools.AsyncTool[P, R]: ...  # fmt: skip

    @overload
    def tool(
        self, fn: Callable[P, R], /, *, name: str = "", safe_to_repeat: bool = False, timeout: float | None = None
    ) -> tools.AsyncTool[P, R]: ...

    @overload
    def tool(
        self, fn: None = None, /, *, name: str = "", safe_to_repeat: bool = False, timeout: float | None = None
    ) -> Decorator: ...

    def tool(
        self, fn: Callable[..., Json] | None = None, /, *, name: str = "", safe_to_repeat: bool = False,
        timeout: float | None = None,
    ) -> Callable[..., Json]:  # fmt: skip
        """A function as a tool, awaited: each call is recorded before and after, and runs once. Also a decorator."""
        return tools.tool(self.sync, fn, name=name, safe_to_repeat=safe_to_repeat, timeout=timeout)


class OwnStore(Awaited):
    """The sessions of a store, awaited."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_problem: object) -> None:
        await settled(self.sync.close)
