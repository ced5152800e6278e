"""Redacting old logs: secrets that were recorded before there were rules for them are found, and their events erased.

A sealed event cannot be edited, so its whole payload is erased, by the same erasure as any other: the chain still
verifies, and no file of the store has the bytes any more. What was found is in the reason of the erasure.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from onrecord.errors import SessionHeld
from onrecord.log.shapes import misfit
from onrecord.session.funnel import EXEMPT, FOUND_KIND, KEEP, cleaned
from onrecord.session.retention import wipe

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

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


class Shared(NamedTuple):
    """Events as they may be given away: their secrets are replaced as the settings say."""

    events: list[Event]
    policy: str
    recorded: Counter[str]
    """What was replaced when it was recorded, by rule."""
    found: Counter[str]
    """What was found only now, by rule; under the policy `keep` it is still there."""
    text: Callable[[str], str]
    """The same for a text that was made of these events."""


def found_by(event: Event) -> Counter[str]:
    """What a `secret.found` says, by rule; nothing if its payload has an unexpected form."""
    made = Counter[str]()
    if misfit(event.kind, event.data):
        return made
    for row in event.data["found"]:
        count = row.get("count")
        made[str(row.get("rule"))] += count if isinstance(count, int) else 0
    return made


def shared(session: Session, events: Iterable[Event]) -> Shared:
    """Look through events that leave this store: old ones may have secrets that the present rules know."""
    policy = session.funnel.rules.policy_of(session.log.head().project)
    cleaner = session.funnel.cleaner(policy)
    made, recorded, count = [], Counter[str](), 0
    for event in events:
        if event.kind == FOUND_KIND and event.data and event.data.get("policy") != KEEP:
            recorded += found_by(event)
        data = event.data if event.kind in EXEMPT or event.data is None else cleaned(cleaner, event.kind, event.data)
        now = sum(cleaner.found.values())
        made.append(event._replace(data=data) if now > count else event)
        count = now
    found = Counter[str]()
    for (rule, _place), times in cleaner.found.items():
        found[rule] += times
    again = session.funnel.cleaner(policy)
    return Shared(made, policy, recorded, found, lambda text: again.text(text, ""))


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
