"""The driver: how the torture uses a store. One small class for each framework."""

from __future__ import annotations

import asyncio
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

from onrecord.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


_NAMED = "name a class of a module that Python can import from here, for instance my_package.torture:MyDriver"


class Turn(NamedTuple):
    """One turn to save: what was said, in order, first by the user, and the key under which a retry may find it."""

    key: str
    texts: tuple[str, ...]


class Refused(Exception):
    """The store refused a write and said so. Nothing of it may be there."""


class Driver:
    """A store in a directory of its own. Every process makes its own driver; several processes share a directory."""

    name = "a store"
    """What is attacked, with its version."""

    def __init__(self, directory: str) -> None:
        self.directory = directory

    def write(self, session: str, turn: Turn) -> None:
        """Save a turn as the framework's runner does; return when the framework says that it is saved."""
        raise NotImplementedError("the driver has no `write`")

    def read(self, session: str) -> list[str]:
        """The texts of a session in their order, as the framework would send them to a model."""
        raise NotImplementedError("the driver has no `read`")

    def fill(self, sessions: Sequence[str]) -> None:
        """Begin many sessions, in this order, each with a message: as quickly as the store can, durable or not.

        Only the list of them is measured.
        """
        for session in sessions:
            self.write(session, Turn("x", ("x",)))

    def sessions(self, limit: int) -> Sequence[str]:
        """The newest sessions; `NotImplementedError` if the framework cannot list them."""
        raise NotImplementedError("the driver has no `sessions`")

    def work(self, session: str, tool: Callable[[], str]) -> None:
        """Run an agent whose model calls this tool once, and answers when it has the result."""
        raise NotImplementedError("the driver has no `work`")

    def go_on(self, session: str, tool: Callable[[], str]) -> None:
        """Continue after a crash as the framework means it. The model calls the tool if nothing says it was called."""
        raise NotImplementedError("the driver has no `go_on`")

    def knows(self, session: str) -> bool:
        """Whether the conversation that a model gets has the call of the tool, or what became of it."""
        raise NotImplementedError("the driver has no `knows`")

    async def awrite(self, session: str, turn: Turn) -> None:
        """The same as `write`, awaited; a framework without it uses a thread."""
        await asyncio.to_thread(self.write, session, turn)

    def is_sound(self) -> bool | None:
        """The store's own check, which its user can ask for: False if it finds damage; None if there is no such check.

        No read asks for it. The suite asks for it about damaged copies only, and counts separately what it finds.
        """
        return None

    @classmethod
    def bombs(cls, command: str) -> list[bytes]:
        """Bytes that would run a shell command if the store trusts what it reads."""
        return [f"cos\nsystem\n(S'{command}'\ntR.".encode()]

    def close(self) -> None:
        """Release the store."""


def driver_class(path: str) -> type[Driver]:
    """The class that a `module:Class` names."""
    module, _, name = path.partition(":")
    if not module or not name:
        raise InvalidInput(f"a driver is named as `module:Class`, not {path!r}", hint=_NAMED)
    try:
        found = getattr(import_module(module), name, None)
    except ModuleNotFoundError as missing:
        raise InvalidInput(f"{path} cannot be imported: {missing}", hint=_NAMED) from missing
    if not (isinstance(found, type) and issubclass(found, Driver)):
        raise InvalidInput(f"{module} has no subclass of Driver with the name {name}", hint=_NAMED)
    return found
