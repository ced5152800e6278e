"""Redacting old logs: secrets that were recorded before there were rules for them are found, and their events erased.

A sealed event cannot be edited, so its whole payload is erased, by the same erasure as any other: the chain still
verifies, and no file of the store has the bytes any more. What was found is in the reason of the erasure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from onrecord.errors import SessionHeld
from onrecord.session.funnel import EXEMPT, cleaned
from onrecord.session.retention import wipe

if TYPE_CHECKING:
    from collections.abc import Callable

    from onrecord.log.events import Event
    from onrecord.redaction.values import Found
    from onrecord.session.handle import Session

REASON_RULES = 8
"""How many rules the reason of an erasure names."""


class Leak(NamedTuple):
    """An event that has secrets."""

    position: int
    kind: str
    found: Found


def leaks(session: Session, progress: Callable[[int], None] | None = None) -> list[Leak]:
    """The session's own events that have secrets by the present rules; inherited ones belong to the parent."""
    funnel, made = session.funnel, []
    own = session.log.head().forked_at
    for event in session.events(after=own):
        if progress is not None:
            progress(event.position)
        if event.kind in EXEMPT or event.data is None:
            continue
        cleaner = funnel.cleaner()
        cleaned(cleaner, event.kind, event.data)
        if cleaner.found:
            made.append(Leak(event.position, event.kind, cleaner.found))
    return made


def redact(session: Session, found: list[Leak]) -> Event:
    """Erase the payloads of these events; `SessionHeld` under a hold."""
    head = session.log.head()
    if head.held:
        raise SessionHeld(f"session {head.name!r} has a hold: nothing of it may be erased", name=head.name)
    rules: dict[str, int] = {}
    for leak in found:
        for (rule, _place), count in leak.found.items():
            rules[rule] = rules.get(rule, 0) + count
    named = sorted(rules.items(), key=lambda one: (-one[1], one[0]))[:REASON_RULES]
    said = ", ".join(f"{rule} {count}" for rule, count in named)
    return wipe(session, sorted(leak.position for leak in found), f"secrets: {said}", "positions")
