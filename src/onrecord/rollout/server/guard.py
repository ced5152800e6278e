"""The guard: who may talk to the proxy. It stands before every route but `/health`.

On loopback anybody of this machine may, except web pages: a page that made its own name point here (DNS rebinding)
sends that name as Host, and any page sends its Origin. Bound elsewhere, every request carries the token.
"""

from __future__ import annotations

from secrets import compare_digest
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from starlette.datastructures import Headers

from onrecord.rollout.server.answers import problem
from onrecord.rollout.server.settings import LOOPBACK, Settings

if TYPE_CHECKING:
    from starlette.responses import Response
    from starlette.types import ASGIApp, Receive, Scope, Send

OPEN_PATH = "/health"


class Guard:
    """An ASGI application around another one that lets only those in who may come."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self.app = app
        self.token = settings.token.encode() if settings.token else None
        self.hosts = {name.lower() for name in (*LOOPBACK, settings.host, *settings.hosts)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the request pass, or answer it."""
        if scope["type"] == "http" and scope["path"] != OPEN_PATH:
            refusal = self.refusal(Headers(scope=scope))
            if refusal is not None:
                await refusal(scope, receive, send)
                return
        await self.app(scope, receive, send)

    def refusal(self, headers: Headers) -> Response | None:
        """The answer to a request that may not pass; None when it may."""
        origin = headers.get("origin")
        if origin is not None and _host_of(origin) not in self.hosts:
            return problem(403, "forbidden", "web pages of other places may not use this proxy")
        if self.token is None:
            if _host_of(f"//{headers.get('host', '')}") not in self.hosts:
                return problem(
                    403,
                    "forbidden",
                    "this proxy does not accept that host name",
                    hint="start the proxy with --allow-host",
                )
            return None
        scheme, _space, given = headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not compare_digest(given.strip().encode(), self.token):
            return problem(401, "unauthorized", "a token is needed", headers={"www-authenticate": "Bearer"})
        return None


def _host_of(url: str) -> str | None:
    try:
        return urlsplit(url).hostname
    except ValueError:
        return None
