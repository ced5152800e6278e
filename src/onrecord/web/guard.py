"""The guard: who may use the page, and the headers that every answer carries.

Everybody needs the token: in the URL that `onrecord web` prints, which turns into a cookie that no script can read and
no other site can send, or as `Authorization: Bearer`. A site that points its own name at this machine (DNS rebinding)
sends that name as Host and is refused. What changes something must come from the page itself.

With a header that names the tenant, the token is the secret of the proxy that sets this header: each request must carry
it as `Authorization: Bearer`, and neither a URL nor a cookie gives access.
"""

from __future__ import annotations

from hashlib import sha256
from hmac import compare_digest
from http.cookies import CookieError, SimpleCookie
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, urlencode, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import HTMLResponse, RedirectResponse, Response

from onrecord.web.settings import BODY_LIMIT, EVERYWHERE, LOOPBACK, Settings

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

POLICY = (
    "default-src 'none'; script-src 'self'; worker-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; font-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types onrecord"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}
"""What every answer carries."""
ACTION_HEADER = "x-onrecord"
"""A request that changes something has this header: a form of another site cannot set it."""
READING = ("GET", "HEAD")
OPEN_PATHS = ("/health", "/static/style.css", "/static/page.css")
"""What may be read without the token: nothing of the record."""


class Guard:
    """An ASGI application that wraps another one and refuses clients without access."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self.app = app
        self.settings = settings
        self.hosts = {name.lower() for name in (*LOOPBACK, *settings.hosts)}
        if settings.host not in EVERYWHERE:
            self.hosts.add(settings.host.lower())
        self.cookie_value = sha256(b"onrecord cookie " + settings.token.encode()).hexdigest()

    @property
    def cookie_name(self) -> str:
        """Browsers share cookies between ports: each server has its own name."""
        return f"onrecord-{self.settings.port}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the request pass, or answer it."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        self._strip_prefix(scope)

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                if "cache-control" not in headers:
                    headers["cache-control"] = "no-store"
            await send(message)

        refusal = self._refusal(scope, Headers(scope=scope))
        await (refusal or self.app)(scope, receive, guarded)

    def _strip_prefix(self, scope: Scope) -> None:
        """A reverse proxy may pass the prefix on, or remove it."""
        prefix = self.settings.prefix
        if prefix and (scope["path"] == prefix or scope["path"].startswith(f"{prefix}/")):
            scope["path"] = scope["path"][len(prefix) :] or "/"
            scope["raw_path"] = scope["path"].encode()

    def _refusal(self, scope: Scope, headers: Headers) -> Response | None:
        host = headers.get("host", "")
        if _name_of(f"//{host}") not in self.hosts:
            return page(
                403, "This server does not answer to that name.",
                "Open the address that `onrecord web` printed, or start it with --allow-host NAME.",
            )  # fmt: skip
        origin = headers.get("origin")
        if origin is not None and not self._is_own(origin, host):
            return page(403, "Pages of other sites may not use this server.")
        if scope["method"] not in READING:
            site = headers.get("sec-fetch-site", "same-origin")
            if origin is None or site != "same-origin" or ACTION_HEADER not in headers:
                return page(403, "A change must be made on the page itself.")
            if not headers.get("content-length", "").isdigit() or int(headers["content-length"]) > BODY_LIMIT:
                return page(413, "The request is too large.")
        if self.settings.tenant_header:
            return None if scope["path"] == "/health" or self._is_borne(headers) else not_the_proxy()
        return None if scope["path"] in OPEN_PATHS else self._without_token(scope, headers)

    def _is_borne(self, headers: Headers) -> bool:
        """Whether the request carries the token in its header."""
        scheme, _space, given = headers.get("authorization", "").partition(" ")
        return scheme.lower() == "bearer" and compare_digest(given.strip().encode(), self.settings.token.encode())

    def _is_own(self, origin: str, host: str) -> bool:
        """Whether an origin is this server, also as a reverse proxy shows it. Another port is another site."""
        try:
            parts = urlsplit(origin)
        except ValueError:
            return False
        return parts.netloc == host or parts.hostname in {name.lower() for name in self.settings.hosts}

    def _without_token(self, scope: Scope, headers: Headers) -> Response | None:
        token = self.settings.token.encode()
        if self._is_borne(headers):
            return None
        if compare_digest(self._cookie(headers.get("cookie", "")).encode(), self.cookie_value.encode()):
            return None
        query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        sent = next((value for name, value in query if name == "token"), "")
        if scope["method"] == "GET" and compare_digest(sent.encode(), token):
            return self._welcome(scope, [(name, value) for name, value in query if name != "token"])
        return page(
            401, "This page needs its token.",
            "Open the link that `onrecord web` printed. A server that was started again has a new one.",
        )  # fmt: skip

    def _cookie(self, text: str) -> str:
        try:
            found = SimpleCookie(text).get(self.cookie_name)
        except CookieError:
            return ""
        return found.value if found else ""

    def _welcome(self, scope: Scope, query: list[tuple[str, str]]) -> Response:
        """Turn the token of the URL into a cookie, so that it is in no history and no link."""
        where = f"{self.settings.prefix}{scope['path']}" + (f"?{urlencode(query)}" if query else "")
        # Two slashes would be the name of another host.
        answer = RedirectResponse("/" + where.lstrip("/"), 303)
        answer.set_cookie(
            self.cookie_name, self.cookie_value, httponly=True, samesite="strict", path=self.settings.prefix or "/"
        )
        return answer


def not_the_proxy() -> Response:
    """What everybody but the proxy gets who asks a server of many tenants."""
    return page(
        401, "This server answers its proxy only.",
        "The proxy sends the token of this server with each request, as Authorization: Bearer.",
    )  # fmt: skip


def page(status: int, sentence: str, hint: str = "") -> Response:
    """A short page in plain words. Its text is ours: nothing of a request is in it."""
    body = f"<p>{hint}</p>" if hint else ""
    return HTMLResponse(
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>onrecord</title></head>'
        f"<body><main><h1>onrecord</h1><p><b>{sentence}</b></p>{body}</main></body></html>",
        status,
    )


def _name_of(url: str) -> str | None:
    try:
        return urlsplit(url).hostname
    except ValueError:
        return None
