"""The Claude Agent SDK: its `SessionStore` on our log.

    kept = OnrecordSessionStore(onrecord.connect())
    options = ClaudeAgentOptions(session_store=kept, session_store_flush="eager", hooks=kept.hooks())

Transcript entries are kept word for word, each `uuid` once however often a batch is retried. The summary that the SDK
lists sessions by is written in the same step as the entries it sums up. Subagents' transcripts are lanes of the
session. The hooks put both ends of each tool call on record.
"""

from __future__ import annotations

import asyncio
import json
from collections import OrderedDict
from contextlib import asynccontextmanager, contextmanager
from functools import cache, partial
from hashlib import sha256
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, Any, TypeVar

from onrecord.aio import settled
from onrecord.errors import InvalidInput, LogMoved, OnrecordError
from onrecord.frameworks.claude_entries import entry_row, from_neutral, joined_in
from onrecord.frameworks.conversation import (
    FORK,
    QUEUE,
    check_policy,
    check_store,
    check_type,
    new_keys,
    session_name,
)
from onrecord.frameworks.leasing import aalone
from onrecord.frameworks.listing import listed, replay
from onrecord.frameworks.parsing import parsed
from onrecord.frameworks.placing import Placed, placed_in
from onrecord.frameworks.requiring import required
from onrecord.frameworks.speaking import theirs
from onrecord.frameworks.tool_calls import said_of
from onrecord.frameworks.writing import as_line
from onrecord.log.names import NAME_LIMIT

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from types import ModuleType

    from onrecord.log.events import Draft, Event
    from onrecord.log.head import Head
    from onrecord.session.handle import Session
    from onrecord.session.session_store import SessionStore

R = TypeVar("R")

FRAMEWORK = "claude-agent-sdk"
SESSIONS_KEPT = 64
"""How many sessions a store keeps folded in memory."""
MIRROR_SECONDS = 2.0
"""How long the hook waits for the entry of a tool call before the tool runs."""
_POLL_SECONDS = 0.01
_RECENT = 20
_DIGEST = 10
LISTED = "claude-agent-sdk.2"
"""The name under which what a list shows of a session is kept."""


class Transcripts(Placed):
    """The transcripts of one session of the SDK: the main one (`""`) and those of its subagents."""

    FIELDS = ("all", "keys", "lines", "placed", "subpath", "summary")

    def _forget(self) -> None:
        super()._forget()
        self.lines: dict[str, list[str]] = {}
        self.known: set[tuple[str, str]] = set()
        """The entries that are on record, by subpath and uuid."""
        self.summary: dict[str, Any] | None = None
        self.at = 0
        self.seen = 0
        """Up to which change this store has read the session, or written it."""

    def fold(self, event: Event, data: dict[str, Any]) -> None:
        """Fold one event of this session."""
        super().fold(event, data)
        subpath = str(data.get("subpath", ""))
        if event.kind == "payload.retracted":
            for gone in [one for one in self.lines if data.get("all") or one == subpath]:
                del self.lines[gone]
                self.known = {key for key in self.known if key[0] != gone}
            self.summary = None if data.get("all") else self.summary
            return
        self.at = event.at
        if "placed" in data:
            return
        self.lines.setdefault(subpath, []).extend(data.get("lines") or [])
        self.known |= {(subpath, key) for key in data.get("keys") or ()}
        self.summary = data.get("summary", self.summary)

    def whole(self, subpath: str) -> list[dict[str, Any]] | None:
        """A transcript with what others added to the session; None if there is none."""
        lines = self.lines.get(subpath)
        own = [parsed(line) for line in lines or ()]
        if subpath or not (lines or self.placed):
            return None if lines is None else own
        if self._mixed:
            own = joined_in(own, [from_neutral(turn, self.id) for turn in self.turns_of_others()])
        return own or None

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
    """Transcripts of the Claude Agent SDK, each session in a session of ours; all six methods.

    `on_conflict` says what happens to entries of a session that another process has continued since this store read
    it: `queue` (they are kept behind the others, as the SDK expects), `refuse`, or `fork` (`forks` has the name).
    """

    def __init__(self, store: SessionStore, *, agent: str = "main", on_conflict: str = QUEUE) -> None:
        with _speaking():
            self.store = check_store(store)
            self._agent, self._on_conflict = agent, check_policy(on_conflict)
        self.forks: list[str] = []
        self._sessions: OrderedDict[tuple[str, str], Transcripts] = OrderedDict()
        self._lock = RLock()
        self._flushes: bool | None = None
        """Whether the SDK flushes entries while a turn runs; None while that is not known."""

    # The interface of the SDK

    async def append(self, key: Any, entries: list[Any]) -> None:
        """Keep a batch of entries, those with a known uuid left out, in one durable step."""
        if entries:
            await _awaited(partial(self._append, key, entries))

    async def load(self, key: Any) -> list[Any] | None:
        """Every entry of a transcript, in order; None if there is none."""
        return await _awaited(partial(self._load, key))

    async def list_sessions(self, project_key: str) -> list[Any]:
        """The sessions of a project and when each last changed."""
        return await _awaited(lambda: [{"session_id": id_, "mtime": at} for id_, at, _ in self._all(project_key)])

    async def list_session_summaries(self, project_key: str) -> list[Any]:
        """The summaries of a project's sessions."""
        return await _awaited(partial(self._summaries, project_key))

    async def delete(self, key: Any) -> None:
        """Retract a transcript; that of a session with those of its subagents. The log keeps them until erasure."""
        await _awaited(partial(self._delete, key))

    async def list_subkeys(self, key: Any) -> list[str]:
        """The transcripts of a session's subagents."""
        return await _awaited(partial(self._subkeys, key))

    @asynccontextmanager
    async def alone(self, project_key: str, session_id: str) -> AsyncIterator[None]:
        """Hold the lease of a session: no other process can add to it, and one that lost it is refused.

        If another one has it, this store waits, is refused, or continues the session in a fork, as `on_conflict` says.
        """
        with _speaking():
            kept = self.session(project_key, session_id)
        name = kept.name
        async with aalone(kept, _awaited):
            if kept.name != name:
                self.forks.append(kept.name)
            yield

    def hooks(self, directory: str | None = None) -> Any:
        """Hooks for `ClaudeAgentOptions`: a tool call that happened, or may have happened, does not run again."""
        with required("claude-agent-sdk", "claude_agent_sdk", "0.2.182"):
            from claude_agent_sdk import HookMatcher, project_key_for_directory

        project = project_key_for_directory(directory or str(Path.cwd()))
        told: set[str] = set()  # of these calls Claude has the results, also if they are not mirrored yet

        async def before(given: Any, call: str | None, _context: Any) -> dict[str, Any]:
            kept = self.session(project, str(given["session_id"]))
            start = partial(kept.start_effect, call or given["tool_use_id"], given["tool_name"], told=told)
            known = await _awaited(partial(start, given.get("tool_input")))
            if known is None:
                if self._flushes is not False:
                    self._flushes = await _mirrored(kept, call or given["tool_use_id"]) or self._flushes or False
                return {}
            said = {"permissionDecision": "deny", "permissionDecisionReason": said_of(known)}
            return {"hookSpecificOutput": {"hookEventName": "PreToolUse", **said}}

        async def after(given: Any, call: str | None, _context: Any) -> dict[str, Any]:
            kept = self.session(project, str(given["session_id"]))
            error = given.get("error") if given["hook_event_name"] == "PostToolUseFailure" else None
            result = json.loads(json.dumps(given.get("tool_response"), default=str))
            finish = partial(kept.finish_effect, call or given["tool_use_id"], given.get("tool_input"))
            told.add(await _awaited(partial(finish, result=result, error=error)))
            return {}

        return {
            "PreToolUse": [HookMatcher(hooks=[before])], "PostToolUse": [HookMatcher(hooks=[after])],
            "PostToolUseFailure": [HookMatcher(hooks=[after])],
        }  # fmt: skip

    # The same on a thread

    def session(self, project_key: str, session_id: str) -> Transcripts:
        """One session, as it is folded in memory."""
        both = (project_key, session_id)
        with self._lock:
            found = self._sessions.get(both)
            if found is None:
                check_type(project_key, str, "a project_key that is text")
                name = _name(project_key, session_id)
                found = Transcripts(
                    self.store, FRAMEWORK, session_id, name=name, agent=self._agent, on_conflict=self._on_conflict
                )
                found.place = name
                self._sessions[both] = found
                if len(self._sessions) > SESSIONS_KEPT:
                    self._sessions.popitem(last=False)
            self._sessions.move_to_end(both)
            return found

    def keep_in(self, project_key: str, session_id: str, name: str) -> None:
        """Keep a session of the SDK in a session that exists, for instance one that another framework began.

        It is on record: every process that knows the id finds the session, and lists of the project have it.
        """
        with _speaking():
            about = {"project_key": project_key, "session_id": session_id}
            self.session(project_key, session_id).keep_in(name, _prefix(project_key), about)

    def _of(self, key: Any) -> tuple[Transcripts, str]:
        if not isinstance(key, dict) or not key.get("project_key") or not key.get("session_id"):
            raise InvalidInput(f"a key has a project_key and a session_id, not {key!r:.100}")
        return self.session(str(key["project_key"]), str(key["session_id"])), str(key.get("subpath") or "")

    def _append(self, key: Any, given: list[dict[str, Any]]) -> None:
        kept, subpath = self._of(key)
        check_type(given, (list, tuple), "a list of entries")
        entries = list(given)
        for one in entries:
            check_type(one, dict, "entries that are dicts")

        def make() -> list[Draft]:
            new = kept.new_of(subpath, entries)
            if not new and kept.catch_up():  # they are on record, unless the session was deleted meanwhile
                new = kept.new_of(subpath, entries)
            if not new:
                return []
            _refuse_overtaken(kept)
            keys = [str(one.get("uuid") or made) for one, made in zip(new, new_keys(len(new)), strict=True)]
            lane = subpath.rpartition("/")[2]
            lines = [as_line(one) for one in new]
            rows = [
                made
                for number, (entry, line) in enumerate(zip(new, lines, strict=True))
                if (made := entry_row(number, keys[number], entry, line, lane))
            ]
            more: dict[str, Any] = {"subpath": subpath} if subpath else {"summary": _summed(kept.summary, key, new)}
            first = {} if kept.lines else {"key": {name: str(one) for name, one in key.items()}}
            data = kept.kept(lines, keys, rows, **more, **first)
            return [kept.draft("payload.kept", data)]

        with kept.lock:
            try:
                kept.write(make)
            except LogMoved:
                if self._on_conflict != FORK:
                    raise
                kept.attach(kept.fork(kept.seen))
                self.forks.append(kept.name)
                kept.catch_up()
                kept.write(make)
            kept.seen = kept.changed_at

    def _load(self, key: Any) -> list[Any] | None:
        kept, subpath = self._of(key)
        with kept.lock:
            kept.catch_up()
            kept.seen = kept.changed_at
            return kept.whole(subpath)

    def _all(self, project_key: str) -> list[Any]:
        """The sessions of a project that have a main transcript: id, when it last changed, summary."""
        check_type(project_key, str, "a project_key that is text")
        prefix = _prefix(project_key)
        named = listed(self.store, LISTED, self._listed, prefix)
        begun = [one for head, one in named if head.parent is None]  # the id leads to the session, not to its forks
        found = begun + [one for _head, one in placed_in(self.store, FRAMEWORK, prefix, LISTED, self._listed)]
        return sorted(found, key=lambda one: one[1], reverse=True)

    def _listed(self, session: Session, _head: Head) -> list[Any] | None:
        kept = Transcripts(self.store, FRAMEWORK, "-", name="-")
        id_ = replay(session, kept).get("conversation")
        if kept.placed:
            id_ = kept.placed["session_id"]
        return [str(id_), kept.at // 1000, kept.summary] if "" in kept.lines or kept.placed else None

    def _summaries(self, project_key: str) -> list[Any]:
        return [
            {"session_id": id_, "mtime": at, "data": summary}
            for id_, at, summary in self._all(project_key)
            if summary is not None
        ]

    def _delete(self, key: Any) -> None:
        kept, subpath = self._of(key)
        with kept.lock:
            if not kept.catch_up() or ((subpath or "") not in kept.lines and not (not subpath and kept.lines)):
                return
            data = kept.retracted(**({"subpath": subpath} if subpath else {"all": True}))
            kept.write(lambda: [kept.draft("payload.retracted", data)])

    def _subkeys(self, key: Any) -> list[str]:
        kept, _subpath = self._of(key)
        with kept.lock:
            kept.catch_up()
            return [subpath for subpath in kept.lines if subpath]


async def _awaited(call: Callable[[], R]) -> R:
    """Run a call on a thread; our errors become errors of the SDK, if it is installed."""
    with _speaking():
        return await settled(call)


@contextmanager
def _speaking() -> Iterator[None]:
    try:
        yield
    except OnrecordError as problem:
        try:
            from claude_agent_sdk import ClaudeSDKError
        except ImportError:
            raise problem from None
        raise theirs(problem, ClaudeSDKError) from problem


async def _mirrored(kept: Transcripts, call: str) -> bool:
    """Wait for the entry of a tool call, which the SDK flushes beside the hook; whether it came."""
    for _ in range(int(MIRROR_SECONDS / _POLL_SECONDS)):
        lines = kept.lines.get("") or []
        if any(call in line for line in lines[-_RECENT:]):
            return True
        await asyncio.sleep(_POLL_SECONDS)
    return False


def _refuse_overtaken(kept: Transcripts) -> None:
    if kept.on_conflict != QUEUE and kept.seen and kept.changed_at > kept.seen:
        raise LogMoved(
            f"another process continued session {kept.id!r} at position {kept.changed_at}; this one has read up to "
            f"position {kept.seen}",
            hint='resume the session again, or choose on_conflict="queue" or "fork"',
            expected=kept.seen,
            actual=kept.changed_at,
        )


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
        import claude_agent_sdk
    except ImportError:
        return before
    fold = _fold_of(claude_agent_sdk)
    previous = None if before is None else {"session_id": key["session_id"], "mtime": 0, "data": before}
    summed: dict[str, Any] = fold(previous, key, new)["data"]
    return summed


@cache
def _fold_of(_sdk: ModuleType) -> Callable[..., Any]:
    """The fold of summaries, looked for once."""
    with required("claude-agent-sdk", "claude_agent_sdk", "0.2.182"):
        from claude_agent_sdk import fold_session_summary
    found: Callable[..., Any] = fold_session_summary
    return found
