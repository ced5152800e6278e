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
from functools import partial
from hashlib import sha256
from threading import RLock
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import uuid4

from onrecord.aio import settled
from onrecord.errors import InvalidInput, LogMoved, NameTaken, OnrecordError
from onrecord.errors import SessionNotFound as NoSession
from onrecord.frameworks.conversation import Conversation, row, said_of, session_name, theirs
from onrecord.frameworks.requiring import required
from onrecord.log.names import NAME_LIMIT

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
    from collections.abc import Callable, Iterator

    from google.adk.sessions.base_session_service import GetSessionConfig

    from onrecord.log.events import Draft, Event
    from onrecord.log.items import Item
    from onrecord.session.session_store import SessionStore

R = TypeVar("R")

FRAMEWORK = "google-adk"
SESSIONS_KEPT = 256
"""How many sessions a service keeps folded in memory."""
_DIGEST = 8


class Kept(Conversation):
    """One session of ADK; or the state that sessions of a user, or of an app, share."""

    def _forget(self) -> None:
        super()._forget()
        self.lines: list[tuple[str, float]] = []
        self.state: dict[str, Any] = {}
        self.updated = 0.0
        self.is_there = False
        self.unshared: tuple[str, dict[str, Any]] | None = None
        """The last event that changes shared state: its id and what it changes."""

    def fold(self, event: Event, data: dict[str, Any]) -> None:
        """Fold one event of this session."""
        if event.kind == "payload.retracted":
            self.lines, self.state, self.is_there, self.unshared = [], {}, False, None
            return
        self.is_there = True
        self.updated = data.get("at", self.updated)
        self.state |= data.get("state") or {}
        for line in data.get("lines") or ():
            self.lines.append((line, self.updated))
        if data.get("shared"):
            self.unshared = event.id, data["shared"]


class OnrecordSessionService(BaseSessionService):  # type: ignore[misc]  # ADK has an environment of its own
    """Sessions of ADK, each in a session of ours."""

    def __init__(self, store: SessionStore, *, agent: str = "main") -> None:
        self.store = store
        self._agent = agent
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
        about = [app_name, user_id, session_id.strip()]
        return self._one(_prefix(app_name, user_id) + _short(about[2]), json.dumps(about))

    def _shared(self, app_name: str, user_id: str | None) -> Kept:
        kind = "adk-app" if user_id is None else "adk-user"
        about = json.dumps([app_name, user_id])
        return self._one(f"{kind}-{sha256(about.encode()).hexdigest()[:32]}", about)

    def _one(self, name: str, about: str) -> Kept:
        with self._lock:
            found = self._known.get(name)
            if found is None:
                found = self._known[name] = Kept(self.store, FRAMEWORK, about, name=name, agent=self._agent)
                if len(self._known) > SESSIONS_KEPT:
                    self._known.popitem(last=False)
            self._known.move_to_end(name)
            return found

    def _create(self, app_name: str, user_id: str, state: dict[str, Any], session_id: str | None) -> AdkSession:
        id_ = (session_id or "").strip() or str(uuid4())
        kept = self.kept(app_name, user_id, id_)
        own, app, user = _split(state)

        def make() -> list[Draft]:
            if kept.is_there:
                raise NameTaken(f"Session with id {id_} already exists.", hint="use another id, or get_session")
            data = {"vendor": FRAMEWORK, "at": time.time(), "state": own} | _shares(app, user)
            return [kept.session.log.draft("payload.kept", data)]

        kept.write(make)
        self._share(kept, app_name, user_id)
        found = self._get(app_name, user_id, id_, None)
        if found is None:
            raise NoSession(f"Session {id_} not found.")
        return found

    def _share(self, kept: Kept, app_name: str, user_id: str) -> None:
        """Write changes of shared state to where they are shared; again after a crash, under the same id."""
        if kept.unshared is None:
            return
        id_, changes = kept.unshared
        for where, delta in (
            (self._shared(app_name, None), changes.get("app")),
            (self._shared(app_name, user_id), changes.get("user")),
        ):
            if delta:
                session = where.open()
                draft = session.log.draft("payload.kept", {"vendor": FRAMEWORK, "state": delta}, id=f"adk/{id_}")
                session.log.append(draft)
        kept.unshared = None

    def _get(self, app_name: str, user_id: str, session_id: str, config: GetSessionConfig | None) -> AdkSession | None:
        kept = self.kept(app_name, user_id, session_id)
        with kept.lock:
            kept.catch_up()
            if not kept.is_there:
                return None
            self._share(kept, app_name, user_id)
            lines = kept.lines
            if config and config.after_timestamp:
                lines = [one for one in lines if one[1] >= config.after_timestamp]
            if config and config.num_recent_events is not None:
                lines = lines[-config.num_recent_events :] if config.num_recent_events else []
            events = [AdkEvent.model_validate_json(line) for line, _at in lines]
            return self._session(kept, app_name, user_id, events)

    def _session(self, kept: Kept, app_name: str, user_id: str, events: list[Any]) -> AdkSession:
        state = _copied(kept.state)
        state |= {State.APP_PREFIX + name: one for name, one in _read(self._shared(app_name, None)).items()}
        state |= {State.USER_PREFIX + name: one for name, one in _read(self._shared(app_name, user_id)).items()}
        made = AdkSession(
            app_name=app_name, user_id=user_id, id=json.loads(kept.id)[2], state=state, events=events,
            last_update_time=kept.updated,
        )  # fmt: skip
        made._storage_update_marker = str(kept.changed_at)  # noqa: SLF001  # as above
        return made

    def _append(self, session: AdkSession, event: AdkEvent) -> str:
        kept = self.kept(session.app_name, session.user_id, session.id)
        line = event.model_dump_json(exclude_none=True)
        own, app, user = _split(event.actions.state_delta if event.actions else {})
        marker = session._storage_update_marker  # noqa: SLF001  # as above

        def make() -> list[Draft]:
            if not kept.is_there:
                raise NoSession(f"Session {session.id} not found.", hint="create_session makes it")
            if str(kept.changed_at) != marker if marker else kept.updated > session.last_update_time:
                raise LogMoved(
                    f"session {session.id} was changed by another writer since it was read",
                    hint="get the session again, then append", expected=int(marker or 0), actual=kept.changed_at,
                )  # fmt: skip
            said = neutral(event)
            data = kept.kept([line], [event.id], [row(0, event.id, json.loads(line), said)] if said else [])
            data |= {"at": event.timestamp, "state": own} | _shares(app, user)
            return [kept.session.log.draft("payload.kept", data)]

        with kept.lock:
            if not kept.catch_up():
                raise NoSession(f"Session {session.id} not found.", hint="create_session makes it")
            kept.write(make)
            self._share(kept, session.app_name, session.user_id)
            return str(kept.changed_at)

    def _list(self, app_name: str, user_id: str | None) -> ListSessionsResponse:
        found = [
            self._session(kept, app_name, user, [])
            for kept, user in self._of_app(app_name, user_id)
        ]  # fmt: skip
        found.sort(key=lambda one: (one.last_update_time, one.user_id, one.id))
        return ListSessionsResponse(sessions=found)

    def _of_app(self, app_name: str, user_id: str | None) -> Iterator[tuple[Kept, str]]:
        prefix, last = _prefix(app_name, user_id), None
        while page := self.store.sessions(limit=500, before=last):
            for head in page:
                if head.name.startswith(prefix):
                    first = next(self.store.get(head.session).events(upto=1))
                    about = ((first.data or {}).get("metadata") or {}).get("conversation") or "[]"
                    kept = self._one(head.name, about)
                    with kept.lock:
                        kept.catch_up()
                        if kept.is_there:
                            yield kept, json.loads(about)[1]
            last = page[-1]

    def _delete(self, app_name: str, user_id: str, session_id: str) -> None:
        kept = self.kept(app_name, user_id, session_id)
        with kept.lock:
            if kept.catch_up() and kept.is_there:
                kept.write(lambda: [kept.session.log.draft("payload.retracted", kept.retracted(all=True))])


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
        return None if known is None else {"result": said_of(known)}

    async def after_tool_callback(
        self, *, tool: Any, tool_args: dict[str, Any], tool_context: Any, result: Any
    ) -> None:
        """Record what the tool answered."""
        kept, call = self._of(tool_context), tool_context.function_call_id
        known = kept.effects.get(call)
        if known is None or known.outcome is None:
            made = to_jsonable_python(result, fallback=str)
            await _awaited(partial(kept.finish_effect, call, result=made))

    async def on_tool_error_callback(
        self, *, tool: Any, tool_args: dict[str, Any], tool_context: Any, error: Exception
    ) -> None:
        """Record that the tool failed."""
        said = f"{type(error).__name__}: {error}"
        await _awaited(partial(self._of(tool_context).finish_effect, tool_context.function_call_id, error=said))


async def _awaited(call: Callable[[], R]) -> R:
    """Run a call on a thread; our errors become errors of ADK."""
    try:
        return await settled(call)
    except OnrecordError as problem:
        kinds = ((LogMoved, StaleSessionError), (NoSession, SessionNotFoundError), (NameTaken, AlreadyExistsError))
        base = next((theirs_ for ours, theirs_ in kinds if isinstance(problem, ours)), ValueError)
        raise theirs(problem, base) from problem


def _prefix(app_name: str, user_id: str | None) -> str:
    """How the names of an app's sessions begin; with a user, of that user's sessions."""
    first = f"a{sha256(app_name.encode()).hexdigest()[:_DIGEST]}-"
    return first if user_id is None else f"{first}{sha256(user_id.encode()).hexdigest()[:_DIGEST]}-"


def _short(session_id: str) -> str:
    if not session_id:
        raise InvalidInput("a session id must have text")
    name = session_name(session_id)
    return name if len(name) + 2 * (_DIGEST + 1) + 1 <= NAME_LIMIT else session_name("x", session_id)[-16:]


def _split(state: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """The parts of a change of state: of the session, of the app, of the user; temporary values are not kept."""
    plain = to_jsonable_python(dict(state), fallback=str)
    app = {name.removeprefix(State.APP_PREFIX): one for name, one in plain.items() if name.startswith(State.APP_PREFIX)}
    user = {
        name.removeprefix(State.USER_PREFIX): one for name, one in plain.items() if name.startswith(State.USER_PREFIX)
    }
    shared = (State.APP_PREFIX, State.USER_PREFIX, State.TEMP_PREFIX)
    return {name: one for name, one in plain.items() if not name.startswith(shared)}, app, user


def _shares(app: dict[str, Any], user: dict[str, Any]) -> dict[str, Any]:
    return {"shared": {"app": app, "user": user}} if app or user else {}


def _read(kept: Kept) -> dict[str, Any]:
    with kept.lock:
        kept.catch_up()
        return _copied(kept.state)


def _copied(state: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(json.dumps(state))
    return found


def neutral(event: AdkEvent) -> list[Item]:
    """What an event says, as neutral items."""
    texts: list[str] = []
    calls: list[dict[str, Any]] = []
    results: list[Item] = []
    for part in (event.content.parts if event.content else None) or ():
        if part.text and not part.thought:
            texts.append(part.text)
        elif part.function_call:
            one = part.function_call
            calls.append({"id": one.id or one.name, "name": one.name, "arguments": one.args or {}})
        elif part.function_response:
            answer = part.function_response
            content = json.dumps(to_jsonable_python(answer.response, fallback=str), ensure_ascii=False)
            results.append({"role": "tool", "call": answer.id or answer.name, "content": content})
    said: list[Item] = []
    if texts or calls:
        role = "user" if event.author == "user" else "assistant"
        said = [{"role": role, "content": "\n".join(texts)} | ({"tool_calls": calls} if calls else {})]
    return results + said
