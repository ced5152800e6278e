"""Reading the recent end of a long log without reading all of it."""

from __future__ import annotations

from onrecord.errors import InvalidInput
from onrecord.lean_typing import TYPE_CHECKING
from onrecord.log.codec import open_records
from onrecord.views.conversations import SUBLANE
from onrecord.views.happenings import Recent
from onrecord.views.lanes import PROVISIONAL_LIMIT
from onrecord.views.progress import LOOK_BACK_TURNS
from onrecord.views.transcript import SHARED_KINDS, TURN_KINDS, Transcript

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Any

    from onrecord.log.events import Event, Record
    from onrecord.log.item_values import Item
    from onrecord.session.handle import Session
    from onrecord.views.transcript import Turn

_TELLING = (*TURN_KINDS, "tool.used")
RECENT_TURNS = 5
"""How many of the last turns of each agent a note looks at."""
AGENTS_SHOWN = 5
"""How many agents an error names."""
TAIL_LIMIT = 4_096
"""How many events a note looks at to find where the last turn of each agent at work began."""
TAIL_PAGE = 32
"""How many events the first read from the end of a log fetches; each further read fetches twice as many."""


def speaker(session: Session) -> Session:
    """The handle whose agent's turns are meant: a handle that names no agent reads those of the only one there is."""
    from onrecord.session.handle import DEFAULT_ACTOR, Session

    if session.agent != DEFAULT_ACTOR or session.views.lanes.lane(DEFAULT_ACTOR)["turns"]:
        return session
    agents = sorted({turn.agent for turn in session.transcript() if SUBLANE not in turn.agent})
    if len(agents) > 1 and DEFAULT_ACTOR not in agents:
        shown = ", ".join(agents[:AGENTS_SHOWN]) + (", ..." if len(agents) > AGENTS_SHOWN else "")
        raise InvalidInput(
            f"session {session.name!r} has turns of {len(agents)} agents ({shown}), and this handle names none of them",
            hint=f'name one: store.get("{session.name}", agent="{agents[0]}")',
        )
    if len(agents) != 1:
        return session
    return Session(session.store, session.id, agent=agents[0], clock=session.clock)


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
    """The newest turns and tools of each agent, as far as the end of the log shows them.

    It shows at least one turn of the session, and one of every agent at work that has a turn in its present run.
    """
    here = _here(session) if upto is None else {}
    records: list[Record] = []
    page = TAIL_PAGE
    while True:
        oldest = records[0].position - 1 if records else upto
        found = session.store.read(session.id, upto=oldest, kinds=_TELLING, limit=page, backwards=True)
        records[:0] = reversed(found)
        made = recent_of(list(open_records(records)), here)
        shown = {turn.agent for turn in made.turns}
        missing = [name for name, joined in here.items() if name not in shown and found and joined < found[-1].position]
        own = any(SUBLANE not in name for name in shown)
        if (own and not missing) or len(found) < page or len(records) >= TAIL_LIMIT:
            return made  # while a turn is long, its beginning is further back
        page *= 2


def _here(session: Session) -> dict[str, int]:
    """The agents at work, and where the present run of each begins."""
    return {name: agent.get("joined", 0) for name, agent in session.views.roster.agents.items() if agent["here"]}


def recent_of(events: Sequence[Event], here: Iterable[str] = ()) -> Recent:
    """The newest turns and tools of each agent, from these events; `here` were at work when they began."""
    told = Transcript().presume(here).fold(event for event in events if event.kind in TURN_KINDS)
    turns = sorted([*told.committed, *told.provisional], key=lambda turn: max(turn.begun, turn.ended))
    lanes: dict[str, list[Turn]] = {}
    for turn in turns:
        if SUBLANE not in turn.agent:
            lanes.setdefault(turn.agent, []).append(turn)
    own = [turn for lane in lanes.values() for turn in lane[-RECENT_TURNS:]]
    since = min((turn.begun for turn in own), default=0)
    tools: list[Mapping[str, Any]] = [
        {**event.data, "call": event.id.rpartition("/")[2], "agent": event.by}
        for event in events
        if event.kind == "tool.used" and isinstance(event.data, dict)
    ]
    return Recent([turn for turn in turns if turn in own or (SUBLANE in turn.agent and turn.begun > since)], tools)


def tail(session: Session) -> list[Turn]:
    """The turns that are not committed, of all agents, without reading what is before them."""
    lanes = session.views.lanes.lanes.values()
    if any(len(lane["provisional"]) >= PROVISIONAL_LIMIT for lane in lanes):
        return session.transcript().provisional
    begun = [turn["position"] for lane in lanes for turn in lane["provisional"]]
    begun += [lane["open"]["position"] for lane in lanes if lane["open"]]
    begun += [turn.begun for turn in recent(session).turns]
    if not begun:
        return []
    records = session.store.read(session.id, after=min(begun) - 1, kinds=TURN_KINDS)
    return Transcript().presume(_here(session)).fold(open_records(records)).provisional


def recent_items(session: Session) -> list[Item]:
    """The items of the last committed turns: whether the agent still makes progress."""
    turns, _complete = recent_turns(session, lambda found: len(found) >= LOOK_BACK_TURNS)
    return [item for turn in turns[-LOOK_BACK_TURNS:] for item in turn.items]
