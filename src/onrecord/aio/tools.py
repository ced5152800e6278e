"""Tools, awaited: coroutine functions (or plain ones, on a thread) whose calls are effects of a session."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable
from functools import partial, update_wrapper
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from onrecord.aio.calls import finished
from onrecord.aio.hands import settled
from onrecord.errors import ToolTimedOut
from onrecord.session import effects
from onrecord.session.chapter import told
from onrecord.session.tools import AnyTool, Ran, answer, as_text, by_name, chosen, is_awaited, pending, said_of, within

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from onrecord.session.handle import Session
    from onrecord.session.tools import Pending
    from onrecord.session.turns import Turn
    from onrecord.views.values import Json


P = ParamSpec("P")
R = TypeVar("R")


class AsyncTool(AnyTool[P, Awaitable[R] | R]):
    """A function that runs as an effect of a session. Call it like the function, and await it."""

    async def __call__(self, /, *args: P.args, **named: P.kwargs) -> R:
        """Run it once, ever, with these arguments; the same call again returns the recorded result."""
        arguments = self.bound(*args, **named)
        return await self.run(await settled(partial(self.key, arguments)), arguments)

    async def run(self, key: str, arguments: dict[str, Json]) -> R:
        """Run it once, ever, under a key of your own."""
        call = partial(self._call, key, arguments, [])
        made: R = await once(self.session, key, call, self.name, rerun=self.safe_to_repeat, arguments=arguments)
        return made

    async def _call(self, key: str, arguments: dict[str, Json], failed: list[BaseException]) -> Json:
        bound = inspect.BoundArguments(inspect.signature(self.fn), arguments)
        call: partial[Any] = partial(self.fn, *bound.args, **bound.kwargs)
        limit = asyncio.timeout(self.timeout)
        try:
            if is_awaited(self.fn):
                async with limit:
                    return await call()
            if self.timeout is not None:
                call = partial(within, self.session, key, self.name, call, self.timeout)
            made = await settled(call)
            if inspect.isawaitable(made):  # of a plain function around a coroutine function, such as a decorator's
                async with limit:
                    return await made
            return made
        except ToolTimedOut:
            raise
        except Exception as problem:
            if isinstance(problem, TimeoutError) and limit.expired():  # if not expired, it is the tool's own
                raise ToolTimedOut(f"{self.name} did not return within {self.timeout:g} s", key=key) from None
            failed.append(problem)
            raise


async def once(
    session: Session, key: str, fn: Callable[[], Awaitable[Json]], name: str, *, rerun: bool, arguments: Json = None
) -> Json:
    """The recorded result under a key; if there is none, await `fn` and record what it returns."""
    return await finished(asyncio.ensure_future(_once(session, key, fn, name, rerun=rerun, arguments=arguments)))


async def _once(
    session: Session, key: str, fn: Callable[[], Awaitable[Json]], name: str, *, rerun: bool, arguments: Json
) -> Json:
    # No thread waits for `fn`: it may need one itself.
    prepare = partial(effects.prepare, session, key, name, rerun_unknown=rerun, arguments=arguments)
    done, result = await settled(prepare)
    if done:
        return result
    with effects.running(session, key):
        try:
            made = await fn()
        except ToolTimedOut:
            raise  # it may have happened: the effect stays unknown
        except Exception as problem:
            await settled(partial(effects.settle, session, key, error=told(problem)))
            raise
        return await settled(partial(effects.conclude, session, key, made))


def tool(
    session: Session, fn: Callable[..., Any] | None, *, name: str, safe_to_repeat: bool, timeout: float | None
) -> Callable[..., Json]:
    """A tool, or the decorator that makes one."""
    make = partial(AsyncTool, session, name=name, safe_to_repeat=safe_to_repeat, timeout=timeout)
    return make if fn is None else make(fn)


async def run_tools(turn: Turn, tools: Iterable[Any]) -> int:
    """Answer every call of the open turn that has no result yet. They run at the same time."""
    known = by_name(turn.session, tools, AsyncTool)
    waiting = pending(turn.items, turn.origin)
    ran = await asyncio.gather(*(_run(turn.session, one, known) for one in waiting))
    for one, result in zip(waiting, ran, strict=True):
        await settled(partial(answer, turn.tool, one.call["id"], result))
    return len(waiting)


async def _run(session: Session, one: Pending, known: dict[str, Any]) -> Ran:
    found = chosen(one.call, known)
    if isinstance(found, Ran):
        return found
    given, arguments = found
    failed: list[BaseException] = []
    # A tool of a synchronous session or of another one may be used too: the key is a position in the log of this one.
    function = AsyncTool(session, given.fn, name=given.name, safe_to_repeat=given.safe_to_repeat, timeout=given.timeout)
    call = partial(function._call, one.key, arguments, failed)  # noqa: SLF001  # its own part, written as a function
    update_wrapper(call, function.fn)
    try:
        made = await once(
            function.session, one.key, call, function.name, rerun=function.safe_to_repeat, arguments=arguments
        )
    except Exception as problem:  # noqa: BLE001  # what is not for the model is raised again there
        return said_of(problem, one.call["name"], failed)
    return Ran(as_text(made), error=False)
