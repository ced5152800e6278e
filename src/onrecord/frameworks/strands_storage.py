"""Strands Agents: its `Storage` on our log, for `SnapshotSessionManager` and everything else that takes one.

    storage = OnrecordStorage(onrecord.connect())
    manager = SnapshotSessionManager("refund-42", storage=storage, save_latest_on="message")
    agent = Agent(session_manager=manager, hooks=[OnrecordHooks(storage, "refund-42")])

The snapshots of a session are kept in the session of that name; values under other keys in one session for them all.
A message is kept once, however many snapshots have it, and is in the transcript. Values come back byte for byte. Two
workers cannot overwrite each other: one that has not read the newest value of a key is refused or forked.
"""

from __future__ import annotations

import base64
import json
from collections import OrderedDict
from contextlib import asynccontextmanager
from functools import partial
from hashlib import sha256
from threading import RLock
from typing import TYPE_CHECKING, Any, TypeVar

from onrecord.aio import settled
from onrecord.errors import InvalidInput, LogMoved, OnrecordError
from onrecord.frameworks.conversation import (
    FORK,
    QUEUE,
    REFUSE,
    Conversation,
    check_policy,
    check_store,
    check_type,
    row,
)
from onrecord.frameworks.leasing import aalone
from onrecord.frameworks.listing import listed, replay
from onrecord.frameworks.others import COPY, mark_of
from onrecord.frameworks.requiring import required
from onrecord.frameworks.speaking import speaking, theirs
from onrecord.frameworks.strands import DEFAULT_AGENT
from onrecord.frameworks.strands_messages import neutral
from onrecord.frameworks.writing import as_line
from onrecord.log.names import link_id

with required("strands", "strands", "1.62"):
    from strands.storage.storage import Storage, _normalize_key, _normalize_prefix
    from strands.types.exceptions import StorageError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from onrecord.frameworks.others import Said
    from onrecord.log.events import Draft, Event
    from onrecord.log.head import Head
    from onrecord.session.handle import Session
    from onrecord.session.session_store import SessionStore

    Drafts = list[Draft]

R = TypeVar("R")

FRAMEWORK = "strands-storage"
LISTED = "strands-storage.1"
"""The name under which the keys of a session are kept for lists."""
SESSIONS_KEPT = 256
"""How many sessions a storage keeps folded in memory."""
OTHER_KEYS = "strands-storage"
"""The session of the values that belong to no session of Strands."""
_OF_SESSIONS = ("session", "context")
"""The first parts of the keys whose second part is a session of Strands."""
_TEXT, _BYTES, _SNAPSHOT = "text", "bytes", "snapshot"
_DIGEST = 24
_HINTS = {
    QUEUE: "a snapshot cannot be placed behind another one: load the session inside of `storage.alone`, which waits"
}
Names = list[str]


class Values(Conversation):
    """The values of one session, by key."""

    FIELDS = ("add", "all", "form", "keep", "keys", "lines", "shown")

    def _forget(self) -> None:
        super()._forget()
        self.pool: dict[str, str] = {}
        """Every message, by digest."""
        self.lists: dict[str, list[str]] = {}
        """The messages of each snapshot."""
        self.forms: dict[str, str] = {}
        self.began = False

    def fold(self, event: Event, data: dict[str, Any]) -> None:
        """Fold one event of this session."""
        if event.kind == "payload.retracted":
            if data.get("shown"):
                return  # messages that the transcript no longer shows
            super().fold(event, data)
            for key in data.get("keys") or ():
                self.lists.pop(key, None)
            return
        super().fold(event, data)
        self.began = True
        key = data["keys"][0]
        for digest in data["keys"][1:]:
            self.pool[digest] = self.entries.pop(digest).line
        self.forms[key] = data["form"]
        if data["form"] == _SNAPSHOT:
            before = self.lists.get(key, [])
            self.lists[key] = before[: data["keep"]] + data["add"]

    def copied(self) -> set[str]:
        """The marks of the turns of other writers that snapshots have had."""
        return {mark_of(json.loads(line).get("tracking_id")) for line in self.pool.values() if COPY in line}

    def value(self, key: str) -> bytes | None:
        """A value, byte for byte."""
        entry = self.entries.get(key)
        if entry is None:
            return None
        if self.forms[key] == _BYTES:
            return base64.b64decode(json.loads(entry.line))
        if self.forms[key] == _TEXT:
            return str(json.loads(entry.line)).encode()
        whole = json.loads(entry.line)
        whole["data"]["messages"] = [json.loads(self.pool[digest]) for digest in self.lists[key]]
        return _snapshot_bytes(whole)


class OnrecordStorage(Storage):  # type: ignore[misc]  # Strands has an environment of its own
    """Values of Strands on our log.

    `on_conflict` says what happens to a writer that has not read the newest value: `refuse`, or `fork` (it continues in
    the session that `forks` names). A snapshot has the whole conversation, so it cannot be placed behind another one:
    with `queue`, workers inside of `alone` wait for one another, and one that was overtaken outside of it is refused.
    """

    @speaking(StorageError)
    def __init__(self, store: SessionStore, *, agent: str = "main", on_conflict: str = REFUSE) -> None:
        self.store = check_store(store)
        self.forks: list[str] = []
        """The sessions that overtaken writers were moved to."""
        self._agent, self._on_conflict = agent, check_policy(on_conflict)
        self._known: OrderedDict[str, Values] = OrderedDict()
        self._seen: dict[str, int] = {}
        """Up to which position this storage has read each key."""
        self._lock = RLock()

    def conversation(self, session_id: str) -> Values:
        """One session, as it is folded in memory."""
        with self._lock:
            found = self._known.get(session_id)
            if found is None:
                found = Values(self.store, FRAMEWORK, session_id, agent=self._agent, on_conflict=self._on_conflict)
                self._known[session_id] = found
                if len(self._known) > SESSIONS_KEPT:
                    self._known.popitem(last=False)
            self._known.move_to_end(session_id)
            return found

    def unread(self, session_id: str, agent: Any) -> list[Said]:
        """The turns of other writers that no snapshot has; all of them for an agent that has no messages."""
        kept = self.conversation(session_id)
        with kept.lock:
            kept.catch_up()
            known = kept.copied() if agent.messages else set()
            return [turn for turn in kept.turns_of_others() if turn.mark not in known]

    @asynccontextmanager
    async def alone(self, session_id: str) -> AsyncIterator[None]:
        """Have the lease of a session: no other `alone` of it, in any process, runs meanwhile.

        If another one has it, this one is refused, waits for it (`queue`), or this storage continues the session in a
        fork (`fork`; `forks` has its name). A process that lost its lease meanwhile is refused when it writes.
        """
        with speaking(StorageError):
            kept = self.conversation(session_id)
        name = kept.name
        async with aalone(kept, _awaited):
            if kept.name != name:
                self.forks.append(kept.name)
            yield

    # The interface of Strands

    async def write(self, key: str, data: bytes) -> None:
        """Keep a value in one durable step."""
        await _awaited(partial(self._write, key, data))

    async def read(self, key: str) -> bytes | None:
        """A value, if there is one."""
        return await _awaited(partial(self._read, key))

    async def delete(self, key: str) -> None:
        """Retract a value. The log keeps it until it is erased."""
        await _awaited(partial(self._delete, key))

    async def list(self, query: str = "") -> Names:
        """The keys that begin with a text, sorted."""
        return await _awaited(partial(self._list, query))

    # The same on a thread

    def _of(self, key: str) -> Values:
        parts = key.split("/")
        return self.conversation(parts[1] if parts[0] in _OF_SESSIONS and len(parts) > 2 else OTHER_KEYS)  # noqa: PLR2004  # kind, session, rest

    def _read(self, given: str) -> bytes | None:
        key = _key(given)
        kept = self._of(key)
        with kept.lock:
            kept.catch_up()
            entry = kept.entries.get(key)
            self._seen[key] = entry.position if entry else 0
            return kept.value(key)

    def _write(self, given: str, data: bytes) -> None:
        key = _key(given)
        if not isinstance(data, bytes | bytearray | memoryview):
            raise InvalidInput(f"a value is bytes, not {type(data).__name__}")
        kept = self._of(key)
        with kept.lock:
            kept.catch_up()
            try:
                made = kept.write(partial(self._drafts, kept, key, bytes(data)))
            except LogMoved:
                if self._on_conflict != FORK:
                    raise
                kept.attach(kept.fork(self._seen[key] or None))
                self.forks.append(kept.name)
                kept.catch_up()
                self._seen.pop(key)
                made = kept.write(partial(self._drafts, kept, key, bytes(data)))
            if made:
                self._seen[key] = made[-1].position

    def _drafts(self, kept: Values, key: str, data: bytes) -> Drafts:
        entry, seen = kept.entries.get(key), self._seen.get(key)
        at = entry.position if entry else 0
        if entry is not None and _is_kept(kept, key, data):
            return []  # the same call again, for instance after a lost reply
        if seen is not None and at > seen:
            raise LogMoved(
                f"another worker wrote {key!r:.200} at position {at}; this one has read it up to position {seen}",
                hint=_HINTS.get(self._on_conflict, 'load the session again, or choose on_conflict="fork"'),
                expected=seen,
                actual=at,
            )
        whole = _snapshot_of(data)
        link = None if kept.began else link_id(FRAMEWORK, kept.session.id)
        if whole is None:
            form, text = _as_text(data)
            return [kept.draft("payload.kept", kept.kept([as_line(text)], [key], [], form=form), id=link)]
        return _snapshot_drafts(kept, key, whole, link)

    def _delete(self, given: str) -> None:
        key = _key(given)
        kept = self._of(key)
        with kept.lock:
            if kept.catch_up() and key in kept.entries:
                data = kept.retracted([key])
                kept.write(lambda: [kept.draft("payload.retracted", data)] if key in kept.entries else [])

    def _list(self, query: str) -> Names:
        check_type(query, str, "a query that is text")
        prefix = _normalize_prefix(query)
        parts = prefix.split("/")
        one = parts[0] in _OF_SESSIONS and len(parts) > 2  # noqa: PLR2004  # as above
        if one:
            kept = self.conversation(parts[1])
            with kept.lock:
                kept.catch_up()
                found = list(kept.entries)
        else:
            found = [key for _head, keys in listed(self.store, LISTED, self._listed) for key in keys]
        return sorted({key for key in found if key.startswith(prefix)})

    def _listed(self, session: Session, _head: Head) -> Names | None:
        """The keys of the values that a session has; None if it has none."""
        kept = Values(self.store, FRAMEWORK, "-", name="-")
        replay(session, kept)
        return list(kept.entries) or None


async def _awaited(call: Callable[[], R]) -> R:
    """Run a call on a thread; our errors become errors of Strands."""
    try:
        return await settled(call)
    except OnrecordError as problem:
        raise theirs(problem, StorageError) from problem


def _key(given: str) -> str:
    """A key as Strands' own storages have it."""
    check_type(given, str, "a key that is text")
    key: str = _normalize_key(given)
    return key


def _as_text(data: bytes) -> tuple[str, str]:
    try:
        return _TEXT, data.decode()
    except UnicodeDecodeError:
        return _BYTES, base64.b64encode(data).decode()


def _is_kept(kept: Values, key: str, data: bytes) -> bool:
    """Whether a value is what is on record under its key, perhaps without the secrets that it has."""
    value = kept.value(key) or b""
    if value == data or kept.forms[key] == _BYTES:
        return value == data
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return False
    if kept.forms[key] == _TEXT:
        return kept.is_recorded(kept.entries[key].line, as_line(text))
    return kept.is_recorded(value.decode(), text)


def _snapshot_bytes(whole: Any) -> bytes:
    return json.dumps(whole, ensure_ascii=False).encode()


def _snapshot_of(data: bytes) -> Any:
    """The snapshot that these bytes are, if they are exactly what Strands writes; None if not."""
    try:
        whole = json.loads(data)
        messages = whole["data"]["messages"]
        is_snapshot = bool(messages) and all(isinstance(one, dict) and "role" in one for one in messages)
        return whole if is_snapshot and _snapshot_bytes(whole) == data else None
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def _snapshot_drafts(kept: Values, key: str, whole: Any, link: str | None) -> list[Draft]:
    """A snapshot as what it adds: messages that are not kept yet, and where its list differs from the last one."""
    messages = whole["data"]["messages"]
    lines = [json.dumps(one, ensure_ascii=False, separators=(",", ":")) for one in messages]
    digests = _names([sha256(line.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGEST] for line in lines])
    before = kept.lists.get(key, [])
    keep = next((at for at, (old, now) in enumerate(zip(before, digests, strict=False)) if old != now), None)
    keep = min(len(before), len(digests)) if keep is None else keep
    new = {digest: at for at, digest in enumerate(digests) if digest not in kept.pool}
    agent = key.split("/")[4] if key.count("/") > 4 else DEFAULT_AGENT  # noqa: PLR2004  # session/ID/scopes/agent/NAME/...
    lane = "" if agent == DEFAULT_AGENT else agent
    others = {turn.mark for turn in kept.turns_of_others()}
    reading = [
        row(number, digest, messages[at], said, lane=lane)
        for number, (digest, at) in enumerate(new.items(), 1)
        if mark_of(messages[at].get("tracking_id")) not in others and (said := neutral(messages[at]))
    ]
    rest = {**whole, "data": {**whole["data"], "messages": []}}
    data = kept.kept(
        [as_line(rest), *(lines[at] for at in new.values())], [key, *new], reading, form=_SNAPSHOT, keep=keep,
        add=digests[keep:],
    )  # fmt: skip
    drafts = [kept.draft("payload.kept", data, id=link)]
    if gone := _replaced(before, digests):
        hidden = kept.retracted(gone, shown=True, agent=_lane(kept, lane))
        drafts.insert(0, kept.draft("payload.retracted", hidden))
    return drafts


def _lane(kept: Values, lane: str) -> str:
    return f"{kept.agent}/{lane}" if lane else kept.agent


def _names(digests: Names) -> Names:
    """A name for each message: its digest, and a number if the same was said before."""
    counts: dict[str, int] = {}
    names: Names = []
    for digest in digests:
        counts[digest] = counts.get(digest, 0) + 1
        names.append(digest if counts[digest] == 1 else f"{digest}#{counts[digest]}")
    return names


def _replaced(before: Names, now: Names) -> Names:
    """The messages that others stand in for, for instance redacted ones; a shorter list was trimmed or summed up."""
    known, there = set(before), set(now)
    pairs = zip(before, now, strict=False) if len(now) >= len(before) else ()
    return [old for old, new in pairs if old not in there and new not in known]
