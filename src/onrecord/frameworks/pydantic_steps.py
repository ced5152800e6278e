"""pydantic-ai-harness: its `StepStore` on our log.

    steps = OnrecordStepStore(onrecord.connect())
    agent = Agent(model, capabilities=[StepPersistence(store=steps)])
    await agent.run("Refund order 42", conversation_id="refund-42")

The runs of a conversation are kept in the session of that name. A message is kept once, however many snapshots have it;
a snapshot is what it adds to the one before. Tool effects are effects of the session: one that was started and not
finished is `unknown` for `onrecord` too. Events and snapshots with an idempotency key are kept once.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from contextlib import asynccontextmanager
from functools import partial
from hashlib import sha256
from itertools import islice
from threading import RLock
from typing import TYPE_CHECKING, Any, TypeVar

from onrecord.aio import settled
from onrecord.errors import OnrecordError
from onrecord.frameworks.conversation import (
    Conversation,
    check_store,
    check_type,
    read_row,
)
from onrecord.frameworks.leasing import aalone
from onrecord.frameworks.listing import listed, opened_with, replay
from onrecord.frameworks.lists import Listed
from onrecord.frameworks.parsing import parsed
from onrecord.frameworks.pydantic_messages import carried_of, from_neutral, heard_of, own_reading
from onrecord.frameworks.requiring import required
from onrecord.frameworks.speaking import speaking, theirs
from onrecord.frameworks.tool_calls import effect_key
from onrecord.frameworks.writing import as_line
from onrecord.log.names import link_id
from onrecord.views.effects import effect_id

with required("pydantic-ai-harness", "pydantic_ai pydantic_ai_harness pydantic", "0.62"):
    from pydantic import TypeAdapter
    from pydantic_ai.exceptions import UserError
    from pydantic_ai.messages import ModelMessagesTypeAdapter
    from pydantic_ai_harness.step_persistence._types import (
        ContinuableSnapshot,
        RunRecord,
        StepEvent,
        ToolEffectRecord,
    )

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Container

    from pydantic_ai.messages import ModelMessage

    from onrecord.log.events import Draft, Event
    from onrecord.log.head import Head
    from onrecord.session.handle import Session
    from onrecord.session.session_store import SessionStore

R = TypeVar("R")

FRAMEWORK = "pydantic-ai-steps"
LISTED = "pydantic-ai-steps.1"
"""The name under which the runs of a session are kept for lists."""
CONVERSATIONS_KEPT = 256
"""How many conversations a store keeps folded in memory."""
RUNS_KEPT = 1_024
"""Of how many runs a store remembers the conversation."""
ERASED = ""
"""The name of messages whose own names were erased with them."""
STARTED = "started"
_RUN, _EVENT, _SNAPSHOT, _HERE = "run", "event", "snapshot", "here"
_DIGEST, _AGAIN = 24, "#"
_LINK_LIMIT = 100
_RUNS, _EVENTS, _EFFECTS = TypeAdapter(RunRecord), TypeAdapter(StepEvent), TypeAdapter(ToolEffectRecord)
_FIELDS = ("run_id", "step_index", "conversation_id", "parent_run_id", "agent_name", "state", "idempotency_key")


class Steps(Conversation):
    """The runs of one conversation."""

    FIELDS = ("add", "keep", "keys", "lines", "run", "step")

    def _forget(self) -> None:
        super()._forget()
        self.here = False
        self.runs: dict[str, Any] = {}
        self.steps: dict[str, dict[str, str]] = {}
        self.pool: dict[str, str] = {}
        self._digests: dict[str, str] = {}
        self._digested = 0
        self.snapshots: dict[str, list[dict[str, Any]]] = {}
        self.last: Listed[str] = Listed([], 0)
        """The messages of the last snapshot."""
        self.saved: tuple[list[str], bytes] = ([], b"[]")
        """What this process saved last: the names of the messages, and their JSON."""
        self.records: dict[str, Any] = {}
        """The newest record of each tool effect."""
        self.counts: dict[str, int] = {}

    def fold(self, event: Event, data: dict[str, Any]) -> None:
        """Fold one event of this conversation."""
        if event.kind != "payload.kept":
            return
        self.here, step, run = True, data["step"], str(data.get("run"))
        keys, lines = data["keys"], data["lines"]
        if step == _RUN:
            self.runs[run] = json.loads(lines[0])
        elif step == _EVENT:
            self.steps.setdefault(run, {})[keys[0]] = lines[0]
        elif step == _SNAPSHOT:
            self.pool.update(zip(keys[1:], lines[1:], strict=True))
            if self.has_gaps:  # messages that the snapshot before it had are known by no name
                self.last = self.last.followed_by(self.last.length, [ERASED] * (data["keep"] - self.last.length))
            self.last = self.last.followed_by(data["keep"], data["add"])
            self.snapshots.setdefault(run, []).append({**parsed(lines[0]), "messages": self.last})

    @property
    def digests(self) -> dict[str, str]:
        """The digest of each message in the pool. Only writers need it."""
        for key, line in islice(self.pool.items(), self._digested, None):
            self._digests[line] = key.partition(_AGAIN)[0]
        self._digested = len(self.pool)
        return self._digests

    def lines_of(self, names: list[str]) -> list[str]:
        """Messages of a snapshot; those that were erased are left out."""
        return [self.pool[name] for name in names if name in self.pool or not self.has_gaps]

    def begun_by(self, whole: bytes) -> list[str]:
        """The names of the messages that a snapshot begins with, if it begins with all of the last one; else none."""
        names, text = self.saved
        without_bracket = memoryview(text)[:-1]  # a slice of the bytes would copy all of them
        return names if whole.startswith(without_bracket) and names == self.last.refs() else []

    def unread(self) -> list[dict[str, Any]]:
        """Messages that say what others added and no snapshot has."""
        carried = {carried_of(line) for line in self.pool.values()}
        turns = [(position, items) for position, items in self.of_others() if position not in carried]
        return [message for position, items in turns for message in from_neutral(items, position)]

    def _apply_effect(self, event: Event, data: dict[str, Any]) -> None:
        super()._apply_effect(event, data)
        record = data.get("record")
        if isinstance(record, dict):
            call = effect_key(FRAMEWORK, _call(str(record["run_id"]), str(record["tool_call_id"])))
            self.records[call] = record
            self.counts[call] = self.counts.get(call, 0) + 1


class OnrecordStepStore:
    """Runs, events, snapshots and tool effects of `StepPersistence`, each conversation in a session of ours."""

    @speaking(UserError)
    def __init__(self, store: SessionStore, *, agent: str = "main") -> None:
        self.store = check_store(store)
        self._agent = agent
        self._known: OrderedDict[str, Steps] = OrderedDict()
        self._homes: dict[str, str] = {}
        """The conversation of each run that was found."""
        self._lock = RLock()

    def conversation(self, conversation_id: str) -> Steps:
        """One conversation, as it is folded in memory."""
        with self._lock:
            found = self._known.get(conversation_id)
            if found is None:
                found = Steps(self.store, FRAMEWORK, conversation_id, agent=self._agent)
                self._known[conversation_id] = found
                if len(self._known) > CONVERSATIONS_KEPT:
                    self._known.popitem(last=False)
            self._known.move_to_end(conversation_id)
            return found

    @asynccontextmanager
    async def alone(self, conversation_id: str) -> AsyncIterator[None]:
        """Have the lease of a conversation: no other process can add to it, and one that lost it is refused."""
        with speaking(UserError):
            kept = self.conversation(conversation_id)
        async with aalone(kept, _awaited):
            yield

    async def messages_of_others(self, conversation_id: str) -> list[ModelMessage]:
        """What other frameworks, loops and agents added to the session of a conversation, for the history of a run.

        Each is given until a snapshot has it; in the transcript it is not counted again.
        """

        def read() -> list[ModelMessage]:
            kept = self.conversation(conversation_id)
            with kept.lock:
                kept.catch_up()
                found: list[ModelMessage] = ModelMessagesTypeAdapter.validate_python(kept.unread())
                return found

        return await _awaited(read)

    # The interface of the harness

    async def register_run(self, record: RunRecord) -> None:
        """Keep the record of a run."""
        await _awaited(partial(self._register, record))

    async def get_run(self, *, run_id: str) -> RunRecord | None:
        """The record of a run, if there is one."""
        return await _awaited(partial(self._run, run_id))

    async def list_runs(
        self, *, parent_run_id: str | None = None, conversation_id: str | None = None
    ) -> list[RunRecord]:
        """The runs of a conversation, or those that a run started, the oldest first."""
        return await _awaited(partial(self._runs, parent_run_id, conversation_id))

    async def append_event(self, event: StepEvent) -> None:
        """Keep an event; one with a known idempotency key is kept once."""
        await _awaited(partial(self._append, event))

    async def list_events(self, *, run_id: str) -> list[StepEvent]:
        """The events of a run, in order."""
        return await _awaited(partial(self._events, run_id))

    async def save_snapshot(self, snapshot: ContinuableSnapshot) -> None:
        """Keep a snapshot; one with a known idempotency key is kept once."""
        await _awaited(partial(self._save, snapshot))

    async def latest_snapshot(self, *, run_id: str, include_interrupted: bool = False) -> ContinuableSnapshot | None:
        """The snapshot of a run that was saved last."""
        found = await _awaited(partial(self._snapshots, run_id, include_interrupted, latest=True))
        return found[-1] if found else None

    async def list_snapshots(self, *, run_id: str, include_interrupted: bool = False) -> list[ContinuableSnapshot]:
        """The snapshots of a run, in the order in which they were saved."""
        return await _awaited(partial(self._snapshots, run_id, include_interrupted))

    async def record_tool_effect(self, record: ToolEffectRecord) -> None:
        """Put one end of a tool call on record."""
        await _awaited(partial(self._effect, record))

    async def get_tool_effect(self, *, run_id: str, tool_call_id: str) -> ToolEffectRecord | None:
        """What is on record about a tool call."""
        return await _awaited(partial(self._one_effect, run_id, tool_call_id))

    async def list_unresolved_tool_effects(self, *, run_id: str) -> list[ToolEffectRecord]:
        """The tool calls of a run that were started and did not finish."""
        return await _awaited(partial(self._unresolved, run_id))

    # The same on a thread

    def _of(self, run_id: str) -> Steps | None:
        """The conversation that has a run."""
        check_type(run_id, str, "a run_id that is text")
        id_ = self._homes.get(run_id) or self._home(run_id)
        if id_ is None:
            return None
        kept = self.conversation(id_)
        with kept.lock:
            kept.catch_up()
        return kept

    def _home(self, run_id: str) -> str | None:
        """The id of that conversation, from the log."""
        session = next(iter(self.store.linked(FRAMEWORK, _linked(run_id))), None)
        if session is None:
            return None
        id_ = str(opened_with(self.store.get(session)).get("conversation") or self.store.find(session).name)
        with self._lock:
            self._homes[run_id] = id_
            if len(self._homes) > RUNS_KEPT:
                del self._homes[next(iter(self._homes))]
        return id_

    def _write(self, run_id: str, conversation_id: str | None, make: Callable[[Steps], list[Draft]]) -> None:
        known = self._homes.get(run_id) or self._home(run_id)
        kept = self.conversation(known or conversation_id or run_id)

        def marked() -> list[Draft]:
            drafts = make(kept)
            marks = [] if kept.here else [f"session:{kept.session.id}"]
            marks += [] if known else [_linked(run_id)]
            data = {"vendor": FRAMEWORK, "step": _HERE, "keys": [], "lines": []}
            return [*(kept.draft("payload.kept", data, id=link_id(FRAMEWORK, mark)) for mark in marks), *drafts]

        kept.write(marked)

    def _register(self, record: Any) -> None:
        check_type(record, RunRecord, "a RunRecord")
        values = _RUNS.dump_python(record, mode="json")

        def make(kept: Steps) -> list[Draft]:
            return (
                [] if kept.runs.get(record.run_id) == values else [_draft(kept, _RUN, record.run_id, [as_line(values)])]
            )

        self._write(record.run_id, record.conversation_id, make)

    def _run(self, run_id: str) -> Any:
        kept = self._of(run_id)
        return None if kept is None or run_id not in kept.runs else _RUNS.validate_python(kept.runs[run_id])

    def _runs(self, parent: str | None, conversation: str | None) -> list[Any]:
        found: list[Any] = []
        if conversation:
            kept = self.conversation(conversation)
            with kept.lock:
                kept.catch_up()
                found = list(kept.runs.values())
        else:
            found = [run for _head, runs in listed(self.store, LISTED, self._listed) for run in runs]
        chosen = [
            one
            for one in map(_RUNS.validate_python, found)
            if parent in (None, one.parent_run_id) and conversation in (None, one.conversation_id)
        ]
        return sorted(chosen, key=lambda run: run.started_at)

    def _listed(self, session: Session, _head: Head) -> list[Any] | None:
        """The runs of the conversation that a session has; None if it has none."""
        kept = Steps(self.store, FRAMEWORK, "-", name="-")
        replay(session, kept)
        return list(kept.runs.values()) or None

    def _append(self, event: Any) -> None:
        check_type(event, StepEvent, "a StepEvent")
        line = as_line(_EVENTS.dump_python(event, mode="json"))

        def make(kept: Steps) -> list[Draft]:
            known = kept.steps.get(event.run_id, {})
            number = len(known)
            while str(number) in known:
                number += 1  # some of the events before were erased
            key = f"key:{event.idempotency_key}" if event.idempotency_key else str(number)
            return [] if key in known else [_draft(kept, _EVENT, event.run_id, [line], [key])]

        self._write(event.run_id, event.conversation_id, make)

    def _events(self, run_id: str) -> list[Any]:
        kept = self._of(run_id)
        lines = list(kept.steps.get(run_id, {}).values()) if kept else []
        return [_EVENTS.validate_json(line) for line in lines]

    def _save(self, snapshot: Any) -> None:
        check_type(snapshot, ContinuableSnapshot, "a ContinuableSnapshot")
        whole = ModelMessagesTypeAdapter.dump_json(snapshot.messages)
        about = {name: getattr(snapshot, name) for name in _FIELDS} | {"timestamp": snapshot.timestamp.isoformat()}

        def make(kept: Steps) -> list[Draft]:
            if _is_old(snapshot.idempotency_key, kept.snapshots.get(snapshot.run_id, [])):
                return []
            known, before = kept.digests, kept.begun_by(whole)
            lines = [_line(one) for one in snapshot.messages[len(before) :]]
            digests = [known.get(line) or _digest(line) for line in lines]
            names = _names(digests, before, kept.pool)
            kept.saved = (names, whole)
            keep = _shared(kept.last.refs(), names)
            new = {name: at for at, name in enumerate(names[len(before) :]) if name not in kept.pool}
            others = dict(kept.of_others())
            heard = heard_of(others.values())
            rows = [
                read_row(number, name, said)
                for number, (name, at) in enumerate(new.items(), 1)
                if carried_of(lines[at]) not in others and (said := own_reading(parsed(lines[at]), heard))
            ]
            body = [as_line(about), *(lines[at] for at in new.values())]
            keys = [f"snapshot:{snapshot.run_id}:{len(kept.snapshots.get(snapshot.run_id, []))}", *new]
            more = {"keep": keep, "add": names[keep:]}
            return [_draft(kept, _SNAPSHOT, snapshot.run_id, body, keys, rows=rows, **more)]

        self._write(snapshot.run_id, snapshot.conversation_id, make)

    def _snapshots(self, run_id: str, interrupted: bool, *, latest: bool = False) -> list[Any]:  # noqa: FBT001  # as the interface has it
        kept = self._of(run_id)
        if kept is None:
            return []
        with kept.lock:
            wanted = [one for one in kept.snapshots.get(run_id, []) if interrupted or one["state"] == "complete"]
            found = [
                {**one, "messages": f"[{','.join(kept.lines_of(one['messages'].refs()))}]"}
                for one in (wanted[-1:] if latest else wanted)
            ]
        from datetime import datetime

        return [
            ContinuableSnapshot(
                **{name: one[name] for name in _FIELDS}, timestamp=datetime.fromisoformat(one["timestamp"]),
                messages=ModelMessagesTypeAdapter.validate_json(one["messages"]),
            )
            for one in found
        ]  # fmt: skip

    def _effect(self, record: Any) -> None:
        check_type(record, ToolEffectRecord, "a ToolEffectRecord")
        values = _EFFECTS.dump_python(record, mode="json")
        key = effect_key(FRAMEWORK, _call(record.run_id, record.tool_call_id))

        def make(kept: Steps) -> list[Draft]:
            known, number = kept.records.get(key), kept.counts.get(key, 0) + 1
            if known == values:
                return []  # the same call again, for instance after a lost reply
            data = {"key": key, "name": record.tool_name, "record": values}
            begin = kept.draft("effect.started", data, id=effect_id(key, STARTED, number))
            if record.status == STARTED:
                return [begin]
            result = {
                "key": key, "ok": record.status == "completed", "result": record.effect_summary, "record": values,
                "error": record.effect_summary if record.status == "failed" else None,
            }  # fmt: skip
            end = kept.draft("effect.finished", result, id=effect_id(key, "finished", number))
            return [end] if known else [begin, end]

        self._write(record.run_id, None, make)

    def _one_effect(self, run_id: str, call: str) -> Any:
        kept = self._of(run_id)
        found = kept.records.get(effect_key(FRAMEWORK, _call(run_id, call))) if kept else None
        return None if found is None else _EFFECTS.validate_python(found)

    def _unresolved(self, run_id: str) -> list[Any]:
        kept = self._of(run_id)
        records = list(kept.records.values()) if kept else []
        return [_EFFECTS.validate_python(one) for one in records if (one["run_id"], one["status"]) == (run_id, STARTED)]


async def _awaited(call: Callable[[], R]) -> R:
    """Run a call on a thread; our errors become errors of pydantic-ai."""
    try:
        return await settled(call)
    except OnrecordError as problem:
        raise theirs(problem, UserError) from problem


def _draft(
    kept: Steps, step: str, run: str, lines: list[str], keys: list[str] | None = None, *,
    rows: list[Any] | None = None, **more: Any,
) -> Draft:  # fmt: skip
    data = kept.kept(lines, keys or [f"{step}:{run}"], rows or [], step=step, run=run, **more)
    if not kept.pool:
        data["mark_before"] = [0]
    return kept.draft("payload.kept", data)


def _line(message: ModelMessage) -> str:
    whole: bytes = ModelMessagesTypeAdapter.dump_json([message])
    return whole[1:-1].decode()


def _names(digests: list[str], before: list[str], said: Container[str]) -> list[str]:
    """The names of a snapshot's messages, those `before` and one for each digest: with a number if it comes again."""
    counts: dict[str, int] = {}
    names = before[:]
    for digest in digests:
        if digest not in counts:
            counts[digest] = sum(name.startswith(digest) for name in before) if digest in said else 0
        counts[digest] += 1
        names.append(digest if counts[digest] == 1 else f"{digest}{_AGAIN}{counts[digest]}")
    return names


def _digest(line: str) -> str:
    return sha256(line.encode()).hexdigest()[:_DIGEST]


def _shared(before: list[str], names: list[str]) -> int:
    """How many messages at the beginning are those of the snapshot before; mostly all of them."""
    if names[: len(before)] == before:
        return len(before)
    return next(at for at, name in enumerate(before) if names[at : at + 1] != [name])


def _is_old(key: str | None, snapshots: list[dict[str, Any]]) -> bool:
    """Whether a snapshot is sent again: its key is known, or its number is below the highest one."""
    known = [str(one["idempotency_key"]) for one in snapshots if one["idempotency_key"]]
    return key is not None and (key in known or -1 < _number(key) < max(map(_number, known), default=-1))


def _number(key: str) -> int:
    head = key.partition(":")[0]
    return int(head) if head.isascii() and head.isdigit() and ":" in key else -1


def _call(run: str, call: str) -> str:
    """The name of a tool call in the ledger: ids of calls are unique only within a run."""
    return f"{run}:{call}"


def _linked(run_id: str) -> str:
    """A run's id as part of an event id."""
    if len(run_id) <= _LINK_LIMIT and run_id.isprintable():
        return f"run:{run_id}"
    return f"run:{sha256(run_id.encode('utf-8', 'surrogatepass')).hexdigest()}"
