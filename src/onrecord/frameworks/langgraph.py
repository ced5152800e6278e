"""LangGraph: its checkpointer on our log.

    graph = builder.compile(checkpointer=OnrecordSaver(onrecord.connect()))

Each thread is a session. The newest checkpoint of a thread is the one that was put last, whatever its id says. A run
that continues an outdated head is refused, or moved to a fork. `langgraph_tools.once` wraps tools so that one that was
running when its process ended does not run again.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from contextlib import ExitStack, asynccontextmanager, contextmanager
from functools import partial
from threading import RLock
from typing import TYPE_CHECKING, Any, TypeVar

from onrecord.aio import settled
from onrecord.errors import Conflict, InvalidInput, LogMoved, OnrecordError
from onrecord.frameworks.conversation import FORK, REFUSE, session_name
from onrecord.frameworks.langgraph_arguments import (
    RUN_KEY,
    asked_for,
    check_checkpoint,
    check_writes,
    conf_of,
    config_of,
    first_name_of,
    ids_in,
    is_of_graph,
    name_of,
)
from onrecord.frameworks.langgraph_puts import FRAMEWORK, Put
from onrecord.frameworks.langgraph_runs import Runs, check_known
from onrecord.frameworks.langgraph_threads import Rider, Thread, id_of, newest_first, run_link, sessions_of, threads_of
from onrecord.frameworks.langgraph_values import Values
from onrecord.frameworks.leasing import aalone, alone
from onrecord.frameworks.requiring import required
from onrecord.frameworks.speaking import speaking, theirs

with required("langgraph", "langgraph langchain_core", "1.2", "langgraph-checkpoint", "4.3"):
    from langgraph.checkpoint.base import (
        WRITES_IDX_MAP,
        BaseCheckpointSaver,
        CheckpointTuple,
        get_checkpoint_metadata,
    )
    from langgraph.errors import InvalidUpdateError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence

    from langchain_core.runnables import RunnableConfig
    from langgraph.checkpoint.base import (
        ChannelVersions,
        Checkpoint,
        CheckpointMetadata,
        DeltaChannelHistory,
    )

    from onrecord.frameworks.langgraph_checkpoints import Checkpoints
    from onrecord.frameworks.langgraph_puts import Pooling
    from onrecord.frameworks.langgraph_states import Key
    from onrecord.log.events import Draft
    from onrecord.log.head import Head
    from onrecord.session.session_store import SessionStore

R = TypeVar("R")
Tuples = list[CheckpointTuple]
"""Inside of the saver, `list` is its method."""

THREADS_KEPT = 256
"""How many threads a saver keeps folded in memory."""
PUT_SECONDS = 0.2
"""How long the writes of a task wait for the checkpoint they belong to, which LangGraph saves in the background."""
FORK_SECONDS = 0.001
"""How often they look whether their run was moved to a fork, if it was overtaken."""


class OnrecordSaver(BaseCheckpointSaver[int]):
    """Checkpoints of LangGraph, each thread in a session of ours; synchronous and asynchronous.

    `types` names classes of the state besides those of LangGraph and LangChain: dataclasses, pydantic models, enums
    and named tuples. `on_conflict` says what happens to a run that was overtaken by another run of its thread:
    `refuse`, or `fork` (it continues in the thread that `forks` names). With `queue`, runs inside of `alone` wait for
    one another; one that was overtaken outside of it is refused.
    """

    @speaking(ValueError)
    def __init__(
        self, store: SessionStore, *, types: Collection[type] = (), agent: str = "main", on_conflict: str = REFUSE
    ) -> None:
        super().__init__()
        self.store = store
        self.forks: list[str] = []
        """Threads that overtaken runs were moved to."""
        self._values = Values(types)
        self._options = {"agent": agent, "on_conflict": on_conflict}
        self._threads: OrderedDict[str, Thread] = OrderedDict()
        self._runs = Runs()
        self._lock = RLock()
        Thread(store, "check", self._values, **self._options)  # refuses wrong options now

    def with_allowlist(self, extra_allowlist: Collection[tuple[str, ...]]) -> OnrecordSaver:
        """This saver: it keeps data only, and knows no class but those of `types`."""
        return self

    # Threads

    def thread(self, thread_id: str) -> Thread:
        """A thread as it is folded in memory."""
        id_ = id_of(thread_id)
        with self._lock:
            found = self._threads.get(id_)
            if found is None:
                found = self._threads[id_] = Thread(self.store, id_, self._values, **self._options)
                if len(self._threads) > THREADS_KEPT:
                    self._threads.popitem(last=False)
            self._threads.move_to_end(id_)
            return found

    @contextmanager
    def alone(self, thread_id: str) -> Iterator[str]:
        """Have the lease of a thread: no other `alone` of it, in any process, runs meanwhile.

        If another one has it, this one is refused, waits for it (`queue`), or continues in a fork (`fork`): what it
        gives is the id of the thread to run.
        """
        with ExitStack() as held:
            thread = called(partial(self.thread, thread_id))
            yield called(partial(held.enter_context, alone(thread, partial(self._beside, thread)))).id

    @asynccontextmanager
    async def aalone(self, thread_id: str) -> AsyncIterator[str]:
        """See `alone`; waiting does not block the event loop."""
        thread = called(partial(self.thread, thread_id))
        async with aalone(thread, lambda call: settled(partial(called, call)), partial(self._beside, thread)) as has:
            yield has.id

    def _beside(self, thread: Thread) -> Thread:
        """A fork of a thread, which has the id of its session."""
        name = thread.fork(None).name
        self.forks.append(name)
        return self.thread(name)

    def _every_thread(self) -> Iterator[Thread]:
        """The threads of this store's project, the latest activity first."""
        yield from (self._thread_of(head, id_) for head, id_ in threads_of(self.store))

    def _thread_of(self, head: Head, id_: str) -> Thread:
        if session_name(id_) == head.name:
            return self.thread(id_)
        thread = Thread(self.store, head.name, self._values, name=head.name, **self._options)
        thread.catch_up()  # a copy or a fork says itself which thread it is
        return self.thread(thread.id) if session_name(thread.id) == head.name else thread

    # Reading

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """A checkpoint: the one that is named, or the newest of its thread."""
        return called(partial(self._get_tuple, config))

    def _get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        conf = conf_of(config)
        thread, ns = self.thread(conf["thread_id"]), conf.get("checkpoint_ns", "")
        with thread.lock:
            thread.catch_up()
            name = first_name_of(conf)  # which another run may have had before
            thread.failed.pop(name, None)
            self._runs.forget(name)
            wanted = conf.get("checkpoint_id")
            known = thread.checkpoints if wanted or ns else thread.recent()
            id_ = wanted or known.head(ns)
            node = known.nodes.get((ns, id_)) if id_ else None
            if node is None or node.hidden:
                check_known(thread, conf)
                return None
            return self._tuple(thread, known, (ns, str(id_)), self._runs.begin(thread, wanted))

    def _arrive(self, config: RunnableConfig, task: asyncio.Task[Any] | None) -> None:
        conf = conf_of(config)
        self._runs.arrive(self.thread(conf["thread_id"]), conf, task)

    def _tuple(self, thread: Thread, known: Checkpoints, key: Key, run: str | None = None) -> CheckpointTuple:
        node = known.nodes[key]
        parent = config_of(thread.id, key[0], node.parent) if node.parent else None
        return CheckpointTuple(
            config=config_of(thread.id, key[0], key[1], run),
            checkpoint=thread.checkpoint(key, node.state),  # type: ignore[arg-type]  # the dict that LangGraph gave us
            metadata=thread.decoded(node.state.metadata),
            parent_config=parent,
            pending_writes=thread.pending(known.written(key)),
        )

    def list(
        self, config: RunnableConfig | None, *, filter: dict[str, Any] | None = None,  # noqa: A002  # LangGraph's name
        before: RunnableConfig | None = None, limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:  # fmt: skip
        """Checkpoints, the newest first; threads are read as they are asked for."""
        threads = self._list(config, filter, before, limit)
        while (of_one := called(partial(next, threads, None))) is not None:
            yield from of_one

    def _list(
        self, config: RunnableConfig | None, filter_: dict[str, Any] | None, before: RunnableConfig | None,
        limit: int | None,
    ) -> Iterator[Tuples]:  # fmt: skip
        """The checkpoints of each thread; no lock is held while the caller looks at them."""
        conf = asked_for(config, filter_, limit)
        threads = [self.thread(conf["thread_id"])] if "thread_id" in conf else self._every_thread()
        last = before["configurable"].get("checkpoint_id") if before else None
        left = limit
        for thread in threads:
            found: Tuples = []
            with thread.lock:
                thread.catch_up()
                for key in newest_first(thread, conf, last):
                    if left is not None and len(found) >= left:
                        break
                    metadata = thread.decoded(thread.nodes[key].state.metadata)
                    if all(name in metadata and metadata[name] == one for name, one in (filter_ or {}).items()):
                        found.append(self._tuple(thread, thread.checkpoints, key))
            yield found
            left = None if left is None else left - len(found)
            if left == 0:
                return

    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """The writes of delta channels since their last stored value, along the parents of a checkpoint."""
        return called(partial(self._delta_history, config, channels))

    def _delta_history(self, config: RunnableConfig, channels: Sequence[str]) -> dict[str, DeltaChannelHistory]:
        conf = conf_of(config)
        thread = self.thread(conf["thread_id"])
        with thread.lock:
            thread.catch_up()
            writes, seeds = thread.delta_history(conf.get("checkpoint_ns", ""), conf.get("checkpoint_id"), channels)
        return {
            channel: {"writes": found, **({"seed": seeds[channel]} if channel in seeds else {})}  # type: ignore[typeddict-item]  # the seed is optional
            for channel, found in writes.items()
        }

    # Writing

    def put(
        self, config: RunnableConfig, checkpoint: Checkpoint, metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:  # fmt: skip
        """Keep a checkpoint: what it adds to its parent, in one durable step."""
        return called(partial(self._put, config, checkpoint, metadata, new_versions))

    def _put(
        self, config: RunnableConfig, checkpoint: Checkpoint, metadata: CheckpointMetadata, versions: ChannelVersions
    ) -> RunnableConfig:
        conf = conf_of(config)
        check_checkpoint(checkpoint, metadata, versions)
        key, parent = (conf.get("checkpoint_ns", ""), checkpoint["id"]), conf.get("checkpoint_id")
        about = dict(get_checkpoint_metadata(config, metadata))
        thread = self._thread_of_run(conf)

        def drafts(pooling: Pooling, data: dict[str, Any]) -> list[Draft]:
            self._runs.check(thread, conf, key[0], parent)
            run = about.get("run_id")
            link = run_link(run) if isinstance(run, str) and run not in thread.runs else None
            if link and thread.session.log.find(link):
                link = None  # a run of this name was deleted
            *shapes, step = pooling.payloads(**data)
            made = [*(thread.draft("payload.kept", one) for one in shapes), thread.draft("payload.kept", step, id=link)]
            if pooling.unmade:  # readers of the transcript would take them for calls that may have been made
                made.append(thread.draft("payload.retracted", thread.retracted(map(str, pooling.unmade))))
            return made

        put = Put(key, parent, checkpoint, about, versions or {})
        name = name_of(conf)
        try:
            thread.riding.write(put, drafts, name, expects=is_of_graph(conf))
        except LogMoved:
            if thread.on_conflict != FORK:
                raise
            thread = self._fork(thread, conf)
            thread.riding.write(put, drafts, name, expects=False)
        self._runs.went_on(conf)
        return config_of(thread.id, *key, conf.get(RUN_KEY))

    def _thread_of_run(self, conf: dict[str, Any]) -> Thread:
        run = self._runs.find(conf)
        return run.thread if run else self.thread(conf["thread_id"])

    def _fork(self, thread: Thread, conf: dict[str, Any]) -> Thread:
        """The thread as the run has read it, under a name of its own."""
        run = self._runs.find(conf)
        session = thread.fork(run.position if run else 1)
        fork = self.thread(session.name)
        fork.attach(session)
        self.forks.append(session.name)
        self._runs.move(conf, fork)
        return fork

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Keep what a task wrote, before the next checkpoint."""
        called(partial(self._put_writes, config, writes, task_id, task_path))

    def _put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str
    ) -> None:
        conf = conf_of(config)
        if not isinstance(conf.get("checkpoint_id"), str):
            raise InvalidInput("the config of writes has no checkpoint_id", hint="use the config that `put` returned")
        key = (conf.get("checkpoint_ns", ""), conf["checkpoint_id"])
        thread = self._thread_of_run(conf)
        check_writes(writes, task_id, task_path)
        numbered = [(WRITES_IDX_MAP.get(channel, n), channel, value) for n, (channel, value) in enumerate(writes)]

        rider = Rider(key, numbered, task_id, task_path)
        if is_of_graph(conf):
            if all(index >= 0 for index, _channel, _value in numbered) and thread.riding.wait(rider):
                return
            thread = self._waited(thread, key, conf)
        thread.riding.write_alone(rider)

    def _waited(self, thread: Thread, key: Key, conf: dict[str, Any]) -> Thread:
        """Wait until a checkpoint is on record, and return its thread: the fork, if its run was moved to one."""
        until = time.monotonic() + PUT_SECONDS
        while True:
            try:
                thread.wait_for(key, PUT_SECONDS, name_of(conf))
                return thread
            except LogMoved:
                here, thread = thread, self._thread_of_run(conf)
                if here.on_conflict != FORK or (thread is here and time.monotonic() > until):
                    raise
            time.sleep(FORK_SECONDS)

    # Deleting and copying

    def delete_thread(self, thread_id: str) -> None:
        """Retract every checkpoint of a thread. The log keeps them until the session is erased."""
        called(partial(self._retract, thread_id, {"all": True}))

    def _retract(self, thread_id: str, what: dict[str, Any]) -> None:
        thread = self.thread(thread_id)
        with thread.lock:
            if thread.catch_up() and thread.nodes:
                data = thread.retracted(**what)
                thread.write(partial(_drafts, thread, "payload.retracted", data))

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Retract the checkpoints of these runs, in every thread and in copies of it."""
        called(partial(self._delete_for_runs, run_ids))

    def _delete_for_runs(self, run_ids: Sequence[str]) -> None:
        for run in ids_in(run_ids, "runs"):
            names = sessions_of(self.store, run)
            seen: set[str] = set()
            while names:
                name = names.pop()
                if name in seen:
                    continue
                seen.add(name)
                thread = Thread(self.store, name, self._values, name=name, **self._options)
                thread.catch_up()
                names += [session_name(copy) for copy in thread.copies]
                if run in thread.runs:
                    said = map(str, thread.checkpoints.said_only_in({run}))
                    data = thread.retracted(said, runs=[run])
                    thread.write(partial(_drafts, thread, "payload.retracted", data))

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy a thread: a fork of its session, which shares the history and copies nothing."""
        called(partial(self._copy, source_thread_id, target_thread_id))

    def _copy(self, source_id: str, target_id: str) -> None:
        source, name = self.thread(source_id), session_name(id_of(target_id))
        with source.lock:
            if not source.catch_up() or not source.nodes:
                return
            if self.store.named(name) is not None:
                raise Conflict(f"thread {target_id!r} already exists", hint="copy to a new thread id")
            source.write(lambda: [source.draft("payload.kept", {"vendor": FRAMEWORK, "copied_to": str(target_id)})])
            forked = source.session.fork(name, agent=source.agent)
            forked.log.record("payload.kept", {"vendor": FRAMEWORK, "thread": str(target_id)})

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Retract all but the newest checkpoint of each namespace, or (`delete`) all."""
        if strategy not in ("keep_latest", "delete"):
            raise theirs(
                InvalidInput(f'the strategy must be "keep_latest" or "delete", not {strategy!r:.80}'), ValueError
            )
        for thread_id in called(partial(ids_in, thread_ids, "threads")):
            called(partial(self._retract, thread_id, {"all": True} if strategy == "delete" else {"keep_latest": True}))

    # The same, awaited: each call runs on a thread, so the event loop is never blocked

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """See `get_tuple`."""
        await self._runs.quiet(called(partial(conf_of, config)), asyncio.current_task())
        called(partial(self._arrive, config, asyncio.current_task()))
        return await settled(partial(self.get_tuple, config))

    async def alist(
        self, config: RunnableConfig | None, *, filter: dict[str, Any] | None = None,  # noqa: A002  # as above
        before: RunnableConfig | None = None, limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:  # fmt: skip
        """See `list`."""
        threads = self._list(config, filter, before, limit)
        while (of_one := await settled(lambda: called(partial(next, threads, None)))) is not None:
            for one in of_one:
                yield one

    async def aput(
        self, config: RunnableConfig, checkpoint: Checkpoint, metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:  # fmt: skip
        """See `put`."""
        with self._runs.saving(called(partial(conf_of, config))):
            return await settled(partial(self.put, config, checkpoint, metadata, new_versions))

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """See `put_writes`."""
        with self._runs.saving(called(partial(conf_of, config))):
            await settled(partial(self.put_writes, config, writes, task_id, task_path))

    async def adelete_thread(self, thread_id: str) -> None:
        """See `delete_thread`."""
        await settled(partial(self.delete_thread, thread_id))

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        """See `delete_for_runs`."""
        await settled(partial(self.delete_for_runs, run_ids))

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """See `copy_thread`."""
        await settled(partial(self.copy_thread, source_thread_id, target_thread_id))

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """See `prune`."""
        await settled(partial(self.prune, thread_ids, strategy=strategy))

    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """See `get_delta_channel_history`."""
        return await settled(partial(self.get_delta_channel_history, config=config, channels=channels))


def called(call: Callable[[], R]) -> R:
    """Our errors as an error of LangGraph, with our code and hint."""
    try:
        return call()
    except OnrecordError as problem:
        raise theirs(problem, InvalidUpdateError) from problem


def _drafts(thread: Thread, kind: str, data: dict[str, Any]) -> Sequence[Draft]:
    return [thread.draft(kind, data)]
