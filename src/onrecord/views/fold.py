"""The fold: how events become views.

A view holds JSON values only, so a snapshot of it loads without a change of meaning. `Whole` has the views that a
session keeps in memory; their size depends on the facts, never on the length of the transcript.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, ClassVar

from onrecord.errors import Conflict, DamagedLog
from onrecord.log import digest
from onrecord.log.codec import open_record
from onrecord.log.events import DURABLE_KINDS, Event
from onrecord.log.head import OPEN, Head, after
from onrecord.log.shapes import misfit
from onrecord.views.attempts import Attempts
from onrecord.views.code import Code
from onrecord.views.effects import Effects
from onrecord.views.facts import Facts
from onrecord.views.findings import Findings
from onrecord.views.gates import Gates
from onrecord.views.lanes import Lanes
from onrecord.views.lifecycle import Lifecycle
from onrecord.views.phases import Phases
from onrecord.views.roster import Roster
from onrecord.views.spend import Spend

if TYPE_CHECKING:
    from collections.abc import Iterable

    from onrecord.log.events import Record
    from onrecord.views.values import Interruption
    from onrecord.views.view import View

VIEWS_VERSION = "whole.11"
"""Changes whenever a fold changes its meaning, so that older snapshots are not used."""

DIGEST_BYTES = 32
"""What a snapshot begins with: the hash of the rest, so that a damaged one is detected."""

BODIES = frozenset(DURABLE_KINDS)
"""The kinds that `Whole` reads the payload of; of the others it reads the header only."""


class Whole:
    """The views of one session, folded together up to a position."""

    VIEWS: ClassVar[dict[str, type[View]]] = {
        "lifecycle": Lifecycle,
        "roster": Roster,
        "lanes": Lanes,
        "effects": Effects,
        "facts": Facts,
        "findings": Findings,
        "attempts": Attempts,
        "phases": Phases,
        "gates": Gates,
        "code": Code,
        "spend": Spend,
    }

    def __init__(self, head: Head) -> None:
        self.head = head
        self.misfits: list[int] = []
        """Positions of events with a payload that no view could read."""
        self.lifecycle, self.roster, self.lanes = Lifecycle(), Roster(), Lanes()
        self.effects, self.facts, self.findings, self.spend = Effects(), Facts(), Findings(), Spend()
        self.attempts, self.phases, self.gates = Attempts(), Phases(), Gates()
        self.code = Code()
        self._route()

    def _route(self) -> None:
        views: list[View] = [getattr(self, name) for name in self.VIEWS]
        kinds = {kind for view in views for kind in view.KINDS}
        self._routes = {kind: [view.apply for view in views if kind in view.KINDS] for kind in kinds}

    @property
    def position(self) -> int:
        """The last event that is folded in."""
        return self.head.position

    def interruption(self) -> Interruption | None:
        """Why work stopped last; None after the session was resumed, or once that agent runs or works again."""
        stop = self.lifecycle.interruption
        agent = self.roster.agents.get(stop["by"]) if stop and stop.get("vendor") else None
        return None if stop and agent and agent["stop"] is None else stop

    def apply(self, event: Event) -> None:
        """Fold one more event in."""
        try:
            self.head = after(self.head, event, event.run, event.hash)
        except Conflict:
            # A newer version may know other lifecycles: an event on record counts even if this code would refuse it.
            self.head = self.head._replace(position=event.position, hash=event.hash)
            self.misfits.append(event.position)
        if event.kind == "session.forked":
            # Earlier events are the parent's; later ones are this session's own.
            parent = self.head
            self.head = parent._replace(session=event.session, parent=parent.session, forked_at=event.position - 1)
        if misfit(event.kind, event.data):
            self.misfits.append(event.position)
            return
        for view in self._routes.get(event.kind, ()):
            try:
                view(event)
            except (KeyError, TypeError, ValueError, AttributeError):
                # A log from elsewhere may have an invalid payload under a known kind. That must not make a session
                # unreadable.
                self.misfits.append(event.position)

    def fold(self, events: Iterable[Event]) -> Whole:
        """Fold events in, in order."""
        for event in events:
            self.apply(event)
        return self

    def dump(self) -> bytes:
        """The snapshot of all views."""
        head: dict[str, Any] = self.head._asdict() | {"hash": self.head.hash.hex()}
        whole = {"head": head, "misfits": self.misfits} | {name: getattr(self, name).dump() for name in self.VIEWS}
        # In the order of the fold, which is part of the meaning: the tenth finding comes after the second.
        body = json.dumps(whole, ensure_ascii=False, separators=(",", ":")).encode()
        return digest.sha256(body).digest() + body

    @classmethod
    def load(cls, body: bytes) -> Whole:
        """Load a snapshot; `DamagedLog` if it is not what was dumped."""
        if digest.sha256(body[DIGEST_BYTES:]).digest() != body[:DIGEST_BYTES]:
            raise DamagedLog("a snapshot is damaged", hint="snapshots only save time: delete it", step="drop_snapshots")
        saved = json.loads(body[DIGEST_BYTES:])
        head = saved["head"]
        whole = cls(Head(**(head | {"hash": bytes.fromhex(head["hash"])})))
        whole.misfits = saved["misfits"]
        for name, view in cls.VIEWS.items():
            setattr(whole, name, view.load(saved[name]))
        whole._route()
        return whole


def fold_whole(head: Head, records: Iterable[Record]) -> Whole:
    """Fold a log from its first event. `head` is its present head; the fold starts from nothing."""
    start = head._replace(
        position=0, hash=bytes(32), run=0, status=OPEN, title="", held=False, parent=None, forked_at=0
    )
    whole = Whole(start)
    for record in records:
        if record.position == 1:
            # The oldest ancestor's name: a fork changes it further on. The project is where the log is kept now.
            data = open_record(record).data or {}
            whole.head = start._replace(
                session=record.session,
                name=data.get("name", head.name),
                opened_at=record.at,
                at=record.at,
            )
        whole.apply(open_record(record))
    return whole
