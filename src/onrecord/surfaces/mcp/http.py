"""Streamable HTTP on loopback: every request needs the token, and a page in a browser cannot send one."""

from __future__ import annotations

import signal
import socket
from secrets import compare_digest
from typing import TYPE_CHECKING, Any

import uvicorn
from starlette.responses import JSONResponse

from onrecord.errors import InvalidInput

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

    from onrecord.surfaces.mcp.serving import Service

GRACE_SECONDS = 2
"""How long open streams may take to end after Ctrl-C."""
PATH = "/mcp"
LAST_PORT = 65_535


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


def listen(host: str, port: int) -> socket.socket:
    """The listening socket; port 0 takes a free one."""
    if port > LAST_PORT:
        raise InvalidInput(f"port {port} cannot be used: ports end at {LAST_PORT}", hint="`--port 0` takes a free one")
    try:
        return socket.create_server((host, port))
    except OSError as problem:
        raise InvalidInput(
            f"port {port} cannot be used: {problem.strerror}", hint="`--port 0` takes a free one"
        ) from None


def app(service: Service, token: str) -> Any:
    """The application: both revisions of the protocol at one address, behind the token."""
    return TokenGuard(service.server().streamable_http_app(streamable_http_path=PATH), token)


def serve(service: Service, listener: socket.socket, token: str) -> None:
    """Serve until Ctrl-C or SIGTERM."""
    config = uvicorn.Config(
        app(service, token), log_level="warning", access_log=False, lifespan="on",
        timeout_graceful_shutdown=GRACE_SECONDS, ws="none",
    )  # fmt: skip
    # When it has stopped, uvicorn raises the signal that stopped it once more: here both end in the same way.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        uvicorn.Server(config).run(sockets=[listener])
    except KeyboardInterrupt:
        return
    finally:
        listener.close()
