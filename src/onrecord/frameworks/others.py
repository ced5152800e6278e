"""What other writers added to a session: their turns, and how the copies that a framework keeps are recognised."""

from __future__ import annotations

import json
from hashlib import sha256
from typing import TYPE_CHECKING, NamedTuple

from onrecord.session.effects import with_results
from onrecord.views.conversations import SUBLANE
from onrecord.views.transcript import well_formed

if TYPE_CHECKING:
    from onrecord.log.item_values import Item
    from onrecord.session.handle import Session
    from onrecord.views.transcript import Transcript, Turn

COPY = "onrecord-"
"""What the ids of messages begin with that repeat a turn of another writer."""
_DIGEST = 16


class Said(NamedTuple):
    """A turn that another writer added to the session."""

    position: int
    mark: str
    """The same in every process and in forks, also if the turn has become longer."""
    items: list[Item]
    """Its items, well formed."""
    begun: int
    """Where it begins."""

    def copy_id(self, number: int) -> str:
        """The id of a message that repeats an item of this turn."""
        return f"{COPY}{self.mark}-{number}"


def said_by_others(others: Transcript, session: Session) -> list[Said]:
    """The committed turns of a transcript, in order; what subagents said is between them and their agent."""
    turns = [turn for turn in others.committed if SUBLANE not in turn.agent]
    return [
        Said(turn.ended or turn.begun, _mark_of(turn), well_formed(turn.items), turn.begun)
        for turn in with_results(session, turns)
    ]


def mark_of(id_: str | None) -> str:
    """The mark of the turn that a message with this id repeats; empty if it repeats none."""
    return id_.removeprefix(COPY).partition("-")[0] if id_ and id_.startswith(COPY) else ""


def _mark_of(turn: Turn) -> str:
    began = json.dumps([turn.begun, turn.items[:1]], sort_keys=True)
    return sha256(began.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGEST]
