"""How a class with awaited verbs follows from a synchronous one: verb by verb, by what the verb returns.

`tools/aio_stub.py` writes the types of the derived classes to `aio/__init__.pyi` by the same rules.
"""

from __future__ import annotations

import inspect
from contextlib import AbstractContextManager, asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from onrecord.aio.hands import paged, settled

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

VALUE, READ, CHAPTER, VERB, SELF, SESSION, ITERATOR, BLOCK = (
    "value", "read", "chapter", "verb", "self", "session", "iterator", "block",
)  # fmt: skip
"""What a member becomes: a property as it is, an awaited read, a chapter of awaited verbs, an awaited verb; one that
returns itself, a session, an async iterator, or is an `async with` block."""
READS = frozenset({"views"})
"""Properties that read the store: they become verbs."""
_MADE: dict[type, type] = {}


class Awaited:
    """Holds the synchronous object that does the work."""

    sync: Any

    def __init__(self, sync: Any) -> None:
        self.sync = sync


def kind_of(name: str, member: Any) -> str:
    """What a public member of a synchronous class becomes; "" for one that stays inside."""
    if isinstance(member, property):
        answer = str(getattr(member.fget, "__annotations__", {}).get("return", ""))
        return READ if name in READS else CHAPTER if answer.endswith("Verbs") else VALUE
    if not inspect.isfunction(member):
        return ""
    answer = str(member.__annotations__.get("return", ""))
    if answer.startswith("Iterator["):
        return BLOCK if hasattr(member, "__wrapped__") else ITERATOR
    return {"Self": SELF, "Session": SESSION}.get(answer, VERB)


def members_of(of: type) -> dict[str, Any]:
    """The public members of a class, inherited ones included."""
    return {name: inspect.getattr_static(of, name) for name in dir(of) if not name.startswith("_")}


def awaited(of: type, base: type = Awaited) -> type:
    """The class with the verbs of `of`, awaited; what `base` has by hand stays. Made once for each class."""
    if of not in _MADE:
        _MADE[of] = _made(of, base)
    return _MADE[of]


def _made(of: type, base: type) -> type:
    members: dict[str, Any] = {"__doc__": f"{of.__name__}, awaited. {of.__doc__}", "__module__": "onrecord.aio"}
    for name, member in members_of(of).items():
        if not hasattr(base, name) and (make := _MAKERS.get(kind_of(name, member))):
            members[name] = make(name, member)
    return type(f"Async{of.__name__}", (base,), members)


def bare(value: Any) -> Any:
    """The synchronous object of an awaited one; anything else as it is."""
    return value.sync if isinstance(value, Awaited) else value


def _called(verb: Callable[..., Any], self: Awaited, args: tuple[Any, ...], named: dict[str, Any]) -> Callable[[], Any]:
    return partial(verb, self.sync, *map(bare, args), **{name: bare(value) for name, value in named.items()})


def _value(name: str, member: Any) -> property:
    def read(self: Awaited) -> Any:
        return getattr(self.sync, name)

    return property(read, doc=member.__doc__)


def _chapter(name: str, member: Any) -> property:
    def read(self: Awaited) -> Any:
        chapter = getattr(self.sync, name)
        return awaited(type(chapter))(chapter)

    return property(read, doc=member.__doc__)


def _read(name: str, member: Any) -> Callable[..., Any]:
    async def call(self: Awaited) -> Any:
        return await settled(lambda: getattr(self.sync, name))

    return _named(call, name, member)


def _verb(name: str, member: Any) -> Callable[..., Any]:
    async def call(self: Awaited, /, *args: Any, **named: Any) -> Any:
        return await settled(_called(member, self, args, named))

    return _named(call, name, member)


def _self(name: str, member: Any) -> Callable[..., Any]:
    async def call(self: Awaited, /, *args: Any, **named: Any) -> Any:
        await settled(_called(member, self, args, named))
        return self

    return _named(call, name, member)


def _session(name: str, member: Any) -> Callable[..., Any]:
    async def call(self: Awaited, /, *args: Any, **named: Any) -> Any:
        from onrecord.aio import AsyncSession

        return AsyncSession(await settled(_called(member, self, args, named)))

    return _named(call, name, member)


def _iterator(name: str, member: Any) -> Callable[..., Any]:
    async def call(self: Awaited, /, *args: Any, **named: Any) -> AsyncIterator[Any]:
        async for one in paged(await settled(_called(member, self, args, named))):
            yield one

    return _named(call, name, member)


def _block(name: str, member: Any) -> Callable[..., Any]:
    async def call(self: Awaited, /, *args: Any, **named: Any) -> AsyncIterator[Any]:
        block: AbstractContextManager[Any] = _called(member, self, args, named)()
        made = await settled(block.__enter__)
        try:
            yield made
        except BaseException as problem:
            if not await settled(partial(block.__exit__, type(problem), problem, problem.__traceback__)):
                raise
        else:
            await settled(partial(block.__exit__, None, None, None))

    return asynccontextmanager(_named(call, name, member))


def _named(call: Callable[..., Any], name: str, member: Any) -> Callable[..., Any]:
    call.__name__, call.__qualname__, call.__doc__ = name, name, member.__doc__
    return call


_MAKERS: dict[str, Callable[[str, Any], Any]] = {
    VALUE: _value, READ: _read, CHAPTER: _chapter, VERB: _verb, SELF: _self, SESSION: _session, ITERATOR: _iterator,
    BLOCK: _block,
}  # fmt: skip
