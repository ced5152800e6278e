"""Waking: an optional ability of a store, which a follower looks for. Apart from the port, which every hook loads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager


@runtime_checkable
class Waking(Protocol):
    """An optional ability of a store: wake the followers of a session before their next poll."""

    def waking(self, session: str) -> AbstractContextManager[Callable[[float], None]]:
        """A wait that ends after so many seconds, or earlier when the session may have new events.

        Only a hint: it may end early without new events, and it may miss an append. The caller reads the head
        afterwards.
        """
