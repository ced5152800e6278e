"""Running the page: announce the address, serve until a signal, and shut down cleanly."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from onrecord.machine.http_server import config_of, serve_until_signal

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from onrecord.web.app import Site
    from onrecord.web.tenants import Tenants

KEEP_ALIVE_SECONDS = 75
SHUTDOWN_SECONDS = 2
"""How long a stopping server waits for running requests."""


def serve(site: Site | Tenants, listener: socket.socket, announce: Callable[[], None]) -> None:
    """Serve until SIGTERM or Ctrl-C."""
    config = config_of(site.application(), keep_alive_seconds=KEEP_ALIVE_SECONDS, grace_seconds=SHUTDOWN_SECONDS)
    asyncio.run(serve_until_signal(config, listener, announce, stop=site.end_streams))
