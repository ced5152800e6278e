"""Running a recording proxy: bind, say where, serve until told to stop, and end in order."""

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

    from onrecord.rollout.server.app import Proxy

BACKLOG = 2_048
"""How many clients may wait to be accepted."""
KEEP_ALIVE_SECONDS = 75
"""How long an idle connection stays: agents think between turns."""


class _Server(uvicorn.Server):
    """uvicorn, but signals are ours: a proxy that was told to stop has done what it was told, and ends with 0."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def serve(proxy: Proxy, listener: socket.socket, announce: Callable[[str], None]) -> None:
    """Serve until SIGTERM or Ctrl-C; a second Ctrl-C does not wait for turns under way."""
    settings = proxy.settings
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    url = f"http://{host}:{listener.getsockname()[1]}"
    config = uvicorn.Config(
        proxy.application(), log_level="warning", access_log=False, ws="none", lifespan="on", server_header=False,
        proxy_headers=False, timeout_keep_alive=KEEP_ALIVE_SECONDS, timeout_graceful_shutdown=settings.drain_seconds,
    )  # fmt: skip
    asyncio.run(_serve(proxy, _Server(config), listener, lambda: announce(url)))


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
    """A socket that listens there.

    It is made for TCP by name: only then asyncio has answers leave at once, and not after the client's next sign of
    life, which takes 40 ms.
    """
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(BACKLOG)
    except OSError as problem:
        listener.close()
        raise InvalidInput(
            f"cannot listen on {host} port {port}: {problem.strerror or problem}", hint="port 0 takes a free one"
        ) from None
    return listener
