"""Receiving requests: a client that does not finish its request gets limited time, and such clients a limited number.

A request is half-open from the first moment of its connection, or its first byte, until its last byte. Honest clients
need milliseconds. Idle connections between two requests do not count: uvicorn closes them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

if TYPE_CHECKING:
    import asyncio

GRACE_SECONDS = 1.0
"""A request that takes longer than this to arrive is a slow one: many clients may connect at the same moment."""
SLOW_LIMIT = 64
"""How many slow requests may be arriving at once; the oldest is cut off for another."""
REQUEST_SECONDS = 60.0
"""How long a request may take to arrive as a whole."""
HEAD_LIMIT = 64 * 1024
"""The largest head of a request, in bytes; what follows its body, and lies between its chunks, counts too."""
CHUNK_BYTES = 8
"""How many bytes may go with each byte of a body that comes in chunks: a client may send chunks of one byte."""


class Whole:
    """A connection whose answers leave in one piece: the head waits for the beginning of the body.

    uvicorn writes both one after the other, each at once. Two packets would wake the client twice.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport, self._loop = transport, loop
        self._head = b""
        self.is_closing = transport.is_closing
        self.get_extra_info = transport.get_extra_info

    def write(self, data: bytes) -> None:
        """Send this, after the head that waits; keep a head until its body comes, or the loop's next round."""
        if self._head:
            data, self._head = self._head + data, b""
        elif data.startswith(b"HTTP/1."):
            self._head = data
            self._loop.call_soon(self._flush)
            return
        self._transport.write(data)

    def _flush(self) -> None:
        head, self._head = self._head, b""
        if head:
            self._transport.write(head)

    def close(self) -> None:
        """Close it after all that was written."""
        self._flush()
        self._transport.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class Receiving(HttpToolsProtocol):
    """uvicorn's protocol of one connection, with limits on half-open requests."""

    slow: ClassVar[dict[Receiving, None]] = {}
    """The connections with a slow request, the oldest first."""
    _timer: asyncio.TimerHandle | None = None
    _arriving = True
    """Whether a request, or the first byte of the first one, is still to come."""
    _around = _body = 0
    """The bytes of a request that has not arrived as a whole: of its body, and around it."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """Wait for the first request."""
        super().connection_made(Whole(transport, self.loop))  # type: ignore[arg-type]  # it has what uvicorn uses
        self._watch()

    def data_received(self, data: bytes) -> None:
        """Watch until the request is whole."""
        before = self._body
        super().data_received(data)
        if self._arriving:
            self._around += len(data) - (self._body - before)
            if self._around > HEAD_LIMIT + CHUNK_BYTES * self._body and not self.transport.is_closing():
                self.send_400_response("The head of the request is too long.")
        self._watch()

    def on_message_begin(self) -> None:
        """The first byte of a request."""
        super().on_message_begin()
        self._arriving, self._around, self._body = True, 0, 0

    def on_body(self, body: bytes) -> None:
        """A part of its body."""
        super().on_body(body)
        self._body += len(body)

    def on_message_complete(self) -> None:
        """Its last byte."""
        super().on_message_complete()
        self._arriving = False

    def on_response_complete(self) -> None:
        """What follows an answer may be the beginning of another request."""
        super().on_response_complete()
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing more comes."""
        self.forget()
        super().connection_lost(exc)

    def _is_half_open(self) -> bool:
        return self._arriving and not self.transport.is_closing()

    def _watch(self) -> None:
        if not self._is_half_open():
            self.forget()
        elif self._timer is None:
            self._timer = self.loop.call_later(GRACE_SECONDS, self._is_slow)

    def _is_slow(self) -> None:
        self.slow[self] = None
        self._timer = self.loop.call_later(REQUEST_SECONDS - GRACE_SECONDS, self.transport.abort)
        if len(self.slow) > SLOW_LIMIT:
            oldest = next(iter(self.slow))
            oldest.forget()
            oldest.transport.abort()

    def forget(self) -> None:
        """Stop watching."""
        self.slow.pop(self, None)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def receiving() -> type[Receiving]:
    """The protocol of one server, with its own count."""
    own: dict[str, Any] = {"slow": {}}
    return type("Receiving", (Receiving,), own)
