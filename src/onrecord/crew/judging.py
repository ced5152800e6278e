"""What a supervisor does next: a pure function from what it sees to what it does.

An agent that crashed is resumed; one that was restarted on purpose begins anew; one that hit a limit waits for its
reset; one that keeps crashing is left alone and said to be degraded. One that finished its work is not started again.
"""

from __future__ import annotations

from typing import NamedTuple

WINDOW_SECONDS = 120.0
"""Restarts within this time count against an agent."""
RESTARTS_LIMIT = 5
"""After so many restarts within the window an agent is degraded: nobody starts it again by itself."""
FIRST_PAUSE = 1.0
"""How long the first restart waits; each further one within the window waits twice as long."""
LONGEST_PAUSE = 30.0

FRESH, RESUMED = "fresh", "resumed"
NOTHING, START, END = "nothing", "start", "end"
RUNNING, WAITING, PARKED, DEGRADED, FINISHED, STOPPED = (
    "running", "waiting", "parked", "degraded", "finished", "stopped",
)  # fmt: skip


class Seen(NamedTuple):
    """What is known of one agent at a moment."""

    wanted: bool
    """Whether the team has it (a scaled-down group has fewer)."""
    alive: bool
    known: bool
    """Whether it ever had a conversation: then a start means to go on with it."""
    restart: str
    """The team's policy for it: resume, fresh or never."""
    asked_fresh: bool = False
    """Somebody restarted it on purpose, and that has not been done yet."""
    finished: bool = False
    """Its last run did what it was asked and ended by itself."""
    resets_at: float | None = None
    """When the limit that stopped its last run ends."""
    restarts: tuple[float, ...] = ()
    """When it was started again, oldest first."""
    ended_at: float = 0.0


class Step(NamedTuple):
    """What to do about one agent, and what to call its state."""

    do: str
    state: str
    mode: str = ""
    at: float = 0.0
    """When it will be tried, for one that waits."""
    why: str = ""


def judge(seen: Seen, now: float) -> Step:
    """The next step for one agent."""
    if not seen.wanted:
        return Step(END, STOPPED, why="the team is smaller now") if seen.alive else Step(NOTHING, STOPPED)
    if seen.asked_fresh:
        return Step(END, WAITING, why="it begins anew") if seen.alive else Step(START, RUNNING, FRESH, why="restarted")
    if seen.alive:
        return Step(NOTHING, RUNNING)
    if not seen.ended_at:
        return Step(START, RUNNING, RESUMED if seen.known else FRESH)
    if seen.finished:
        return Step(NOTHING, FINISHED, why="it finished its work")
    if seen.restart == "never":
        return Step(NOTHING, STOPPED, why="its restart policy is never")
    if seen.resets_at is not None and seen.resets_at > now:
        return Step(NOTHING, PARKED, at=seen.resets_at, why="its limit ends then")
    return _again(seen, now)


def _again(seen: Seen, now: float) -> Step:
    recent = [at for at in seen.restarts if now - at < WINDOW_SECONDS]
    if len(recent) >= RESTARTS_LIMIT:
        return Step(NOTHING, DEGRADED, why=f"{len(recent)} restarts in {WINDOW_SECONDS:.0f} s; restart it by hand")
    pause = min(FIRST_PAUSE * 2 ** len(recent), LONGEST_PAUSE) if recent else 0.0
    due = seen.ended_at + pause
    if due > now:
        return Step(NOTHING, WAITING, at=due, why="it ended, and is started again then")
    mode = RESUMED if seen.restart == "resume" and seen.known else FRESH
    return Step(START, RUNNING, mode, why="it ended")
