"""LangGraph: the runs of a saver, which checkpoint each of them may continue, and which of them were left.

LangGraph does not say when a run ends. A stream that is left (`break`) saves in the background what it has begun to
save. So a run is over at the latest when the task that began it begins another run of the thread: what it saves later
would else overtake the new one.
"""

from __future__ import annotations

import asyncio
import weakref
from collections import Counter, OrderedDict
from contextlib import contextmanager
from functools import partial
from threading import RLock
from typing import TYPE_CHECKING, Any, NamedTuple

from onrecord import machine
from onrecord.errors import Conflict, InvalidInput, LogMoved
from onrecord.frameworks.conversation import QUEUE
from onrecord.frameworks.langgraph_arguments import FILE_KEY, ONCE_KEY, is_of_graph, name_of, runtime_of
from onrecord.frameworks.langgraph_threads import id_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from onrecord.frameworks.langgraph_threads import Thread

RUNS_KEPT = 10_000
"""How many runs a saver remembers, to know which head each of them continues."""
BEGUN_KEPT = 256
"""Of how many threads it is known which task began the last run."""
OVER_KEPT = 16
"""How many runs are known to be over: what they save late comes at once."""
ROUNDS_IDLE = 4
"""After how many rounds of the event loop without a save a run is taken to save no more: each save begins after the one
before it, in a task of its own."""
SAVING_SECONDS = 0.0005
"""How long to wait between two looks at a run that saves."""
_LEAVE = "leave a stream with `async with contextlib.aclosing(graph.astream(...)) as stream:`"
_HINTS = {QUEUE: "run it inside of `with saver.alone(thread_id)`, which waits for the other run"}


class Run(NamedTuple):
    """What one run has read: the thread, and a checkpoint that it may continue although it is not the newest."""

    thread: Thread
    position: int
    explicit: str | None


class Runs:
    """The runs that read their thread with a saver."""

    def __init__(self) -> None:
        self._lock = RLock()
        self._saving: Counter[int] = Counter()
        """How many saves of each run are running, by what LangGraph calls the run."""
        self._runs: OrderedDict[str, Run] = OrderedDict()
        self._begun: OrderedDict[str, tuple[weakref.ref[asyncio.Task[Any]], Any]] = OrderedDict()
        """Of each thread: who began the last run of the main graph, and what LangGraph calls that run."""
        self._over: OrderedDict[int, Any] = OrderedDict()
        """What LangGraph calls the runs that are over, kept so that no other run gets the same identity."""

    def arrive(self, thread: Thread, conf: dict[str, Any], task: asyncio.Task[Any] | None) -> None:
        """Note that a task begins a run; the run of the thread that it began before is over."""
        runtime = runtime_of(conf)
        if runtime is None or task is None or conf.get("checkpoint_ns"):
            return
        with self._lock:
            who, before = self._begun.pop(thread.id, (None, None))
            if who is not None and who() is task and before is not runtime:
                self._over[id(before)] = before
                if len(self._over) > OVER_KEPT:
                    self._over.popitem(last=False)
            self._begun[thread.id] = weakref.ref(task), runtime
            if who is None or who() is not task:
                task.add_done_callback(partial(self._ended, thread.id))
            if len(self._begun) > BEGUN_KEPT:
                self._begun.popitem(last=False)

    @contextmanager
    def saving(self, conf: dict[str, Any]) -> Iterator[None]:
        """Note that a run saves something, on the event loop."""
        name = id(runtime_of(conf))
        with self._lock:
            self._saving[name] += 1
        try:
            yield
        finally:
            with self._lock:
                self._saving[name] -= 1
                if not self._saving[name]:
                    del self._saving[name]

    async def quiet(self, conf: dict[str, Any], task: asyncio.Task[Any] | None) -> None:
        """Wait until the run that this task began before has saved what it is saving: a stream that was left.

        Else a stream that was left at an interrupt could not be resumed at once.
        """
        with self._lock:
            who, before = self._begun.get(conf.get("thread_id", ""), (None, None))
        runtime = runtime_of(conf)
        if who is None or who() is not task or conf.get("checkpoint_ns") or runtime is None or runtime is before:
            return
        idle = 0
        while idle < ROUNDS_IDLE:
            idle = 0 if self._saving.get(id(before)) else idle + 1
            await asyncio.sleep(0 if idle else SAVING_SECONDS)

    def _ended(self, thread_id: str, task: asyncio.Task[Any]) -> None:
        """A task that ended begins no other run: let go of what belongs to its last one."""
        with self._lock:
            found = self._begun.get(thread_id)
            if found is not None and found[0]() is task:
                del self._begun[thread_id]

    def begin(self, thread: Thread, explicit: str | None) -> str:
        """Remember what a run has read; its name travels in the config that LangGraph passes on."""
        name = machine.entropy(8).hex()
        self._set(name, Run(thread, thread.position, explicit))
        return name

    def forget(self, name: str) -> None:
        """Forget a run; one that begins now has the same name."""
        with self._lock:
            self._runs.pop(name, None)

    def find(self, conf: dict[str, Any]) -> Run | None:
        """The run that a config is from."""
        return self._runs.get(name_of(conf))

    def went_on(self, conf: dict[str, Any]) -> None:
        """From its first checkpoint on, a run continues its own ones."""
        with self._lock:
            run = self.find(conf)
            if run is not None:
                self._runs[name_of(conf)] = run._replace(explicit=None)

    def move(self, conf: dict[str, Any], fork: Thread) -> None:
        """Let a run continue in a fork."""
        self._set(name_of(conf), Run(fork, fork.catch_up(), None))

    def _set(self, name: str, run: Run) -> None:
        with self._lock:
            self._runs[name] = run
            if len(self._runs) > RUNS_KEPT:
                self._runs.popitem(last=False)

    def check(self, thread: Thread, conf: dict[str, Any], ns: str, parent: str | None) -> None:
        """Refuse a run that was left or overtaken: it continues the newest checkpoint, or once the one it named."""
        if ONCE_KEY in conf and (ns, conf[ONCE_KEY]) in thread.nodes:
            raise Conflict(f"checkpoint {conf[ONCE_KEY]!r:.80} of thread {thread.id!r:.80} is on record already")
        head = thread.head(ns)
        if FILE_KEY in conf and not ns and head is not None and head not in conf[FILE_KEY]:
            self._refuse(f"thread {thread.id!r:.80} was continued by runs that its file does not have", thread, "")
        run = self.find(conf)
        if id(runtime_of(conf)) in self._over and thread.id == id_of(conf["thread_id"]):  # and not in its fork
            self._refuse(f"this run of thread {thread.id!r} was left: its task has begun another one", thread, _LEAVE)
        if head is None or head == parent:
            return
        if run is None and not is_of_graph(conf):
            return  # not a run: a tool that copies checkpoints, for instance
        if run is not None and (run.explicit == parent or (ns, parent or "") not in thread.nodes):
            return
        hint = _HINTS.get(thread.on_conflict, f'run it again, or choose on_conflict="fork"; {_LEAVE}')
        self._refuse(
            f"another run continued thread {thread.id!r}; this run started from an older checkpoint",
            thread,
            hint,
            thread.nodes[ns, parent].position if parent and (ns, parent) in thread.nodes else 0,
        )

    def _refuse(self, message: str, thread: Thread, hint: str, expected: int = 0) -> None:
        raise LogMoved(message, hint=hint, expected=expected, actual=thread.position)


def check_known(thread: Thread, conf: dict[str, Any]) -> None:
    """Refuse a run of the main graph from a checkpoint that its thread has not; it would begin with an empty state."""
    wanted = conf.get("checkpoint_id")
    if wanted and not conf.get("checkpoint_ns") and is_of_graph(conf):
        raise InvalidInput(
            f"thread {thread.id!r:.80} has no checkpoint {wanted!r:.80}",
            hint="`graph.get_state_history(config)` lists them; without a checkpoint_id, a run begins with the newest",
        )
