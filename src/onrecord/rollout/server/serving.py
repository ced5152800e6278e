"""Running a recording proxy: announce the address, serve until a signal, and shut down cleanly."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import uvicorn
import uvloop

from onrecord.machine.http_server import serve_until_signal, url_of
from onrecord.machine.receiving import counted
from onrecord.rollout.server.receiving import Receiving

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from starlette.types import ASGIApp

    from onrecord.rollout.server.app import Proxy

KEEP_ALIVE_SECONDS = 75
"""How long an idle connection stays open: agents think between turns."""


def serve(proxy: Proxy, listener: socket.socket, announce: Callable[[str], None]) -> None:
    """Serve until SIGTERM or Ctrl-C; a second Ctrl-C does not wait for running turns."""
    settings = proxy.settings
    url = url_of(listener, settings.host)
    config = config_of(proxy.front(), settings.drain_seconds)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:  # it takes a fifth less time than asyncio's
        runner.run(
            serve_until_signal(config, listener, lambda: announce(url), stop=proxy.stop_taking, hurry=proxy.hurry)
        )


def config_of(application: ASGIApp, drain_seconds: int) -> uvicorn.Config:
    """How the server treats its clients."""
    return uvicorn.Config(
        application, http=counted(Receiving), log_level="warning", access_log=False, ws="none", lifespan="on",
        server_header=False, proxy_headers=False, timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=drain_seconds,
    )  # fmt: skip
