"""The transcript: turns and their items, committed and provisional, and the well-formed list a model may be handed.

A transcript can be folded from the middle of a log: a turn that began before the first event is left out as a whole.
Mirrored conversations are part of it (views/conversations.py), unless the same prompt is on record as a turn already.
"""

from __future__ import annotations

from onrecord.lean_typing import TYPE_CHECKING, Any, NamedTuple
from onrecord.log.events import Event
from onrecord.views.conversations import ABANDONED_REASON, INTERRUPTED_REASON, Conversations

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from onrecord.log.item_values import Item
    from onrecord.views.conversations import Exchange

TURN_KINDS = (
    "turn.begun", "item.added", "turn.committed", "turn.aborted", "turn.recorded", "agent.joined", "agent.left",
    "payload.kept", "payload.retracted",
)  # fmt: skip

SHARED_KINDS = ("payload.kept", "payload.retracted")
"""Kinds with turns of an agent, appended by any actor: a hook, a wrapper or a person may mirror a conversation."""
COMMITTED, ABORTED, INTERRUPTED, RUNNING = "committed", "aborted", "interrupted", "running"
ABANDONED = "abandoned"
"""A turn of a mirrored conversation that its user went back from; it stays provisional."""


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

    def __init__(self, only: str | None = None) -> None:
        self._own: list[Turn] = []
        self._superseded: list[Turn] = []
        self._conversations = Conversations(only)
        self._mirrored: dict[str, list[Turn]] | None = None
        self._open: dict[str, tuple[Event, list[Item], list[bool]]] = {}
        self._tail: dict[str, list[Turn]] = {}
        self._last: dict[str, int] = {}

    def presume(self, here: Iterable[str]) -> Transcript:
        """Agents that were at work before the first event: a fold from the middle of a log does not see them come."""
        self._conversations.here.update(dict.fromkeys(here, True))
        return self

    @property
    def committed(self) -> list[Turn]:
        """The turns that count, in the order in which they were committed; mirrored ones as they began."""
        mirrored = self._shown()[COMMITTED]
        if not mirrored:
            return self._own
        keyed = [(turn.ended, turn) for turn in self._own] + [(turn.begun, turn) for turn in mirrored]
        return [turn for _key, turn in sorted(keyed, key=lambda one: one[0])]

    @property
    def superseded(self) -> list[Turn]:
        """Aborted and interrupted turns that a later commit superseded, and turns that a retry rolled back."""
        return [*self._superseded, *self._shown()[ABANDONED]]

    @property
    def provisional(self) -> list[Turn]:
        """Aborted and interrupted turns after the last commit of their lane, and turns that still run."""
        running = [
            Turn(agent, _base(begun, self._last.get(agent, 0)), begun.position, 0, RUNNING, items, erased=any(erased))
            for agent, (begun, items, erased) in self._open.items()
        ]
        tails = [turn for tail in self._tail.values() for turn in tail]
        return sorted([*tails, *running, *self._shown()[RUNNING]], key=lambda turn: turn.begun)

    @property
    def items(self) -> list[Item]:
        """The items of the committed turns."""
        return [item for turn in self.committed for item in turn.items]

    def __repr__(self) -> str:
        return f"<Transcript committed: {len(self.committed)}, provisional: {len(self.provisional)}>"

    def __iter__(self) -> Iterator[Turn]:
        return iter(self.committed)

    def __len__(self) -> int:
        return len(self.committed)

    def fold(self, events: Iterable[Event]) -> Transcript:
        """Fold events in, in order."""
        committed, last = self._own, self._last
        self._mirrored = None
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
                    self._superseded.extend(self._tail.pop(agent, ()))
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
            self._end(event, INTERRUPTED, INTERRUPTED_REASON)
            self._conversations.apply(event)
        elif event.kind in SHARED_KINDS:
            self._conversations.apply(event)

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
            self._superseded.extend(turn for turn in self._own if turn.agent == event.by and turn.ended > base)
            self._own[:] = [turn for turn in self._own if turn.agent != event.by or turn.ended <= base]
        self._superseded.extend(self._tail.pop(event.by, ()))
        turn = Turn(event.by, base, begun.position, event.position, COMMITTED, items, "", any(erased))
        self._own.append(turn)
        self._last[event.by] = event.position

    def _shown(self) -> dict[str, list[Turn]]:
        """The turns of mirrored conversations: committed, running (or ended early) and abandoned ones."""
        if self._mirrored is None:
            found: dict[str, list[Turn]] = {COMMITTED: [], RUNNING: [], ABANDONED: []}
            self._mirrored = found
            if self._conversations.turns:
                told = self._prompts()
                for one, is_last in self._conversations.spoken():
                    prompts = told.get(one.agent)
                    if prompts and prompts.get(asked := one.prompt().strip(), 0) > 0:
                        prompts[asked] -= 1  # a turn of ours says it already
                        continue
                    turn = self._turn_of(one, is_last=is_last)
                    found[turn.status if turn.status in found else RUNNING].append(turn)
        return self._mirrored

    def _turn_of(self, one: Exchange, *, is_last: bool) -> Turn:
        answered, state = one.is_answered(), self._conversations
        status, reason = COMMITTED, ""
        if one.abandoned:
            status, reason = ABANDONED, ABANDONED_REASON
        elif not answered and is_last:
            agent = one.agent.partition("/")[0]
            runs = state.here.get(agent, False) and state.stopped.get(agent, 0) <= one.begun
            status = ABORTED if one.aborted else RUNNING if runs else INTERRUPTED
            reason = "" if status == RUNNING else INTERRUPTED_REASON if status == INTERRUPTED else "it was interrupted"
        elif not answered:
            reason = "it was interrupted, and the conversation continued"
        ended = 0 if status == RUNNING else one.last
        return Turn(one.agent, 0, one.begun, ended, status, one.items(), reason)

    def _prompts(self) -> dict[str, dict[str, int]]:
        """How often each agent was asked something in turns of our own."""
        told: dict[str, dict[str, int]] = {}
        open_turns = [(agent, items) for agent, (_begun, items, _erased) in self._open.items()]
        tails = [turn for tail in self._tail.values() for turn in tail]
        for agent, items in [*((t.agent, t.items) for t in (*self._own, *self._superseded, *tails)), *open_turns]:
            asked = told.setdefault(agent, {})
            for item in items:
                said = item.get("content")
                if item.get("role") == "user" and isinstance(said, str):
                    asked[said.strip()] = asked.get(said.strip(), 0) + 1
        return told


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
    text = f"[no result on record: {name} may have started; its outcome is unknown]"
    return {"role": "tool", "call": call, "content": text, "error": True, "synthesised": True}


def shown(turn: Turn) -> dict[str, Any]:
    """A turn as plain data."""
    return {
        "agent": turn.agent, "status": turn.status, "base": turn.base, "begun": turn.begun, "ended": turn.ended,
        "reason": turn.reason, "erased": turn.erased, "items": turn.items,
    }  # fmt: skip
