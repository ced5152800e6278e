"""pydantic-ai: its `ConversationStore` on our log.

    conversations = OnrecordConversationStore(onrecord.connect())
    agent = Agent(model, capabilities=[OnrecordCapability(conversations)])
    conversation = await conversations.load("refund-42") or Conversation(conversation_id="refund-42")
    await conversations.save(await agent.run("Refund order 42", conversation=conversation))

A conversation is a session; each message is kept once, word for word. A save names the revision that it replaces: if
another writer saved first, it is a `ConversationConflict`, queued or forked. Forks share the log of their parent,
branches point into it: neither copies a message. The capability puts the messages of a run and both ends of each tool
call on record before the tool runs, so `load` returns what a killed run had done, with results or "started, outcome
unknown".
"""

from __future__ import annotations

from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import fields
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from onrecord.aio import settled
from onrecord.errors import InvalidInput, LeaseHeld, OnrecordError
from onrecord.frameworks.conversation import FORK, QUEUE, REFUSE, TRIES, check_policy
from onrecord.frameworks.leasing import aalone
from onrecord.frameworks.pydantic_conversations import Conversations, Repeated, call_key, conflict, entries_of
from onrecord.frameworks.requiring import required
from onrecord.frameworks.speaking import speaking, theirs
from onrecord.frameworks.tool_calls import said_of

with required("pydantic-ai", "pydantic_ai", "2.66"):
    from pydantic_ai import AgentRunResult
    from pydantic_ai._conversation_marks import _STORED, stored_boundary
    from pydantic_ai.capabilities import AbstractCapability
    from pydantic_ai.conversation import Conversation as Theirs
    from pydantic_ai.conversation_store import (
        ConversationConflict,
        ConversationEntry,
        ConversationRecord,
        ConversationStore,
    )
    from pydantic_ai.exceptions import UserError
    from pydantic_ai.messages import ModelMessagesTypeAdapter
    from pydantic_ai.usage import RunUsage
    from pydantic_core import to_jsonable_python

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from onrecord.session.session_store import SessionStore

R = TypeVar("R")


class OnrecordConversationStore(ConversationStore):  # type: ignore[misc]  # pydantic-ai has an environment of its own
    """Conversations of pydantic-ai, each in a session of ours. Deleting retracts; erase the session to remove bytes.

    `on_conflict` says what happens to a run that saves after another one has saved: `refuse` (`ConversationConflict`),
    `queue` (its messages are saved behind the others) or `fork` (they go to a fork; `forks` has its id). Inside
    `async with conversations.alone(...)` no other process that uses `alone` can interleave.
    """

    @speaking(UserError)
    def __init__(self, store: SessionStore, *, agent: str = "main", on_conflict: str = REFUSE) -> None:
        self._on_conflict = check_policy(on_conflict)
        self.forks: list[str] = []
        """The conversations that runs which were overtaken went to."""
        # To wait for a lease is what a conversation can do itself; a fork needs an id of pydantic-ai.
        self.kept = Conversations(store, agent, QUEUE if on_conflict == QUEUE else REFUSE)

    @asynccontextmanager
    async def alone(self, conversation_id: str) -> AsyncIterator[str]:
        """Have the lease of a conversation: no other `alone` of it, in any process, runs meanwhile.

        If another one has it, this one is refused, waits for it (`queue`), or works in a fork (`fork`): what it gives
        is the id of the conversation to load. A process that lost its lease meanwhile is refused when it saves.
        """
        with speaking(UserError):
            kept = self.kept.conversation(conversation_id)
        async with AsyncExitStack() as held:
            try:
                await held.enter_async_context(aalone(kept, _awaited))
            except LeaseHeld:
                if self._on_conflict != FORK:
                    raise
                conversation_id = await self._forked(conversation_id)
                await held.enter_async_context(aalone(self.kept.conversation(conversation_id), _awaited))
            yield conversation_id

    async def _forked(self, conversation_id: str) -> str:
        """The id of a new fork of a conversation, with all of its messages."""
        id_ = await _awaited(partial(self.kept.free_id, conversation_id))
        if await self.read_record(conversation_id) is not None:
            await self.fork(conversation_id, new_conversation_id=id_)
        self.forks.append(id_)
        return id_

    async def save(
        self, conversation: Theirs | AgentRunResult[Any], *, scope: str | None = None
    ) -> list[ConversationEntry]:
        """Save a conversation, or the result of a run, in one durable step; the same one again changes nothing.

        A save whose reply was lost may be repeated: messages of a run have its id, so those on record are recognised.
        """
        result = conversation if isinstance(conversation, AgentRunResult) else None
        given = result.conversation if result else conversation
        if not isinstance(given, Theirs):
            wrong = f"this takes a Conversation or the result of a run, not {type(given).__name__}"
            raise theirs(InvalidInput(wrong), UserError)
        if not _is_marked(given) and (known := await self._on_record(given, given.messages, scope)):
            return await self._repeated(given, result, known, scope)  # a copy, which does not know what is on record
        newest = self.kept.remembered(given.conversation_id, given.revision)
        saving = self if newest is None else _Saving(self, newest)
        try:
            saved: list[ConversationEntry] = await ConversationStore.save(saving, conversation, scope=scope)
        except Repeated as on_record:
            return await self._repeated(given, result, on_record.keys, scope)
        except ConversationConflict as problem:
            unsaved = given.messages[stored_boundary(given) or 0 :]
            if known := await self._on_record(given, unsaved, scope):
                return await self._repeated(given, result, known, scope)
            if self._on_conflict == REFUSE or not await self._is_visible(given.conversation_id, scope):
                raise conflict(given.conversation_id) from problem
            known = await _awaited(partial(self.kept.on_record, given.conversation_id, unsaved))
            return await self._overtaken(given, unsaved[len(known) :], scope)
        return saved

    async def _on_record(self, given: Any, messages: list[Any], scope: str | None) -> list[str]:
        """The entries of these messages, if all of them are on record and the caller may see them; else none."""
        known = await _awaited(partial(self.kept.on_record, given.conversation_id, messages))
        is_all = len(known) == len(messages) and await self._is_visible(given.conversation_id, scope)
        return known if is_all else []

    async def _is_visible(self, conversation_id: str, scope: str | None) -> bool:
        """Whether a conversation is on record, and may be changed by a caller that names this scope."""
        record = await self.read_record(conversation_id)
        return record is not None and scope in (None, record.scope)

    async def _repeated(self, given: Any, result: Any, known: list[str], scope: str | None) -> list[ConversationEntry]:
        """The entries of a save that was done before; the conversation continues from what is on record."""
        current = await super().load(given.conversation_id, scope=scope)
        record = await self.read_record(given.conversation_id)
        if current is None or record is None:
            raise conflict(given.conversation_id)
        given.__dict__.update(current.__dict__)
        if result is not None and record.head_id == known[-1]:
            result._conversation_saved(record.revision)  # noqa: SLF001  # as its own store does
        kept = self.kept.conversation(given.conversation_id)
        return await _awaited(partial(entries_of, kept, known))

    async def _overtaken(self, given: Any, unsaved: list[Any], scope: str | None) -> list[ConversationEntry]:
        """Save what a run said that another one was quicker than: behind it, or in a fork of what the run has read."""
        if stored_boundary(given) is None and given.revision is not None:
            raise conflict(given.conversation_id)  # what it has read was rewritten, so what is new is unknown
        read = given.revision and await _awaited(partial(self.kept.replaced, given.conversation_id, given.revision))
        if given.revision and not read:
            raise conflict(given.conversation_id)
        for _number in range(TRIES):
            target = await (self._aside if self._on_conflict == FORK else self._behind)(given, read, scope)
            target.messages.extend(unsaved)
            target.usage = target.usage + _difference(given.usage, read.usage if read else RunUsage())
            target.deferred_tool_requests = given.deferred_tool_requests
            try:
                entries = await super().save(target, scope=scope)
            except ConversationConflict:
                continue
            given.__dict__.update(target.__dict__)
            return list(entries)
        raise conflict(given.conversation_id)

    async def _behind(self, given: Any, _read: Any, scope: str | None) -> Theirs:
        found = await super().load(given.conversation_id, scope=scope)
        if found is None:
            raise conflict(given.conversation_id)
        return found

    async def _aside(self, given: Any, read: Any, scope: str | None) -> Theirs:
        id_ = await _awaited(partial(self.kept.free_id, given.conversation_id))
        from_ = {"from_entry": read.head_id} if read and read.head_id else {"at": 0}
        made = await self.fork(given.conversation_id, new_conversation_id=id_, scope=scope, **from_)
        made.usage = read.usage if read else RunUsage()
        self.forks.append(id_)
        return made

    async def load(self, conversation_id: str, *, limit: int | None = None, scope: str | None = None) -> Theirs | None:
        """A conversation. At its end, not yet saved: what other writers said since, and what a killed run had done."""
        loaded = await super().load(conversation_id, limit=limit, scope=scope)
        pending = await _awaited(partial(self.kept.pending, conversation_id, scope))
        if not pending:
            return loaded
        added = ModelMessagesTypeAdapter.validate_python(pending)
        if loaded is None:
            return Theirs(conversation_id=conversation_id, messages=added)
        loaded.messages.extend(added)
        return loaded

    async def read_record(self, conversation_id: str) -> ConversationRecord | None:
        """The record of a conversation, if there is one."""
        return await _awaited(partial(self.kept.record, conversation_id))

    async def read_records(self, *, scope: str | None = None, limit: int | None = None) -> Sequence[ConversationRecord]:
        """The records, the latest update first."""
        return await _awaited(partial(self.kept.records, scope, limit))

    async def write_record(
        self, record: ConversationRecord, *, new_entries: Sequence[ConversationEntry] = (),
        expected_revision: str | None,
    ) -> None:  # fmt: skip
        """Keep entries and record in one durable step, or raise `ConversationConflict` and keep nothing."""
        await _awaited(partial(self.kept.write, record, list(new_entries), expected_revision))

    async def delete_record(self, conversation_id: str, *, expected_revision: str) -> None:
        """Retract a conversation. Forks keep their history; the log keeps the entries until it is erased."""
        await _awaited(partial(self.kept.delete, conversation_id, expected_revision))

    async def read_entry(self, entry_id: str) -> ConversationEntry:
        """One entry, of any conversation."""
        return await _awaited(partial(self.kept.entry, entry_id))

    async def read_history(self, head_id: str | None, *, limit: int | None = None) -> list[ConversationEntry]:
        """The entries up to one, or the last of them; without a call for each."""
        return await _awaited(partial(self.kept.history, head_id, limit))


class _Saving(OnrecordConversationStore):
    """The store while a save runs that continues the newest record in memory.

    The record is not read again: the write is judged by the log, and refused if another writer was quicker.
    """

    def __init__(self, whole: OnrecordConversationStore, newest: ConversationRecord) -> None:
        self.__dict__.update(whole.__dict__)
        self._newest = newest

    async def read_record(self, conversation_id: str) -> ConversationRecord | None:
        """The record that the save continues."""
        return self._newest


class OnrecordCapability(AbstractCapability):  # type: ignore[misc]  # as above
    """Puts a run's messages and both ends of every tool call on record before the tool runs.

    A call that is replayed under the same run and call id gets the recorded result and does not run again.
    """

    def __init__(self, conversations: OnrecordConversationStore) -> None:
        self._conversations = conversations

    async def wrap_tool_execute(self, ctx: Any, *, call: Any, tool_def: Any, args: Any, handler: Any) -> Any:
        """Run a tool between its two ends on record."""
        run, conversation = str(ctx.run_id), str(ctx.conversation_id)
        own = [message for message in ctx.messages if message.run_id == ctx.run_id]
        arguments = to_jsonable_python(args, fallback=str)
        start = partial(
            self._conversations.kept.start, conversation, run, own, call=call.tool_call_id, name=call.tool_name,
            arguments=arguments,
        )  # fmt: skip
        known = await _awaited(start)
        if known is not None:
            return said_of(known)
        kept = self._conversations.kept.conversation(conversation)
        finish = partial(kept.finish_effect, call_key(run, call.tool_call_id), arguments)
        try:
            result = await handler(args)
        except Exception as problem:
            await _awaited(partial(finish, error=f"{type(problem).__name__}: {problem}"))
            raise
        await _awaited(partial(finish, result=to_jsonable_python(result, fallback=str)))
        return result


async def _awaited(call: Callable[[], R]) -> R:
    """Run a call on a thread; our errors become errors of pydantic-ai."""
    try:
        return await settled(call)
    except (UserError, LookupError):
        raise
    except OnrecordError as problem:
        raise theirs(problem, UserError) from problem


def _is_marked(given: Any) -> bool:
    """Whether a conversation knows how many of its messages are on record; its own store checks which."""
    return bool(len(given.__dict__.get(_STORED, ())) == given.new_message_index)


def _difference(now: Any, before: Any) -> Any:
    """What a run has used: what its conversation counts, without what it counted when it was loaded."""
    made = RunUsage()
    for one in fields(RunUsage):
        new, old = getattr(now, one.name), getattr(before, one.name)
        if isinstance(new, dict):
            setattr(made, one.name, {key: value - old.get(key, 0) for key, value in new.items()})
        elif new is not None:
            setattr(made, one.name, new - (old or 0))
    return made
