"""The guard: access control for every route except `/health`.

On loopback, every program on this machine may use the proxy, but no web page: a page that points its own name here (DNS
rebinding) sends that name as Host, and every page sends its Origin. On other addresses every request needs the token.
"""

from __future__ import annotations

from secrets import compare_digest
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from starlette.datastructures import Headers

from onrecord.rollout.server.answers import problem
from onrecord.rollout.server.messages import in_form
from onrecord.rollout.server.settings import LOOPBACK, Settings

if TYPE_CHECKING:
    from starlette.responses import JSONResponse
    from starlette.types import ASGIApp, Receive, Scope, Send

OPEN_PATH = "/health"
READING = ("GET", "HEAD", "OPTIONS")
FORM_TYPES = ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data")
"""The content types that a page of another site may send without a preflight request."""


class Guard:
    """An ASGI application that wraps another one and refuses clients without access."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self.app = app
        self.token = settings.token.encode() if settings.token else None
        self.hosts = {name.lower() for name in (*LOOPBACK, settings.host, *settings.hosts)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the request pass, or answer it."""
        if scope["type"] == "http" and scope["path"] != OPEN_PATH:
            refusal = self.refusal(Headers(scope=scope), scope["method"])
            if refusal is not None:
                await in_form(scope["path"], refusal)(scope, receive, send)
                return
        await self.app(scope, receive, send)

    def refusal(self, headers: Headers, method: str = "GET") -> JSONResponse | None:
        """The answer to a request without access; None if it may pass."""
        origin = headers.get("origin")
        if origin is not None and not self._is_own(origin, headers.get("host", "")):
            return problem(403, "forbidden", "web pages from other origins may not use this proxy")
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        if method not in READING and kind in FORM_TYPES:
            # A page can send these to any address without asking; JSON it cannot.
            return problem(
                415, "unsupported_media_type", "the body must be JSON", hint="send Content-Type: application/json"
            )
        if self.token is None:
            if _host_of(f"//{headers.get('host', '')}") not in self.hosts:
                return problem(
                    403, "forbidden", "this proxy does not accept that Host name",
                    hint="start the proxy with --allow-host NAME",
                )  # fmt: skip
            return None
        scheme, _space, given = headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not compare_digest(given.strip().encode(), self.token):
            return problem(
                401, "unauthorized", "this proxy needs a token", headers={"www-authenticate": "Bearer"},
                hint="send the header Authorization: Bearer TOKEN",
            )  # fmt: skip
        return None

    def _is_own(self, origin: str, host: str) -> bool:
        """Whether a page is this proxy's own: another port of this machine is another program."""
        try:
            page, here = urlsplit(origin), urlsplit(f"//{host}")
            return page.hostname in self.hosts and (page.hostname, page.port) == (here.hostname, here.port)
        except ValueError:
            return False


def _host_of(url: str) -> str | None:
    try:
        return urlsplit(url).hostname
    except ValueError:
        return None
