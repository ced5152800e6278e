"""Conversations of pydantic-ai as they are folded from the log, without asyncio: `pydantic_ai` is what awaits them."""

from __future__ import annotations

import json
from collections import OrderedDict
from functools import partial
from hashlib import sha256
from threading import RLock
from typing import TYPE_CHECKING, Any

from onrecord.errors import Conflict, InvalidInput, NameTaken, NotFound
from onrecord.frameworks.conversation import (
    FORKS_LIMIT,
    REFUSE,
    Conversation,
    check_store,
    check_type,
    has_secret,
    read_row,
    session_name,
)
from onrecord.frameworks.listing import listed, replay
from onrecord.frameworks.parsing import parsed
from onrecord.frameworks.pydantic_messages import (
    ANSWERS,
    NOT_STARTED,
    answers,
    carried_of,
    from_neutral,
    heard_of,
    own_reading,
    reading,
    returned,
    unanswered,
)
from onrecord.frameworks.requiring import required
from onrecord.frameworks.speaking import theirs
from onrecord.frameworks.tool_calls import said_of
from onrecord.log.names import link_id

with required("pydantic-ai", "pydantic_ai pydantic", "2.66"):
    from pydantic import TypeAdapter
    from pydantic_ai.conversation_store import ConversationConflict, ConversationEntry, ConversationRecord
    from pydantic_ai.messages import ModelMessagesTypeAdapter, ModelRequest, ModelResponse

if TYPE_CHECKING:
    from collections.abc import Iterator

    from onrecord.log.events import Draft, Event
    from onrecord.log.head import Head
    from onrecord.session.handle import Session
    from onrecord.session.session_store import SessionStore

FRAMEWORK = "pydantic-ai"
LISTED = "pydantic-ai.1"
"""The name under which the record of a conversation is kept for lists."""
CONVERSATIONS_KEPT = 256
"""How many conversations a store keeps folded in memory."""
REVISIONS_KEPT = 256
"""Of how many latest saves a conversation knows what they had, for a run that was overtaken."""
_LINK_LIMIT = 100
_RECORD = TypeAdapter(ConversationRecord)


class Kept(Conversation):
    """One conversation: every entry that was ever stored, which of them are visible, and the record."""

    FIELDS = ("all", "keys", "lines", "parents", "record", "run", "vendor_id")

    def _forget(self) -> None:
        super()._forget()
        self.stored: dict[str, tuple[str | None, str]] = {}
        """Parent and text of each entry, those of branches that were left included."""
        self.at: dict[str, int] = {}
        """Where each entry was first kept."""
        self.record: dict[str, Any] | None = None
        self.revisions: OrderedDict[str, dict[str, Any]] = OrderedDict()
        """The records of the latest saves, by revision."""
        self._keys: list[str] = []
        self._by_line: dict[str, str] = {}
        self._lined = 0
        self._has_secrets = False
        """Whether a secret was left out of one of these texts."""
        self.vendor_id = self.id
        """The id under which the transcript knows the conversation; a fork has that of its parent."""
        self.carried: set[int] = set()
        self.unsaved: dict[str, dict[str, str]] = {}
        """For each run, the messages that it has not saved yet."""
        self.began: dict[str, int] = {}

    def fold(self, event: Event, data: dict[str, Any]) -> None:
        """Fold one event of this conversation, or of the one that it was forked from."""
        last = next(reversed(self.entries), None)
        super().fold(event, data)
        self.vendor_id = str(data.get("vendor_id", self.id))
        keys, run = data.get("keys") or [], data.get("run")
        if event.kind == "payload.retracted":
            if data.get("all"):
                self.stored, self.at, self.record, self.unsaved = {}, {}, None, {}
                self.revisions, self._keys, self._by_line, self._lined = OrderedDict(), [], {}, 0
            elif run:
                self.unsaved.pop(run, None)
        elif run:
            self.began.setdefault(run, event.position)
            self.unsaved.setdefault(run, {}).update(zip(keys, data["lines"], strict=True))
            for key in keys:
                self.entries.pop(key, None)
        else:
            self._keys += keys
            for key, parent, line in zip(keys, data.get("parents") or [], data["lines"], strict=True):
                self.stored[key] = self._left(parent, last), line
                self.at.setdefault(key, event.position)
                if position := carried_of(line):
                    self.carried.add(position)
            self.record = data.get("record", self.record)
            if self.record is not None and (head := self._left(self.record["head_id"], last)) != self.record["head_id"]:
                self.record = {**self.record, "head_id": head}
            if self.record is not None:
                self.revisions[self.record["revision"]] = self.record
                if len(self.revisions) > REVISIONS_KEPT:
                    self.revisions.popitem(last=False)

    def _left(self, key: str | None, last: str | None) -> str | None:
        """An entry that others continue; in place of an erased one, the last one before it that is left."""
        return last if self.has_gaps and key is not None and key not in self.stored else key

    def keys_of(self, lines: list[str]) -> list[str]:
        """The latest entry with each of these texts, or with its recorded form; empty where there is none."""
        for key in self._keys[self._lined :]:
            line = self.stored[key][1]
            self._by_line[line] = key
            self._has_secrets = self._has_secrets or has_secret(line)
        self._lined = len(self._keys)
        found = [self._by_line.get(line, "") for line in lines]
        if self._has_secrets and not all(found):
            found = [key or self._by_line.get(line, "") for key, line in zip(found, self.recorded(lines), strict=True)]
        return found

    @property
    def current(self) -> dict[str, Any] | None:
        """The record, if it is of this conversation; in a new fork it is still that of the parent."""
        return self.record if self.record and self.record["conversation_id"] == self.id else None

    def chain(self, head: str | None, added: dict[str, tuple[str | None, str]] | None = None) -> list[str]:
        """The entries up to one, in order; `LookupError` if one is missing."""
        found: list[str] = []
        while head is not None:
            found.append(head)
            head = ((added or {}).get(head) or self.stored[head])[0]
        return found[::-1]

    def pending(self) -> list[Any]:
        """What was said and not saved: turns of other writers, and messages of runs that ended before they saved."""
        parts = [
            (position, from_neutral(items, position))
            for position, items in self.of_others()
            if position not in self.carried
        ]
        for run, lines in self.unsaved.items():
            messages = [json.loads(line) for line in lines.values()]
            results = [self._result(run, messages, call, name) for call, name in unanswered(messages)]
            parts.append((self.began[run], messages + results))
        return [message for _position, messages in sorted(parts, key=lambda part: part[0]) for message in messages]

    def _result(self, run: str, messages: list[Any], call: str, name: str) -> dict[str, Any]:
        uses = self.calls.uses(call_key(run, call))[answers(messages, call) :]
        said = said_of(uses[-1]) if uses else NOT_STARTED.format(name=name)
        return returned(call, name, said) | {"run_id": run, "conversation_id": self.id}


class Repeated(Exception):  # no error: the save that says it is answered with the entries
    """All messages of a save are on record, each under the id of its run: the reply to an earlier save was lost."""

    def __init__(self, keys: list[str]) -> None:
        super().__init__(keys)
        self.keys = keys


class Conversations:
    """The conversations of a store, without asyncio."""

    def __init__(self, store: SessionStore, agent: str, on_conflict: str = REFUSE) -> None:
        self.store = check_store(store)
        self._agent, self._on_conflict = agent, on_conflict
        self._known: OrderedDict[str, Kept] = OrderedDict()
        self._lock = RLock()

    def conversation(self, conversation_id: str) -> Kept:
        """One conversation, as it is folded in memory."""
        with self._lock:
            found = self._known.get(conversation_id)
            if found is None:
                found = Kept(self.store, FRAMEWORK, conversation_id, agent=self._agent, on_conflict=self._on_conflict)
                self._known[conversation_id] = found
                if len(self._known) > CONVERSATIONS_KEPT:
                    self._known.popitem(last=False)
            self._known.move_to_end(conversation_id)
            return found

    def pending(self, conversation_id: str, scope: str | None) -> list[Any]:
        """What `load` adds to what is saved."""
        kept = self.conversation(conversation_id)
        with kept.lock:
            kept.catch_up()
            current = kept.current
            if current is None and kept.record is not None:
                return []  # a fork that was begun and not saved
            if scope is not None and (current or {}).get("scope") != scope:
                return []
            return kept.pending()

    def remembered(self, conversation_id: str, revision: str | None) -> ConversationRecord | None:
        """The record with this revision, if it is the newest that is in memory. It neither reads nor waits."""
        kept = self._known.get(conversation_id)
        found = kept.current if kept else None
        return _RECORD.validate_python(found) if found and found["revision"] == revision else None

    def record(self, conversation_id: str) -> ConversationRecord | None:
        """The record of a conversation."""
        kept = self.conversation(conversation_id)
        with kept.lock:
            kept.catch_up()
            return None if kept.current is None else _RECORD.validate_python(kept.current)

    def replaced(self, conversation_id: str, revision: str) -> ConversationRecord | None:
        """The record that had a revision, if it is one of the latest."""
        kept = self.conversation(conversation_id)
        with kept.lock:
            kept.catch_up()
            found = kept.revisions.get(revision)
            return None if found is None else _RECORD.validate_python(found)

    def on_record(self, conversation_id: str, messages: list[Any]) -> list[str]:
        """The entries of the messages at the beginning of a list that were saved before, under the id of their run."""
        kept = self.conversation(conversation_id)
        found: list[str] = []
        with kept.lock:
            kept.catch_up()
            for key in kept.keys_of([line_of(message) for message in messages]):
                if key not in kept.entries:
                    break
                found.append(key)
        last = next((at for at in range(len(found), 0, -1) if messages[at - 1].run_id), 0)
        return found[:last]  # without the id of a run, equal words may be said twice

    def free_id(self, conversation_id: str) -> str:
        """An id for a fork of a conversation, which no other one has."""
        numbered = (f"{conversation_id}-fork-{number}" for number in range(1, FORKS_LIMIT))
        found = next((one for one in numbered if self.store.named(session_name(one)) is None), None)
        if found is None:
            raise InvalidInput(f"conversation {conversation_id!r:.100} has {FORKS_LIMIT:,} forks")
        return found

    def records(self, scope: str | None, limit: int | None) -> list[ConversationRecord]:
        """The records, the latest update first."""
        found: list[ConversationRecord] = []
        for _head, current in listed(self.store, LISTED, self._listed):
            if scope in (None, current["scope"]):
                if limit is not None and len(found) >= limit:
                    break
                found.append(_RECORD.validate_python(current))
        return sorted(found, key=lambda record: record.updated_at, reverse=True)

    def _listed(self, session: Session, head: Head) -> dict[str, Any] | None:
        """The record of the conversation that a session is; None if it is none, or if it was deleted."""
        kept = Kept(self.store, FRAMEWORK, "-", name="-")
        replay(session, kept)
        is_own = kept.record is not None and session_name(kept.record["conversation_id"]) == head.name
        return kept.record if is_own else None  # in a new fork it is that of the parent

    def _all(self) -> Iterator[Kept]:
        """The conversations of this project, the one with the latest event first."""
        for _head, current in listed(self.store, LISTED, self._listed):
            yield self.conversation(current["conversation_id"])

    def write(self, record: Any, new: list[Any], expected: str | None) -> None:
        """Keep entries and record in one step."""
        check_type(record, ConversationRecord, "a ConversationRecord")
        kept = self.conversation(record.conversation_id)
        added = {entry.id: (entry.parent_id, line_of(entry.message)) for entry in new}
        messages = {id_: parsed(line) for id_, (_parent, line) in added.items()}
        with kept.lock:
            begun = kept.position or kept.catch_up()  # if others wrote since, the append is judged again
            missing: dict[str, tuple[str | None, str]] = {}
            if expected is None and record.forked_from and record.head_id and record.head_id not in added:
                missing = self._forked(kept, record)
            elif not begun and (expected is not None or (record.head_id and record.head_id not in added)):
                raise conflict(record.conversation_id)
            kept.write(partial(self._saved, kept, record, added, missing, messages=messages, expected=expected))

    def _forked(self, kept: Kept, record: Any) -> dict[str, tuple[str | None, str]]:
        """Give a fork the log of its parent; what a session that exists already lacks is returned."""
        parent = self.conversation(record.forked_from)
        with parent.lock:
            parent.catch_up()
            if record.head_id not in parent.stored:
                raise conflict(record.conversation_id)
            if kept.position == 0:
                try:
                    kept.attach(_fork(parent, kept.name, parent.at[record.head_id]))
                except NameTaken:
                    raise conflict(record.conversation_id) from None
                kept.catch_up()
            return {id_: parent.stored[id_] for id_ in parent.chain(record.head_id) if id_ not in kept.stored}

    def _saved(
        self, kept: Kept, record: Any, added: dict[str, Any], missing: dict[str, Any], *,
        messages: dict[str, Any], expected: str | None,
    ) -> list[Draft]:  # fmt: skip
        """The events of a save, after it has judged the newest entries; `messages` are the added ones as JSON."""
        current = kept.current
        if (current["revision"] if current else None) != expected:
            raise conflict(record.conversation_id)
        known = kept.keys_of([text for _parent, text in added.values()])
        if known and list(messages.values())[-1].get("run_id") and all(key in kept.entries for key in known):
            raise Repeated(known)
        gone, again = _moved(kept, record.head_id, added, missing)
        drafts = [kept.draft("payload.retracted", kept.retracted(gone, vendor_id=kept.vendor_id))] if gone else []
        drafts += [
            kept.draft("payload.retracted", kept.retracted(kept.unsaved[run], run=run, vendor_id=kept.vendor_id))
            for run in sorted({message.get("run_id") for message in messages.values()} & set(kept.unsaved))
        ]
        entries = {**again, **added}
        records = {key: messages.get(key) or parsed(text) for key, (_parent, text) in entries.items()}
        heard = heard_of(items for _position, items in kept.of_others())
        rows = [
            read_row(number, key, said)
            for number, (key, (_parent, text)) in enumerate(entries.items())
            if not carried_of(text) and (said := own_reading(records[key], heard))
        ]
        data = kept.kept(
            [text for _parent, text in entries.values()], list(entries), rows, vendor_id=kept.vendor_id,
            parents=[parent for parent, _text in entries.values()], record=_dumped(record),
        )  # fmt: skip
        link = link_id(FRAMEWORK, _linked(kept.id)) if current is None else None
        if link and kept.session.id in self.store.linked(FRAMEWORK, _linked(kept.id)):
            link = None  # deleted and begun again
        return [*drafts, kept.draft("payload.kept", data, id=link)]

    def delete(self, conversation_id: str, expected: str) -> None:
        """Retract a conversation."""
        kept = self.conversation(conversation_id)

        def make() -> list[Draft]:
            if (kept.current or {}).get("revision") != expected:
                raise conflict(conversation_id)
            data = kept.retracted(all=True, vendor_id=kept.vendor_id)
            return [kept.draft("payload.retracted", data)]

        with kept.lock:
            if not kept.catch_up():
                raise conflict(conversation_id)
            kept.write(make)

    def _holding(self, entry_id: str) -> Kept:
        """A conversation that has an entry: one in memory, else any on record."""
        with self._lock:
            known = list(self._known.values())[::-1]
        for kept in known:
            with kept.lock:
                if entry_id in kept.stored:
                    return kept
        for kept in self._all():
            with kept.lock:
                kept.catch_up()
                if entry_id in kept.stored:
                    return kept
        raise theirs(NotFound(f"there is no entry {entry_id!r:.100}", hint="load the conversation again"), LookupError)

    def entry(self, entry_id: str) -> ConversationEntry:
        """One entry."""
        return entries_of(self._holding(entry_id), [entry_id])[0]

    def history(self, head_id: str | None, limit: int | None) -> list[ConversationEntry]:
        """The entries up to one."""
        if head_id is None:
            return []
        kept = self._holding(head_id)
        with kept.lock:
            line = kept.chain(head_id)
        return entries_of(kept, line if limit is None else line[-limit:] if limit else [])

    # Tool calls

    def start(
        self, conversation_id: str, run: str, messages: list[Any], *, call: str, name: str, arguments: Any
    ) -> Any:
        """Put the messages of a run and the beginning of a tool call on record."""
        kept = self.conversation(conversation_id)

        def make() -> list[Draft]:
            known = len(kept.unsaved.get(run, ()))
            lines = [line_of(one) for one in messages[known:]]
            keys = [f"{run}/{number}" for number in range(known, len(messages))]
            rows = [
                read_row(at, key, said)
                for at, (key, line) in enumerate(zip(keys, lines, strict=True))
                if (said := reading(parsed(line)))
            ]
            data = kept.kept(lines, keys, rows, vendor_id=kept.vendor_id, run=run)
            return [kept.draft("payload.kept", data)] if lines else []

        with kept.lock:
            kept.catch_up()
            kept.write(make)
            parts = [part for message in messages for part in message.parts if part.part_kind in ANSWERS]
            answered = sum(part.tool_call_id == call for part in parts)
            return kept.start_effect(call_key(run, call), name, arguments, answered=answered)


def line_of(message: Any) -> str:
    """A message as JSON text."""
    check_type(message, (ModelRequest, ModelResponse), "messages of pydantic-ai")
    listed_alone: bytes = ModelMessagesTypeAdapter.dump_json([message])
    return listed_alone[1:-1].decode()


def _dumped(record: ConversationRecord) -> dict[str, Any]:
    """A record as it is kept: what nothing is known of, as most counts of its usage, is left out."""
    found: dict[str, Any] = _RECORD.dump_python(record, mode="json", exclude_defaults=True)
    return {"format_version": record.format_version, "head_id": None, "scope": None, **found}


def conflict(conversation_id: str) -> Exception:
    """The conflict of pydantic-ai, with our code and hint."""
    said = Conflict(
        f"conversation {conversation_id!r:.100} was saved or deleted since it was loaded, or exists already",
        hint="load it again, then save",
    )
    made = theirs(said, ConversationConflict)
    made.conversation_id = conversation_id  # type: ignore[attr-defined]  # what its constructor sets
    return made


def _moved(
    kept: Kept, head: str | None, added: dict[str, Any], missing: dict[str, Any]
) -> tuple[list[str], dict[str, Any]]:
    """The entries that a save hides and those that it shows again: none if it only adds to the history."""
    current, new = kept.current, list(added)
    if current is not None and not missing and (head == new[-1] if new else head == current["head_id"]):
        before = [current["head_id"], *new]
        if [added[key][0] for key in new] == before[:-1]:
            return [], {}
    try:
        line = kept.chain(head, {**missing, **added})
    except LookupError:
        raise conflict(kept.id) from None
    shown = set(line)
    again = {key: missing.get(key) or kept.stored[key] for key in line if key not in kept.entries and key not in added}
    return [key for key in kept.entries if key not in shown], again


def _fork(parent: Kept, name: str, at: int) -> Session:
    return parent.session.fork(name, at, agent=parent.agent)


def entries_of(kept: Kept, ids: list[str]) -> list[ConversationEntry]:
    """Entries as pydantic-ai has them."""
    with kept.lock:
        rows = [(id_, *kept.stored[id_]) for id_ in ids]
    messages = ModelMessagesTypeAdapter.validate_json(f"[{','.join(line for _id, _parent, line in rows)}]")
    return [
        ConversationEntry(id=id_, parent_id=parent, message=message)
        for (id_, parent, _line), message in zip(rows, messages, strict=True)
    ]


def _linked(conversation_id: str) -> str:
    """A conversation's id as part of an event id."""
    if len(conversation_id) <= _LINK_LIMIT and conversation_id.isprintable():
        return conversation_id
    return sha256(conversation_id.encode("utf-8", "surrogatepass")).hexdigest()


def call_key(run: str, call: str) -> str:
    """The name of a tool call in the ledger: ids of calls are unique only within a run."""
    return f"{run}:{call}"
