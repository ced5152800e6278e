"""Ranges of positions: what erasures name. Adding a range that is known costs nothing, however long it is."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


class Ranges:
    """A set of positions, kept as disjoint ranges in order."""

    __slots__ = ("_firsts", "_lasts")

    def __init__(self) -> None:
        self._firsts: list[int] = []
        self._lasts: list[int] = []

    def add(self, first: int, last: int) -> None:
        """Add the positions from `first` to `last`."""
        if first > last:
            return
        low = bisect_left(self._lasts, first - 1)
        high = bisect_right(self._firsts, last + 1)
        if low < high:  # it touches these: they become one
            first, last = min(first, self._firsts[low]), max(last, self._lasts[high - 1])
        self._firsts[low:high] = [first]
        self._lasts[low:high] = [last]

    def __contains__(self, position: object) -> bool:
        if not isinstance(position, int):
            return False
        at = bisect_left(self._lasts, position)
        return at < len(self._lasts) and self._firsts[at] <= position


def within(positions: list[int], ranges: Iterable[tuple[int, int]]) -> list[int]:
    """Those of some sorted positions that lie in the ranges, in order."""
    found: set[int] = set()
    for first, last in ranges:
        found.update(positions[bisect_left(positions, first) : bisect_right(positions, last)])
    return sorted(found)
