"""Outlasting limits: wait until a limit ends and resume the agent; repeat at the next limit."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, NamedTuple

from onrecord.agents import waiting
from onrecord.agents.mirroring import mirror_all
from onrecord.agents.resuming import plan_here, users_of
from onrecord.agents.wrapping import Ask
from onrecord.errors import LeaseHeld, LogMoved
from onrecord.machine.wall_clock import local_time
from onrecord.views.needs import LIMITS

if TYPE_CHECKING:
    from collections.abc import Callable

    from onrecord.agents.waiting import Stop
    from onrecord.agents.wrapping import Outcome
    from onrecord.session.handle import Session

ROUNDS_LIMIT = 1_000
"""How many limits in a row one `--wait` outlasts."""


class Outlasted(NamedTuple):
    """How the waiting ended."""

    last: Outcome | None
    """The last run, if there was one."""
    stop: Stop | None = None
    """The stop that waiting does not help with."""
    nothing: bool = False
    """There was no limit, or no further one, to wait for."""


def outlast(
    session: Session, ask: Ask, resume: Callable[[Ask], Outcome], tell: Callable[[str], None], *,
    first: Outcome | None = None,
) -> Outlasted:  # fmt: skip
    """Park the session until the limit ends, resume, and repeat; `first` is a run that was just stopped."""
    last = first
    for _round in range(ROUNDS_LIMIT):
        _await_users(session, tell)
        as_of = session.refresh().head.position
        stop = waiting.last_stop(session, session.agent)
        if not waiting.waitable(stop) and (last is not None or not (ask.prompt or ask.now)):
            if stop is not None and not stop.settled and last is None:
                tell(f"the last stop ({stop.event.data.get('cause')}) needs a person")
            return Outlasted(last, stop, nothing=True)
        if stop is not None and waiting.waitable(stop) and not _park(session, stop, tell):
            return Outlasted(last, stop, nothing=True)
        waiting.unpark(session)
        asking = waiting.again(session, stop, ask, dict(os.environ)) if stop is not None else ask
        try:
            last = resume(asking._replace(as_of=as_of))
        except LogMoved:
            continue  # another process resumed it after we had looked: what is left to do, if anything, is on record
        except LeaseHeld:
            tell("another process resumed it")
            raise
        if last.finished:
            break
        ask = Ask(headless=ask.headless, extra=ask.extra, only_extra=ask.only_extra, anew=ask.anew)
    return Outlasted(last)


def _park(session: Session, stop: Stop, tell: Callable[[str], None]) -> bool:
    parked = waiting.park(session, stop)
    until = local_time(int((stop.until or 0) * 1e6), int(session.clock() * 1e6))
    how = "the session is paused" if parked else "other agents keep working in the session"
    why = LIMITS.get(str(stop.event.data.get("cause")), "a limit")
    tell(f"waiting until {until} because of {why}; {how}; Ctrl-C stops waiting, the same command waits again")
    if waiting.wait(session, stop):
        return True
    tell("another process resumed or ended the session; there is nothing left to wait for")
    return False


def _await_users(session: Session, tell: Callable[[str], None]) -> None:
    """An agent that outlived its wrapper is not disturbed: wait until it has ended."""
    told = False
    while users_of(plan_here(session, session.agent)):
        if not told:
            tell("its process is still running; waiting until it has ended")
            told = True
        time.sleep(waiting.LOOK_SECONDS)
        mirror_all(session, dict(os.environ), agent=session.agent)
