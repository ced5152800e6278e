"""Mirrored conversations as turns: what the readings of verbatim records say, folded into the lanes of their agents.

A prompt begins a turn and the next one commits it. The last turn counts as committed while it ends with an answer and
no call is open; if not, it runs, or it was aborted, or its process ended and it was interrupted. A record counts
once, in its newest form, however often a vendor, a fork, a restored copy or another generation of the file repeats
it. When a prompt continues an earlier record, the turns after that one are abandoned. A subagent has its own lane.
"""

from __future__ import annotations

from onrecord.lean_typing import TYPE_CHECKING, Any
from onrecord.log.items import text_of
from onrecord.log.readings import ABORTS, BEGINS, MAY_BEGIN, part_of, rows_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from onrecord.log.events import Event
    from onrecord.log.item_values import Item
    from onrecord.log.readings import Row

SUBLANE = "/"
"""Between the name of an agent and the name of its subagent."""
INTERRUPTED_REASON = "its process ended"
ABANDONED_REASON = "the conversation continued from an earlier turn"
_DIGEST = 12

Key = tuple[object, ...]


class Exchange:
    """One turn of a mirrored conversation, as it grows."""

    __slots__ = ("abandoned", "aborted", "agent", "begun", "conversation", "last", "parts", "place", "prompted")

    def __init__(self, agent: str, conversation: Key, position: int, line: int) -> None:
        self.agent = agent
        self.conversation = conversation
        self.begun = self.last = position
        self.place = (position, line)
        self.parts: list[list[Item]] = []
        """The items of each record."""
        self.prompted = self.aborted = self.abandoned = False

    def items(self) -> list[Item]:
        """Its items; a call has one answer, since some vendors write a result twice. An id may come with a new call."""
        answered: set[object] = set()
        found = []
        for item in (item for part in self.parts for item in part):
            if item["role"] == "tool":
                if item.get("call") in answered:
                    continue
                answered.add(item.get("call"))
            answered.difference_update([call.get("id") for call in item.get("tool_calls") or ()])
            found.append(item)
        return found

    def is_answered(self) -> bool:
        """Whether it ends with an answer and has no open call."""
        open_calls: set[object] = set()
        last = ""
        for item in self.items():
            if item.get("thinking") or item["role"] == "system":
                continue
            last = item["role"]
            open_calls.discard(item.get("call"))
            open_calls.update(call.get("id") for call in item.get("tool_calls") or ())
        return last == "assistant" and not open_calls

    def prompt(self) -> str:
        """What was asked."""
        for part in self.parts:
            for item in part:
                if item["role"] == "user":
                    return text_of(item)
        return ""


class Conversations:
    """The turns of every mirrored conversation, in the order in which they began."""

    def __init__(self, only: str | None = None) -> None:
        self._only = only
        self.turns: list[Exchange] = []
        self._last: dict[str, Exchange] = {}
        self._begun: set[Key] = set()
        """The conversations whose first record was folded: of the others, the turn at the beginning may be cut."""
        self._known: dict[Key, tuple[Exchange, int]] = {}
        self._counts: dict[Key, int] = {}
        self._pending: dict[str, list[tuple[Row, Key, int]]] = {}
        self._conversation: Key = ()
        self.here: dict[str, bool] = {}
        """Which agents have a process, as far as the events say."""
        self.stopped: dict[str, int] = {}

    def apply(self, event: Event) -> None:
        """Fold one event in: records that were kept or retracted, or an agent that came or left."""
        if event.kind == "payload.kept":
            data = event.data
            if isinstance(data, dict) and isinstance(data.get("reading"), list):
                self._read(event, data)
        elif event.kind == "payload.retracted":
            self._retract(event)
        else:
            self.here[event.by] = event.kind == "agent.joined"
            self.stopped[event.by] = event.position

    def _read(self, event: Event, data: dict[str, Any]) -> None:
        agent = str(data.get("agent") or event.by)
        part = part_of(event.id, data)
        conversation, generation = (part.vendor, part.vendor_id, part.beside), part.generation
        self._conversation = conversation
        if part.first:
            self._begun.add(conversation)
        side = str(data.get("lane", ""))
        for row in rows_of(data, event.position):
            lane = SUBLANE.join(filter(None, (agent, side or row.lane)))
            if self._only in (None, lane):
                key = self._key(row, lane, conversation, generation, data["lines"])
                self._add(row, lane, conversation, key, event.position)

    def _retract(self, event: Event) -> None:
        """Records that no longer count: a framework's own delete. They leave their turns; the log keeps them.

        In a fork, those from before it have the id of the conversation that it was forked from.
        """
        data: Any = event.data if isinstance(event.data, dict) else {}
        agent = str(data.get("agent") or event.by)
        vendor, beside = str(data.get("vendor")), str(data.get("beside", ""))
        keys: Any = data.get("keys")
        wanted = {(agent, str(key)) for key in keys} if isinstance(keys, list) else set()
        for key, (turn, slot) in list(self._known.items()):
            of = turn.conversation
            if (of[0], of[2]) == (vendor, beside) and (data.get("all") or key in wanted):
                turn.parts[slot] = []
                del self._known[key]

    def _key(self, row: Row, lane: str, conversation: Key, generation: object, lines: list[str]) -> Key:
        """What identifies a record: its id; without one its words, and how often they came before in its file."""
        if row.id:
            return (lane, row.id)
        from hashlib import blake2b  # most vendors have ids

        digest = blake2b(lines[row.line].encode(), digest_size=_DIGEST).digest()
        count = self._counts[(conversation, generation, digest)] = (
            self._counts.get((conversation, generation, digest), 0) + 1
        )
        return (lane, conversation, digest, count)

    def _add(self, row: Row, lane: str, conversation: Key, key: Key, position: int) -> None:
        known = self._known.get(key)
        if known is not None:
            turn, slot = known
            if not row.weak and row.items:
                turn.parts[slot] = row.items
                turn.last = position
            return
        if self._waits(row, lane, key, position):
            return
        current = self._last.get(lane)
        if row.turn == BEGINS and (current is None or current.prompted or current.conversation != conversation):
            if row.after is not None:
                self._go_back(lane, conversation, row.after)
            current = self._begin(lane, conversation, position, row.line)
        elif current is None or current.conversation != conversation:
            if conversation not in self._begun:
                return  # the beginning of this turn is before the first event
            current = self._begin(lane, conversation, position, row.line)
        current.prompted = current.prompted or row.turn == BEGINS
        current.aborted = row.turn == ABORTS
        current.last = position
        if row.items:
            self._known[key] = current, len(current.parts)
            current.parts.append(row.items)

    def _waits(self, row: Row, lane: str, key: Key, position: int) -> bool:
        """Hold back a command, and what is said to it, until a model answers: only then it begins a turn."""
        if row.turn == MAY_BEGIN:
            self._pending[lane] = []
        waiting = self._pending.get(lane)
        if waiting is None or row.turn == BEGINS:
            self._pending.pop(lane, None)
            return False
        if not any(item["role"] in ("assistant", "tool") for item in row.items):
            waiting.append((row, key, position))
            return True
        del self._pending[lane]
        for number, (held, held_key, at) in enumerate(waiting):
            turn = BEGINS if number == 0 else ""
            self._add(held._replace(turn=turn), lane, self._conversation, held_key, at)
        return False

    def _begin(self, lane: str, conversation: Key, position: int, line: int) -> Exchange:
        turn = self._last[lane] = Exchange(lane, conversation, position, line)
        self.turns.append(turn)
        return turn

    def _go_back(self, lane: str, conversation: Key, after: tuple[int, int]) -> None:
        for turn in reversed(self.turns):
            if turn.agent == lane and turn.conversation == conversation and not turn.abandoned:
                if turn.place <= after:
                    return
                turn.abandoned = True

    def spoken(self) -> Iterator[tuple[Exchange, bool]]:
        """Every turn that says something, and whether it is the last one of its lane that counts."""
        last = {turn.agent: turn for turn in self.turns if not turn.abandoned}
        for turn in self.turns:
            if any(turn.parts):
                yield turn, last.get(turn.agent) is turn
