"""Receiving requests with httptools, which is faster than h11 and has no limits of its own: these are added here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from onrecord.machine.receiving import Limited

if TYPE_CHECKING:
    import asyncio

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


class Receiving(Limited, HttpToolsProtocol):
    """uvicorn's protocol of one connection, with limits on half-open requests."""

    _arriving = True
    """Whether a request, or the first byte of the first one, is still to come."""
    _around = _body = 0
    """The bytes of a request that has not arrived as a whole: of its body, and around it."""
    _said = 0
    """The bytes of bodies in what is received now. It may end one request and begin the next."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """Wait for the first request."""
        super().connection_made(Whole(transport, self.loop))  # type: ignore[arg-type]  # it has what uvicorn uses
        self.watch()

    def data_received(self, data: bytes) -> None:
        """Watch until the request is whole."""
        self._said = 0
        super().data_received(data)
        if self._arriving:
            self._around += len(data) - self._said
            if self._around > HEAD_LIMIT + CHUNK_BYTES * self._body and not self.transport.is_closing():
                self.send_400_response("The head of the request is too long.")
        self.watch()

    def on_message_begin(self) -> None:
        """The first byte of a request."""
        super().on_message_begin()
        self._arriving, self._around, self._body = True, 0, 0

    def on_body(self, body: bytes) -> None:
        """A part of its body."""
        super().on_body(body)
        self._body += len(body)
        self._said += len(body)

    def on_message_complete(self) -> None:
        """Its last byte."""
        super().on_message_complete()
        self._arriving = False

    def on_response_complete(self) -> None:
        """What follows an answer may be the beginning of another request."""
        super().on_response_complete()
        self.watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing more comes."""
        self.forget()
        super().connection_lost(exc)

    def is_half_open(self) -> bool:
        """Whether a request is still to come."""
        return self._arriving and not self.transport.is_closing()
