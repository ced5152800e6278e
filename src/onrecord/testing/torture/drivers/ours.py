"""What the drivers of our own adapters share: a store of onrecord, listed and verified by onrecord."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onrecord import connection
from onrecord.log.store import PAGE_LIMIT
from onrecord.testing.torture.driver import Driver

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onrecord.session.session_store import SessionStore


def store_in(directory: str, durability: str) -> SessionStore:
    """The store of a driver."""
    return connection.connect(f"sqlite:///{directory}/record.db?durability={durability}", project="/torture")


class Ours(Driver):
    """A framework on our log."""

    durability = "full"

    def __init__(self, directory: str) -> None:
        self.store = store_in(directory, self.durability)
        super().__init__(directory)

    def sessions(self, limit: int) -> list[str]:
        return [head.name for head in self.store.sessions(limit=min(limit, PAGE_LIMIT))]

    def fill(self, sessions: Sequence[str]) -> None:
        """Without a sync for each; they are listed once, as an application that has so many has done before."""
        quick = type(self.__class__.__name__, (type(self),), {"durability": "fast"})(self.directory)
        super(Ours, quick).fill(sessions)
        quick.sessions(len(sessions))
        quick.close()

    def is_sound(self) -> bool:
        return all(self.store.get(head.session).verify().ok for head in self.store.sessions(limit=20))

    def close(self) -> None:
        self.store.close()
