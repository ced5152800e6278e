"""The Claude Agent SDK: its `SessionStore` on our log.

    options = ClaudeAgentOptions(session_store=OnrecordSessionStore(onrecord.connect()), session_store_flush="eager")

Transcript entries are kept word for word, each `uuid` once however often a batch is retried. The summary that the SDK
lists sessions by is written in the same step as the entries it sums up. Subagents' transcripts are lanes of the
session.
"""

from __future__ import annotations

import json
import re
from collections import OrderedDict
from functools import partial
from hashlib import sha256
from threading import RLock
from typing import TYPE_CHECKING, Any

from onrecord.aio import settled
from onrecord.errors import InvalidInput
from onrecord.frameworks.conversation import Conversation, as_line, new_keys, row, session_name
from onrecord.log.items import to_items
from onrecord.log.names import NAME_LIMIT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from onrecord.log.events import Draft, Event
    from onrecord.log.head import Head
    from onrecord.log.items import Item
    from onrecord.session.session_store import SessionStore

FRAMEWORK = "claude-agent-sdk"
SESSIONS_KEPT = 64
"""How many sessions a store keeps folded in memory."""
_DIGEST = 10
_UUID = re.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class Transcripts(Conversation):
    """The transcripts of one session of the SDK: the main one (`""`) and those of its subagents."""

    def _forget(self) -> None:
        super()._forget()
        self.lines: dict[str, list[str]] = {}
        self.known: set[tuple[str, str]] = set()
        """The entries that are on record, by subpath and uuid."""
        self.summary: dict[str, Any] | None = None
        self.at = 0

    def fold(self, event: Event, data: dict[str, Any]) -> None:
        """Fold one event of this session."""
        subpath = str(data.get("subpath", ""))
        if event.kind == "payload.retracted":
            for gone in [one for one in self.lines if data.get("all") or one == subpath]:
                del self.lines[gone]
                self.known = {key for key in self.known if key[0] != gone}
            self.summary = None if data.get("all") else self.summary
            return
        lines = data.get("lines") or []
        self.lines.setdefault(subpath, []).extend(lines)
        self.known |= {(subpath, key) for key in data.get("keys") or ()}
        self.summary, self.at = data.get("summary", self.summary), event.at

    def new_of(self, subpath: str, entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """The entries of a batch that are not on record; none if the whole batch was sent again."""
        named = [one for one in entries if isinstance(one.get("uuid"), str)]
        if named and all((subpath, one["uuid"]) in self.known for one in named):
            return []
        seen: set[str] = set()
        new = []
        for entry in entries:
            uuid = entry.get("uuid")
            if isinstance(uuid, str):
                if (subpath, uuid) in self.known or uuid in seen:
                    continue
                seen.add(uuid)
            new.append(entry)
        return new


class OnrecordSessionStore:
    """Transcripts of the Claude Agent SDK, each session in a session of ours; all six methods."""

    def __init__(self, store: SessionStore, *, agent: str = "main") -> None:
        self.store = store
        self._agent = agent
        self._sessions: OrderedDict[tuple[str, str], Transcripts] = OrderedDict()
        self._lock = RLock()

    # The interface of the SDK

    async def append(self, key: Any, entries: list[Any]) -> None:
        """Keep a batch of entries, those with a known uuid left out, in one durable step."""
        if entries:
            await settled(partial(self._append, key, list(entries)))

    async def load(self, key: Any) -> list[Any] | None:
        """Every entry of a transcript, in order; None if there is none."""
        return await settled(partial(self._load, key))

    async def list_sessions(self, project_key: str) -> list[Any]:
        """The sessions of a project and when each last changed."""
        return await settled(lambda: [{"session_id": id_, "mtime": at} for id_, at, _ in self._listed(project_key)])

    async def list_session_summaries(self, project_key: str) -> list[Any]:
        """The summaries of a project's sessions."""
        return await settled(partial(self._summaries, project_key))

    async def delete(self, key: Any) -> None:
        """Retract a transcript; that of a session with those of its subagents. The log keeps them until erasure."""
        await settled(partial(self._delete, key))

    async def list_subkeys(self, key: Any) -> list[str]:
        """The transcripts of a session's subagents."""
        return await settled(partial(self._subkeys, key))

    # The same on a thread

    def session(self, project_key: str, session_id: str) -> Transcripts:
        """One session, as it is folded in memory."""
        both = (project_key, session_id)
        with self._lock:
            found = self._sessions.get(both)
            if found is None:
                name = _name(project_key, session_id)
                found = Transcripts(self.store, FRAMEWORK, session_id, name=name, agent=self._agent)
                self._sessions[both] = found
                if len(self._sessions) > SESSIONS_KEPT:
                    self._sessions.popitem(last=False)
            self._sessions.move_to_end(both)
            return found

    def keep_in(self, project_key: str, session_id: str, name: str) -> None:
        """Keep a session of the SDK in a session that exists, for instance one that another framework began."""
        kept = self.session(project_key, session_id)
        kept.attach(self.store.get(name, agent=self._agent))

    def _of(self, key: Any) -> tuple[Transcripts, str]:
        if not isinstance(key, dict) or not key.get("project_key") or not key.get("session_id"):
            raise InvalidInput(f"a key has a project_key and a session_id, not {key!r:.100}")
        return self.session(str(key["project_key"]), str(key["session_id"])), str(key.get("subpath") or "")

    def _append(self, key: Any, entries: list[dict[str, Any]]) -> None:
        kept, subpath = self._of(key)

        def make() -> list[Draft]:
            new = kept.new_of(subpath, entries)
            if not new:
                return []
            keys = [str(one.get("uuid") or made) for one, made in zip(new, new_keys(len(new)), strict=True)]
            lane = subpath.rpartition("/")[2]
            reading = [
                row(number, keys[number], entry, said, lane=lane)
                for number, entry in enumerate(new)
                if (said := neutral(entry))
            ]
            more: dict[str, Any] = {"subpath": subpath} if subpath else {"summary": _summed(kept.summary, key, new)}
            first = {} if kept.lines else {"key": {name: str(one) for name, one in key.items()}}
            data = kept.kept([as_line(one) for one in new], keys, reading, **more, **first)
            return [kept.session.log.draft("payload.kept", data)]

        kept.write(make)

    def _load(self, key: Any) -> list[Any] | None:
        kept, subpath = self._of(key)
        with kept.lock:
            kept.catch_up()
            lines = kept.lines.get(subpath)
            return None if lines is None else [json.loads(line) for line in lines]

    def _listed(self, project_key: str) -> Iterator[tuple[str, int, Head]]:
        prefix, last = _prefix(project_key), None
        while page := self.store.sessions(limit=500, before=last):
            for head in page:
                if head.name.startswith(prefix):
                    kept = self.session(project_key, self._id_of(head, prefix))
                    with kept.lock:
                        kept.catch_up()
                        if "" in kept.lines:
                            yield kept.id, kept.at // 1000, head
            last = page[-1]

    def _id_of(self, head: Head, prefix: str) -> str:
        """The SDK's id of a session: usually a UUID in its name; if not, what its first event says."""
        rest = head.name.removeprefix(prefix)
        if _UUID.fullmatch(rest):
            return rest
        first = next(self.store.get(head.session).events(upto=1))
        return str(((first.data or {}).get("metadata") or {}).get("conversation"))

    def _summaries(self, project_key: str) -> list[Any]:
        found = []
        for id_, at, _head in self._listed(project_key):
            summary = self.session(project_key, id_).summary
            if summary is not None:
                found.append({"session_id": id_, "mtime": at, "data": summary})
        return found

    def _delete(self, key: Any) -> None:
        kept, subpath = self._of(key)
        with kept.lock:
            if not kept.catch_up() or ((subpath or "") not in kept.lines and not (not subpath and kept.lines)):
                return
            data = kept.retracted(**({"subpath": subpath} if subpath else {"all": True}))
            kept.write(lambda: [kept.session.log.draft("payload.retracted", data)])

    def _subkeys(self, key: Any) -> list[str]:
        kept, _subpath = self._of(key)
        with kept.lock:
            kept.catch_up()
            return [subpath for subpath in kept.lines if subpath]


def _prefix(project_key: str) -> str:
    return f"c{sha256(project_key.encode('utf-8', 'surrogatepass')).hexdigest()[:_DIGEST]}-"


def _name_of(session_id: str) -> str:
    """The session's part of a name: its id if that is legal and short enough."""
    name = session_name(session_id)
    return name if len(name) + _DIGEST + 2 <= NAME_LIMIT else session_name("x", session_id)[-16:]


def _name(project_key: str, session_id: str) -> str:
    return _prefix(project_key) + _name_of(session_id)


def _summed(before: dict[str, Any] | None, key: Any, new: list[dict[str, Any]]) -> dict[str, Any] | None:
    """The summary after these entries, by the SDK's own fold; None if the SDK is not installed."""
    try:
        from claude_agent_sdk import fold_session_summary
    except ImportError:
        return before
    previous = None if before is None else {"session_id": key["session_id"], "mtime": 0, "data": before}
    summed: dict[str, Any] = fold_session_summary(previous, key, new)["data"]
    return summed


def neutral(entry: dict[str, Any]) -> list[Item]:
    """What an entry says, as neutral items; bookkeeping entries say nothing."""
    message = entry.get("message")
    if entry.get("type") not in ("user", "assistant") or not isinstance(message, dict) or entry.get("isMeta"):
        return []
    try:
        items = to_items({"role": message.get("role"), "content": message.get("content")}, "anthropic")
    except InvalidInput:
        return []
    return [{name: value for name, value in item.items() if name != "verbatim"} for item in items]
