"""Following a log while others write it: look, and look again.

Positions are dense within a session and a position that the head shows is committed, with everything before it. So a
follower that reads up to the head and remembers that place can miss nothing and see nothing twice, whatever the writers
do. Each look reads and ends: a waiting follower holds no connection. A store may know how to be woken (`Waking`); that
shortens the wait and is never relied upon.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from onrecord.log.store import Waking

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from onrecord.log.events import Event
    from onrecord.session.handle import Session

POLL_SECONDS = 0.25
"""How long a follower waits before it looks again."""


class Follower:
    """A place in one log, and what has come after it since the last look."""

    def __init__(self, session: Session, after: int, upto: int | None, kinds: Collection[str] | None) -> None:
        self.seen = after
        """The position up to which everything was given out."""
        self._session = session
        self._upto = upto
        self._kinds = kinds

    @property
    def done(self) -> bool:
        """Whether everything that was asked for has come."""
        return self._upto is not None and self.seen >= self._upto

    def look(self) -> Iterator[Event]:
        """What has come since the last look."""
        stand = self._session.store.head(self._session.id).position
        end = stand if self._upto is None else min(stand, self._upto)
        for event in self._session.events(self.seen, end, self._kinds):
            self.seen = event.position
            yield event
        # Events of other kinds have passed as well; an older head, as a replica may give, takes nothing back.
        self.seen = max(self.seen, end)


def follow(session: Session, after: int, upto: int | None, kinds: Collection[str] | None) -> Iterator[Event]:
    """Every event after a position, those that are there and those that come, each once and in order."""
    follower = Follower(session, after, upto, kinds)
    yield from follower.look()
    if follower.done:
        return
    store = session.store
    if not isinstance(store, Waking):
        while not follower.done:
            time.sleep(POLL_SECONDS)
            yield from follower.look()
        return
    with store.waking(session.id) as wait:
        while not follower.done:
            yield from follower.look()
            if not follower.done:
                wait(POLL_SECONDS)
