"""The same verbs, awaited: `aio.over(onrecord.connect())`. The only room of the core that knows asyncio.

Nothing is repeated here: the classes follow from the synchronous ones. Their types, for editors and type checkers, are
in `__init__.pyi`, which is generated.
"""

from __future__ import annotations

from onrecord.aio.calls import Outcome, outcome_of
from onrecord.aio.deriving import awaited
from onrecord.aio.hands import settled
from onrecord.aio.own import OwnSession, OwnStore, OwnTurn
from onrecord.session.handle import Session
from onrecord.session.session_store import SessionStore
from onrecord.session.turns import Turn

__all__ = ["AsyncSession", "AsyncSessionStore", "AsyncTurn", "Outcome", "outcome_of", "over", "settled"]

AsyncTurn = awaited(Turn, OwnTurn)
AsyncSession = awaited(Session, OwnSession)
AsyncSessionStore = awaited(SessionStore, OwnStore)


def over(store: SessionStore) -> AsyncSessionStore:
    """The awaited form of what `connect()` returns."""
    return AsyncSessionStore(store)
