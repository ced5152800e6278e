"""What a checkpoint, or the writes of a task, add to a thread: payloads that say each thing once.

Texts and messages are in the pool. What repeats from turn to turn (which channels changed, by how much their versions
grew) is a *shape*: text in the pool too, with numbers that count from the checkpoint that is continued. So a further
step of a graph costs its new messages, an id, a time and the number of its shape.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from onrecord.frameworks.conversation import row
from onrecord.frameworks.langgraph_exact import is_same
from onrecord.frameworks.langgraph_neutral import neutral
from onrecord.frameworks.langgraph_states import SHAPED, later_than
from onrecord.frameworks.langgraph_steps import WHOLE_EVERY, WHOLE_LIMIT
from onrecord.frameworks.langgraph_values import POOLED, TAG, VALUE, extra_of, snapshot
from onrecord.frameworks.lists import Listed
from onrecord.frameworks.parsing import parsed
from onrecord.frameworks.requiring import required
from onrecord.frameworks.writing import as_line

with required("langgraph", "langgraph langchain_core", "1.2"):
    from langchain_core.messages import BaseMessage

if TYPE_CHECKING:
    from collections import OrderedDict
    from collections.abc import Iterable, Mapping, Sequence

    from onrecord.frameworks.langgraph_states import Key, Node, State
    from onrecord.frameworks.langgraph_values import Pool, Ref, Values

FRAMEWORK = "langgraph"
_MESSAGE = "message"
"""How a message is tagged that has the id of another entry."""
SHORT = 16
"""Texts of up to so many characters, which refer to nothing, are part of a shape."""
_extra = attrgetter("__pydantic_extra__")
_OWN = ("id", "channel_values", "channel_versions", "versions_seen")


class Generation(NamedTuple):
    """The messages of a list as a run has them, and what each said when it was read or encoded."""

    objects: list[Any]
    said: list[dict[str, Any]]
    refs: list[Ref]
    extra: dict[int, dict[str, Any]]
    """The extra fields of those that had some."""

    def extend(self, more: Generation) -> None:
        """Add the messages of another list."""
        start = len(self.objects)
        self.extra.update((start + at, of) for at, of in more.extra.items())
        self.objects.extend(more.objects)
        self.said.extend(more.said)
        self.refs.extend(more.refs)

    def is_at(self, value: list[Any], start: int) -> bool:
        """Whether a list has these messages there, and none of them was changed."""
        # Python looks first whether two messages are the same one, so this takes longer only for those that are not.
        if value[start : start + len(self.objects)] != self.objects:
            return False
        if [one.__dict__ for one in self.objects] != self.said:
            return False
        if self.extra or any(map(_extra, self.objects)):
            extra = {at: of for at, of in enumerate(map(_extra, self.objects)) if of}
            return is_same(extra, self.extra)
        return True


class Folded(Protocol):
    """A thread, as far as it is needed here."""

    id: str
    values: Values
    pool: Pool
    generations: OrderedDict[int, Generation]

    @property
    def nodes(self) -> dict[Key, Node]:
        """Every checkpoint."""

    @property
    def order(self) -> dict[str, list[str]]:
        """The checkpoints of each namespace, in the order in which they were put."""

    def written(self, key: Key) -> dict[tuple[str, int], tuple[str, str, str]]:
        """What the tasks of a checkpoint wrote: path, channel and text by task and index."""

    def remember(self, generation: Generation) -> None:
        """Keep what need not be encoded again."""

    def repeats(self, message: BaseMessage) -> bool:
        """Whether a message repeats a turn of another writer."""


class Pooling:
    """New texts of one append: their numbers, and what they say."""

    def __init__(self, thread: Folded) -> None:
        self.thread = thread
        self.start = len(thread.pool.texts)
        """The number of the first text that it adds."""
        self.lines: list[str] = []
        self.reading: list[dict[str, Any] | list[Any]] = []
        self.ids: dict[int, str] = {}
        self.generations: dict[int, Generation] = {}
        """The messages of its lists, by the identity of the first."""
        self._numbers: dict[str, int] = {}
        self._shapes = 0
        """How many of the last texts are shapes."""
        self.unmade: list[int] = []
        """Messages that a person changed before their calls were made: other calls were made in their place."""

    def keep_shape(self, text: str) -> int:
        """The number of a shape in the pool; new ones follow all other texts."""
        before = len(self.lines)
        number = self.keep(text, None)
        self._shapes += len(self.lines) - before
        return number

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
            if said and not self.thread.repeats(message):
                self.reading.append(row(len(self.lines) - 1, str(number), parsed(text), said))
            if message.id is not None and message.id not in self.thread.pool.known:
                self.ids[number] = message.id
        return number

    def text(self, value: Any) -> str:
        """A value as text."""
        return as_line(self.thread.values.encode(value, self.keep))

    def ref(self, value: Any) -> Ref:
        """An element of a list."""
        made = self.thread.values.encode(value, self.keep)
        number = _pooled_number(made)
        return as_line(made) if number is None else number

    def refs(self, value: list[Any]) -> list[Ref]:
        """The elements of a list; messages that were encoded before are only compared.

        A state mostly begins with the state before, and what a task wrote since follows.
        """
        whole, at, plain = Generation([], [], [], {}), 0, True
        while at < len(value):
            first = id(value[at])
            known = self.generations.get(first) or self.thread.generations.get(first)
            if known is None or not known.is_at(value, at):
                known = self._encoded(value[at])
                plain = plain and isinstance(value[at], BaseMessage)
            whole.extend(known)
            at += len(known.refs)
        if plain and value:
            self.generations[id(value[0])] = whole
        return whole.refs

    def note_unmade(self, before: Sequence[Ref], after: Sequence[Ref]) -> None:
        """Note which messages were replaced, under their own ids, by ones with other calls."""
        others = dict(filter(None, map(self._message_of, after)))
        for id_, number in filter(None, map(self._message_of, before)):
            if others.get(id_, number) != number:
                calls, instead = (self._calls_of(one) for one in (number, others[id_]))
                if calls and calls != instead:
                    self.unmade.append(number)

    def _message_of(self, ref: Ref) -> tuple[str, int] | None:
        """The id of a message in a list, and the number of what it says."""
        if isinstance(ref, int):
            id_ = self.ids.get(ref) or self.thread.pool.ids.get(ref)
            return (id_, ref) if id_ else None
        made = parsed(ref)
        is_message = isinstance(made, dict) and made.get(TAG) == _MESSAGE and isinstance(made[VALUE], int)
        return (made["id"], made[VALUE]) if is_message and made["id"] else None

    def _calls_of(self, number: int) -> Any:
        known = len(self.thread.pool.texts)
        text = self.thread.pool.texts[number] if number < known else self.lines[number - known]
        return parsed(text).get("tool_calls") if text else None  # it was erased

    def _encoded(self, value: Any) -> Generation:
        """One element, with what it says if it is a message."""
        said, extra = (snapshot(value), extra_of(value)) if isinstance(value, BaseMessage) else ({}, {})
        return Generation([value], [said], [self.ref(value)], {0: extra} if extra else {})

    def settle(self) -> None:
        """After the append: what need not be encoded again, and texts as they were before secrets were replaced."""
        for one in self.generations.values():
            self.thread.remember(one)
        for text, number in self._numbers.items():
            self.thread.pool.numbers.setdefault(text, number)

    def payloads(self, **more: Any) -> list[dict[str, Any]]:
        """The payload of the event: only what there is; before it the one that new shapes have.

        Later events refer to a shape, so it must stay when an event is erased for what was said.
        """
        thread = self.thread
        data: dict[str, Any] = {"vendor": FRAMEWORK, **more}
        said = len(self.lines) - self._shapes
        lines, shapes = self.lines[:said], self.lines[said:]
        if lines:
            data["lines"] = lines
        if shapes or (lines and not self.reading):
            data["start"] = self.start  # the reading has numbers, too
        if self.ids:
            data["ids"] = [list(one) for one in self.ids.items()]
        if self.reading:
            data |= {"vendor_id": thread.id, "reading": self.reading}
            if not thread.pool.texts:
                data["mark_before"] = [0]  # no turn of this conversation began before this event
        return [{"vendor": FRAMEWORK, "lines": shapes, "start": self.start + said}, data] if shapes else [data]


# Checkpoints


class Put(NamedTuple):
    """A checkpoint as LangGraph gives it, and the one that it continues."""

    key: Key
    parent: str | None
    checkpoint: Mapping[str, Any]
    metadata: dict[str, Any]
    new_versions: Mapping[str, Any]


def put_of(pooling: Pooling, given: Put) -> dict[str, Any]:
    """What a checkpoint adds to the one it continues."""
    (ns, id_), parent, checkpoint, metadata, new_versions = given
    thread = pooling.thread
    node = thread.nodes.get((ns, parent or ""))
    base = node.state if node else None
    put: dict[str, Any] = {"id": id_} | ({"ns": ns} if ns else {})
    order = thread.order.get(ns)
    if parent != (order[-1] if order else None):
        put["parent"] = parent
    values, versions = checkpoint.get("channel_values") or {}, checkpoint.get("channel_versions") or {}
    parts = {
        "versions": (versions, base.versions if base else {}),
        "seen": (checkpoint.get("versions_seen") or {}, base.seen if base else {}),
        "metadata": (metadata, base.metadata if base else {}),
        "rest": ({one: part for one, part in checkpoint.items() if one not in _OWN}, base.rest if base else {}),
    }
    for name, (new, old) in parts.items():
        made = {one: thread.values.encode(part, None) for one, part in new.items()}
        _set(put, name, {one: part for one, part in made.items() if one not in old or not is_same(old[one], part)})
        _set(put, f"no_{name}", [one for one in old if one not in made])
    for channel, value in values.items():
        before = base.values.get(channel) if base else None
        if before is None or channel in new_versions or not _is_same_version(base, versions, channel):
            _add_value(put, channel, before, value, pooling)  # else it has the value of the checkpoint it continues
    _set(put, "no_values", [one for one in (base.values if base else ()) if one not in values])
    if base is not None and len(thread.nodes) % WHOLE_EVERY == 0:
        whole = base.copy()
        whole.apply(put, {})
        made = whole.whole()
        if None not in made["values"].values() and len(as_line(made)) <= WHOLE_LIMIT:
            put["whole"] = made
    _shape(put, base)
    return put


def _is_same_version(base: State | None, versions: dict[str, Any], channel: str) -> bool:
    return base is not None and channel in versions and versions[channel] == base.versions.get(channel)


def _set(put: dict[str, Any], name: str, value: Any) -> None:
    if value:
        put[name] = value


def _add_value(put: dict[str, Any], channel: str, old: str | Listed[Ref] | None, value: Any, pooling: Pooling) -> None:
    """A channel's new value, if it differs: a text; of a list, how many elements stay, and those that follow."""
    if type(value) is not list:
        text = pooling.text(value)
        if text != old:
            put.setdefault("set", {})[channel] = text
        return
    refs = pooling.refs(value)
    before = old.refs() if isinstance(old, Listed) else []
    kept = len(before)
    if refs[:kept] != before:
        kept = next(number for number, one in enumerate(before) if number >= len(refs) or refs[number] != one)
    elif isinstance(old, Listed) and kept == len(refs):
        return
    if kept and kept == len(before):
        put.setdefault("add", {})[channel] = refs[kept:]
    else:
        put.setdefault("set", {})[channel] = [kept, *refs[kept:]]
        pooling.note_unmade(before[kept:], refs[kept:])


def _shape(put: dict[str, Any], base: State | None) -> None:
    """Move what repeats from turn to turn into a shape."""
    newest = base.newest() if base else None
    if base is None or newest is None:
        return
    shape: dict[str, Any] = {name: put.pop(name) for name in SHAPED if name in put}
    if all(type(one) is int for one in put.get("versions", {}).values()):
        _set(shape, "versions", {name: one - newest for name, one in put.pop("versions", {}).items()})
    seen = {
        name: {channel: one - newest for channel, one in of.items()}
        for name, of in put.get("seen", {}).items()
        if type(of) is dict and all(type(one) is int for one in of.values())
    }
    _set(shape, "seen", seen)
    _take(put, "seen", seen)
    about = put.get("metadata", {})
    if type(about.get("step")) is int and type(base.metadata.get("step")) is int:
        shape["up"] = about.pop("step") - base.metadata["step"]
    _take(put, "metadata", _moved(shape, "metadata", about, ("source",)))
    _take(put, "rest", _moved(shape, "rest", put.get("rest", {}), ("updated_channels", "v")))
    later = _microseconds(base.rest.get("ts"), put.get("rest", {}).get("ts"))
    if later is not None:
        put["later"] = later
        _take(put, "rest", {"ts": None})
    short = [name for name, one in put.get("set", {}).items() if _is_short(one)]
    _take(put, "set", _moved(shape, "set", put.get("set", {}), short))
    put["shape"] = shape


def _microseconds(base: Any, ts: Any) -> int | None:
    """How much later a time is, if it can be computed from that."""
    if not isinstance(base, str) or not isinstance(ts, str):
        return None
    try:
        later = (datetime.fromisoformat(ts) - datetime.fromisoformat(base)) // timedelta(microseconds=1)
    except (ValueError, TypeError):
        return None
    return later if later_than(base, later) == ts else None


def _moved(shape: dict[str, Any], part: str, of: dict[str, Any], names: Iterable[str]) -> dict[str, Any]:
    moved = {name: of[name] for name in names if name in of}
    _set(shape, part, moved)
    return moved


def _take(put: dict[str, Any], part: str, moved: dict[str, Any]) -> None:
    """Remove from a part what a shape has, and the part if nothing is left of it."""
    if part in put:
        put[part] = {name: one for name, one in put[part].items() if name not in moved}
        if not put[part]:
            del put[part]


def _is_short(text: Any) -> bool:
    return isinstance(text, str) and len(text) <= SHORT and TAG not in text


# Writes of tasks


def writes_of(
    pooling: Pooling, key: Key, writes: Iterable[tuple[int, str, Any]], task: str, path: str
) -> dict[str, Any] | None:
    """The writes that are not on record yet; those of special channels replace what is there."""
    thread = pooling.thread
    known = thread.written(key)
    shape: list[Any] = []
    of: list[Any] = []
    for index, channel, value in writes:
        if index >= 0 and (task, index) in known:
            continue
        refs = pooling.refs(value) if type(value) is list else []
        text = f"[{','.join(map(pooled, refs))}]" if refs else pooling.text(value)
        if known.get((task, index)) == (path, channel, text):
            continue
        if _is_short(text):
            shape.append([index, channel, text])
            continue
        shape.append([index, channel])
        of.append(refs if refs and all(type(one) is int for one in refs) else text)
    if not shape:
        return None
    ns, id_ = key
    newest = (thread.order.get(ns) or [""])[-1]
    data: dict[str, Any] = {"task": task, "shape": [path, *shape]}
    return data | ({"of": of} if of else {}) | ({"id": id_} if id_ != newest else {}) | ({"ns": ns} if ns else {})


def unshaped_writes(data: dict[str, Any], shape: list[Any]) -> tuple[str, list[tuple[int, str, str]]]:
    """The path of a task, and the index, channel and text of each of its writes."""
    path, *rows = shape
    of = iter(data.get("of") or ())
    made: list[tuple[int, str, str]] = []
    for index, channel, *short in rows:
        kept = short[0] if short else next(of)
        text = kept if isinstance(kept, str) else f"[{','.join(map(pooled, kept))}]"
        made.append((index, channel, text))
    return path, made


def pooled(ref: Ref) -> str:
    """The text of an element; a number is that of a message that has the id of its entry in the pool."""
    return f'{{"{TAG}":"{POOLED}","{VALUE}":{ref}}}' if type(ref) is int else str(ref)


def _pooled_number(made: Any) -> int | None:
    """The number of such a message; None for any other value."""
    return made[VALUE] if type(made) is dict and made.get(TAG) == POOLED else None
