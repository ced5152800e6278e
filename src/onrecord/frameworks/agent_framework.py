"""Microsoft's agent-framework: its `HistoryProvider` and its `CheckpointStorage` on our log.

    history = OnrecordHistoryProvider(onrecord.connect())
    agent = Agent(client, tools=[pay], context_providers=[history], middleware=[OnrecordMiddleware(history)])
    await agent.run("Refund order 42", session=agent.create_session(session_id="refund-42"))

The framework saves a run after it has ended. The middleware puts the prompt and both ends of each tool call on record
before the tool runs, so a run that was killed inside a tool is in the history of the next one. Checkpoints of workflows
are data, without pickle; the newest one is the one that was saved last, whatever its clock said.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from contextlib import asynccontextmanager
from contextvars import ContextVar
from functools import partial
from hashlib import sha256
from itertools import islice
from threading import RLock
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakKeyDictionary

from onrecord.aio import settled
from onrecord.errors import InvalidInput, LogMoved, NotFound, OnrecordError
from onrecord.frameworks.agent_framework_messages import from_neutral, neutral, open_calls, reading, unsaved
from onrecord.frameworks.agent_framework_values import Codec, Messages
from onrecord.frameworks.conversation import (
    FORK,
    QUEUE,
    REFUSE,
    Conversation,
    check_policy,
    check_store,
    check_type,
    has_secret,
    new_keys,
    read_row,
    row,
)
from onrecord.frameworks.leasing import aalone
from onrecord.frameworks.parsing import parsed
from onrecord.frameworks.requiring import required
from onrecord.frameworks.speaking import speaking, theirs
from onrecord.frameworks.tool_calls import said_of
from onrecord.frameworks.writing import as_line
from onrecord.log.names import link_id

with required("agent-framework", "agent_framework", "1.23"):
    from agent_framework import FunctionMiddleware, HistoryProvider, Message, WorkflowCheckpoint
    from agent_framework._sessions import filter_new_messages
    from agent_framework.exceptions import AgentException, WorkflowCheckpointException

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Sequence

    from onrecord.frameworks.tool_calls import Effect
    from onrecord.log.events import Draft, Event
    from onrecord.session.session_store import SessionStore

R = TypeVar("R")

FRAMEWORK, WORKFLOWS = "agent-framework", "agent-framework-workflow"
CONVERSATIONS_KEPT = 256
"""How many conversations a provider or storage keeps folded in memory."""
NO_SESSION = "default"
"""The session of a run that has no session id, as in the providers of the framework."""
_LINK_LIMIT = 100


class _Run:
    """A run of an agent: what it was asked, what it has read, where it continues."""

    def __init__(self, kept: Conversation, seen: int, inputs: list[Any]) -> None:
        self.kept, self.seen, self.inputs = kept, seen, inputs
        self.told: set[str] = set()
        """The tool calls whose results the run was given; they are saved when it ends."""
        self.early: list[str] = []
        """The keys of its prompt, if that was kept before a tool ran."""


_RUN: ContextVar[_Run | None] = ContextVar("onrecord_agent_framework_run", default=None)


class OnrecordHistoryProvider(HistoryProvider):  # type: ignore[misc]  # agent-framework has an environment of its own
    """The histories of agents, each in a session of ours.

    `on_conflict` says what happens to a run that saves after another run has saved: `refuse`, `queue` (its messages are
    saved behind the others) or `fork` (they go to a fork; `forks` has its name).
    """

    @speaking(AgentException)
    def __init__(
        self, store: SessionStore, *, source_id: str = "onrecord", agent: str = "main", on_conflict: str = REFUSE,
        **options: Any,
    ) -> None:  # fmt: skip
        super().__init__(source_id, **options)
        self.store = check_store(store)
        self.forks: list[str] = []
        self._agent, self._on_conflict = agent, check_policy(on_conflict)
        self._known: OrderedDict[str, Conversation] = OrderedDict()
        self._runs: WeakKeyDictionary[Any, _Run] = WeakKeyDictionary()
        self._latest: dict[str, _Run] = {}
        self._lock = RLock()

    def conversation(self, session_id: str | None) -> Conversation:
        """One history, as it is folded in memory."""
        id_ = session_id or NO_SESSION
        with self._lock:
            found = self._known.get(id_)
            if found is None:
                found = Conversation(self.store, FRAMEWORK, id_, agent=self._agent, on_conflict=self._on_conflict)
                self._known[id_] = found
                if len(self._known) > CONVERSATIONS_KEPT:
                    gone, _kept = self._known.popitem(last=False)
                    self._latest.pop(gone, None)
            self._known.move_to_end(id_)
            return found

    @asynccontextmanager
    async def alone(self, session_id: str | None) -> AsyncIterator[str]:
        """Have the lease of a session: no other `alone` of it, in any process, runs meanwhile.

        If another one has it, this one is refused, waits for it (`queue`), or works in a fork (`fork`): what it gives
        is the id of the session to run with. A process that lost its lease meanwhile is refused when it saves.
        """
        with speaking(AgentException):
            kept = self.conversation(session_id)
        async with aalone(kept, partial(_awaited, of=AgentException), partial(self._beside, kept)) as has:
            yield has.id

    def _beside(self, kept: Conversation) -> Conversation:
        """A fork of a history, which has the id of its session."""
        name = kept.fork(None).name
        self.forks.append(name)
        return self.conversation(name)

    # The interface of agent-framework

    async def get_messages(self, session_id: str | None, **_more: Any) -> list[Message]:
        """The history: own messages, turns of other writers, and tool calls of runs that never saved."""
        return await _awaited(partial(self._get, session_id), AgentException)

    async def save_messages(self, session_id: str | None, messages: Sequence[Message], **_more: Any) -> None:
        """Save messages in one durable step; those that are on record already are left out."""
        if messages:
            await _awaited(partial(self._save, session_id, messages, _RUN.get()), AgentException)

    async def before_run(self, *, agent: Any, session: Any, context: Any, state: dict[str, Any]) -> None:
        """Load the history, and remember up to where this run has read it."""
        await super().before_run(agent=agent, session=session, context=context, state=state)
        kept = self.conversation(context.session_id)
        run = _Run(kept, max(kept.changed_at, 1), list(context.input_messages))
        self._runs[context] = self._latest[kept.id] = run

    async def after_run(self, *, agent: Any, session: Any, context: Any, state: dict[str, Any]) -> None:
        """Save what the run said, as `on_conflict` decides if another run was quicker."""
        token = _RUN.set(self._runs.get(context))
        try:
            await super().after_run(agent=agent, session=session, context=context, state=state)
        finally:
            _RUN.reset(token)

    # The same on a thread

    def _get(self, session_id: str | None) -> list[Message]:
        kept = self.conversation(session_id)
        with kept.lock:
            kept.catch_up()
            return [Message.from_dict(one) for one in _history(kept)]

    def _save(self, session_id: str | None, given: Sequence[Message], run: _Run | None) -> None:
        check_type(given, (list, tuple), "a list of messages")
        messages = list(given)
        for one in messages:
            check_type(one, Message, "messages of the class Message")
        kept = run.kept if run else self.conversation(session_id)
        with kept.lock:
            try:
                kept.write(partial(_saved, kept, messages, run))
            except LogMoved:
                if kept.on_conflict != FORK or run is None:
                    raise
                kept = self._forked(kept, run.seen)
                kept.write(partial(_saved, kept, messages, None))
            if run:
                run.kept, run.seen, run.early = kept, max(kept.changed_at, 1), []

    def _forked(self, kept: Conversation, seen: int) -> Conversation:
        """The history as the run has read it, in a session of its own."""
        fork = Conversation(kept.store, FRAMEWORK, kept.id, name=kept.name, agent=kept.agent, on_conflict=FORK)
        fork.attach(kept.fork(seen))
        self.forks.append(fork.name)
        return fork

    def start_tool(self, session_id: str | None, call: str, name: str, arguments: Any) -> Effect | None:
        """Put the prompt of the run and the beginning of a tool call on record; the effect, if it happened before."""
        kept = self.conversation(session_id)
        with kept.lock:
            kept.catch_up()
            run = self._latest.get(kept.id)
            if run and run.inputs and not run.early and run.kept.name == kept.name and self.store_inputs:
                records = [one.to_dict() for one in run.inputs]
                keys = new_keys(len(records))
                kept.write(lambda: [kept.draft("payload.kept", _payload(kept, records, keys))])
                run.early, run.seen = keys, max(kept.changed_at, 1)
            return kept.start_effect(call, name, arguments, told=run.told if run else ())

    def finish_tool(self, session_id: str | None, call: str, arguments: Any, **outcome: Any) -> None:
        """Put the end of a tool call on record."""
        kept = self.conversation(session_id)
        with kept.lock:
            run = self._latest.get(kept.id)
            key = kept.finish_effect(call, arguments, **outcome)
            if run:
                run.told.add(key)


class OnrecordMiddleware(FunctionMiddleware):  # type: ignore[misc]  # as above
    """Puts both ends of every tool call on record; a call that happened, or may have happened, does not run again."""

    def __init__(self, history: OnrecordHistoryProvider) -> None:
        self._history = history

    async def process(self, context: Any, call_next: Any) -> None:
        """Run a tool between its two ends on record."""
        call = context.metadata.get("call_id")
        if not call:
            await call_next()
            return
        session = getattr(context.session, "session_id", None)
        arguments = json.loads(json.dumps(_plain(context.arguments), default=str))
        start = partial(self._history.start_tool, session, call, context.function.name, arguments)
        known = await _awaited(start, AgentException)
        if known is not None:
            context.result = said_of(known)
            return
        finish = partial(self._history.finish_tool, session, call, arguments)
        try:
            await call_next()
        except Exception as problem:
            await _awaited(partial(finish, error=f"{type(problem).__name__}: {problem}"), AgentException)
            raise
        await _awaited(partial(finish, result=_result(context.result)), AgentException)


class Checkpoints(Conversation):
    """The checkpoints of one workflow, and the messages that they refer to."""

    FIELDS = ("all", "keys", "lines", "pooled")

    def _forget(self) -> None:
        super()._forget()
        self.pool: dict[str, str] = Messages(lambda: self.has_gaps)

    def fold(self, event: Event, data: dict[str, Any]) -> None:
        """Fold one event; messages stay when a checkpoint is deleted."""
        super().fold(event, data)
        for key in data.get("pooled") or ():
            self.pool[key] = self.entries.pop(key).line


class OnrecordCheckpointStorage:
    """Checkpoints of workflows, those of a workflow in one session; `types` are the classes of your state."""

    @speaking(WorkflowCheckpointException)
    def __init__(self, store: SessionStore, *, types: Iterable[type] = (), agent: str = "main") -> None:
        self.store = check_store(store)
        self._codec = Codec(types)
        self._agent = agent
        self._known: OrderedDict[str, Checkpoints] = OrderedDict()
        self._lock = RLock()

    def workflow(self, name: str) -> Checkpoints:
        """The checkpoints of one workflow, as they are folded in memory."""
        with self._lock:
            found = self._known.get(name)
            if found is None:
                found = self._known[name] = Checkpoints(self.store, WORKFLOWS, name, agent=self._agent)
                if len(self._known) > CONVERSATIONS_KEPT:
                    self._known.popitem(last=False)
            self._known.move_to_end(name)
            return found

    # The interface of agent-framework

    async def save(self, checkpoint: WorkflowCheckpoint) -> str:
        """Keep a checkpoint and return its id."""
        return await _awaited(partial(self._save, checkpoint), WorkflowCheckpointException)

    async def load(self, checkpoint_id: str) -> WorkflowCheckpoint:
        """One checkpoint; `WorkflowCheckpointException` if there is none with this id."""
        return await _awaited(partial(self._load, checkpoint_id), WorkflowCheckpointException)

    async def list_checkpoints(self, *, workflow_name: str) -> list[WorkflowCheckpoint]:
        """The checkpoints of a workflow, in the order in which they were saved."""
        return await _awaited(partial(self._list, workflow_name), WorkflowCheckpointException)

    async def delete(self, checkpoint_id: str) -> bool:
        """Retract a checkpoint; whether there was one. The log keeps it until it is erased."""
        return await _awaited(partial(self._delete, checkpoint_id), WorkflowCheckpointException)

    async def get_latest(self, *, workflow_name: str) -> WorkflowCheckpoint | None:
        """The checkpoint that was saved last, whatever its timestamp says."""
        return await _awaited(partial(self._latest, workflow_name), WorkflowCheckpointException)

    async def list_checkpoint_ids(self, *, workflow_name: str) -> list[str]:
        """The ids of a workflow's checkpoints, in the order in which they were saved."""
        return await _awaited(partial(self._ids, workflow_name), WorkflowCheckpointException)

    # The same on a thread

    def _save(self, checkpoint: Any) -> str:
        if not isinstance(checkpoint, WorkflowCheckpoint):
            raise InvalidInput(f"a checkpoint is a WorkflowCheckpoint, not {type(checkpoint).__name__}")
        kept, id_ = self.workflow(checkpoint.workflow_name), checkpoint.checkpoint_id
        pool: dict[str, str] = {}
        line = as_line(self._codec.encode(checkpoint.to_dict(), pool))

        def make() -> list[Draft]:
            if id_ in kept.entries and kept.is_recorded(kept.entries[id_].line, line):
                return []  # the same call again, for instance after a lost reply
            new = {key: text for key, text in pool.items() if key not in kept.pool}
            reading = [
                row(number, key, json.loads(text), said)
                for number, (key, text) in enumerate(new.items(), 1)
                if (said := neutral(json.loads(text)))
            ]
            data = kept.kept([line, *new.values()], [id_, *new], reading, pooled=list(new))
            link = None if kept.session.id in self.store.linked(WORKFLOWS, _linked(id_)) else _link(id_)
            return [kept.draft("payload.kept", data, id=link)]

        with kept.lock:
            kept.catch_up()
            kept.write(make)
        return str(id_)

    def _of(self, checkpoint_id: str) -> Checkpoints | None:
        """The workflow that has a checkpoint: one in memory, else the one that the log names."""
        if not isinstance(checkpoint_id, str) or not checkpoint_id:
            raise InvalidInput(f"the id of a checkpoint is text, not {checkpoint_id!r:.100}")
        for session in self.store.linked(WORKFLOWS, _linked(checkpoint_id)):
            event = next(iter(self.store.get(session).events(upto=1)))
            about = ((event.data if isinstance(event.data, dict) else None) or {}).get("metadata") or {}
            kept = self.workflow(str(about.get("conversation")))
            with kept.lock:
                kept.catch_up()
                if checkpoint_id in kept.entries:
                    return kept
        return None

    def _load(self, checkpoint_id: str) -> Any:
        kept = self._of(checkpoint_id)
        if kept is None:
            raise NotFound(
                f"there is no checkpoint {checkpoint_id!r:.100}", hint="list_checkpoint_ids has those there are"
            )
        return self._decoded(kept, checkpoint_id)

    def _decoded(self, kept: Checkpoints, id_: str) -> Any:
        with kept.lock:
            values = self._codec.decode(json.loads(kept.entries[id_].line), kept.pool)
        return WorkflowCheckpoint.from_dict(values)

    def _ids(self, workflow_name: str) -> list[str]:
        kept = self.workflow(workflow_name)
        with kept.lock:
            kept.catch_up()
            return [one.key for one in sorted(kept.entries.values(), key=lambda entry: entry.position)]

    def _list(self, workflow_name: str) -> list[Any]:
        kept = self.workflow(workflow_name)
        with kept.lock:
            return [self._decoded(kept, id_) for id_ in self._ids(workflow_name)]

    def _latest(self, workflow_name: str) -> Any:
        kept = self.workflow(workflow_name)
        with kept.lock:
            ids = self._ids(workflow_name)
            return self._decoded(kept, ids[-1]) if ids else None

    def _delete(self, checkpoint_id: str) -> bool:
        kept = self._of(checkpoint_id)
        if kept is None:
            return False
        with kept.lock:
            data = kept.retracted([checkpoint_id])
            made = kept.write(lambda: [kept.draft("payload.retracted", data)] if checkpoint_id in kept.entries else [])
            return bool(made)


async def _awaited(call: Callable[[], R], of: type[Exception]) -> R:
    """Run a call on a thread; our errors become errors of agent-framework."""
    try:
        return await settled(call)
    except OnrecordError as problem:
        raise theirs(problem, of) from problem


def _linked(checkpoint_id: str) -> str:
    """A checkpoint's id as part of an event id."""
    if len(checkpoint_id) <= _LINK_LIMIT and checkpoint_id.isprintable():
        return checkpoint_id
    return sha256(checkpoint_id.encode("utf-8", "surrogatepass")).hexdigest()


def _link(checkpoint_id: str) -> str:
    return link_id(WORKFLOWS, _linked(checkpoint_id))


def _plain(arguments: Any) -> Any:
    return arguments.model_dump() if hasattr(arguments, "model_dump") else arguments


def _result(result: Any) -> Any:
    """What a tool answered, as text if it is text."""
    parts = result if isinstance(result, list) else [result]
    texts = [getattr(part, "text", None) or (part if isinstance(part, str) else None) for part in parts]
    if parts and all(isinstance(text, str) for text in texts):
        return "\n".join(str(text) for text in texts)
    return json.loads(json.dumps(result, default=str))


def _payload(kept: Conversation, records: list[Any], keys: list[str]) -> dict[str, Any]:
    lines = [as_line(one) for one in records]
    rows = [
        made
        for number, (key, record, line) in enumerate(zip(keys, records, lines, strict=True))
        if (made := _row(number, key, record, line))
    ]
    return kept.kept(lines, keys, rows)


def _row(number: int, key: str, record: Any, line: str) -> Any:
    """What a message says, as a row of the reading."""
    if "\\u" in line:  # an escape may be that of a lone surrogate, which no event can have
        said = neutral(record)
        return row(number, key, record, said) if said else None
    said = reading(record)
    return read_row(number, key, said) if said else None


def _saved(kept: Conversation, messages: list[Any], run: _Run | None) -> list[Draft]:
    """The events of a save, after it has judged the newest entries."""
    if run and run.seen and kept.changed_at > run.seen and kept.on_conflict != QUEUE:
        raise LogMoved(
            f"another run added to session {kept.id!r} at position {kept.changed_at}; this run has read up to "
            f"position {run.seen}",
            hint='run again with the new history, or choose on_conflict="queue" or "fork"',
            expected=run.seen,
            actual=kept.changed_at,
        )
    early = set(run.early) if run else set()
    given = messages if run is None else messages[: _repeating(messages, run)]
    newest = (one.line for key, one in reversed(kept.entries.items()) if key not in early)
    lines = list(islice(newest, len(given)))[::-1]
    records = [one.to_dict() for one in messages]
    told = records[: len(given)]
    if any(map(has_secret, lines)):  # compared with what is recorded of them
        told = [parsed(one) for one in kept.recorded([as_line(one) for one in told])]
        given = [Message.from_dict(one) for one in told]
    if lines and _gist(parsed(lines[-1])) in map(_gist, told):
        tail = map(parsed, lines)
        known = len(given) - len(filter_new_messages([Message.from_dict(one) for one in tail], given))
        records = records[known:]
    drafts = [kept.draft("payload.retracted", kept.retracted(sorted(early)))] if early else []
    return drafts + ([kept.draft("payload.kept", _payload(kept, records, new_keys(len(records))))] if records else [])


def _gist(record: dict[str, Any]) -> Any:
    """What messages have in common if they are the same one to the framework; a history that is repeated ends so."""
    parts = [(part.get("type"), part.get("text"), part.get("call_id")) for part in record.get("contents") or ()]
    return record.get("message_id") or (record.get("role"), parts)


def _repeating(messages: list[Any], run: _Run) -> int:
    """How many messages may repeat the history, since callers pass whole transcripts; answers of a run are new."""
    known = {id(one) for one in run.inputs}
    return max((number for number, one in enumerate(messages, 1) if id(one) in known), default=0)


def _history(kept: Conversation) -> list[dict[str, Any]]:
    """Own messages word for word, turns of other writers translated, and tool calls that were never saved."""
    messages: list[dict[str, Any]] = [parsed(one.line) for one in kept.entries.values()]
    others = kept.of_others()
    calls = kept.unanswered()
    if not others and not calls:
        return messages
    parts: list[tuple[int, int, list[Any]]] = [
        (one.position, number, [messages[number]]) for number, one in enumerate(kept.entries.values())
    ]
    parts += [(position, 0, from_neutral(items)) for position, items in others]
    if calls:
        open_ = open_calls(messages)
        parts += [(one.position, 0, unsaved(one, is_asked=one.call in open_)) for one in calls]
    parts.sort(key=lambda part: part[:2])
    return [message for _position, _number, messages in parts for message in messages]
