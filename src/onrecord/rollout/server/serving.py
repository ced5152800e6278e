"""Running a recording proxy: bind, announce the address, serve until a signal, and shut down cleanly."""

from __future__ import annotations

import asyncio
import signal
import socket
from contextlib import contextmanager
from typing import TYPE_CHECKING

import uvicorn

from onrecord.errors import InvalidInput
from onrecord.rollout.server.receiving import receiving

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from starlette.types import ASGIApp

    from onrecord.rollout.server.app import Proxy

BACKLOG = 2_048
"""How many clients may wait to be accepted."""
KEEP_ALIVE_SECONDS = 75
"""How long an idle connection stays open: agents think between turns."""


class _Server(uvicorn.Server):
    """uvicorn without its signal handlers: ours stop the proxy, and it then exits with 0."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def serve(proxy: Proxy, listener: socket.socket, announce: Callable[[str], None]) -> None:
    """Serve until SIGTERM or Ctrl-C; a second Ctrl-C does not wait for running turns."""
    settings = proxy.settings
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    url = f"http://{host}:{listener.getsockname()[1]}"
    server = _Server(config_of(proxy.application(), settings.drain_seconds))
    asyncio.run(_serve(proxy, server, listener, lambda: announce(url)))


def config_of(application: ASGIApp, drain_seconds: int) -> uvicorn.Config:
    """How the server treats its clients."""
    return uvicorn.Config(
        application, http=receiving(), log_level="warning", access_log=False, ws="none", lifespan="on",
        server_header=False, proxy_headers=False, timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=drain_seconds,
    )  # fmt: skip


async def _serve(proxy: Proxy, server: uvicorn.Server, listener: socket.socket, ready: Callable[[], None]) -> None:
    def stop() -> None:
        server.should_exit = True
        proxy.stop_taking()

    def interrupt() -> None:
        if server.should_exit:
            proxy.hurry()
        stop()

    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, stop)
    loop.add_signal_handler(signal.SIGINT, interrupt)
    ready()
    await server.serve([listener])


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens on this address.

    It names TCP explicitly: only then does asyncio disable Nagle's algorithm, which would delay each answer by 40 ms.
    """
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(BACKLOG)
    except OSError as problem:
        listener.close()
        raise InvalidInput(
            f"cannot listen on {host} port {port}: {problem.strerror or problem}", hint="--port 0 picks a free one"
        ) from None
    return listener
