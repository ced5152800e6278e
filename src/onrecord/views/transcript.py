"""The transcript: turns and their items, committed and provisional, and the well-formed list a model may be handed.

A transcript can be folded from the middle of a log: a turn that began before the first event is left out as a whole.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from onrecord.log.events import Event

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from onrecord.log.items import Item

TURN_KINDS = (
    "turn.begun", "item.added", "turn.committed", "turn.aborted", "turn.recorded", "agent.joined", "agent.left",
)  # fmt: skip

COMMITTED, ABORTED, INTERRUPTED, RUNNING = "committed", "aborted", "interrupted", "running"


class Turn(NamedTuple):
    """One turn of one agent."""

    agent: str
    base: int
    """The committed position it was made from."""
    begun: int
    ended: int
    """The position that committed or ended it; 0 while it runs."""
    status: str
    items: list[Item]
    reason: str = ""
    erased: bool = False
    """Whether any of its content was erased."""


class Transcript:
    """Turns in the order they were committed, and what is provisional after them."""

    def __init__(self) -> None:
        self.committed: list[Turn] = []
        self.superseded: list[Turn] = []
        """Aborted and interrupted turns that a later commit superseded, and turns that a retry rolled back."""
        self._open: dict[str, tuple[Event, list[Item], list[bool]]] = {}
        self._tail: dict[str, list[Turn]] = {}
        self._last: dict[str, int] = {}

    @property
    def provisional(self) -> list[Turn]:
        """Aborted and interrupted turns after the last commit of their lane, and turns that still run."""
        running = [
            Turn(agent, _base(begun, self._last.get(agent, 0)), begun.position, 0, RUNNING, items, erased=any(erased))
            for agent, (begun, items, erased) in self._open.items()
        ]
        return sorted([turn for tail in self._tail.values() for turn in tail] + running, key=lambda turn: turn.begun)

    @property
    def items(self) -> list[Item]:
        """The items of the committed turns."""
        return [item for turn in self.committed for item in turn.items]

    def __iter__(self) -> Iterator[Turn]:
        return iter(self.committed)

    def __len__(self) -> int:
        return len(self.committed)

    def fold(self, events: Iterable[Event]) -> Transcript:
        """Fold events in, in order."""
        committed, last = self.committed, self._last
        for event in events:
            if event.kind == "turn.recorded":
                # Nearly all events of a long log come this way.
                agent, data = event.by, event.data
                try:
                    items = data["items"] if data else []
                except (KeyError, TypeError):
                    items = []  # an invalid payload from elsewhere: that a turn was recorded still counts
                turn = Turn(
                    agent, last.get(agent, 0), event.position, event.position, COMMITTED, items, "", data is None
                )
                if self._tail:
                    self.superseded.extend(self._tail.pop(agent, ()))
                committed.append(turn)
                last[agent] = event.position
            else:
                self._step(event)
        return self

    def _step(self, event: Event) -> None:
        agent = event.by
        if event.kind == "item.added":
            if agent in self._open:
                _begun, items, erased = self._open[agent]
                erased.append(event.data is None)
                if "item" in _said(event):
                    items.append(event.data["item"])
        elif event.kind == "turn.begun":
            self._end(event, INTERRUPTED, "another turn was begun")
            self._open[agent] = (event, [], [])
        elif event.kind == "turn.committed":
            self._commit(event)
        elif event.kind == "turn.aborted":
            self._end(event, ABORTED, str(_said(event).get("reason", "")))
        elif event.kind in ("agent.joined", "agent.left"):
            self._end(event, INTERRUPTED, "its process ended")

    def _end(self, event: Event, status: str, reason: str) -> None:
        if event.by in self._open:
            begun, items, erased = self._open.pop(event.by)
            base = _base(begun, self._last.get(event.by, 0))
            turn = Turn(event.by, base, begun.position, event.position, status, items, reason, any(erased))
            self._tail.setdefault(event.by, []).append(turn)

    def _commit(self, event: Event) -> None:
        if event.by not in self._open:
            return
        begun, items, erased = self._open.pop(event.by)
        last = self._last.get(event.by, 0)
        base = _base(begun, last)
        if base < last:
            self.superseded.extend(turn for turn in self.committed if turn.agent == event.by and turn.ended > base)
            self.committed[:] = [turn for turn in self.committed if turn.agent != event.by or turn.ended <= base]
        self.superseded.extend(self._tail.pop(event.by, ()))
        turn = Turn(event.by, base, begun.position, event.position, COMMITTED, items, "", any(erased))
        self.committed.append(turn)
        self._last[event.by] = event.position


def _said(event: Event) -> dict[str, Any]:
    """The payload; an empty one when it was erased or is invalid."""
    return event.data if isinstance(event.data, dict) else {}


def _base(begun: Event, last: int) -> int:
    base = _said(begun).get("base")
    return base if isinstance(base, int) else last


def well_formed(items: Iterable[Item]) -> list[Item]:
    """The same items with every tool call answered exactly once, right after it was made.

    A late result moves to right after its call. A call without a result gets one that is marked `synthesised`; a
    result that answers no call on record cannot be shown to a model and is left out.
    """
    groups: list[list[Item]] = []
    waiting: dict[str, list[Item]] = {}
    for item in items:
        if item["role"] != "tool":
            groups.append([item])
            waiting.update({call["id"]: groups[-1] for call in item.get("tool_calls") or ()})
        elif item["call"] in waiting:
            waiting.pop(item["call"]).append(item)
    for group in groups:
        answered = {result["call"] for result in group[1:]}
        calls = group[0].get("tool_calls") or ()
        group.extend([_no_result(call["id"], call["name"]) for call in calls if call["id"] not in answered])
    return [item for group in groups for item in group]


def _no_result(call: str, name: str) -> Item:
    text = f"[no result on record: the process ended before {name} answered; it may or may not have happened]"
    return {"role": "tool", "call": call, "content": text, "error": True, "synthesised": True}


def shown(turn: Turn) -> dict[str, Any]:
    """A turn as plain data."""
    return {
        "agent": turn.agent, "status": turn.status, "base": turn.base, "begun": turn.begun, "ended": turn.ended,
        "reason": turn.reason, "erased": turn.erased, "items": turn.items,
    }  # fmt: skip
