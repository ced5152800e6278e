"""Reading the recent end of a long log without reading all of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onrecord.log.codec import open_records
from onrecord.views.happenings import Recent
from onrecord.views.transcript import SHARED_KINDS, TURN_KINDS, Transcript

if TYPE_CHECKING:
    from collections.abc import Callable

    from onrecord.log.events import Record
    from onrecord.session.handle import Session
    from onrecord.views.transcript import Turn

RECENT_TURNS = 5
"""How many of the last turns a note looks at."""
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
        mine = (r for r in records if r.by == session.agent or r.kind in SHARED_KINDS)
        turns = Transcript(session.agent).fold(open_records(mine)).committed
        if len(found) < page:
            return turns, True
        if enough(turns):
            return turns, False
        page *= 2


def recent(session: Session, upto: int | None = None) -> Recent:
    """The newest turns and tools of any agent, as far as the end of the log shows them."""
    kinds = (*TURN_KINDS, "tool.used")
    found = session.store.read(session.id, upto=upto, kinds=kinds, limit=TAIL_PAGE, backwards=True)
    events = list(open_records(reversed(found)))
    told = Transcript().fold(event for event in events if event.kind != "tool.used")
    turns = sorted([*told.committed, *told.provisional], key=lambda turn: max(turn.begun, turn.ended))
    tools = [
        {**event.data, "call": event.id.rpartition("/")[2]}
        for event in events
        if event.kind == "tool.used" and isinstance(event.data, dict)
    ]
    return Recent(turns[-RECENT_TURNS:], tools)
