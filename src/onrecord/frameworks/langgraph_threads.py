"""One thread of LangGraph as a fold of one session's log: checkpoints, pending writes, and the pool of their texts.

A checkpoint is kept as what differs from the checkpoint it continues: changed channels, new elements of lists, new
versions. Texts are in the pool once. So a log grows with what was said, not with how often it was saved.
"""

from __future__ import annotations

import json
import time
from collections import OrderedDict
from contextlib import suppress
from hashlib import sha256
from threading import Condition
from threading import Event as Signal
from typing import TYPE_CHECKING, Any

from onrecord.errors import InvalidInput, OnrecordError
from onrecord.frameworks.conversation import Conversation, check_type
from onrecord.frameworks.langgraph_checkpoints import PLAIN, Checkpoints, Late, newest
from onrecord.frameworks.langgraph_gaps import FAR, mended, starts_of
from onrecord.frameworks.langgraph_puts import (
    FRAMEWORK,
    Generation,
    Pooling,
    put_of,
    writes_of,
)
from onrecord.frameworks.langgraph_steps import HEX, pooled_writes, step_of
from onrecord.frameworks.langgraph_values import Pool, Values, fresh
from onrecord.frameworks.listing import listed, opened_with
from onrecord.frameworks.lists import Listed
from onrecord.frameworks.others import mark_of
from onrecord.log.names import ID_LIMIT, link_id

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from langchain_core.messages import BaseMessage

    from onrecord.frameworks.langgraph_gaps import Starts
    from onrecord.frameworks.langgraph_puts import Put
    from onrecord.frameworks.langgraph_states import Key, Node, State
    from onrecord.frameworks.langgraph_values import Ref
    from onrecord.log.events import Draft, Event
    from onrecord.log.head import Head
    from onrecord.session.handle import Session
    from onrecord.session.session_store import SessionStore

RUN_LINK = "langgraph-run"
LISTED = "langgraph.1"
"""The name under which it is kept whether a session is a thread, and which."""
RIDE_SECONDS = 0.05
"""How long the writes of a task wait for the next checkpoint, to be on record in the same step."""
RIDES_OFF = 8
"""How many writes do not wait after one that waited in vain."""
FAILED_KEPT = 64
"""Of how many runs a thread knows that their last checkpoint could not be recorded."""
GENERATIONS_KEPT = 8
"""How many lists of messages of a thread, states and writes, are known and need not be encoded again."""


class _ErasedEvent(Exception):  # no error: such a thread is read in another way
    """An event of a thread was erased."""


class Thread(Conversation):
    """The checkpoints of one thread, in the order in which they were put."""

    FIELDS = (
        "all", "copied_to", "ids", "keep_latest", "keys", "lines", "put", "runs", "start", "step", "thread",
        "writes",
    )  # fmt: skip

    def __init__(self, store: SessionStore, id: str, values: Values, **options: Any) -> None:
        self.values = values
        self._arrived = Condition()
        self._waiters = 0
        self.failed: OrderedDict[str, OnrecordError] = OrderedDict()
        """Of the runs whose last checkpoint could not be recorded: why."""
        self.riding = Riding(self)
        super().__init__(store, FRAMEWORK, id, **options)

    def _forget(self) -> None:
        super()._forget()
        self._starts: Starts | None = None
        """Of a thread that has erased events: where the texts of each event belong."""
        self._late = Late()
        """Events of this thread whose checkpoints no one has asked for yet."""
        self._is_settled = False
        self._is_asked = False
        self._reset()
        self.copies: list[str] = []
        """Threads that were copied from this one."""

    def _reset(self) -> None:
        self.pool = Pool()
        self.pool.has_gaps = self._starts is not None
        self.generations: OrderedDict[int, Generation] = OrderedDict()
        """Messages of states that runs have read or written, by the identity of the first."""
        self._folded = Checkpoints(self.pool)
        self._is_read = False

    # Folding

    def _fold_upto(self, session: Session, upto: int) -> bool:
        try:
            return super()._fold_upto(session, upto)
        except _ErasedEvent:
            self._forget()
            self._starts = starts_of(session, upto)
            self.pool.has_gaps = True
            super()._fold_upto(session, upto)
            self.pool.place(self._starts.after, [])
        return True

    def _apply(self, event: Event) -> None:
        if self._starts is None and event.data is None and event.kind == "payload.kept":
            raise _ErasedEvent  # where the texts after it belong is known once all events were read
        super()._apply(event)

    def fold(self, event: Event, data: dict[str, Any]) -> None:
        """Fold one event of this thread."""
        if event.kind == "payload.retracted":
            self._retract(data)
            return
        start = data["start"] if "start" in data else len(self.pool.texts)
        if self._starts is not None:
            start = self._starts.of.get(event.position, start)
        if "lines" in data and start != FAR:
            self.pool.place(start, data["lines"])
        if "ids" in data:
            for number, id_ in data["ids"]:
                self.pool.claim(number, id_)
        step = data.get("step")
        if step is None:
            if isinstance(data.get("copied_to"), str):
                self.copies.append(data["copied_to"])
            if isinstance(data.get("thread"), str):
                self.id = data["thread"]
        if not self._is_settled:
            if step is not None and (len(step[2]) > HEX or len(step) > PLAIN):
                self._folded.claim(step, start)  # it has more ids than that of its checkpoint
            self._late.add(event.position, step, data, start)
            return
        self._folded.fold(event.position, data, start)
        if self._waiters:
            with self._arrived:
                self._arrived.notify_all()

    @property
    def checkpoints(self) -> Checkpoints:
        """All checkpoints; folded now if no one has asked for them before."""
        if not self._is_settled:
            with self.lock:
                made = Checkpoints(self.pool)
                for position, data, start in self._late:
                    made.fold(position, data, start)
                self._folded, self._is_settled = made, True
                self._late.clear()
        return self._folded

    def recent(self) -> Checkpoints:
        """Enough checkpoints to know the newest one of the main graph, which is all that most processes ask for.

        Who asks again is better served by all of them: from then on they are folded as they come.
        """
        asked, self._is_asked = self._is_asked, True
        found = None if self._is_settled or asked or self.pool.has_gaps else newest(self.pool, self._late)
        return self.checkpoints if found is None else found

    @property
    def nodes(self) -> dict[Key, Node]:
        """Every checkpoint."""
        return self.checkpoints.nodes

    @property
    def order(self) -> dict[str, list[str]]:
        """The checkpoints of each namespace, in the order in which they were put."""
        return self.checkpoints.order

    @property
    def runs(self) -> set[str]:
        """The runs that have put a checkpoint."""
        return self.checkpoints.runs

    def written(self, key: Key) -> dict[tuple[str, int], tuple[str, str, str]]:
        """What the tasks of a checkpoint wrote: path, channel and text by task and index."""
        return self.checkpoints.written(key)

    def _retract(self, data: dict[str, Any]) -> None:
        if data.get("all"):
            self._late.clear()
            self._reset()
        else:
            self.checkpoints.hide(set(data.get("runs") or ()), keep_latest=bool(data.get("keep_latest")))
            if data.get("keys"):
                self.pool.let_go(map(int, data["keys"]))
                self.generations.clear()

    def wait_for(self, key: Key, seconds: float, run: str) -> None:
        """Wait until a checkpoint of a run is on record, so that what its tasks write comes after it.

        If it could not be recorded, or the one before it, its writes fail alike.
        """
        known = self.checkpoints.nodes  # before: to fold them needs the lock of the thread
        with self._arrived:
            self._waiters += 1  # before the first look, so that a checkpoint that arrives after it wakes us
            try:
                self._arrived.wait_for(lambda: key in known or run in self.failed, seconds)
            finally:
                self._waiters -= 1
        if key not in known and run in self.failed:
            raise self.failed[run]

    def fail(self, problem: OnrecordError, run: str) -> None:
        """Note that a checkpoint of a run could not be recorded."""
        with self._arrived:
            self.failed[run] = problem
            if len(self.failed) > FAILED_KEPT:
                self.failed.popitem(last=False)
            self._arrived.notify_all()

    # Reading

    def head(self, ns: str) -> str | None:
        """The newest checkpoint of a namespace, by position."""
        return self.checkpoints.head(ns)

    def value(self, kept: str | Listed[Ref]) -> Any:
        """The value of a channel."""
        if not isinstance(kept, Listed):
            return self.text(kept)
        refs: list[Any] = kept.refs()
        if not refs or not all(type(ref) is int for ref in refs):
            return [self.element(ref) for ref in refs]
        if (
            not self._is_read and not self.pool.has_gaps
        ):  # most processes read a thread once: what they get needs no copy yet
            self._is_read = True
            return self.values.messages(refs, self.pool)
        first = [self.values.prototype(ref, self.pool) for ref in refs]
        if self.pool.has_gaps:
            first = mended(first, [not self.pool.at(ref) for ref in refs])
        found = [fresh(one) for one in first]
        extra = {at: one.__pydantic_extra__ for at, one in enumerate(first) if one.__pydantic_extra__}
        self.remember(Generation(found, [one.__dict__ for one in first], refs, extra))
        return found[:]

    def element(self, ref: Any) -> Any:
        """An element of a list."""
        return fresh(self.values.prototype(ref, self.pool)) if type(ref) is int else self.text(str(ref))

    def remember(self, generation: Generation) -> None:
        """Keep what need not be encoded again."""
        self.generations.pop(id(generation.objects[0]), None)
        self.generations[id(generation.objects[0])] = generation
        if len(self.generations) > GENERATIONS_KEPT:
            self.generations.popitem(last=False)

    def repeats(self, message: BaseMessage) -> bool:
        """Whether a message repeats a turn of another writer, which is on record already."""
        mark = mark_of(message.id)
        return bool(mark) and any(turn.mark == mark for turn in self.turns_of_others())

    def text(self, text: str) -> Any:
        """The value that a text encodes."""
        return self.values.decode(json.loads(text), self.pool)

    def checkpoint(self, key: Key, state: State) -> dict[str, Any]:
        """A checkpoint as LangGraph had it."""
        return {
            **self.decoded(state.rest), "id": key[1],
            "channel_values": {channel: self.value(kept) for channel, kept in state.values.items()},
            "channel_versions": self.decoded(state.versions), "versions_seen": self.decoded(state.seen),
        }  # fmt: skip

    def decoded(self, kept: dict[str, Any]) -> Any:
        """A dict of encoded values."""
        return {name: self.values.decode(one, self.pool) for name, one in kept.items()}

    def pending(
        self, written: dict[tuple[str, int], tuple[str, str, str]]
    ) -> list[tuple[str, str, Any]]:  # fmt: skip
        """The writes of a checkpoint's tasks, in the order in which a run applies them."""
        found = sorted((path, task, index, channel, text) for (task, index), (path, channel, text) in written.items())
        return [(task, channel, self.text(text)) for _path, task, _index, channel, text in found]

    def delta_history(
        self, ns: str, id_: str | None, channels: Sequence[str]
    ) -> tuple[dict[str, list[tuple[str, str, Any]]], dict[str, Any]]:
        """The writes of delta channels along the parents of a checkpoint, and the values that they begin with."""
        target = self.nodes.get((ns, id_ or self.head(ns) or ""))
        found: dict[str, list[tuple[str, str, Any]]] = {channel: [] for channel in channels}
        seeds: dict[str, Any] = {}
        parent = target.parent if target else None
        # Deleted checkpoints are part of the walk: the ones that continue them need their writes.
        seen: set[str] = set()
        while parent and parent not in seen and (node := self.nodes.get((ns, parent))) and len(seeds) < len(found):
            seen.add(parent)  # a caller may have put a checkpoint that continues one of its own successors
            for write in reversed(self.pending(self.written((ns, parent)))):
                if write[1] in found and write[1] not in seeds:
                    found[write[1]].append(write)
            for channel in found:
                if channel not in seeds and channel in node.state.values:
                    seeds[channel] = self.value(node.state.values[channel])
            parent = node.parent
        return {channel: writes[::-1] for channel, writes in found.items()}, seeds


class Rider:
    """Writes of a task that wait for the next checkpoint, to be on record in the same durable step."""

    def __init__(self, key: Key, writes: Sequence[tuple[int, str, Any]], task: str, path: str) -> None:
        self.key, self.writes, self.task, self.path = key, writes, task, path
        self.over = Signal()
        """Set when it is decided: on record, or to go alone."""
        self.on_record = False

    def data(self, pooling: Pooling) -> dict[str, Any] | None:
        """The payload of these writes."""
        return writes_of(pooling, self.key, self.writes, self.task, self.path)


class Riding:
    """What waits in a thread for its next checkpoint."""

    def __init__(self, thread: Thread) -> None:
        self._thread = thread
        self._waiting: list[Rider] = []
        self._off = 0
        self._followed: set[Key] = set()
        """The checkpoint that the last one continued, in each namespace."""

    def wait(self, rider: Rider) -> bool:
        """Wait for a checkpoint; whether it took these writes along."""
        if self._off:
            self._off -= 1
            return False
        if rider.key in self._followed:
            return False  # the checkpoint that it could go with is on record
        self._waiting.append(rider)
        if not rider.over.wait(RIDE_SECONDS):
            with suppress(ValueError):
                self._waiting.remove(rider)
                self._off = RIDES_OFF
                return False
            rider.over.wait()  # a checkpoint has taken it: see how that ends
        return rider.on_record

    def write_alone(self, rider: Rider) -> None:
        """Keep the writes of a task in a durable step of their own."""
        thread = self._thread
        pooling = Pooling(thread)

        def make() -> list[Draft]:
            nonlocal pooling
            pooling = Pooling(thread)
            data = rider.data(pooling)
            if not data:
                return []
            data = pooled_writes(pooling, data)
            return [thread.draft("payload.kept", one) for one in pooling.payloads(writes=data)]

        with thread.lock:
            if thread.write(make):
                pooling.settle()

    def write(
        self, put: Put, drafts: Callable[[Pooling, dict[str, Any]], list[Draft]], run: str, *, expects: bool
    ) -> None:
        """Keep a checkpoint, and what waits for it, in one durable step; `expects`: tasks may be about to add to it."""
        thread = self._thread
        riders: list[Rider] = []
        pooling = Pooling(thread)

        def make() -> list[Draft]:
            nonlocal pooling
            for rider in [one for one in self._waiting if one.key in thread.nodes]:
                with suppress(ValueError):
                    self._waiting.remove(rider)
                    riders.append(rider)
            pooling, writes = self._pooled(riders)
            return drafts(pooling, step_of(pooling, put_of(pooling, put), writes))

        if expects:
            time.sleep(0)  # the threads of tasks that have just ended add their writes; it may take 70 us
        try:
            thread.write(make)
            pooling.settle()
            thread.failed.pop(run, None)
            for rider in riders:
                rider.on_record = True
        except OnrecordError as problem:
            thread.fail(problem, run)
            raise
        finally:
            parent = (put.key[0], put.parent or "")
            self._followed = {one for one in self._followed if one[0] != parent[0]} | {parent}
            late = [one for one in self._waiting if one.key == parent]
            for rider in late:
                with suppress(ValueError):
                    self._waiting.remove(rider)
            for rider in (*riders, *late):
                rider.over.set()

    def _pooled(self, riders: list[Rider]) -> tuple[Pooling, list[dict[str, Any]]]:
        """The writes of the riders; one whose values cannot be kept is left to fail alone."""
        while True:
            pooling, writes = Pooling(self._thread), []
            for rider in riders:
                try:
                    data = rider.data(pooling)
                except OnrecordError:
                    riders.remove(rider)
                    rider.over.set()
                    break
                if data:
                    writes.append(data)
            else:
                return pooling, writes


def id_of(thread_id: object) -> str:
    """The id of a thread; graphs may name threads by numbers."""
    if thread_id is None:
        raise InvalidInput("a thread needs an id, not None")
    return str(thread_id)


def newest_first(thread: Thread, conf: dict[str, Any], before: str | None) -> Iterator[Key]:
    """The checkpoints that are wanted, by position: of one namespace or of all, one or all, before one or not."""
    wanted, ns = conf.get("checkpoint_id"), conf.get("checkpoint_ns")
    keys = [(space, id_) for space, order in thread.order.items() for id_ in order if ns is None or space == ns]
    keys.sort(key=lambda key: thread.nodes[key].position, reverse=True)
    ends = [thread.nodes[key].position for key in keys if key[1] == before]
    for key in keys:
        node = thread.nodes[key]
        if (
            not node.hidden
            and not node.is_lost
            and (not wanted or key[1] == wanted)
            and (not ends or node.position < min(ends))
        ):
            yield key


def threads_of(store: SessionStore) -> Iterator[tuple[Head, str]]:
    """The sessions that are threads, the latest activity first, each with the thread that it was opened for."""
    return listed(store, LISTED, _thread_of)


def _thread_of(session: Session, _head: Head) -> str | None:
    found = opened_with(session)
    return str(found.get("conversation")) if found.get("framework") == FRAMEWORK else None


def sessions_of(store: SessionStore, run: str) -> list[str]:
    """The names of the sessions in which a run put its first checkpoint."""
    check_type(run, str, "ids of runs that are text")
    return [store.get(one).name for one in store.linked(RUN_LINK, shortened(run))]


def shortened(run: str) -> str:
    """A run's id as part of an event id."""
    room = ID_LIMIT - len(link_id(RUN_LINK, "x"))
    if len(run) <= room and run.isprintable() and run:
        return run
    return sha256(run.encode("utf-8", "surrogatepass")).hexdigest()


def run_link(run: str) -> str:
    """The id of the first checkpoint of a run, by which its session is found."""
    return link_id(RUN_LINK, shortened(run))
