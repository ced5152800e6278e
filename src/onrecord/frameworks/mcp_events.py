"""The MCP Python SDK: its `EventStore` on our log, for servers whose clients may reconnect.

    server.streamable_http_app(event_store=OnrecordEventStore("my-server", onrecord.connect()))

An event's id is its number in the session, so ids are in order after a restart of the server too. The number of an
event that was erased is not given again. Every call runs on a thread: the event loop is never blocked.
"""

from __future__ import annotations

import json
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from onrecord.aio import settled
from onrecord.errors import InvalidInput, OnrecordError
from onrecord.frameworks.conversation import Conversation
from onrecord.frameworks.leasing import aalone
from onrecord.frameworks.requiring import required
from onrecord.frameworks.speaking import theirs
from onrecord.frameworks.writing import as_line

with required("mcp", "mcp mcp_types", "2.3"):
    from mcp.server.streamable_http import EventMessage, EventStore
    from mcp.shared.exceptions import MCPError
    from mcp_types import INTERNAL_ERROR, ErrorData, jsonrpc_message_adapter
    from pydantic import BaseModel

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from mcp.server.streamable_http import EventCallback, EventId, StreamId
    from mcp_types import JSONRPCMessage

    from onrecord.log.events import Draft, Event
    from onrecord.session.session_store import SessionStore

R = TypeVar("R")

FRAMEWORK = "mcp"


class Events(Conversation):
    """The events of a server; each has the next number, and a number is never given twice."""

    FIELDS = ("all", "keys", "lines")

    def _forget(self) -> None:
        super()._forget()
        self.last = 0
        """The highest number that an event has, or had before it was erased."""

    def _apply(self, event: Event) -> None:
        super()._apply(event)
        if event.kind == "payload.kept" and event.data is None:
            self.last += 1  # its number was erased, too

    def fold(self, event: Event, data: dict[str, Any]) -> None:
        """Fold one event."""
        super().fold(event, data)
        self.last = max(self.last, *map(int, data.get("keys") or [0]))


class OnrecordEventStore(EventStore):
    """The events of a server's streams, kept in one session."""

    def __init__(self, name: str, store: SessionStore) -> None:
        with _speaking():
            self._kept = Events(store, FRAMEWORK, name)

    async def store_event(self, stream_id: StreamId, message: JSONRPCMessage | None) -> EventId:
        """Keep an event and return its number."""
        return await _awaited(partial(self._store, stream_id, message))

    def _store(self, stream_id: StreamId, message: JSONRPCMessage | None) -> str:
        if not isinstance(stream_id, str) or not (message is None or isinstance(message, BaseModel)):
            given = f"{type(stream_id).__name__} and {type(message).__name__}"
            raise InvalidInput(f"an event needs the id of its stream as text and a message of MCP, not {given}")
        body = None if message is None else message.model_dump(by_alias=True, mode="json", exclude_none=True)
        line, kept = as_line([stream_id, body]), self._kept
        with kept.lock:
            made: list[str] = []

            def make() -> list[Draft]:
                made[:] = [str(kept.last + 1)]
                data = {"vendor": FRAMEWORK, "lines": [line], "keys": made}
                return [kept.draft("payload.kept", data)]

            kept.write(make)
            return made[0]

    @asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        """Have the lease of the server's session: no other process can add events, and one that lost it is refused."""
        async with aalone(self._kept, _awaited):
            yield

    async def replay_events_after(self, last_event_id: EventId, send_callback: EventCallback) -> StreamId | None:
        """Send the events of the same stream that came after one."""
        stream, missed = await _awaited(partial(self._after, last_event_id))
        for number, body in missed:
            await send_callback(EventMessage(jsonrpc_message_adapter.validate_python(body), number))
        return stream

    def _after(self, last: str) -> tuple[str | None, list[tuple[str, object]]]:
        kept = self._kept
        with kept.lock:
            kept.catch_up()
            if last not in kept.entries:
                return None, []
            stream = json.loads(kept.entries[last].line)[0]
            later = [one for one in kept.entries.values() if int(one.key) > int(last)]
        found = [(one.key, *json.loads(one.line)) for one in later]
        return stream, [(key, body) for key, of, body in found if of == stream and body is not None]


async def _awaited(call: Callable[[], R]) -> R:
    """Run a call on a thread; our errors become errors of MCP."""
    with _speaking():
        return await settled(call)


@contextmanager
def _speaking() -> Iterator[None]:
    """Our errors as errors of MCP, whose data has our code and hint."""
    try:
        yield
    except OnrecordError as problem:
        mine = theirs(problem, MCPError)
        about = {"code": problem.code, "hint": mine.hint}  # type: ignore[attr-defined]  # as every error of ours
        mine.error = ErrorData(code=INTERNAL_ERROR, message=problem.message, data=about)  # type: ignore[attr-defined]  # what its constructor sets
        raise mine from problem
