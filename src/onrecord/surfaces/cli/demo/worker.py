"""The two processes of the demo: one records and is killed, one continues. Both report what was acknowledged.

A line is written only after the append returned, so whatever the parent reads was on disk before.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any

from onrecord.connection import connect
from onrecord.surfaces.cli.shared.output import dump
from onrecord.surfaces.cli.shared.shapes import describe

if TYPE_CHECKING:
    from onrecord.log.events import Event
    from onrecord.session.handle import Session

SESSION = "fix-invite-403"
AGENT = "main"
OBJECTIVE = "Fix intermittent 403 after invite acceptance"
EFFECT = "reseed-staging"
ENDLESS = 10_000
"""How many probes the worker would make if it were not killed."""


class Teller:
    """Passes on what was acknowledged, at a pace people can follow."""

    def __init__(self, pace: float) -> None:
        self._pace = pace

    def event(self, event: Event) -> Event:
        """One event that is on record."""
        self.tell(
            "acknowledged", position=event.position, id=event.id, kind=event.kind, text=describe(event),
            pause=self._pace,
        )  # fmt: skip
        return event

    def tell(self, what: str, *, pause: float = 0.0, **about: Any) -> None:
        """One line to the parent."""
        sys.stdout.write(dump({"what": what} | about) + "\n")
        sys.stdout.flush()
        time.sleep(pause)


def work(words: list[str]) -> int:
    """Record a session about a bug, and be killed in the middle of its third turn."""
    url, pace = words[0], float(words[1])
    told = Teller(pace)
    records = connect(url)
    session = records.open(SESSION, agent=AGENT, objective=OBJECTIVE)
    for event in session.events():
        told.event(event)
    _reproduce(session, told)
    _reject_middleware(session, told)
    with session.turn() as turn:
        told.event(session.log.event(turn.position))
        told.event(turn.user("Then look at the membership row."))
        told.event(turn.assistant("Comparing the commit of the row with the first request.", tool_calls=[
            {"id": "c3", "name": "bash", "arguments": {"cmd": "tools/trace-invite --watch"}},
        ]))  # fmt: skip
        told.event(session.effects.start(EFFECT, "bash", {"cmd": "tools/reseed staging"}))
        told.tell("in the middle of a turn")
        for number in range(1, ENDLESS):
            told.event(turn.assistant(f"probe {number}: membership row not visible to the replica yet"))
    return 0


def _reproduce(session: Session, told: Teller) -> None:
    with session.turn() as turn:
        told.event(session.log.event(turn.position))
        told.event(turn.user("Some invited users get a 403 on their first request. Why?"))
        told.event(turn.assistant("Reproducing first.", tool_calls=[
            {"id": "c1", "name": "bash", "arguments": {"cmd": "pytest -k invite --count 10"}},
        ]))  # fmt: skip
        told.event(turn.tool("c1", "3 failed, 7 passed: 403 right after accept"))
    told.event(session.log.event(_last_commit(session)))
    told.event(session.facts.set_reproduction("accept an invite, then request /team at once", rate="3/10"))
    told.event(session.decide("Reproduce before touching the middleware", why="two earlier fixes were guesses"))


def _reject_middleware(session: Session, told: Teller) -> None:
    with session.turn() as turn:
        told.event(session.log.event(turn.position))
        told.event(turn.user("Is it the auth middleware?"))
        told.event(turn.assistant("Switching it off for the test route.", tool_calls=[
            {"id": "c2", "name": "bash", "arguments": {"cmd": "AUTH_CACHE=off pytest -k invite --count 10"}},
        ]))  # fmt: skip
        told.event(turn.tool("c2", "still 3 of 10 fail"))
    told.event(session.log.event(_last_commit(session)))
    told.event(session.evidence.record("log", id="run-2.log", reference="still 3 of 10 fail"))
    told.event(session.findings.state("The auth middleware caches a stale role", "rejected", evidence=["run-2.log"]))
    told.event(session.evidence.record("trace", id="trace-7", reference="403 before the row is visible"))
    told.event(
        session.findings.state("The 403 comes before the membership row is visible", "verified", evidence=["trace-7"])
    )
    told.event(
        session.facts.set_next_action("Read memberships from the primary after accept", command="pytest -k invite")
    )


def _last_commit(session: Session) -> int:
    return int(session.agents.lane()["last_commit"])


def resume(words: list[str]) -> int:
    """Take over the dead process's lane, report what it finds, and continue."""
    url, pace = words[0], float(words[1])
    told = Teller(pace)
    records = connect(url)
    before = records.leases(records.find(SESSION).session)
    started = time.perf_counter()
    session = records.open(SESSION, agent=AGENT)
    taken = time.perf_counter() - started
    told.tell(
        "took the lane", milliseconds=round(taken * 1000, 1), dead=before[0].holder.get("pid") if before else None
    )
    tail = session.transcript(AGENT).provisional
    told.tell(
        "read the record", position=session.head.position, brief=session.brief(), unknown=[*session.effects.unknown()]
    )
    told.tell("found the tail", turns=len(tail), items=sum(len(turn.items) for turn in tail))
    told.event(session.effects.settle(EFFECT, error="it had not happened: the staging database is as it was"))
    with session.turn() as turn:
        told.event(session.log.event(turn.position))
        told.event(turn.user("Continue from the record."))
        told.event(turn.assistant("The read after accept goes to a replica. Reading from the primary.", tool_calls=[
            {"id": "c4", "name": "bash", "arguments": {"cmd": "pytest -k invite --count 10"}},
        ]))  # fmt: skip
        told.event(turn.tool("c4", "10 passed"))
    told.event(session.log.event(_last_commit(session)))
    told.event(session.decide("Read memberships from the primary for five seconds after accept"))
    told.event(session.facts.set_next_action("Open the pull request", command="git push"))
    left = session.transcript(AGENT)
    told.tell("superseded the tail", provisional=len(left.provisional), superseded=len(left.superseded))
    session.leave()
    records.close()
    return 0
