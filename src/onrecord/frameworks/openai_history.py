"""The history of a conversation of openai-agents: own items, turns of other writers, and calls that were never saved.

Own items are retracted by their keys. What else is shown was written by others, or is in the effect ledger: it stays
there, and an event of ours says how much of it the history still shows (`left`), or that it shows none of the turns
that others had written before (`others`).
"""

from __future__ import annotations

import json
from itertools import chain, repeat
from typing import TYPE_CHECKING, Any, NamedTuple

from onrecord.frameworks.conversation import Conversation, Entry
from onrecord.frameworks.openai_items import fresh, from_neutral
from onrecord.frameworks.parsing import parsed
from onrecord.frameworks.tool_calls import said_of
from onrecord.frameworks.writing import as_line
from onrecord.log.events import tuple_new

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from onrecord.frameworks.tool_calls import Effect
    from onrecord.log.events import Event

_OUTPUT = "_output"
"""How the types of items end that are results of tool calls."""


class Read(Entry):
    """An item as it was read, parsed together with its payload; what is handed out is a copy."""

    __slots__ = ()

    @property
    def item(self) -> Any:
        """The item."""
        return self[2]

    @property
    def line(self) -> str:
        """The item as JSON text, made when it is asked for."""
        return as_line(self[2])


_READ = repeat(Read)


class Shown(NamedTuple):
    """One item as the history shows it, and what it is part of."""

    part: str
    """The key of an own item; else the name of a turn of another writer, or of a tool call."""
    number: int
    """Where it is in such a part; OWN for an own item."""
    said: Any
    """The item, or the entry that has it; it belongs to the history."""


OWN = -1


class History(Conversation):
    """The items of a conversation, parsed together with their payloads.

    A process that resumes asks for all of them, and most ask for nothing else: entries are made when someone does.
    """

    FIELDS = ("keys", "values", "all", "left", "others")

    def _forget(self) -> None:
        super()._forget()
        self._left: dict[str, int] = {}
        """Of parts that are no own items: how many items are still shown."""

    @property
    def entries(self) -> dict[str, Entry]:
        """The items by their keys."""
        for position, keys, values in self._read:
            made = map(tuple_new, _READ, zip(keys, repeat(position), values, strict=False))
            self._entries.update(zip(keys, made, strict=True))
        self._read.clear()
        return self._entries

    @entries.setter
    def entries(self, entries: dict[str, Entry]) -> None:
        self._entries = entries
        self._read: list[tuple[int, list[str], list[Any]]] = []
        """What was read and is not among the entries yet: position, keys and items of each event."""

    # Folding

    def fold(self, event: Event, data: dict[str, Any]) -> None:
        """Fold one event of this conversation."""
        if event.kind != "payload.kept":
            super().fold(event, data)
            self._left.update(data.get("left") or {})
            if data.get("others"):
                self._left.update((name, 0) for _position, name, _items in self._turns())
            if data.get("all"):
                self.calls.let_go()
            return
        if "values" in data and "lines" not in data:
            keys, values = data.get("keys") or [], data["values"]
            if len(keys) != len(values):
                count = min(len(keys), len(values))
                keys, values = keys[:count], values[:count]
            self._read.append((event.position, keys, values))
        else:
            super().fold(event, data)
            values = [parsed(line) for line in data.get("lines") or () if _OUTPUT in line] if len(self.calls) else []
        if len(self.calls):
            for item in values:
                if isinstance(item, dict) and str(item.get("type")).endswith(_OUTPUT):
                    self.calls.answer(str(item.get("call_id")), event.position)

    def _look_for_answers(self) -> None:
        """Do nothing: which calls were answered is noted as items are folded."""

    # Reading

    def items(self) -> list[Any]:
        """The own items, in order; they belong to the caller."""
        if not self._entries:
            keys = list(chain.from_iterable(keys for _position, keys, _values in self._read))
            if len(set(keys)) == len(keys):  # else one of them replaces another
                return [fresh(item) for _position, _keys, values in self._read for item in values]
        return [_item(one) for one in self.entries.values()]

    def history(self) -> list[Any]:
        """Own items word for word, turns of other writers translated, and tool calls that were never saved."""
        if not self._mixed and not self.unanswered():
            return self.items()
        return [_item(one.said) for one in self.shown()]

    def shown(self) -> list[Shown]:
        """The same, with what each item is part of."""
        own = [(one.position, [Shown(one.key, OWN, one)]) for one in self.entries.values()]
        parts = [
            (position, [Shown(name, number, item) for number, item in enumerate(items[: self._left.get(name)])])
            for position, name, items in chain(self._turns(), self._calls())
        ]
        found = sorted([*own, *parts], key=lambda one: one[0]) if parts else own
        return [one for _position, shown in found for one in shown]

    def _turns(self) -> Iterator[tuple[int, str, list[Any]]]:
        """The turns of other writers: position, name and items."""
        begun: dict[int, int] = {}
        for turn in self.turns_of_others():
            number = begun[turn.begun] = begun.get(turn.begun, 0) + 1
            name = f"turn/{turn.begun}" + (f".{number}" if number > 1 else "")
            yield turn.position, name, from_neutral(turn.items)

    def _calls(self) -> Iterator[tuple[int, str, list[Any]]]:
        """The tool calls whose results were never saved: position, name and items."""
        waiting = self.unanswered()
        open_ = _open_calls(self.items()) if waiting else set()
        for one in waiting:
            yield one.position, f"call/{one.key}", _unsaved(one, is_asked=one.call in open_)

    def resumed_at(self, items: Sequence[Any]) -> int:
        """How far a run had read that now saves answers to calls of an earlier run; 0 if it does not.

        A run that waits for an approval ends, and is resumed by another one, perhaps in another process. Up to the
        call, it knew the history; behind the call, only answers to calls are its own.
        """
        answered = {_answered_by(item) for item in items} - {_asked_by(item) for item in items} - {""}
        if not answered:
            return 0
        later: list[tuple[int, bool]] = []
        for one in reversed(self.entries.values()):
            item = one.item if type(one) is Read else parsed(one.line)
            if _asked_by(item) in answered:
                break
            later.append((one.position, bool(_answered_by(item))))
        else:
            return 0  # the call was retracted, or is kept elsewhere
        foreign = [position for position, is_answer in later if position > one.position and not is_answer]
        if not foreign:
            return self.changed_at
        return max([one.position, *(position for position, _is_answer in later if position < min(foreign))])

    # Retracting

    def hidden(self, shown: Sequence[Shown], **more: Any) -> dict[str, Any]:
        """The payload that retracts the latest items that are shown."""
        left: dict[str, int] = {}
        for one in shown:
            if one.number != OWN:
                left[one.part] = min(one.number, left.get(one.part, one.number))
        data = self.retracted([one.part for one in shown if one.number == OWN], **more)
        return data | {"left": left} if left else data

    def cleared(self) -> dict[str, Any]:
        """The payload that retracts everything."""
        return self.retracted(all=True, others=True) if self._mixed else self.retracted(all=True)


def item_of(shown: Shown) -> Any:
    """An item that is shown, for a caller who may change it."""
    return _item(shown.said)


def _item(said: Any) -> Any:
    if type(said) is Read:
        return fresh(said.item)
    return parsed(said.line) if isinstance(said, Entry) else said


def _asked_by(item: Any) -> str:
    """The id of the call, or of the request for an approval, that an item is; empty if it is none."""
    if not isinstance(item, dict) or str(item.get("type")).endswith(_OUTPUT):
        return ""
    return str(item.get("id" if item.get("type") == "mcp_approval_request" else "call_id") or "")


def _answered_by(item: Any) -> str:
    """The id of the call or request that an item answers; empty if it answers none."""
    if not isinstance(item, dict):
        return ""
    if str(item.get("type")).endswith(_OUTPUT):
        return str(item.get("call_id") or "")
    return str(item.get("approval_request_id") or "") if item.get("type") == "mcp_approval_response" else ""


def _open_calls(items: list[Any]) -> set[str]:
    """The ids of the calls that these items have without a result."""
    open_: set[str] = set()
    for item in items:
        if isinstance(item, dict) and isinstance(item.get("call_id"), str):
            (open_.discard if str(item.get("type")).endswith(_OUTPUT) else open_.add)(item["call_id"])
    return open_


def _unsaved(effect: Effect, *, is_asked: bool) -> list[dict[str, Any]]:
    """A tool call of a run that ended before it saved its result: the call and what is known of the result."""
    arguments = effect.arguments if isinstance(effect.arguments, str) else json.dumps(effect.arguments or {})
    call = {"type": "function_call", "call_id": effect.call, "name": effect.name, "arguments": arguments}
    return [
        *([] if is_asked else [call]),
        {"type": "function_call_output", "call_id": effect.call, "output": said_of(effect)},
    ]
