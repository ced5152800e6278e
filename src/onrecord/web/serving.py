"""Running the page: announce the address, serve until a signal, and shut down cleanly."""

from __future__ import annotations

import asyncio
import signal
import socket
from contextlib import contextmanager
from typing import TYPE_CHECKING

import uvicorn

from onrecord.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from onrecord.web.app import Site

BACKLOG = 512
KEEP_ALIVE_SECONDS = 75
SHUTDOWN_SECONDS = 2
"""How long a stopping server waits for running requests."""


class _Server(uvicorn.Server):
    """uvicorn without its signal handlers: ours stop it, and it then exits with 0."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def serve(site: Site, listener: socket.socket, announce: Callable[[], None]) -> None:
    """Serve until SIGTERM or Ctrl-C."""
    config = uvicorn.Config(
        site.application(), log_level="warning", access_log=False, ws="none", lifespan="on", server_header=False,
        proxy_headers=False, timeout_keep_alive=KEEP_ALIVE_SECONDS, timeout_graceful_shutdown=SHUTDOWN_SECONDS,
    )  # fmt: skip
    asyncio.run(_serve(site, _Server(config), listener, announce))


async def _serve(site: Site, server: uvicorn.Server, listener: socket.socket, announce: Callable[[], None]) -> None:
    def stop() -> None:
        server.should_exit = True
        site.hub.stop()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    announce()
    await server.serve([listener])


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens on this address."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(BACKLOG)
    except OSError as problem:
        listener.close()
        raise InvalidInput(
            f"cannot listen on {host} port {port}: {problem.strerror or problem}",
            hint="another program may use it; port 0 picks a free one",
            step="web_port",
        ) from None
    return listener
