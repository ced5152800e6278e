"""Following a log while others write it, by polling.

Positions are dense within a session, and a position that the head shows is committed, with everything before it. So a
follower that reads up to the head and remembers that position misses nothing and sees nothing twice, whatever the
writers do. Each poll is a complete read: a waiting follower holds no connection. A store may wake followers (`Waking`);
that shortens the wait, and no follower relies on it.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from onrecord.log.waking import Waking

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from onrecord.log.events import Event
    from onrecord.session.handle import Session

POLL_SECONDS = 0.25
"""How long a follower waits between two polls."""


class Follower:
    """A cursor in one log, and the events that arrived after it since the last poll."""

    def __init__(self, session: Session, after: int, upto: int | None, kinds: Collection[str] | None) -> None:
        self.seen = after
        """The position up to which every event was returned."""
        self._session = session
        self._upto = upto
        self._kinds = kinds

    @property
    def done(self) -> bool:
        """Whether every event up to `upto` has arrived."""
        return self._upto is not None and self.seen >= self._upto

    def look(self) -> Iterator[Event]:
        """The events that arrived since the last poll."""
        stand = self._session.store.head(self._session.id).position
        end = stand if self._upto is None else min(stand, self._upto)
        for event in self._session.events(self.seen, end, self._kinds):
            self.seen = event.position
            yield event
        # Events of other kinds have passed too; an older head, as a replica may return, never moves the cursor back.
        self.seen = max(self.seen, end)


def follow(session: Session, after: int, upto: int | None, kinds: Collection[str] | None) -> Iterator[Event]:
    """Every event after a position, existing and future ones, each once and in order."""
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
