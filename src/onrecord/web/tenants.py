"""Many tenants behind one proxy: each request belongs to the tenant that the proxy names in a header.

The proxy proves itself: every request carries the token, which no browser ever gets (see `guard`). Each tenant has a
site of its own, with its own connections, viewers and caches, so nothing of one can reach another. A few sites are open
at a time; one without viewers is closed when another is needed.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

from starlette.responses import PlainTextResponse

from onrecord.errors import InvalidInput, InvalidName, OnrecordError, TenantRefused
from onrecord.log.names import check_name
from onrecord.web.app import Site
from onrecord.web.guard import Guard, page

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.responses import Response
    from starlette.types import ASGIApp, Receive, Scope, Send

    from onrecord.session.session_store import SessionStore
    from onrecord.web.settings import Settings

POSTGRES_SCHEMES = ("postgresql", "postgres")
TENANTS_OPEN = 32
"""How many tenants have an open site at once."""


def refuse_fixed_tenant(url: str, named: str | None) -> None:
    """Raise unless a store has tenants of which any may be chosen. `named` is the tenant in the environment."""
    parts = urlsplit(url)
    if parts.scheme not in POSTGRES_SCHEMES:
        raise InvalidInput("only a store in PostgreSQL has tenants", hint="use postgresql://user@host/database")
    if named or "tenant" in parse_qs(parts.query, keep_blank_values=True):
        raise InvalidInput(
            "the tenant is fixed already, so no header can name it",
            hint="leave it out of the URL of the store and of the environment",
        )


class _Open:
    """The site of a tenant, and how many requests it answers now."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.routes = site.routes()
        self.busy = 0


class Tenants:
    """The sites of all tenants. It is an ASGI application behind the guard."""

    def __init__(self, connect: Callable[[str], SessionStore], settings: Settings) -> None:
        self.settings = settings.checked()
        self._connect = connect
        self._header = settings.tenant_header.lower().encode("ascii")
        self._open: OrderedDict[str, _Open] = OrderedDict()
        self._lock = asyncio.Lock()

    def application(self) -> ASGIApp:
        """The pages of all tenants as one ASGI application."""
        return Guard(self, self.settings)

    def end_streams(self) -> None:
        """End what every viewer hears, because the server stops."""
        for one in self._open.values():
            one.site.end_streams()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request with the site of its tenant."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
            return
        if scope["path"] == "/health":
            await PlainTextResponse("ok\n")(scope, receive, send)
            return
        found = await self._site(scope)
        if not isinstance(found, _Open):
            await found(scope, receive, send)
            return
        found.busy += 1
        try:
            await found.routes(scope, receive, send)
        finally:
            found.busy -= 1

    async def _site(self, scope: Scope) -> _Open | Response:
        names = [value for name, value in scope["headers"] if name == self._header]
        if len(names) != 1:
            return page(400, "The proxy must name exactly one tenant.", "It replaces the header that a browser sent.")
        try:
            tenant = check_name(names[0].decode("latin-1"), "tenant")
        except InvalidName:
            return page(400, "The proxy named a tenant that is not a valid name.")
        async with self._lock:
            known = self._open.get(tenant)
            if known is None:
                if not await self._make_room():
                    return page(503, "Too many tenants use this server at once.", "Try again in a moment.")
                try:
                    records = await asyncio.to_thread(self._connect, tenant)
                except TenantRefused:
                    return page(403, "This server may not show this tenant.")
                except OnrecordError:
                    # The error may name a server or a login: it is not for viewers.
                    return page(
                        503, "The store of this tenant cannot be opened.",
                        "`onrecord doctor` shows the reason, on the machine of this server.",
                    )  # fmt: skip
                site = Site(records, self.settings)
                site.begin()
                known = self._open[tenant] = _Open(site)
            self._open.move_to_end(tenant)
            return known

    async def _make_room(self) -> bool:
        """Whether one more site can be open; the one that was idle for longest is closed for it."""
        if len(self._open) < TENANTS_OPEN:
            return True
        idle = next((tenant for tenant, one in self._open.items() if not one.busy), None)
        if idle is None:
            return False
        await _end(self._open.pop(idle).site)
        return True

    async def _live(self, receive: Receive, send: Send) -> None:
        message: Any = await receive()
        while message["type"] != "lifespan.shutdown":
            await send({"type": "lifespan.startup.complete"})
            message = await receive()
        while self._open:
            await _end(self._open.popitem()[1].site)
        await send({"type": "lifespan.shutdown.complete"})


async def _end(site: Site) -> None:
    await site.end()
    with suppress(OnrecordError):
        await asyncio.to_thread(site.records.close)
