"""Lists that continue one another, kept once: every checkpoint or snapshot has all messages before it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Sequence

E = TypeVar("E")


class Listed(Generic[E]):
    """A list that shares its beginning with the list it continues."""

    __slots__ = ("buffer", "length")

    def __init__(self, buffer: list[E], length: int) -> None:
        self.buffer, self.length = buffer, length

    def followed_by(self, kept: int, more: Sequence[E]) -> Listed[E]:
        """The list with its first `kept` elements and then `more`."""
        if kept == len(self.buffer):
            self.buffer.extend(more)
            return Listed(self.buffer, kept + len(more))
        if self.buffer[kept : kept + len(more)] == more:
            return Listed(self.buffer, kept + len(more))  # the same list was asked for before
        return Listed([*self.buffer[:kept], *more], kept + len(more))

    def refs(self) -> list[E]:
        """Its elements."""
        return self.buffer[: self.length]
