"""`onrecord web`: the live page, started from the command line."""

from __future__ import annotations

import os
import secrets
import sys
from functools import partial
from typing import TYPE_CHECKING

from onrecord.errors import InvalidInput
from onrecord.surfaces.cli.shared.exits import OK
from onrecord.surfaces.cli.shared.tokens import read_token

if TYPE_CHECKING:
    from collections.abc import Callable

    from onrecord.session.session_store import SessionStore
    from onrecord.surfaces.cli.shared.call import Call
    from onrecord.web.settings import Settings


def web(call: Call) -> int:
    """Serve until it is stopped."""
    try:
        from onrecord.machine.http_server import listen
        from onrecord.web.app import Site
        from onrecord.web.serving import serve
        from onrecord.web.tenants import Tenants
    except ImportError as missing:
        from onrecord.setup.commands import installing_with

        raise InvalidInput(
            f"the page needs the package {missing.name}, which is not installed", hint=f"`{installing_with('web')}`"
        ) from None
    settings = _settings(call).checked()
    name = call.positional.get("NAME")
    if settings.tenant_header:
        connect = _tenants(call, name)
        where = ""
    else:
        records = call.records(make=False)
        where = f"s/{records.find(name).session}" if name else ""
    with listen(settings.host, settings.port) as listener:
        settings = settings._replace(port=listener.getsockname()[1])
        site = Tenants(connect, settings) if settings.tenant_header else Site(records, settings)
        serve(site, listener, lambda: _announce(call, settings, f"/{where}"))
    call.output.note("stopped")
    return OK


def _settings(call: Call) -> Settings:
    from onrecord.web.settings import DEFAULT_PORT, TOKEN_BYTES, Settings

    place = call.get("token-file")
    chosen = None if place is None else read_token(place)
    port = call.number("port")
    return Settings(
        token=chosen or secrets.token_urlsafe(TOKEN_BYTES),
        host=call.get("host") or "127.0.0.1",
        port=DEFAULT_PORT if port is None else port,
        hosts=tuple(call.many("allow-host")),
        prefix=(call.get("prefix") or "").rstrip("/"),
        allow_writes="allow-writes" in call,
        person=call.person(),
        chosen_token=chosen is not None,
        tenant_header=call.get("tenant-header") or "",
    )


def _tenants(call: Call, name: str | None) -> Callable[[str], SessionStore]:
    """How the store of a tenant is opened; an error now rather than for the first viewer."""
    from onrecord.connection import connect_tenant, store_url
    from onrecord.environment import TENANT_VARIABLE
    from onrecord.web.tenants import refuse_fixed_tenant

    if name:
        raise InvalidInput(
            f"the page of many tenants cannot open with one session, {name!r:.80}",
            hint="leave the session out, and open it in the browser",
        )
    url = store_url(call.get("store"))
    refuse_fixed_tenant(url, os.environ.get(TENANT_VARIABLE))
    return partial(connect_tenant, url=url, project=call.get("project"))


def _announce(call: Call, settings: Settings, path: str) -> None:
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    plain = f"http://{host}:{settings.port}{settings.prefix}{path}"
    url = plain if settings.chosen_token else f"{plain}?token={settings.token}"
    if call.output.json:
        call.output.envelope(
            "web", {"url": url, "allow_writes": settings.allow_writes, "person": settings.person, "pid": os.getpid()}
        )
        sys.stdout.flush()
        return
    acts = f"what you do there is recorded as {settings.person}" if settings.allow_writes else "it only reads"
    lines = [f"onrecord is on {url}", f"  {acts}; Ctrl-C stops it"]
    if settings.tenant_header:
        lines.append(f"  only your proxy may use it: it sends the token, and the tenant as {settings.tenant_header}")
    elif settings.chosen_token:
        lines.append("  add ?token=... with the token of your file, once; the browser keeps it as a cookie")
    if not settings.is_local:
        lines.append(f"  {settings.host} is reachable from other machines, without encryption: use TLS in front of it")
    sys.stdout.write("\n".join(lines) + "\n")
    sys.stdout.flush()
    if settings.is_local and not settings.tenant_header and "no-browser" not in call and _has_browser():
        import webbrowser

        webbrowser.open(url)


def _has_browser() -> bool:
    """Whether a person at this machine would see a browser open."""
    if not sys.stdout.isatty() or "SSH_CONNECTION" in os.environ:
        return False
    return sys.platform == "darwin" or any(name in os.environ for name in ("DISPLAY", "WAYLAND_DISPLAY"))
