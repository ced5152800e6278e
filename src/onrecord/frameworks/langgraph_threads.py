"""One thread of LangGraph as a fold of one session's log: checkpoints, pending writes, and the pool of their texts.

A checkpoint is kept as what differs from the checkpoint it continues: changed channels, new elements of lists, new
versions. Texts are in the pool once. So a log grows with what was said, not with how often it was saved.
"""

from __future__ import annotations

import json
import re
from copy import deepcopy
from threading import Condition
from typing import TYPE_CHECKING, Any, NamedTuple

from langchain_core.messages import BaseMessage

from onrecord.frameworks.conversation import Conversation, row
from onrecord.frameworks.langgraph_values import (
    POOLED,
    TAG,
    VALUE,
    Pool,
    Values,
    as_text,
    neutral,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from onrecord.log.events import Event
    from onrecord.session.session_store import SessionStore

FRAMEWORK = "langgraph"
RUN_LINK = "langgraph-run"
_ATOMS = frozenset({str, int, float, bool, type(None)})
_POOLED_TEXT = re.compile(rf'\{{"{TAG}":"{POOLED}","{VALUE}":(\d+)\}}')
_OWN = ("id", "channel_values", "channel_versions", "versions_seen")

Key = tuple[str, str]
"""Namespace and id of a checkpoint."""


class Listed:
    """A list that shares its beginning with the list it continues: the texts of its elements."""

    __slots__ = ("buffer", "length")

    def __init__(self, buffer: list[str], length: int) -> None:
        self.buffer, self.length = buffer, length

    def followed_by(self, kept: int, more: Sequence[str]) -> Listed:
        """The list with its first `kept` elements and then `more`."""
        if kept == len(self.buffer):
            self.buffer.extend(more)
            return Listed(self.buffer, kept + len(more))
        return Listed([*self.buffer[:kept], *more], kept + len(more))

    def texts(self) -> list[str]:
        """Its elements."""
        return self.buffer[: self.length]


class Node:
    """One checkpoint: what it holds, as texts."""

    __slots__ = ("hidden", "metadata", "ns", "parent", "position", "rest", "seen", "values", "versions")

    def __init__(self, ns: str, parent: str | None, position: int, base: Node | None) -> None:
        self.ns, self.parent, self.position = ns, parent, position
        self.values: dict[str, str | Listed] = dict(base.values) if base else {}
        self.versions: dict[str, Any] = dict(base.versions) if base else {}
        self.seen: dict[str, Any] = dict(base.seen) if base else {}
        self.metadata: dict[str, Any] = dict(base.metadata) if base else {}
        self.rest: dict[str, Any] = {}
        self.hidden = False
        """Deleted, and still needed by checkpoints that continue it."""


class Thread(Conversation):
    """The checkpoints of one thread, in the order in which they were put."""

    def __init__(self, store: SessionStore, id: str, values: Values, **options: Any) -> None:
        self.values = values
        self._arrived = Condition()
        super().__init__(store, FRAMEWORK, id, **options)

    def _forget(self) -> None:
        super()._forget()
        self._reset()
        self.copies: list[str] = []
        """Threads that were copied from this one."""

    def _reset(self) -> None:
        self.pool = Pool()
        self.cache: dict[int, Cached] = {}
        """Messages of the newest state that need not be encoded again, by identity."""
        self.nodes: dict[Key, Node] = {}
        self.order: dict[str, list[str]] = {}
        self.writes: dict[Key, dict[tuple[str, int], tuple[str, str, str]]] = {}
        self.runs: set[str] = set()

    # Folding

    def fold(self, event: Event, data: dict[str, Any]) -> None:
        """Fold one event of this thread."""
        if event.kind == "payload.retracted":
            self._retract(data)
            return
        for text in data.get("lines") or ():
            self.pool.add(text)
        for number, id_ in data.get("ids") or ():
            self.pool.claim(number, id_)
        if isinstance(data.get("put"), dict):
            self._fold_put(event.position, data["put"])
        if isinstance(data.get("writes"), dict):
            self._fold_writes(data["writes"])
        if isinstance(data.get("copied_to"), str):
            self.copies.append(data["copied_to"])
        if isinstance(data.get("thread"), str):
            self.id = data["thread"]

    def _fold_put(self, position: int, put: dict[str, Any]) -> None:
        ns, id_ = put.get("ns", ""), put["id"]
        order = self.order.setdefault(ns, [])
        parent = put["parent"] if "parent" in put else (order[-1] if order else None)
        base = self.nodes.get((ns, put["base"])) if "base" in put else self.nodes.get((ns, parent or ""))
        node = Node(ns, parent, position, base)
        for channel, kept in put.get("set", {}).items():
            if isinstance(kept, str):
                node.values[channel] = kept
            else:
                old = base.values.get(channel) if base else None
                start = old if isinstance(old, Listed) else Listed([], 0)
                more = [_pooled(one) if isinstance(one, int) else one for one in kept[1:]]
                node.values[channel] = start.followed_by(kept[0], more)
        node.rest = dict(base.rest) if base else {}
        for name in ("values", "versions", "seen", "metadata", "rest"):
            for gone in put.get(f"no_{name}", ()):
                getattr(node, name).pop(gone, None)
        node.versions |= put.get("versions", {})
        node.seen |= put.get("seen", {})
        node.metadata |= put.get("metadata", {})
        node.rest |= put.get("rest", {})
        if (ns, id_) not in self.nodes or self.nodes[ns, id_].hidden:
            if id_ in order:
                order.remove(id_)
            order.append(id_)
        self.nodes[ns, id_] = node
        with self._arrived:
            self._arrived.notify_all()
        run = node.metadata.get("run_id")
        if isinstance(run, str):
            self.runs.add(run)

    def _fold_writes(self, data: dict[str, Any]) -> None:
        ns = data.get("ns", "")
        written = self.writes.setdefault((ns, data["id"] if "id" in data else self.order[ns][-1]), {})
        for index, channel, text in data["of"]:
            written[data["task"], index] = (data.get("path", ""), channel, text)

    def _retract(self, data: dict[str, Any]) -> None:
        if data.get("all"):
            self._reset()
            return
        runs, ids = set(data.get("runs") or ()), set()
        for (ns, id_), node in self.nodes.items():
            newest = data.get("keep_latest") and self.head(ns) != id_
            if newest or (runs and node.metadata.get("run_id") in runs):
                ids.add((ns, id_))
        for key in ids:
            self.nodes[key].hidden = True
        self.runs -= runs

    def wait_for(self, key: Key, seconds: float) -> None:
        """Wait until a checkpoint is on record, so that what its tasks write comes after it."""
        with self._arrived:
            self._arrived.wait_for(lambda: key in self.nodes, seconds)

    # Reading

    def head(self, ns: str) -> str | None:
        """The newest checkpoint of a namespace, by position."""
        for id_ in reversed(self.order.get(ns, ())):
            if not self.nodes[ns, id_].hidden:
                return id_
        return None

    def value(self, kept: str | Listed) -> Any:
        """The value of a channel."""
        if not isinstance(kept, Listed):
            return self.text(kept)
        found = []
        for text in kept.texts():
            value = self.text(text)
            if isinstance(value, BaseMessage):
                self.cache[id(value)] = Cached(value, _snapshot(value), text)
            found.append(value)
        return found

    def text(self, text: str) -> Any:
        """The value that a text encodes."""
        return self.values.decode(json.loads(text), self.pool)

    def checkpoint(self, key: Key) -> dict[str, Any]:
        """A checkpoint as LangGraph had it."""
        node = self.nodes[key]
        return {
            **self.decoded(node.rest), "id": key[1],
            "channel_values": {channel: self.value(kept) for channel, kept in node.values.items()},
            "channel_versions": self.decoded(node.versions), "versions_seen": self.decoded(node.seen),
        }  # fmt: skip

    def decoded(self, kept: dict[str, Any]) -> Any:
        """A dict of encoded values."""
        return {name: self.values.decode(one, self.pool) for name, one in kept.items()}

    def pending(self, key: Key) -> list[tuple[str, str, Any]]:
        """The writes of a checkpoint's tasks, in the order in which a run applies them."""
        found = sorted(
            (path, task, index, channel, text)
            for (task, index), (path, channel, text) in self.writes.get(key, {}).items()
        )
        return [(task, channel, self.text(text)) for _path, task, _index, channel, text in found]


class Cached(NamedTuple):
    """A message, what it said when it was encoded, and the text of that."""

    message: BaseMessage
    said: dict[str, Any]
    text: str


def _snapshot(message: BaseMessage) -> dict[str, Any]:
    """The fields of a message, safe from later changes of it."""
    return {name: part if type(part) in _ATOMS else deepcopy(part) for name, part in message.__dict__.items()}


class Pooling:
    """New texts of one append: their numbers, and what they say."""

    def __init__(self, thread: Thread) -> None:
        self.thread = thread
        self.lines: list[str] = []
        self.reading: list[dict[str, Any]] = []
        self.ids: dict[int, str] = {}
        self.used: dict[int, Cached] = {}
        self._numbers: dict[str, int] = {}

    def keep(self, text: str, message: BaseMessage | None) -> int:
        """The number of a text in the pool, see `Keep`; a new one is added."""
        pool = self.thread.pool
        number = pool.numbers.get(text, self._numbers.get(text))
        if number is None:
            number = self._add(text, message)
        if message is None or message.id is None:
            return number
        owner = self.ids.get(number) or pool.ids.get(number)
        if owner is None and message.id not in pool.known:
            self.ids[number] = owner = message.id
        elif owner != message.id and message.id not in pool.known and message.id not in self.ids.values():
            number = self._add(text, message)  # the same words were said again
            owner = message.id
        return -number - 1 if owner == message.id else number

    def _add(self, text: str, message: BaseMessage | None) -> int:
        number = len(self.thread.pool.texts) + len(self.lines)
        self._numbers[text] = number
        self.lines.append(text)
        if message is not None:
            said = neutral(message)
            if said:
                self.reading.append(row(len(self.lines) - 1, str(number), json.loads(text), said))
            if message.id is not None and message.id not in self.thread.pool.known:
                self.ids[number] = message.id
        return number

    def element(self, value: Any) -> str:
        """An element of a list as text; a message that was encoded before is only compared."""
        known = self.thread.cache.get(id(value))
        if known is not None and known.message is value and value.__dict__ == known.said:
            self.used[id(value)] = known
            return known.text
        text = self.text(value)
        if isinstance(value, BaseMessage) and not value.__pydantic_extra__:
            self.used[id(value)] = Cached(value, _snapshot(value), text)
        return text

    def settle(self) -> None:
        """After the append: what need not be encoded again, and texts as they were before secrets were replaced."""
        self.thread.cache = self.used
        for text, number in self._numbers.items():
            self.thread.pool.numbers.setdefault(text, number)

    def text(self, value: Any) -> str:
        """A value as text."""
        return as_text(self.thread.values.encode(value, self.keep))

    def payload(self, **more: Any) -> dict[str, Any]:
        """The payload of the event: only what there is."""
        thread = self.thread
        data: dict[str, Any] = {"vendor": FRAMEWORK, **more}
        if self.lines:
            data["lines"] = self.lines
        if self.ids:
            data["ids"] = [list(one) for one in self.ids.items()]
        if self.reading:
            data |= {"vendor_id": thread.id, "agent": thread.agent, "reading": self.reading}
            if not thread.pool.texts:
                data["mark_before"] = [0]  # no turn of this conversation began before this event
        return data


def put_of(
    pooling: Pooling, key: Key, parent: str | None, checkpoint: dict[str, Any], metadata: dict[str, Any]
) -> dict[str, Any]:
    """What a checkpoint adds to the one it continues."""
    thread = pooling.thread
    ns, id_ = key
    base = thread.nodes.get((ns, parent or ""))
    put: dict[str, Any] = {"id": id_} | ({"ns": ns} if ns else {})
    order = thread.order.get(ns)
    if parent != (order[-1] if order else None):
        put["parent"] = parent
    changed: dict[str, Any] = {}
    values = checkpoint.get("channel_values") or {}
    for channel, value in values.items():
        kept = _changed(base.values.get(channel) if base else None, value, pooling)
        if kept is not None:
            changed[channel] = kept
    parts = {
        "versions": (checkpoint.get("channel_versions") or {}, base.versions if base else {}),
        "seen": (checkpoint.get("versions_seen") or {}, base.seen if base else {}),
        "metadata": (metadata, base.metadata if base else {}),
        "rest": ({one: part for one, part in checkpoint.items() if one not in _OWN}, base.rest if base else {}),
    }
    for name, (new, old) in parts.items():
        made = {one: thread.values.encode(part, None) for one, part in new.items()}
        _set(put, name, {one: part for one, part in made.items() if one not in old or old[one] != part})
        _set(put, f"no_{name}", [one for one in old if one not in made])
    _set(put, "set", changed)
    _set(put, "no_values", [one for one in (base.values if base else ()) if one not in values])
    return put


def _set(put: dict[str, Any], name: str, value: Any) -> None:
    if value:
        put[name] = value


def _changed(old: str | Listed | None, value: Any, pooling: Pooling) -> Any:
    """A channel's new value, if it differs: a text; of a list, how many elements stay, and those that follow."""
    if type(value) is not list:
        text = pooling.text(value)
        return None if text == old else text
    texts = [pooling.element(one) for one in value]
    before = old.texts() if isinstance(old, Listed) else []
    if isinstance(old, Listed) and before == texts:
        return None
    kept = 0
    for kept, (one, other) in enumerate(zip(before, texts, strict=False)):  # noqa: B007  # the number is what we want
        if one != other:
            break
    else:
        kept = min(len(before), len(texts))
    return [kept, *(_number(text) for text in texts[kept:])]


def _pooled(number: int) -> str:
    """The text of a message that has the id of its entry in the pool."""
    return f'{{"{TAG}":"{POOLED}","{VALUE}":{number}}}'


def _number(text: str) -> int | str:
    """The inverse of `_pooled`; any other text as it is."""
    found = _POOLED_TEXT.fullmatch(text)
    return int(found[1]) if found else text


def writes_of(
    pooling: Pooling, key: Key, writes: Iterable[tuple[int, str, Any]], task: str, path: str
) -> dict[str, Any] | None:
    """The writes that are not on record yet; those of special channels replace what is there."""
    thread = pooling.thread
    known = thread.writes.get(key, {})
    of = []
    for index, channel, value in writes:
        if index >= 0 and (task, index) in known:
            continue
        text = pooling.text(value)
        if known.get((task, index)) != (path, channel, text):
            of.append([index, channel, text])
    if not of:
        return None
    ns, id_ = key
    newest = (thread.order.get(ns) or [""])[-1]
    data = {"task": task, "of": of} | ({"id": id_} if id_ != newest else {})
    return data | ({"ns": ns} if ns else {}) | ({"path": path} if path else {})
