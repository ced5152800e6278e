"""The tool calls of a conversation on record: how often each id was used, and which calls the model saw answered.

An id alone does not say which call is meant: some model servers give every call the same one. Each use of an id is an
effect of its own. The first one has the id in its key; each later one has a number behind it and says its id.
"""

from __future__ import annotations

import json
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NamedTuple

from onrecord.views.effects import KEY_LIMIT, key_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from onrecord.log.events import Event

EFFECT_KINDS = ("effect.started", "effect.finished")
_OUTCOME_UNKNOWN = "started, outcome unknown: the run ended before {name} answered; check before you repeat it"


class Effect(NamedTuple):
    """A tool call on record, whose entry may not have arrived yet."""

    call: str
    """The id that the model gave it."""
    name: str
    arguments: Any
    position: int
    outcome: dict[str, Any] | None
    """None while its result is not on record."""
    number: int
    """How often it was tried: a call that failed may be tried again."""
    key: str
    """What the effect ledger calls it."""

    @property
    def has_failed(self) -> bool:
        """Whether its failure is on record."""
        return self.outcome is not None and not self.outcome.get("ok")


class ToolCalls:
    """The tool calls of one framework in one session."""

    def __init__(self, framework: str) -> None:
        self._framework, self._prefix = framework, f"{framework}/"
        self._effects: dict[str, Effect] = {}
        self._uses: dict[str, list[str]] = {}
        """The keys of the uses of each id, by the key of the first, in order."""
        self._waiting: dict[str, list[str]] = {}
        """Those whose results were never among the entries."""

    def __len__(self) -> int:
        return len(self._effects)

    def apply(self, event: Event, data: dict[str, Any]) -> None:
        """Fold one end of a tool call."""
        key = str(data.get("key") or key_of(event.id))
        if not key.startswith(self._prefix):
            return
        known = self._effects.get(key)
        if event.kind == "effect.started":
            call = str(data.get("call") or key.removeprefix(self._prefix))
            number = known.number + 1 if known else 1
            self._effects[key] = Effect(
                call, str(data.get("name", "")), data.get("arguments"), event.position, None, number, key
            )
            first = effect_key(self._framework, call)
            if known is None:
                self._uses.setdefault(first, []).append(key)
            waiting = [one for one in self._waiting.get(first, ()) if one != key]
            if data:  # else it was erased, and so were the entries that would say whether it was answered
                self._waiting[first] = [*waiting, key]
        elif known:
            self._effects[key] = known._replace(outcome=data)

    def answer(self, call: str, position: int) -> None:
        """Fold that an entry with the result of a call was kept: the result of its newest use before that."""
        first = effect_key(self._framework, call)
        waiting = self._waiting.get(first)
        for key in reversed(waiting or ()):
            if waiting and self._effects[key].position < position:
                waiting.remove(key)
                break
        if not waiting:
            self._waiting.pop(first, None)

    def let_go(self) -> None:
        """Fold that everything was retracted: no entry has the results of the calls before, and none need have."""
        self._waiting.clear()

    def uses(self, call: str) -> list[Effect]:
        """The calls with this id, in order."""
        return [self._effects[key] for key in self._uses.get(effect_key(self._framework, call), ())]

    def waiting(self, call: str) -> list[Effect]:
        """Those of them whose results were never among the entries."""
        return [self._effects[key] for key in self._waiting.get(effect_key(self._framework, call), ())]

    def all_waiting(self) -> Iterator[Effect]:
        """All calls whose results were never among the entries."""
        return (self._effects[key] for keys in self._waiting.values() for key in keys)

    def next_key(self, call: str) -> str:
        """The key of another use of an id."""
        number = len(self.uses(call)) + 1
        while (key := effect_key(self._framework, f"{call}#{number}" if number > 1 else call)) in self._effects:
            number += 1
        return key

    def beginning(self, key: str, call: str, name: str, arguments: Any) -> dict[str, Any]:
        """The payload of the beginning of a call; it says the id if its key does not."""
        data = {"key": key, "name": name, "arguments": arguments}
        return data if key == f"{self._prefix}{call}" else data | {"call": call}


def effect_key(framework: str, call: str) -> str:
    """The key of a tool call in the effect ledger."""
    key = f"{framework}/{call}"
    if len(key) <= KEY_LIMIT and key.isprintable():
        return key
    return f"{framework}/{sha256(call.encode('utf-8', 'surrogatepass')).hexdigest()}"


def said_of(effect: Effect) -> str:
    """What the record says about the result of a tool call."""
    if effect.outcome is None:
        return _OUTCOME_UNKNOWN.format(name=effect.name or "the tool")
    if effect.outcome.get("ok"):
        result = effect.outcome.get("result")
        return result if isinstance(result, str) else json.dumps(result, ensure_ascii=False)
    return f"failed: {effect.outcome.get('error')}"
