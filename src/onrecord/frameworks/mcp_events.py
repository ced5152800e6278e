"""The MCP Python SDK: its `EventStore` on our log, for servers whose clients may reconnect.

    server.streamable_http_app(event_store=OnrecordEventStore("my-server", onrecord.connect()))

An event's id is its number in the session, so ids are in order after a restart of the server too. Every call runs on a
thread: the event loop is never blocked.
"""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING

from onrecord.aio import settled
from onrecord.frameworks.conversation import Conversation, as_line
from onrecord.frameworks.requiring import required

with required("mcp", "mcp mcp_types", "2.3"):
    from mcp.server.streamable_http import EventMessage, EventStore
    from mcp_types import jsonrpc_message_adapter

if TYPE_CHECKING:
    from mcp.server.streamable_http import EventCallback, EventId, StreamId
    from mcp_types import JSONRPCMessage

    from onrecord.log.events import Draft
    from onrecord.session.session_store import SessionStore

FRAMEWORK = "mcp"


class OnrecordEventStore(EventStore):
    """The events of a server's streams, kept in one session."""

    def __init__(self, name: str, store: SessionStore) -> None:
        self._kept = Conversation(store, FRAMEWORK, name)

    async def store_event(self, stream_id: StreamId, message: JSONRPCMessage | None) -> EventId:
        """Keep an event and return its number."""
        body = None if message is None else message.model_dump(by_alias=True, mode="json", exclude_none=True)
        return await settled(partial(self._store, as_line([stream_id, body])))

    def _store(self, line: str) -> str:
        kept = self._kept
        with kept.lock:
            made: list[str] = []

            def make() -> list[Draft]:
                made[:] = [str(len(kept.entries) + 1)]
                data = {"vendor": FRAMEWORK, "lines": [line], "keys": made}
                return [kept.session.log.draft("payload.kept", data)]

            kept.write(make)
            return made[0]

    async def replay_events_after(self, last_event_id: EventId, send_callback: EventCallback) -> StreamId | None:
        """Send the events of the same stream that came after one."""
        stream, missed = await settled(partial(self._after, last_event_id))
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
            later = list(kept.entries.values())[int(last) :]
        found = [(one.key, *json.loads(one.line)) for one in later]
        return stream, [(key, body) for key, of, body in found if of == stream and body is not None]
