"""Receiving requests: a client that does not finish its request gets limited time, and such clients a limited number.

A request is half-open from the first moment of its connection, or its first byte, until its last byte. Honest clients
need milliseconds. Idle connections between two requests do not count: uvicorn closes them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

if TYPE_CHECKING:
    import asyncio

GRACE_SECONDS = 1.0
"""A request that takes longer than this to arrive is a slow one: many clients may connect at the same moment."""
SLOW_LIMIT = 64
"""How many slow requests may be arriving at once; the oldest is cut off for another."""
REQUEST_SECONDS = 60.0
"""How long a request may take to arrive as a whole."""


class Limited:
    """What a protocol of uvicorn needs to limit half-open requests. It calls `watch` whenever something arrived."""

    slow: ClassVar[dict[Limited, None]] = {}
    """The connections with a slow request, the oldest first."""
    loop: asyncio.AbstractEventLoop
    transport: asyncio.Transport
    _timer: asyncio.TimerHandle | None = None

    def is_half_open(self) -> bool:
        """Whether a request, or the first byte of the first one, is still to come."""
        raise NotImplementedError

    def watch(self) -> None:
        """Note whether the connection is half-open now."""
        if not self.is_half_open():
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


class Receiving(Limited, H11Protocol):
    """uvicorn's protocol in plain Python. h11 itself refuses a head that is too long; httptools keeps all of it."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """Wait for the first request."""
        super().connection_made(transport)
        self.watch()

    def data_received(self, data: bytes) -> None:
        """Watch until the request is whole."""
        super().data_received(data)
        self.watch()

    def on_response_complete(self) -> None:
        """What follows an answer may be the beginning of another request."""
        super().on_response_complete()
        self.watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing more comes."""
        self.forget()
        super().connection_lost(exc)

    def is_half_open(self) -> bool:
        """Whether a request is still to come, as h11 sees it."""
        if self.transport.is_closing():
            return False
        begun = self.cycle is None or bool(self.conn.trailing_data[0])
        return self.conn.their_state is h11.SEND_BODY or (self.conn.their_state is h11.IDLE and begun)


def counted(protocol: type[Limited]) -> Any:
    """The protocol of one server, with its own count."""
    own: dict[str, Any] = {"slow": {}}
    return type(protocol.__name__, (protocol,), own)
