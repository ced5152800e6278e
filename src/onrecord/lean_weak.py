"""What our modules use of `weakref`, without importing `weakref`: a table whose keys may end.

A hook would load three modules of the standard library for it.
"""

from __future__ import annotations

from _weakref import ref

from onrecord.lean_typing import Generic, TypeVar

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

K = TypeVar("K")
V = TypeVar("V")


class WeakKeys(Generic[K, V]):
    """Values by objects, which are compared by identity and not kept alive."""

    def __init__(self) -> None:
        self._rows: dict[int, tuple[ref[K], V]] = {}

    def __setitem__(self, key: K, value: V) -> None:
        """Set the value of an object."""
        rows, number = self._rows, id(key)
        rows[number] = (ref(key, lambda _ended: rows.pop(number, None)), value)

    def get(self, key: K) -> V | None:
        """The value of an object; None if it has none."""
        row = self._rows.get(id(key))
        return None if row is None else row[1]

    def discard(self, key: K) -> None:
        """Forget an object."""
        self._rows.pop(id(key), None)

    def __iter__(self) -> Iterator[K]:
        """The objects that are alive now."""
        living = [row[0]() for row in list(self._rows.values())]
        return iter([one for one in living if one is not None])
