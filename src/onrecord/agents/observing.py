"""Observing an agent on a terminal: what its transcript shows about the present turn, read while it grows.

A terminal program keeps running when a limit stops its turn, and later exits with status 0. So the end of a turn is
read where the vendor wrote it.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onrecord import machine
from onrecord.agents.mirroring import location_of
from onrecord.errors import OnrecordError
from onrecord.log.head import LIVE
from onrecord.vendors.jsonl import near_the_end
from onrecord.vendors.port import FAILED, WORKING, Turn, vendor
from onrecord.vendors.progress import follow, stopped
from onrecord.views.facts import TEXT_LIMIT

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from onrecord.log.events import Event
    from onrecord.session.handle import Session
    from onrecord.vendors.port import Interruption, Location, Mark, Vendor

TAIL_BYTES = 1024 * 1024
"""How much of the end of a transcript shows what its agent is doing."""
SCREEN = "screen"
"""The source of a stop that was read from an agent's screen: only a team's supervisor sees that."""
REPORTED = "retrying"
"""The source of a stop that a program reported while it retries."""
CHUNKS = 8
"""How many parts of a transcript are read at one look; the next look reads on."""
SETTLING_SECONDS = 2.0
"""An error counts after so many seconds without another record: some programs try again at once."""
RETRYING_SECONDS = 20.0
"""While a program says that it tries again, its error counts after so many seconds."""


class Follower:
    """Follows one conversation's transcript, from a mark or from its beginning."""

    def __init__(self, of: Vendor, find: Callable[[], Location | None], mark: Mark | None = None) -> None:
        self.of = of
        self.turn: Turn | None = None
        self._find = find
        self._mark = mark
        self._location: Location | None = None
        self._since = time.monotonic()

    def look(self) -> Turn | None:
        """The present turn, after what was written since the last look."""
        self._location = self._location or self._find()
        before = self.turn
        if self._location is not None and Path(self._location.path).is_file():
            for _chunk in range(CHUNKS):
                chunk = self.of.read(self._location, self._mark)
                self.turn = follow(None if chunk.rewritten else self.turn, chunk.entries, self.of.turn)
                self._mark = chunk.mark
                if not chunk.entries and not chunk.torn:
                    break
        if self.turn != before:
            self._since = time.monotonic()
        return self.turn

    def stopped(self, now: float, *, over: bool = False) -> Interruption | None:
        """Why the turn stopped, once that is certain: the program did not try again, kept failing, or is gone."""
        turn, stood = self.turn, float("inf") if over else time.monotonic() - self._since
        if turn is None or not turn.error:
            return None
        if turn.state == WORKING:
            return stopped(turn._replace(state=FAILED), now) if stood >= RETRYING_SECONDS else None
        return stopped(turn, now) if turn.state == FAILED and stood >= SETTLING_SECONDS else None


def present_turn(session: Session, agent: str, env: Mapping[str, str]) -> Turn | None:
    """What an agent's present conversation shows, read from the end of its transcript; None if that is not known."""
    return Present(session, agent, env).look()


class Present:
    """What an agent's present conversation shows, look after look: only what was added is read again."""

    def __init__(self, session: Session, agent: str, env: Mapping[str, str]) -> None:
        self.session = session
        self.agent = agent
        self.env = env
        self._of: tuple[str, Follower] | None = None
        """The conversation that is followed, by vendor and id."""

    def look(self) -> Turn | None:
        """The present turn; None if it is not known."""
        known = self.session.views.roster.agents.get(self.agent)
        if not known or not known["links"]:
            return None
        link = known["links"][-1]
        try:
            if self._of is None or self._of[0] != f"{link['vendor']}/{link['id']}":
                of = vendor(link["vendor"])
                location = location_of(link, self.env) if of.shows_turns else None
                if location is None or not Path(location.path).is_file():
                    return None
                begin = None if of.shares_file else near_the_end(location.path, TAIL_BYTES)
                self._of = f"{link['vendor']}/{link['id']}", Follower(of, lambda: location, begin)
            return self._of[1].look()
        except (OnrecordError, OSError):
            self._of = None
            return None


def is_wrapped(session: Session) -> bool:
    """Whether a process of ours has the agent's lane: that one records how its turns end."""
    return any(one.lane == session.agent and not machine.is_gone(one.holder) for one in session.log.leases())


def note_stop(session: Session, env: Mapping[str, str], said: str = "", *, retries: bool = False) -> Event | None:
    """Record why the turn of an agent without a wrapper stopped, once; `said` is the error if a hook named it.

    `retries`: the program retries, and only its hook says so; then a wrapper reads it from the record.
    """
    known = session.agents.get()
    if known is None or not known["links"] or known["stop"] or session.head.status not in LIVE:
        return None
    if is_wrapped(session) and not retries:
        return None
    turn = present_turn(session, session.agent, env)
    if said and (turn is None or turn.state != FAILED):  # the hook may be called before the transcript is written
        turn = (turn or Turn(FAILED))._replace(state=FAILED, error=said)
    why = stopped(turn, session.clock()) if turn is not None and turn.state == FAILED else None
    if turn is None or why is None:
        return None
    link = known["links"][-1]
    about = {"via": REPORTED} if retries else {}
    return record_stop(session, why, undone(session, turn), vendor=link["vendor"], vendor_id=link["id"], **about)


def record_stop(session: Session, why: Interruption, left: Mapping[str, Any], **about: Any) -> Event:
    """Record why a run, or a turn on a terminal, stopped, and what it left undone."""
    resets_at = why.resets_at
    if resets_at is None and why.retry_after is not None:
        resets_at = session.clock() + why.retry_after
    detail = {"detail": why.detail[:TEXT_LIMIT]} if why.detail else {}
    return session.agents.record_interruption(why.cause, why.message, resets_at=resets_at, **about, **left, **detail)


def undone(session: Session, turn: Turn | None, prompted: int | None = None) -> dict[str, Any]:
    """What a stop on a terminal left undone: the prompt, and whether the model had begun to answer it.

    `prompted` is the position of our prompt. One that a person typed is recorded now, so that it can be repeated.
    """
    if turn is None or not turn.prompt:
        return {"prompt": prompted, "terminal": True}
    known = session.log.event(prompted).data if prompted else None
    if not known or not turn.prompt.strip().endswith(str(known.get("prompt")).strip()):
        typed = {"prompt": turn.prompt, "agent": session.agent, "typed": True}
        prompted = session.log.record("payload.kept", typed).position
    return {"prompt": prompted, "answered": turn.answered, "terminal": True}
