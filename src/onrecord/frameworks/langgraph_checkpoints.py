"""The checkpoints of a thread of LangGraph, folded from its events: all of them, or only the newest.

A step is kept as what differs from the one before, and now and then with the whole state. So a process that resumes a
thread needs the texts of its messages, and of its steps those since the last whole state: the others wait, as they were
read, until someone asks for an older checkpoint or writes.
"""

from __future__ import annotations

import json
from itertools import islice
from typing import TYPE_CHECKING, Any

from onrecord.errors import DamagedLog
from onrecord.frameworks.langgraph_puts import pooled, unshaped_writes
from onrecord.frameworks.langgraph_states import LOST, Node
from onrecord.frameworks.langgraph_steps import HEX, filled, ids_of, references

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from onrecord.frameworks.langgraph_states import Key, State
    from onrecord.frameworks.langgraph_values import Pool, Ref
    from onrecord.frameworks.lists import Listed

PLAIN = 3
"""A step has its shape, a time and digits, and seldom more."""
_WIDTH = 5
"""How many values of the flat list an event has."""

Waiting = tuple[int, Any, int]
"""An event that is not folded yet: position, payload (of a plain step, a tuple), and the number of its first text."""


class Late:
    """Events that are not folded yet, in one flat list.

    Thousands of small lists and dicts would be visited by Python's garbage collector, a third of the time of a resume.
    """

    def __init__(self) -> None:
        self._flat: list[Any] = []

    def add(self, position: int, step: list[Any] | None, data: dict[str, Any], start: int) -> None:
        """Add an event; `step` is the step that its payload has, if it has one."""
        if step is not None and len(step) == PLAIN and "writes" not in data:
            self._flat += position, start, step[0], step[1], step[2]
        else:
            self._flat += position, start, data, None, None

    def clear(self) -> None:
        """Remove all of them."""
        self._flat.clear()

    def upto(self, count: int) -> Iterator[tuple[Any, str | None]]:
        """Of the first ones, the digits of each plain step, and the payload of any other event."""
        parts = (islice(self._flat, at, count * _WIDTH, _WIDTH) for at in (2, _WIDTH - 1))
        return zip(*parts, strict=True)

    def __iter__(self) -> Iterator[Waiting]:
        return map(self.__getitem__, range(len(self)))

    def __len__(self) -> int:
        return len(self._flat) // _WIDTH

    def __getitem__(self, number: int) -> Waiting:
        return _waiting(*self._flat[number * _WIDTH : (number + 1) * _WIDTH])


def _waiting(position: int, start: int, first: Any, later: int | None, digits: str | None) -> Waiting:
    return position, first if digits is None else (first, later, digits), start


class Checkpoints:
    """Checkpoints in the order in which they were put, and what their tasks wrote."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.nodes: dict[Key, Node] = {}
        self.order: dict[str, list[str]] = {}
        self.runs: set[str] = set()
        self._shapes: dict[int, Any] = {}
        self._writes: dict[Key, list[tuple[Any, ...]]] = {}
        """What tasks wrote, as their payloads have it: shape, payload, and the number that the shape counts from."""
        self._written: dict[Key, tuple[int, dict[tuple[str, int], tuple[str, str, str]]]] = {}

    def fold(self, position: int, data: Any, start: int) -> None:
        """Fold one event, also one that has waited; its texts are in the pool, from the number `start` on."""
        if type(data) is tuple:
            self._fold_step(position, data, start)
            return
        if "writes" in data:
            for one in _each(data["writes"]):
                self._fold_writes(one)
        if "step" in data:
            self._fold_step(position, data["step"], start)
        elif isinstance(data.get("put"), dict):
            put = data["put"]
            self._fold_put(position, put, start, self.shape(put["shape"]) if "shape" in put else {})

    def _fold_step(self, position: int, step: Sequence[Any], start: int) -> None:
        """Fold a checkpoint that is kept as its shape, and the writes that came with it."""
        number, later, digits, *rest = step
        shape, ids = self.shape(number), ids_of(digits)
        put: dict[str, Any] = {**rest[0], "shape": number} if rest else {"shape": number}
        if later is not None:
            put["later"] = later
        if "id" not in put:
            put["id"] = next(ids)
        ns = put.get("ns", "")
        if "writes" in shape:
            written = [(next(ids), writes, start) for writes in shape["writes"]]
            if order := self.order.get(ns):  # else the checkpoint was erased
                self._writes.setdefault((ns, order[-1]), []).extend(written)
        if "ids" in shape:
            for near in shape["ids"]:
                self.pool.claim(start + near, next(ids))
        self._fold_put(position, put, start, shape)

    def _fold_put(self, position: int, put: dict[str, Any], start: int, shape: dict[str, Any]) -> None:
        ns, id_ = put.get("ns", ""), put["id"]
        order = self.order.setdefault(ns, [])
        parent = put["parent"] if "parent" in put else (order[-1] if order else None)
        base = self.nodes.get((ns, put.get("base", parent or "")))
        if base is None and self.pool.has_gaps and order and "shape" in put:
            base = self.nodes[ns, order[-1]]  # the one that it continues was erased; this one is known of its state
        node = Node(ns, parent, position, base, put=put, shape=shape, start=start)
        if (ns, id_) not in self.nodes or self.nodes[ns, id_].hidden:
            if (ns, id_) in self.nodes:
                order.remove(id_)
            order.append(id_)
        self.nodes[ns, id_] = node
        if isinstance(node.run, str):
            self.runs.add(node.run)

    def _fold_writes(self, data: dict[str, Any]) -> None:
        ns = data.get("ns", "")
        if "id" not in data and not self.order.get(ns):
            return  # the checkpoint was erased
        key = (ns, data["id"] if "id" in data else self.order[ns][-1])
        self._writes.setdefault(key, []).append((data["task"], data))

    def claim(self, step: list[Any], start: int) -> None:
        """Note which texts belong to the messages that a step names, without folding it."""
        near = self.shape(step[0]).get("ids")
        if near:
            for number, id_ in zip(near, ids_of(step[2][-HEX * len(near) :]), strict=True):
                self.pool.claim(start + number, id_)

    def hide(self, runs: set[str], *, keep_latest: bool) -> None:
        """Retract the checkpoints of these runs, or all but the newest of each namespace."""
        for key in self._chosen(runs, keep_latest=keep_latest):
            self.nodes[key].hidden = True
        self.runs -= runs

    def _chosen(self, runs: set[str], *, keep_latest: bool) -> set[Key]:
        return {
            (ns, id_)
            for (ns, id_), node in self.nodes.items()
            if (keep_latest and self.head(ns) != id_) or (runs and node.run in runs)
        }

    def said_only_in(self, runs: set[str]) -> list[int]:
        """The messages that no checkpoint has but those of these runs, and those that were deleted before."""
        deleted = self._chosen(runs, keep_latest=False)
        gone, left = Said(), Said()
        for key, node in self.nodes.items():
            if node.is_lost:
                continue
            if node.hidden or key in deleted:
                gone.add_state(node.state)
            else:
                left.add_state(node.state)
                left.add_texts(text for _path, _channel, text in self.written(key).values())
        return sorted(gone.numbers() - left.numbers())

    def head(self, ns: str) -> str | None:
        """The newest checkpoint of a namespace, by position."""
        for id_ in reversed(self.order.get(ns, ())):
            if not self.nodes[ns, id_].hidden:
                return id_
        return None

    def written(self, key: Key) -> dict[tuple[str, int], tuple[str, str, str]]:
        """What the tasks of a checkpoint wrote: path, channel and text by task and index."""
        kept = self._writes.get(key, ())
        done, found = self._written.get(key, (0, {}))
        for task, of, *start in kept[done:]:
            if start:
                path, *rows = of
                rows = [(index, channel, _text_of(value, start[0])) for index, channel, value in rows]
            elif "shape" in of:
                shape = self.shape(of["shape"])
                path, rows = unshaped_writes(of, shape) if shape is not LOST else ("", [])
            else:
                path, rows = of.get("path", ""), of.get("of") or ()
            for index, channel, text in rows:
                found[task, index] = (path, channel, text)
        if kept:
            self._written[key] = len(kept), found
        return found

    def shape(self, number: int) -> Any:
        """A shape, which is a text of the pool."""
        found = self._shapes.get(number)
        if found is None and self.pool.has_gaps and not self.pool.at(number):
            return LOST
        if found is None:
            try:
                found = self._shapes[number] = json.loads(self.pool.texts[number])
            except (IndexError, ValueError) as problem:
                raise DamagedLog(f"a checkpoint of LangGraph cannot be read: {problem}") from None
        return found


class Said:
    """The messages that some checkpoints have. Lists that continue one another are looked at once."""

    def __init__(self) -> None:
        self._lists: dict[int, Listed[Ref]] = {}
        self._found: set[int] = set()

    def add_state(self, state: State) -> None:
        """Add the messages of one checkpoint."""
        for kept in state.values.values():
            if isinstance(kept, str):
                self.add_texts((kept,))
            elif kept.length >= self._lists.setdefault(id(kept.buffer), kept).length:
                self._lists[id(kept.buffer)] = kept

    def add_texts(self, texts: Iterable[str]) -> None:
        """Add the messages that values refer to."""
        for text in texts:
            self._found.update(references(text))

    def numbers(self) -> set[int]:
        """Their numbers in the pool."""
        refs = [ref for kept in self._lists.values() for ref in kept.refs()]
        self.add_texts(ref for ref in refs if isinstance(ref, str))
        return self._found.union(ref for ref in refs if isinstance(ref, int))


def _text_of(value: str | list[int], start: int) -> str:
    """A value that a shape has: messages, or a text; numbers count from `start`."""
    return filled(value, start) if isinstance(value, str) else f"[{','.join(pooled(one + start) for one in value)}]"


# The newest checkpoint


def newest(pool: Pool, late: Late) -> Checkpoints | None:
    """The checkpoints of the main graph since its last whole state; None if they do not say which one is the newest.

    They do if each of them continues the one before, which is what a run does, and none of them is on record twice.
    """
    tail: list[Waiting] = []
    for number in range(len(late) - 1, -1, -1):
        event = late[number]
        if not _is_of_main_graph(event[1]):
            continue
        tail.append(event)
        rest = _rest(event[1])
        if rest is None or "parent" in rest or "base" in rest:
            return None
        if "whole" in rest:
            return _folded(Checkpoints(pool), tail[::-1], late, number)
    return None


def _folded(found: Checkpoints, tail: list[Waiting], late: Late, before: int) -> Checkpoints | None:
    """The events of the tail, the first of which has the whole state and continues the last one of those before."""
    digits: set[str] = set()
    named: set[str] = set()
    """Checkpoints that writes belong to which name them: one of them may be put after its writes."""
    previous, is_plain = "", False
    for data, of_step in late.upto(before):
        if of_step is not None:
            digits.add(of_step[:HEX])
            previous, is_plain = of_step, True
        else:
            id_ = _id_of(data)
            digits.add(id_.replace("-", ""))
            previous, is_plain = (id_, False) if id_ else (previous, is_plain)
            named.update(one["id"] for one in _each(data.get("writes") or ()) if "id" in one)
    if not previous:
        return None
    found.order[""] = [next(ids_of(previous)) if is_plain else previous]
    for position, data, start in tail:
        found.fold(position, data, start)
    ids = found.order[""] = found.order[""][1:]
    if any(id_.replace("-", "") in digits for id_ in ids) or not named.isdisjoint(ids):
        return None
    return found


def _rest(data: Any) -> dict[str, Any] | None:
    """What a step has that its shape has not; None for a checkpoint in another form."""
    if type(data) is tuple:
        return {}
    step = data.get("step")
    return None if "put" in data else step[3] if step and len(step) > PLAIN else {}


def _is_of_main_graph(data: Any) -> bool:
    if type(data) is tuple:
        return True
    parts = [data.get("put") or {}, _rest(data) or {}, *_each(data.get("writes") or ())]
    return not any(one.get("ns") for one in parts)


def _id_of(data: Any) -> str:
    """The id of the checkpoint of the main graph that an event has; empty if it has none."""
    if type(data) is tuple:
        return next(ids_of(data[2]))
    if not _is_of_main_graph(data) or not ("put" in data or "step" in data):
        return ""
    rest = _rest(data)
    id_: str = data["put"]["id"] if rest is None else rest["id"] if "id" in rest else next(ids_of(data["step"][2]))
    return id_


def _each(writes: Any) -> Any:
    """The writes of each task; those of one task may be by themselves."""
    return (writes,) if isinstance(writes, dict) else writes
