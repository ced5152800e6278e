"""What an agent is doing, as its transcript shows: it works, it is idle, an error or a person stopped its turn.

A terminal program stays open after a limit, and its exit status says nothing; but it wrote into its transcript how the
turn ended. A vendor module reads one record (`Vendor.turn`), and `follow` folds what the records say.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from onrecord.vendors.endings import cause_of, interruption
from onrecord.vendors.port import ABORTED, CRASH, FAILED, IDLE, USER, WORKING, Interruption

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from onrecord.vendors.port import Entry, Turn

PROMPT_LIMIT = 100_000
"""The longest prompt that is remembered to be issued again, in characters."""


def follow(turn: Turn | None, entries: Iterable[Entry], says: Callable[[dict[str, Any]], Turn | None]) -> Turn | None:
    """The present turn after some more records of the transcript."""
    for entry in entries:
        record = _record(entry.raw)
        said = says(record) if record is not None else None
        if said is not None:
            turn = _next(turn, said._replace(at=said.at or entry.at))
    return turn


def _next(before: Turn | None, said: Turn) -> Turn:
    if said.prompt or before is None:
        return said._replace(prompt=said.prompt[:PROMPT_LIMIT])
    if said.state == IDLE and before.state in (FAILED, ABORTED) and not said.answered:
        return before  # the record that closes a turn, written after the one that says how it ended
    return said._replace(prompt=before.prompt, answered=before.answered or said.answered)


def _record(raw: str) -> dict[str, Any] | None:
    try:
        found = json.loads(raw)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def stopped(turn: Turn | None, now: float) -> Interruption | None:
    """Why the turn stopped, if an error or a person stopped it."""
    if turn is None or turn.state not in (FAILED, ABORTED):
        return None
    if turn.state == ABORTED:
        return Interruption(USER, turn.error or "a person interrupted the turn")
    return interruption(cause_of(turn.error) or CRASH, turn.error, now)


def left(turn: Turn | None, now: float) -> Interruption | None:
    """Why a program that ended in order left its work undone: its turn was stopped, or was still in progress."""
    if turn is not None and turn.state == WORKING:
        if cause := cause_of(turn.error):
            return interruption(cause, turn.error, now)
        return Interruption(USER, "it was ended in the middle of a turn")
    return stopped(turn, now)
