"""Google ADK: its `BaseSessionService` on our log.

    service = OnrecordSessionService(onrecord.connect())
    runner = Runner(app=App(..., plugins=[OnrecordPlugin(service)]), session_service=service)

Events are in the order in which they were appended, whatever their timestamps say. A session object that was read
before another writer appended is stale, also if the timestamps are equal. The plugin puts tool calls on record, so that
a resumed invocation does not run a tool again.
"""

from __future__ import annotations

import json
import time
from collections import OrderedDict
from contextlib import asynccontextmanager
from functools import partial
from hashlib import sha256
from itertools import chain
from threading import RLock
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import uuid4

from onrecord.aio import settled
from onrecord.errors import InvalidInput, LogMoved, NameTaken, OnrecordError, SessionErased
from onrecord.errors import SessionNotFound as NoSession
from onrecord.frameworks.conversation import (
    FORK,
    FORKS_LIMIT,
    REFUSE,
    check_type,
    row,
)
from onrecord.frameworks.google_adk_events import copied, dumped, is_same, neutral, shares, split
from onrecord.frameworks.google_adk_sessions import FRAMEWORK, SHARED, Kept, prefix_of, short
from onrecord.frameworks.leasing import aalone
from onrecord.frameworks.listing import listed, opened_with, replay
from onrecord.frameworks.placing import placed_in
from onrecord.frameworks.requiring import required
from onrecord.frameworks.speaking import speaking, theirs
from onrecord.frameworks.tool_calls import Effect, said_of
from onrecord.frameworks.writing import as_line

with required("google-adk", "google", "2.13"):
    from google.adk.errors.already_exists_error import AlreadyExistsError
    from google.adk.errors.session_not_found_error import SessionNotFoundError
    from google.adk.events.event import Event as AdkEvent
    from google.adk.plugins.base_plugin import BasePlugin
    from google.adk.sessions.base_session_service import BaseSessionService, ListSessionsResponse
    from google.adk.sessions.session import Session as AdkSession
    from google.adk.sessions.state import State
    from pydantic_core import to_jsonable_python

    try:
        from google.adk.errors import StaleSessionError
    except ImportError:
        from google.adk.errors._stale_session_error import StaleSessionError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from google.adk.sessions.base_session_service import GetSessionConfig

    from onrecord.log.events import Draft
    from onrecord.log.head import Head
    from onrecord.session.handle import Session
    from onrecord.session.session_store import SessionStore

R = TypeVar("R")

SESSIONS_KEPT = 256
"""How many sessions a service keeps folded in memory."""
LISTED = "google-adk.2"
"""The name under which what a list shows of a session is kept."""
IMPORTS = "adk/import/"
"""How the ids of events begin that have shared state of ADK's own file."""


class OnrecordSessionService(BaseSessionService):  # type: ignore[misc]  # ADK has an environment of its own
    """Sessions of ADK, each in a session of ours.

    `on_conflict` says what happens to an event of a session object that was read before another writer appended: it is
    refused with StaleSessionError (`refuse`), placed behind the others (`queue`), or moved to a fork (`fork`), whose
    id the session object gets; `forks` has the ids.
    """

    @speaking(ValueError)
    def __init__(self, store: SessionStore, *, agent: str = "main", on_conflict: str = REFUSE) -> None:
        self.store = store
        self.forks: list[str] = []
        """Sessions that overtaken writers were moved to."""
        self._agent = agent
        self._on_conflict = on_conflict
        Kept(store, FRAMEWORK, "check", agent=agent, on_conflict=on_conflict)  # refuses wrong options now
        self._known: OrderedDict[str, Kept] = OrderedDict()
        self._lock = RLock()

    # The interface of ADK

    async def create_session(
        self, *, app_name: str, user_id: str, state: dict[str, Any] | None = None, session_id: str | None = None
    ) -> AdkSession:
        """Create a session; AlreadyExistsError if there is one with this id."""
        return await _awaited(partial(self._create, app_name, user_id, state or {}, session_id))

    async def get_session(
        self, *, app_name: str, user_id: str, session_id: str, config: GetSessionConfig | None = None
    ) -> AdkSession | None:
        """A session with its events, in the order in which they were appended."""
        return await _awaited(partial(self._get, app_name, user_id, session_id, config))

    async def list_sessions(self, *, app_name: str, user_id: str | None = None) -> ListSessionsResponse:
        """The sessions of an app or of a user, without events, the latest update last."""
        return await _awaited(partial(self._list, app_name, user_id))

    async def delete_session(self, *, app_name: str, user_id: str, session_id: str) -> None:
        """Retract a session. The log keeps it until it is erased."""
        await _awaited(partial(self._delete, app_name, user_id, session_id))

    async def get_user_state(self, *, app_name: str, user_id: str) -> dict[str, Any]:
        """The state that the sessions of a user share, without the prefix."""
        return await _awaited(lambda: _read(self._shared(app_name, user_id)))

    async def append_event(self, session: AdkSession, event: AdkEvent) -> AdkEvent:
        """Append an event in one durable step; StaleSessionError if the session was read before others appended."""
        if not isinstance(session, AdkSession) or not isinstance(event, AdkEvent):
            given = f"{type(session).__name__}, {type(event).__name__}"
            raise theirs(InvalidInput(f"append_event takes a session and an event, not {given}"), ValueError)
        if event.partial:
            return event
        self._apply_temp_state(session, event)
        event = self._trim_temp_delta_state(event)
        marker = await _awaited(partial(self._append, session, event))
        session._storage_update_marker = marker  # noqa: SLF001  # where ADK's services keep the revision they read
        session.last_update_time = event.timestamp
        return self._commit_event_to_session(session, event)

    # The same on a thread

    def kept(self, app_name: str, user_id: str, session_id: str) -> Kept:
        """One session, as it is folded in memory."""
        if not all(isinstance(one, str) for one in (app_name, user_id, session_id)):
            raise InvalidInput("app_name, user_id and session_id must be text")
        about = [app_name, user_id, session_id.strip()]
        name = prefix_of(app_name, user_id) + short(about[2])
        found = self._one(name, json.dumps(about))
        found.place = name
        return found

    def _shared(self, app_name: str, user_id: str | None) -> Kept:
        kind = "adk-app" if user_id is None else "adk-user"
        about = json.dumps([app_name, user_id])
        return self._one(f"{kind}-{sha256(about.encode()).hexdigest()[:32]}", about)

    def _one(self, name: str, about: str) -> Kept:
        with self._lock:
            found = self._known.get(name)
            if found is None:
                found = self._known[name] = Kept(
                    self.store, FRAMEWORK, about, name=name, agent=self._agent, on_conflict=self._on_conflict
                )
                if len(self._known) > SESSIONS_KEPT:
                    self._known.popitem(last=False)
            self._known.move_to_end(name)
            return found

    def _create(self, app_name: str, user_id: str, state: dict[str, Any], session_id: str | None) -> AdkSession:
        if not isinstance(session_id or "", str) or not isinstance(state, dict):
            raise InvalidInput("a session needs an id that is text and a state that is a dict")
        id_ = (session_id or "").strip() or str(uuid4())
        kept = self.kept(app_name, user_id, id_)
        own, app, user = split(state)

        def make() -> list[Draft]:
            if kept.is_there:
                raise NameTaken(f"Session with id {id_} already exists.", hint="use another id, or get_session")
            data = {"vendor": FRAMEWORK, "at": time.time(), "state": own} | shares(app, user)
            return [kept.draft("payload.kept", data)]

        kept.write(make)
        self._share(kept, app_name, user_id)
        found = self._get(app_name, user_id, id_, None)
        if found is None:
            raise NoSession(f"Session {id_} not found.")
        return found

    def _share(self, kept: Kept, app_name: str, user_id: str) -> None:
        """Write changes of shared state to where they are shared, once each; also those that a crash left.

        The events that have them are on record. So it is no error if they cannot be written now, for instance because
        the store can only be read: the session shows them, and a later call writes them.
        """
        for id_, changes in list(kept.unshared.items()):
            try:
                self._share_one(self._shared(app_name, None), SHARED + id_, changes.get("app"))
                self._share_one(self._shared(app_name, user_id), SHARED + id_, changes.get("user"))
            except SessionErased:
                pass  # what was erased does not come back
            except OnrecordError:
                return
            del kept.unshared[id_]

    def _share_one(self, where: Kept, id_: str, delta: dict[str, Any] | None) -> None:
        if not delta:
            return
        with where.lock:
            where.catch_up()
            if id_ not in where.shared:
                session = where.open()
                session.log.append(where.draft("payload.kept", {"vendor": FRAMEWORK, "state": delta}, id=id_))

    def _get(self, app_name: str, user_id: str, session_id: str, config: GetSessionConfig | None) -> AdkSession | None:
        kept = self.kept(app_name, user_id, session_id)
        with kept.lock:
            kept.catch_up()
            if not kept.is_there:
                return None
            self._share(kept, app_name, user_id)
            since = (config and config.after_timestamp) or None
            events = kept.events(since, config.num_recent_events if config else None)
            return self._session(kept, app_name, user_id, events)

    def _session(self, kept: Kept, app_name: str, user_id: str, events: list[Any]) -> AdkSession:
        own = (json.loads(kept.id)[2], kept.state, kept.updated, kept.changed_at)
        shared = self._shared_state(app_name, user_id)
        for changes in kept.unshared.values():
            for prefix, of in ((State.APP_PREFIX, "app"), (State.USER_PREFIX, "user")):
                shared |= {prefix + name: one for name, one in (changes.get(of) or {}).items()}
        return _made(app_name, user_id, own, shared, events)

    def _shared_state(self, app_name: str, user_id: str) -> dict[str, Any]:
        """What every session of a user has in its state, with the prefixes."""
        both = ((State.APP_PREFIX, None), (State.USER_PREFIX, user_id))
        return {prefix + name: one for prefix, of in both for name, one in _read(self._shared(app_name, of)).items()}

    def _append(self, session: AdkSession, event: AdkEvent) -> str:
        kept = self.kept(session.app_name, session.user_id, session.id)
        with kept.lock:
            if not kept.position and not kept.catch_up():
                raise NoSession(f"Session {session.id} not found.", hint="create_session makes it")
            try:
                kept.write(partial(self._drafts, kept, session, event))
            except LogMoved:
                if self._on_conflict == REFUSE:
                    raise
                if self._on_conflict == FORK:
                    read = int(session._storage_update_marker or 0)  # noqa: SLF001  # as above
                    kept = self._fork(kept, session.app_name, session.user_id, read)
                    session.id = json.loads(kept.id)[2]
                kept.write(partial(self._drafts, kept, session, event, is_late=True))
            self._share(kept, session.app_name, session.user_id)
            return str(kept.changed_at)

    def _drafts(self, kept: Kept, session: AdkSession, event: AdkEvent, *, is_late: bool = False) -> list[Draft]:
        marker = session._storage_update_marker  # noqa: SLF001  # as above
        if not kept.is_there:
            raise NoSession(f"Session {session.id} not found.", hint="create_session makes it")
        if event.id in kept.entries and is_same(kept, kept.entries[event.id].line, event):
            return []  # a retry whose first reply was lost
        if not is_late and (str(kept.changed_at) != marker if marker else kept.updated > session.last_update_time):
            raise LogMoved(
                f"session {session.id} was changed by another writer since it was read",
                hint="get the session again, then append", expected=int(marker or 0), actual=kept.changed_at,
            )  # fmt: skip
        return self._entry(kept, event)

    def _entry(self, kept: Kept, event: AdkEvent) -> list[Draft]:
        """An event of ADK as it is kept."""
        if event.id in kept.entries:
            raise InvalidInput(f"event {event.id!r:.60} is on record with another content", hint="give it its own id")
        record = dumped(event)
        own, app, user = split(event.actions.state_delta if event.actions else {})
        said = neutral(event)
        data = kept.kept([as_line(record)], [event.id], [row(0, event.id, record, said)] if said else [])
        data |= {"at": event.timestamp} | ({"state": own} if own else {}) | shares(app, user)
        return [kept.draft("payload.kept", data)]

    def _fork(self, kept: Kept, app_name: str, user_id: str, read: int) -> Kept:
        """The session as it was read, under an id of its own."""
        old = json.loads(kept.id)[2]
        for number in range(1, FORKS_LIMIT):
            id_ = f"{old}-fork-{number}"
            fork = self.kept(app_name, user_id, id_)
            if self.store.named(fork.name) is None:
                try:
                    made = kept.session.fork(fork.name, read or None, agent=self._agent)
                except NameTaken:
                    continue
                made.log.record("payload.kept", {"vendor": FRAMEWORK, "forked_as": fork.id})
                fork.attach(made)
                fork.catch_up()
                self.forks.append(id_)
                return fork
        raise InvalidInput(f"session {old!r:.80} has {FORKS_LIMIT:,} forks", hint="delete some of them")

    async def keep_in(self, *, app_name: str, user_id: str, session_id: str, name: str) -> None:
        """Keep a session of ADK in a session that exists, for instance one that another framework began.

        It is on record: `get_session` finds it in every process, and lists have it.
        """

        def keep() -> None:
            kept = self.kept(app_name, user_id, session_id)
            kept.keep_in(name, prefix_of(app_name, None), {"conversation": kept.id})

        await _awaited(keep)

    @asynccontextmanager
    async def alone(self, *, app_name: str, user_id: str, session_id: str) -> AsyncIterator[str]:
        """Have the lease of a session: no other `alone` of it, in any process, runs meanwhile.

        If another one has it, this one is refused, waits for it (`queue`), or works in a fork (`fork`): what it gives
        is the id of the session to use.
        """
        with speaking(ValueError):
            kept = self.kept(app_name, user_id, session_id)
        async with aalone(kept, _awaited, partial(self._fork, kept, app_name, user_id, 0)) as has:
            yield json.loads(has.id)[2]

    def id_of(self, head: Head) -> str:
        """The id in ADK of the session that is kept under this head."""
        kept = self._one(head.name, str(opened_with(self.store.get(head.session)).get("conversation") or "[]"))
        if head.parent is not None:
            kept.catch_up()  # a fork says itself which one it is
        found: str = json.loads(kept.id)[2]
        return found

    # What another store of ADK kept

    def import_shared(self, app_name: str, user_id: str | None, state: dict[str, Any]) -> None:
        """Record the state that sessions of an app or a user share; again only what changed where it comes from."""
        shared = self._shared(app_name, user_id)
        before: dict[str, Any] = {}
        earlier: list[str] = []
        if shared.located() is not None:
            for event in shared.session.events():
                if event.id.startswith(IMPORTS) and isinstance(event.data, dict):
                    before.update(event.data.get("state") or {})
                    earlier.append(event.id)
        id_ = IMPORTS + sha256(json.dumps([app_name, user_id, state]).encode()).hexdigest()
        changed = {name: one for name, one in state.items() if name not in before or before[name] != one}
        if not changed or (earlier and earlier[-1].startswith(id_)):
            return  # what was set here since stays
        id_ += f"/{len(earlier)}" if earlier else ""  # a state may come again
        session = shared.open()
        session.log.append(shared.draft("payload.kept", {"vendor": FRAMEWORK, "state": changed}, id=id_))

    def import_session(self, kept: Kept, state: dict[str, Any]) -> None:
        """Record that there is a session, unless it is on record."""
        data = {"vendor": FRAMEWORK, "at": time.time(), "state": state}
        kept.write(lambda: [] if kept.is_there else [kept.draft("payload.kept", data)])

    def import_event(self, kept: Kept, line: str) -> bool:
        """Record an event as another store kept it; False if it is on record."""
        event = AdkEvent.model_validate_json(line)
        if event.id in kept.entries:
            return False
        kept.write(lambda: self._entry(kept, event))
        return True

    def _list(self, app_name: str, user_id: str | None) -> ListSessionsResponse:
        check_type(app_name, str, "an app_name that is text")
        check_type(user_id or "", str, "a user_id that is text")
        found: list[AdkSession] = []
        shared: dict[str, dict[str, Any]] = {}
        begun = listed(self.store, LISTED, self._listed, prefix_of(app_name, user_id))
        elsewhere = placed_in(self.store, FRAMEWORK, prefix_of(app_name, None), LISTED, self._listed)
        for _head, (user, *own) in chain(begun, elsewhere):
            if user_id not in (None, user):
                continue
            if user not in shared:
                shared[user] = self._shared_state(app_name, user)
            found.append(_made(app_name, user, own, shared[user], []))
        found.sort(key=lambda one: (one.last_update_time, one.user_id, one.id))
        return ListSessionsResponse(sessions=found)

    def _listed(self, session: Session, _head: Head) -> list[Any] | None:
        """What a list has of a session: user, id, state, when and where it last changed; None if it is gone."""
        kept = Kept(self.store, FRAMEWORK, "[]", name="-")
        first = replay(session, kept).get("conversation") or "[]"
        own = json.loads(first if kept.id == "[]" else kept.id)  # a fork, or one that others began, says what it is
        return [*own[1:], kept.state, kept.updated, kept.changed_at] if kept.is_there and own else None

    def _delete(self, app_name: str, user_id: str, session_id: str) -> None:
        kept = self.kept(app_name, user_id, session_id)
        with kept.lock:
            if kept.catch_up() and kept.is_there:
                kept.write(lambda: [kept.draft("payload.retracted", kept.retracted(all=True))])


class OnrecordPlugin(BasePlugin):  # type: ignore[misc]  # as above
    """Puts both ends of every tool call on record; a call that happened, or may have happened, does not run again."""

    def __init__(self, service: OnrecordSessionService) -> None:
        super().__init__(name="onrecord")
        self._service = service

    def _of(self, context: Any) -> Kept:
        session = context.session
        return self._service.kept(session.app_name, session.user_id, session.id)

    async def before_tool_callback(self, *, tool: Any, tool_args: dict[str, Any], tool_context: Any) -> Any:
        """Record the call; answer it from the record if it is there."""
        arguments = to_jsonable_python(tool_args, fallback=str)
        start = partial(self._of(tool_context).start_effect, tool_context.function_call_id, tool.name, arguments)
        known = await _awaited(start)
        return None if known is None else _answer(known)

    async def after_tool_callback(
        self, *, tool: Any, tool_args: dict[str, Any], tool_context: Any, result: Any
    ) -> None:
        """Record what the tool answered."""
        kept, call = self._of(tool_context), tool_context.function_call_id
        if result not in [_answer(one) for one in kept.calls.uses(call)]:  # that is ours, and no tool ran
            arguments, made = (to_jsonable_python(one, fallback=str) for one in (tool_args, result))
            await _awaited(partial(kept.finish_effect, call, arguments, result=made))

    async def on_tool_error_callback(
        self, *, tool: Any, tool_args: dict[str, Any], tool_context: Any, error: Exception
    ) -> None:
        """Record that the tool failed."""
        kept, said = self._of(tool_context), f"{type(error).__name__}: {error}"
        arguments = to_jsonable_python(tool_args, fallback=str)
        await _awaited(partial(kept.finish_effect, tool_context.function_call_id, arguments, error=said))


def _answer(known: Effect) -> dict[str, Any]:
    """What the model reads instead of the result of a second run."""
    return {"result": said_of(known)}


async def _awaited(call: Callable[[], R]) -> R:
    """Run a call on a thread; our errors become errors of ADK."""
    try:
        return await settled(call)
    except OnrecordError as problem:
        kinds = ((LogMoved, StaleSessionError), (NoSession, SessionNotFoundError), (NameTaken, AlreadyExistsError))
        base = next((theirs_ for ours, theirs_ in kinds if isinstance(problem, ours)), ValueError)
        raise theirs(problem, base) from problem


def _made(app_name: str, user_id: str, own: Sequence[Any], shared: dict[str, Any], events: list[Any]) -> AdkSession:
    """A session as ADK has it."""
    id_, state, updated, changed_at = own
    made = AdkSession(
        app_name=app_name, user_id=user_id, id=id_, state=copied(state) | copied(shared), events=events,
        last_update_time=updated,
    )  # fmt: skip
    made._storage_update_marker = str(changed_at)  # noqa: SLF001  # as above
    return made


def _read(kept: Kept) -> dict[str, Any]:
    with kept.lock:
        kept.catch_up()
        return copied(kept.state)
