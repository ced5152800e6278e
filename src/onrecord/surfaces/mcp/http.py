"""Streamable HTTP on loopback: every request needs the token, and a page in a browser cannot send one."""

from __future__ import annotations

import asyncio
from secrets import compare_digest
from typing import TYPE_CHECKING, Any

from starlette.responses import JSONResponse

from onrecord.machine.http_server import config_of, serve_until_signal

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from starlette.types import ASGIApp, Receive, Scope, Send

    from onrecord.surfaces.mcp.serving import Service

GRACE_SECONDS = 2
"""How long open streams may take to end after Ctrl-C."""
KEEP_ALIVE_SECONDS = 5
PATH = "/mcp"


class TokenGuard:
    """Refuses a request without the token before anything else reads it."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self.app = app
        self.token = token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or answer 401."""
        if scope["type"] == "http" and not self._knows(scope):
            refusal = JSONResponse(
                {"error": "unauthorized", "hint": "send the header Authorization: Bearer TOKEN"},
                status_code=401,
                headers={"www-authenticate": "Bearer"},
            )
            await refusal(scope, receive, send)
            return
        await self.app(scope, receive, send)

    def _knows(self, scope: Scope) -> bool:
        given = [value for name, value in scope["headers"] if name == b"authorization"]
        scheme, _space, token = (given[0] if len(given) == 1 else b"").partition(b" ")
        return scheme.lower() == b"bearer" and compare_digest(token.strip(), self.token)


def app(service: Service, token: str) -> Any:
    """The application: both revisions of the protocol at one address, behind the token."""
    return TokenGuard(service.server().streamable_http_app(streamable_http_path=PATH), token)


def serve(service: Service, listener: socket.socket, token: str, announce: Callable[[], None]) -> None:
    """Serve until SIGTERM or Ctrl-C."""
    config = config_of(app(service, token), keep_alive_seconds=KEEP_ALIVE_SECONDS, grace_seconds=GRACE_SECONDS)
    asyncio.run(serve_until_signal(config, listener, announce))
