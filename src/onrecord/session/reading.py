"""Reading the recent end of a long log without reading all of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onrecord.log.codec import open_records
from onrecord.views.transcript import TURN_KINDS, Transcript

if TYPE_CHECKING:
    from collections.abc import Callable

    from onrecord.log.events import Record
    from onrecord.session.handle import Session
    from onrecord.views.transcript import Turn

TAIL_PAGE = 32
"""How many events the first read from the end of a log fetches; each further read fetches twice as many."""


def recent_turns(
    session: Session, enough: Callable[[list[Turn]], bool], *, after: int = 0, upto: int | None = None
) -> tuple[list[Turn], bool]:
    """The last committed turns of this handle's agent, oldest first; and whether none after `after` is missing."""
    records: list[Record] = []
    page = TAIL_PAGE
    while True:
        oldest = records[0].position - 1 if records else upto
        found = session.store.read(session.id, after=after, upto=oldest, kinds=TURN_KINDS, limit=page, backwards=True)
        records[:0] = reversed(found)
        turns = Transcript().fold(open_records(r for r in records if r.by == session.agent)).committed
        if len(found) < page:
            return turns, True
        if enough(turns):
            return turns, False
        page *= 2


def last_turn(session: Session) -> Turn | None:
    """The newest turn of any agent, committed or not, as far as the end of the log shows it."""
    found = session.store.read(session.id, kinds=TURN_KINDS, limit=TAIL_PAGE, backwards=True)
    told = Transcript().fold(open_records(reversed(found)))
    turns = [*told.committed, *told.provisional]
    return max(turns, key=lambda turn: max(turn.begun, turn.ended), default=None)
