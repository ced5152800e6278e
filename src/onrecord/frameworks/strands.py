"""Strands Agents: its `SessionRepository` on our log.

    repository = OnrecordRepository(onrecord.connect())
    manager = RepositorySessionManager(session_id="refund-42", session_repository=repository)
    agent = Agent(session_manager=manager, hooks=[OnrecordHooks(repository, "refund-42")])

Messages are numbered by the caller; a number that another worker has used is refused and never overwritten. A message
that is saved again because the reply was lost is kept once: the agent gives every message an id (`tracking_id`). One
that was redacted is replaced for every reader. The hooks put tool calls on record before the tool runs.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from contextlib import ExitStack, contextmanager
from dataclasses import fields
from functools import partial
from itertools import islice
from threading import RLock
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from onrecord.aio import settled
from onrecord.errors import Conflict, InvalidInput, NotFound, OnrecordError
from onrecord.frameworks.conversation import (
    FORK,
    REFUSE,
    Conversation,
    check_policy,
    check_store,
    check_type,
    has_secret,
    row,
)
from onrecord.frameworks.leasing import alone
from onrecord.frameworks.others import mark_of
from onrecord.frameworks.parsing import parsed
from onrecord.frameworks.requiring import required
from onrecord.frameworks.speaking import speaking, theirs
from onrecord.frameworks.strands_messages import from_neutral, interrupted, neutral
from onrecord.frameworks.tool_calls import said_of
from onrecord.frameworks.writing import as_line

with required("strands", "strands", "1.62"):
    from strands.hooks import (
        AfterInvocationEvent,
        AfterToolCallEvent,
        AgentInitializedEvent,
        BeforeToolCallEvent,
        HookOrder,
        HookProvider,
        MessageAddedEvent,
    )
    from strands.interrupt import InterruptException
    from strands.middleware import ExecuteToolStage
    from strands.session.session_repository import SessionRepository
    from strands.types.exceptions import SessionException
    from strands.types.session import Session, SessionAgent, SessionMessage, decode_bytes_values

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from onrecord.frameworks.conversation import Entry
    from onrecord.frameworks.others import Said
    from onrecord.log.events import Draft
    from onrecord.session.session_store import SessionStore

R = TypeVar("R")

FRAMEWORK = "strands"
SESSIONS_KEPT = 256
"""How many sessions a repository keeps folded in memory."""
RETRIED = 100
"""How many messages of a turn are recognised when the turn is saved again."""
DEFAULT_AGENT = "default"
_SESSION = "session"
_MESSAGE_FIELDS = frozenset(one.name for one in fields(SessionMessage))
_ASKED = "interrupted: it waits for an answer, and runs again when it has one"
"""The outcome of a call that asked a person something, or about which another hook did."""
_BYTES = "__bytes_encoded__"
"""What Strands writes where a record has bytes."""


class Keeper(Protocol):
    """What keeps the sessions of Strands: the repository, or the storage."""

    def conversation(self, session_id: str) -> Conversation:
        """One session."""

    def unread(self, session_id: str, agent: Any) -> list[Said]:
        """The turns of other writers that an agent, as it was restored, does not have."""


class OnrecordRepository(SessionRepository):  # type: ignore[misc]  # Strands has an environment of its own
    """Sessions, agents and messages of Strands, each session in a session of ours.

    `on_conflict` says what happens to a message whose number another worker has used: `refuse`, `queue` (it gets the
    next number) or `fork` (this worker continues in a fork; `forks` has its name). Inside `with repository.alone(...)`
    no other process can add to the session.
    """

    @speaking(SessionException)
    def __init__(self, store: SessionStore, *, on_conflict: str = REFUSE) -> None:
        self.store = check_store(store)
        self.forks: list[str] = []
        self._on_conflict = check_policy(on_conflict)
        self._moved: dict[tuple[str, str], str] = {}
        """The keys of the messages that were queued, by session and the key that the worker gave."""
        self._seen: dict[str, int] = {}
        """Up to which change this worker has read each session, or written it."""
        self._opened: set[tuple[str, str]] = set()
        """The lanes that were listed, and to which nothing was added since: a turn may be saved again there."""
        self._known: OrderedDict[str, Conversation] = OrderedDict()
        self._lock = RLock()

    def conversation(self, session_id: str) -> Conversation:
        """One session, as it is folded in memory."""
        with self._lock:
            found = self._known.get(session_id)
            if found is None:
                made = partial(Conversation, self.store, FRAMEWORK, session_id, on_conflict=self._on_conflict)
                found = _called(made)
                self._known[session_id] = found
                if len(self._known) > SESSIONS_KEPT:
                    self._known.popitem(last=False)
            self._known.move_to_end(session_id)
            return found

    @contextmanager
    def alone(self, session_id: str) -> Iterator[None]:
        """Hold the lease of a session: no other process can add to it, and one that lost it is refused."""
        kept = self.conversation(session_id)
        name = kept.name
        with ExitStack() as held:
            _called(partial(held.enter_context, alone(kept)))
            if kept.name != name:
                self.forks.append(kept.name)
            yield

    # Sessions

    def create_session(self, session: Session, **_more: Any) -> Session:
        """Keep a new session."""
        _called(partial(check_type, session, Session, "a Session"))
        self._write(session.session_id, _SESSION, session.to_dict(), new=True)
        return session

    def read_session(self, session_id: str, **_more: Any) -> Session | None:
        """A session, if it is on record."""
        found = self._read(session_id, _SESSION)
        return None if found is None else Session.from_dict(found)

    # Agents

    def create_agent(self, session_id: str, session_agent: SessionAgent, **_more: Any) -> None:
        """Keep a new agent of a session."""
        _called(partial(check_type, session_agent, SessionAgent, "a SessionAgent"))
        self._write(session_id, f"agent/{session_agent.agent_id}", session_agent.to_dict(), _SESSION, new=True)

    def read_agent(self, session_id: str, agent_id: str, **_more: Any) -> SessionAgent | None:
        """An agent, if it is on record."""
        found = self._read(session_id, f"agent/{agent_id}")
        return None if found is None else SessionAgent.from_dict(found)

    def update_agent(self, session_id: str, session_agent: SessionAgent, **_more: Any) -> None:
        """Keep what changed of an agent."""
        _called(partial(check_type, session_agent, SessionAgent, "a SessionAgent"))
        self._write(session_id, f"agent/{session_agent.agent_id}", session_agent.to_dict(), _SESSION)

    # Messages

    def create_message(self, session_id: str, agent_id: str, session_message: SessionMessage, **_more: Any) -> None:
        """Keep a new message; refused if its number is taken."""
        _called(partial(check_type, session_message, SessionMessage, "a SessionMessage"))
        key = _called(partial(_key, agent_id, session_message.message_id))
        write = partial(self._create_message, session_id, key, session_message.to_dict(), f"agent/{agent_id}")
        _called(write)

    def _create_message(self, session_id: str, key: str, record: dict[str, Any], within: str) -> None:
        kept, line, lane = self.conversation(session_id), as_line(record), _lane(key)
        with kept.lock:
            kept.catch_up()
            again = _repeated(kept, key, record, RETRIED if (session_id, lane) in self._opened else 1)
            if again:
                self._moved[session_id, key] = again
                return
            self._opened.discard((session_id, lane))
            try:
                self._write_on(kept, key, line, within, new=True)
            except Conflict:
                if self._on_conflict == REFUSE:
                    raise
                if self._on_conflict == FORK:
                    kept.attach(kept.fork(self._seen.get(session_id)))
                    self.forks.append(kept.name)
                    kept.catch_up()
                else:
                    given, key = key, _next_key(kept, key)
                    self._moved[session_id, given] = key
                    line = as_line({**record, "message_id": int(key.rpartition("/")[2])})
                self._write_on(kept, key, line, within, new=True)
            self._seen[session_id] = kept.changed_at

    def read_message(self, session_id: str, agent_id: str, message_id: int, **_more: Any) -> SessionMessage | None:
        """A message, if it is on record."""
        found = self._kept(session_id, self._key_of(session_id, _called(partial(_key, agent_id, message_id))))
        return None if found is None else _message(found, parsed(found))

    def update_message(self, session_id: str, agent_id: str, session_message: SessionMessage, **_more: Any) -> None:
        """Replace a message, for instance because it was redacted; the log keeps the first one until it is erased."""
        _called(partial(check_type, session_message, SessionMessage, "a SessionMessage"))
        key = self._key_of(session_id, _called(partial(_key, agent_id, session_message.message_id)))
        before = self._read(session_id, key)
        record = session_message.to_dict()
        if before is not None:
            session_message.created_at = record["created_at"] = before["created_at"]
            record["message_id"] = before["message_id"]
        self._write(session_id, key, record, f"agent/{agent_id}")

    def _key_of(self, session_id: str, key: str) -> str:
        """Where a message is kept: under the number that its worker gave, or behind those of others."""
        return self._moved.get((session_id, key), key)

    def list_messages(
        self, session_id: str, agent_id: str, limit: int | None = None, offset: int = 0, **_more: Any
    ) -> list[SessionMessage]:
        """The messages of an agent, by number."""
        kept, prefix = self.conversation(session_id), f"message/{agent_id}/"
        with kept.lock:
            _called(kept.catch_up)
            self._seen[session_id] = kept.changed_at
            self._opened.add((session_id, prefix))
            rows = [(int(key.removeprefix(prefix)), one) for key, one in kept.entries.items() if key.startswith(prefix)]
            turns = kept.turns_of_others()
        rows.sort()
        end = None if limit is None else offset + limit
        return [_message(one, parsed(one)) if isinstance(one, str) else one for one in _merged(rows, turns)[offset:end]]

    def unread(self, session_id: str, agent: Any) -> list[Said]:
        """The turns of other writers, if this agent is new to the session; else `list_messages` has them."""
        removed = getattr(agent.conversation_manager, "removed_message_count", 0)
        if removed or any(mark_of(one.get("tracking_id")) for one in agent.messages):
            return []
        return _turns(self.conversation(session_id))

    # Groups of agents

    def create_multi_agent(self, session_id: str, multi_agent: Any, **_more: Any) -> None:
        """Keep the state of a group of agents."""
        self._write(session_id, *_called(partial(_state_of, multi_agent)), _SESSION, new=None)

    def read_multi_agent(self, session_id: str, multi_agent_id: str, **_more: Any) -> dict[str, Any] | None:
        """The state of a group of agents, if it is on record."""
        return self._read(session_id, f"multi/{multi_agent_id}")

    def update_multi_agent(self, session_id: str, multi_agent: Any, **_more: Any) -> None:
        """Keep what changed of a group's state."""
        self._write(session_id, *_called(partial(_state_of, multi_agent)), _SESSION)

    # What they share

    def _read(self, session_id: str, key: str) -> dict[str, Any] | None:
        found = self._kept(session_id, key)
        return None if found is None else dict(parsed(found))

    def _kept(self, session_id: str, key: str) -> str | None:
        """The text of a record, if it is there."""
        kept = self.conversation(session_id)
        with kept.lock:
            _called(kept.catch_up)
            found = kept.entries.get(key)
            if key == _SESSION:
                self._seen[session_id] = kept.changed_at
        return None if found is None else found.line

    def _write(
        self, session_id: str, key: str, record: dict[str, Any], within: str = "", *, new: bool | None = False
    ) -> None:
        """Keep a record: a new one, one that replaces another, or (`new` None) either."""
        _called(partial(self._write_on, self.conversation(session_id), key, as_line(record), within, new))

    def _write_on(self, kept: Conversation, key: str, line: str, within: str, new: bool | None) -> None:  # noqa: FBT001  # as above
        def make() -> list[Draft]:
            known = kept.entries.get(key)
            if within and within not in kept.entries:
                raise NotFound(f"{within} does not exist in session {kept.id}", hint="create it first")
            if known is not None and kept.is_recorded(known.line, line):
                return []  # the same call again, for instance after a lost reply
            if new and known is not None:
                raise Conflict(
                    f"{key} already exists in session {kept.id}; another worker wrote it",
                    hint="load the session again and continue from what is there",
                )
            if new is False and known is None:
                raise NotFound(f"{key} does not exist in session {kept.id}", hint="create it first")
            return [kept.draft("payload.kept", kept.kept([line], [key], _reading(key, line)))]

        with kept.lock:
            if within and not (kept.position or kept.catch_up()):
                raise NotFound(f"session {kept.id} does not exist", hint="create it first")
            kept.write(make)


class OnrecordHooks(HookProvider):  # type: ignore[misc]  # as above
    """Puts both ends of every tool call on record; a call that happened, or may have happened, does not run again.

    A call that was interrupted to ask a person is on record as failed, so it runs when the answer is there. An agent
    that is new to a session which others began gets what they said.
    """

    def __init__(self, sessions: Keeper, session_id: str) -> None:
        self._kept = sessions.conversation(session_id)
        self._unread = partial(sessions.unread, session_id)
        self._told: set[str] = set()
        """The calls whose results the agent has, also if it does not save them before it ends."""
        self._idle: dict[int, list[dict[str, Any]]] = {}
        """The calls that were let run but have not begun, or wait for an answer, by agent."""

    def register_hooks(self, registry: Any, **_more: Any) -> None:
        """Register at the beginning of an agent, before and after tool calls, and at the end of its runs."""
        registry.add_callback(AgentInitializedEvent, self._begin)
        registry.add_callback(BeforeToolCallEvent, self._before)
        registry.add_callback(AfterToolCallEvent, self._after)
        # First, so that the session manager saves the message as it is then.
        registry.add_callback(MessageAddedEvent, self._tell_outcomes, order=HookOrder.SDK_FIRST)
        # First, so that a call that waits is on record before the session manager saves that the agent does.
        registry.add_callback(AfterInvocationEvent, self._pause, order=HookOrder.SDK_FIRST)

    def _begin(self, event: Any) -> None:
        event.agent.add_middleware(ExecuteToolStage, self._run)
        if not getattr(event.agent.model, "stateful", False):
            turns = _called(partial(self._unread, event.agent))
            for block in interrupted(event.agent.messages):
                _called(partial(self._tell_outcome, block))
            event.agent.messages += [message for turn in turns for message in from_neutral(turn)]

    async def _tell_outcomes(self, event: Any) -> None:
        for block in interrupted([event.message]):
            await settled(partial(_called, partial(self._tell_outcome, block)))

    def _tell_outcome(self, block: dict[str, Any]) -> None:
        """Say what is on record of a call whose run was killed, where Strands says that it was interrupted."""
        self._kept.catch_up()
        known = self._kept.calls.uses(block["toolUseId"])
        if known:
            result = (known[-1].outcome or {}).get("result")
            if isinstance(result, dict) and {"status", "content"} <= result.keys():
                block |= result
            else:
                block["content"] = [{"text": said_of(known[-1])}]

    async def _before(self, event: Any) -> None:
        use = event.tool_use
        start = partial(self._kept.start_effect, use["toolUseId"], use["name"], use.get("input"), told=self._told)
        known = await settled(partial(_called, start))
        if known is None:
            self._add_idle(event.agent, use)
        else:
            event.cancel_tool = said_of(known)

    async def _after(self, event: Any) -> None:
        cancelled = getattr(event, "cancel_message", None)
        if self._drop_idle(event.agent, event.tool_use) or not cancelled:  # else it was cancelled for what is on record
            error = cancelled or (str(event.exception) if event.exception else None)
            result = None if cancelled else json.loads(json.dumps(event.result, default=str))
            await self._finish(event.tool_use, result=result, error=error)

    async def _run(self, context: Any, proceed: Any) -> AsyncIterator[Any]:
        """Note that a tool begins, so its outcome is unknown until it answers, or asks a person."""
        self._drop_idle(context.agent, context.tool_use)
        try:
            async for event in proceed(context):
                if "tool_interrupt_event" in event:
                    self._add_idle(context.agent, context.tool_use)
                yield event
        except InterruptException:
            self._add_idle(context.agent, context.tool_use)
            raise

    async def _pause(self, event: Any) -> None:
        """Record which calls wait for an answer: Strands says nothing after those, and runs them again later."""
        idle = self._idle.pop(id(event.agent), [])
        pending = event.agent._interrupt_state.pending_tool_execution  # noqa: SLF001  # only this says what has a result
        if pending is None or event.result is None or event.result.stop_reason != "interrupt":
            return
        answered = {result["toolUseId"] for result in pending.completed_tool_results}  # some run in the background
        for use in idle:
            if use["toolUseId"] not in answered:
                await self._finish(use, error=_ASKED)

    def _add_idle(self, agent: Any, use: dict[str, Any]) -> None:
        self._idle.setdefault(id(agent), []).append(use)

    def _drop_idle(self, agent: Any, use: dict[str, Any]) -> bool:
        """Note that a call begins, or never will; False if it was not let run."""
        idle = self._idle.get(id(agent), [])
        same = [one for one in idle if one["toolUseId"] == use["toolUseId"]]
        if same:
            idle.remove(next((one for one in same if one.get("input") == use.get("input")), same[0]))
        return bool(same)

    async def _finish(self, use: dict[str, Any], *, result: Any = None, error: str | None = None) -> None:
        finish = partial(self._kept.finish_effect, use["toolUseId"], use.get("input"), result=result, error=error)
        key = await settled(partial(_called, finish))
        if error != _ASKED:
            self._told.add(key)


def _called(call: Callable[[], R]) -> R:
    """Our errors as an error of Strands, with our code and hint."""
    try:
        return call()
    except OnrecordError as problem:
        raise theirs(problem, SessionException) from problem


def _state_of(multi_agent: Any) -> tuple[str, dict[str, Any]]:
    """Key and record of a group of agents."""
    if not hasattr(multi_agent, "serialize_state"):
        raise InvalidInput(f"this takes a group of agents, not {type(multi_agent).__name__}")
    return f"multi/{multi_agent.id}", multi_agent.serialize_state()


def _turns(kept: Conversation) -> list[Said]:
    """The turns of other writers, as of now."""
    with kept.lock:
        kept.catch_up()
        return kept.turns_of_others()


def _merged(rows: list[tuple[int, Entry]], turns: list[Said]) -> list[str | SessionMessage]:
    """Messages by number, as text, and in between the turns of others: they have no numbers of their own."""
    made: list[str | SessionMessage] = []
    at, last = 0, -1
    for number, entry in rows:
        while at < len(turns) and turns[at].position < entry.position:
            made += [SessionMessage(message, last) for message in from_neutral(turns[at])]
            at += 1
        made.append(entry.line)
        last = number
    return [*made, *(SessionMessage(message, last) for turn in turns[at:] for message in from_neutral(turn))]


def _lane(key: str) -> str:
    """What the keys of an agent's messages begin with."""
    return key.rpartition("/")[0] + "/"


def _next_key(kept: Conversation, key: str) -> str:
    """The first free number of a lane, as a key."""
    lane = _lane(key)
    used = [int(one.rpartition("/")[2]) for one in kept.entries if _lane(one) == lane]
    return f"{lane}{max(used, default=-1) + 1}"


def _repeated(kept: Conversation, key: str, record: dict[str, Any], count: int) -> str:
    """The key of the message that is saved again under another number, since the reply was lost; empty if it is new.

    Its id shows it: what is said twice has two. Looked at are the last `count` messages of its lane: just the last one
    if this repository has added to the lane, because a caller that knows that may say the same object again. Messages
    of earlier versions of Strands have no id, but a call or a result is never said twice in a row.
    """
    message = record.get("message") or {}
    id_, parts = message.get("tracking_id"), message.get("content") or ()
    if key in kept.entries or not (id_ or any("toolUse" in part or "toolResult" in part for part in parts)):
        return ""
    lane = _lane(key)
    last = (one for one in reversed(kept.entries.values()) if one.key.startswith(lane))
    for one in islice(last, count if id_ else 1):
        if (id_ or "") in one.line:
            given = parsed(kept.recorded([as_line(message)])[0]) if has_secret(one.line) else message
            if parsed(one.line).get("message") in (message, given):
                return one.key
    return ""


def _message(line: str, record: dict[str, Any]) -> SessionMessage:
    """A message as Strands has it; its own `from_dict` asks for the signature of the class once for every field."""
    known = {name: one for name, one in record.items() if name in _MESSAGE_FIELDS}
    return SessionMessage(**(decode_bytes_values(known) if _BYTES in line else known))


def _key(agent_id: str, message_id: int) -> str:
    check_type(message_id, int, "a message_id that is a number")
    return f"message/{agent_id}/{message_id}"


def _reading(key: str, line: str) -> list[dict[str, Any] | list[Any]]:
    if not key.startswith("message/"):
        return []
    record = parsed(line)
    said = neutral(record.get("redact_message") or record.get("message") or {})
    agent = key.split("/")[1]
    return [row(0, key, record, said, lane="" if agent == DEFAULT_AGENT else agent)] if said else []
