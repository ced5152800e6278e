"""What a supervisor does next: a pure function from what it sees to what it does.

An agent that crashed is resumed; one that was restarted on purpose starts a new conversation; one that hit a limit
waits for its reset; one that keeps crashing is degraded and left alone until a person starts it again. One that
finished its work is not started again.
"""

from __future__ import annotations

from typing import NamedTuple

WINDOW_SECONDS = 120.0
"""Restarts within this time count against an agent."""
RESTARTS_LIMIT = 5
"""After so many restarts within the window an agent is degraded: the supervisor does not start it again."""
FIRST_PAUSE = 1.0
"""How long the second restart waits, in seconds; each further one within the window waits twice as long."""
LONGEST_PAUSE = 30.0
"""No restart waits longer than this, in seconds."""

FRESH, RESUMED = "fresh", "resumed"
NOTHING, START, END = "nothing", "start", "end"
WORKING, IDLE, NEEDS_PERSON, LIMITED, RESTARTING, DEGRADED, FINISHED, STOPPED = (
    "working", "idle", "needs_person", "limited", "restarting", "degraded", "finished", "stopped",
)  # fmt: skip
"""An idle agent did what it was asked and its terminal is open; one that needs a person asked something, or failed."""
RUNS = frozenset({WORKING, IDLE, NEEDS_PERSON})
"""States in which its program is open."""
OVER = frozenset({DEGRADED, FINISHED, STOPPED})
"""States in which the supervisor leaves an agent alone."""


class Observed(NamedTuple):
    """What is known of one agent at a moment."""

    wanted: bool
    """Whether the team has it (a scaled-down group has fewer)."""
    alive: bool
    known: bool = False
    """Whether it ever had a conversation: then a start resumes it."""
    restart: str = "resume"
    """The team's policy for it: resume, fresh or never."""
    asked: bool = False
    """A person wants the team up, and that has not been done for this agent yet."""
    asked_fresh: bool = False
    """A person restarted it, and that has not been done yet."""
    finished: bool = False
    """Its last run did what it was asked and then ended."""
    dismissed: str = ""
    """Why it is not started again, if a person ended it."""
    limited: bool = False
    """A limit that ends with time stopped it, and it has not worked since."""
    resets_at: float | None = None
    """When that limit ends, if that is known."""
    doing: str = ""
    """What its program does, if it runs: WORKING, IDLE or NEEDS_PERSON."""
    trouble: str = ""
    """Why it needs a person."""
    restarts: tuple[float, ...] = ()
    """When it was started again since a person last asked for it, oldest first."""
    ended_at: float = 0.0
    """When its last run ended."""
    last: str = ""
    """Why its last run ended, if that is on record."""
    spent: str = ""
    """Which limit of the session's budget is used up."""


class Step(NamedTuple):
    """What to do about one agent, and the name of its state."""

    do: str
    state: str
    mode: str = ""
    at: float = 0.0
    """When it will be tried, if it waits."""
    why: str = ""


def next_step(seen: Observed, now: float) -> Step:
    """The next step for one agent."""
    if not seen.wanted:
        return Step(END, STOPPED, why="it is not wanted any more") if seen.alive else Step(NOTHING, STOPPED)
    if seen.spent:
        return Step(END if seen.alive else NOTHING, STOPPED, why=seen.spent)
    if seen.asked_fresh:
        return (
            Step(END, RESTARTING, why="it starts a new conversation")
            if seen.alive
            else Step(START, WORKING, FRESH, why="restarted")
        )
    parked = seen.resets_at if seen.resets_at is not None and seen.resets_at > now else 0.0
    if parked or (seen.alive and seen.limited):
        return Step(
            NOTHING, LIMITED, at=parked, why="its limit ends then" if parked else "it waits for its limit to end"
        )
    if seen.alive:
        return Step(NOTHING, seen.doing or WORKING, why=seen.trouble)
    if seen.asked:
        return Step(START, WORKING, RESUMED if seen.known else FRESH)
    if seen.finished:
        return Step(NOTHING, FINISHED, why="it finished its work")
    if seen.dismissed:
        return Step(NOTHING, STOPPED, why=seen.dismissed)
    if seen.restart == "never":
        return Step(NOTHING, STOPPED, why="its restart policy is never")
    return _again(seen, now)


def _again(seen: Observed, now: float) -> Step:
    """Start it again, unless it keeps ending. Restarts count up to its end, not up to now: time alone mends nothing."""
    recent = [at for at in seen.restarts if seen.ended_at - at < WINDOW_SECONDS]
    if len(recent) >= RESTARTS_LIMIT:
        said = f" (the last: {seen.last})" if seen.last else ""
        why = f"{len(recent)} restarts in {WINDOW_SECONDS:.0f} s{said}; restart it by hand"
        return Step(NOTHING, DEGRADED, why=why)
    due = seen.ended_at + (min(FIRST_PAUSE * 2 ** (len(recent) - 1), LONGEST_PAUSE) if recent else 0.0)
    if due > now:
        return Step(NOTHING, RESTARTING, at=due, why="it ended, and is started again then")
    mode = RESUMED if seen.restart == "resume" and seen.known else FRESH
    return Step(START, WORKING, mode, why="it ended")
