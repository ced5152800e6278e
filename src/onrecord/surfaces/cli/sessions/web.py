"""`onrecord web`: the live page, started from the command line."""

from __future__ import annotations

import os
import secrets
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from onrecord.errors import InvalidInput
from onrecord.surfaces.cli.shared.exits import OK

if TYPE_CHECKING:
    from onrecord.surfaces.cli.shared.call import Call
    from onrecord.web.settings import Settings


def web(call: Call) -> int:
    """Serve until it is stopped."""
    try:
        from onrecord.web.app import Site
        from onrecord.web.serving import listen, serve
    except ImportError as missing:
        raise InvalidInput(
            f"the page needs the package {missing.name}, which is not installed", hint='pip install "onrecord[web]"'
        ) from None
    settings = _settings(call).checked()
    records = call.records(make=False)
    where = records.find(call.positional["NAME"]).session if call.positional.get("NAME") else ""
    with listen(settings.host, settings.port) as listener:
        settings = settings._replace(port=listener.getsockname()[1])
        site = Site(records, settings)
        serve(site, listener, lambda: _announce(call, settings, f"/s/{where}" if where else "/"))
    call.output.note("stopped")
    return OK


def _settings(call: Call) -> Settings:
    from onrecord.web.settings import DEFAULT_PORT, TOKEN_BYTES, Settings

    chosen = _token(call)
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
    )


def _token(call: Call) -> str | None:
    """The token that a person chose. It is never on the command line, where every process could read it."""
    place = call.get("token-file")
    if place is None:
        return None
    path = Path(place).expanduser()
    try:
        others = path.stat().st_mode & 0o077
        token = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as problem:
        raise InvalidInput(f"the token file cannot be read: {problem}") from None
    if others:
        raise InvalidInput(f"others can read {place}", hint=f"chmod 600 {place}")
    if not token:
        raise InvalidInput(f"{place} is empty", hint="write one line into it: the token")
    return token


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
    if settings.chosen_token:
        lines.append("  add ?token=... with the token of your file, once; the browser keeps it as a cookie")
    if not settings.is_local:
        lines.append(f"  {settings.host} is reachable from other machines, without encryption: use TLS in front of it")
    sys.stdout.write("\n".join(lines) + "\n")
    sys.stdout.flush()
    if settings.is_local and "no-browser" not in call and _has_browser():
        import webbrowser

        webbrowser.open(url)


def _has_browser() -> bool:
    """Whether a person at this machine would see a browser open."""
    if not sys.stdout.isatty() or "SSH_CONNECTION" in os.environ:
        return False
    return sys.platform == "darwin" or any(name in os.environ for name in ("DISPLAY", "WAYLAND_DISPLAY"))
