"""What the HTTP servers of onrecord share: listen, announce the address, serve until a signal, shut down cleanly."""

from __future__ import annotations

import asyncio
import signal
import socket
from contextlib import contextmanager
from typing import TYPE_CHECKING

import uvicorn

from onrecord.errors import InvalidInput
from onrecord.machine.receiving import Receiving, counted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from starlette.types import ASGIApp

BACKLOG = 2_048
"""How many clients may wait to be accepted."""
PORT_LIMIT = 65_535


class _Server(uvicorn.Server):
    """uvicorn without its signal handlers: ours stop it, and the process then exits with 0."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens on this address; port 0 picks a free one.

    It names TCP explicitly: only then does asyncio disable Nagle's algorithm, which would delay each answer by 40 ms.
    """
    if not 0 <= port <= PORT_LIMIT:
        raise InvalidInput(f"the port must be 0 to {PORT_LIMIT}, not {port}", hint="port 0 picks a free one")
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
            hint="another program may use the port; port 0 picks a free one",
            step="listen",
        ) from None
    return listener


def url_of(listener: socket.socket, host: str) -> str:
    """The address of a listening server, as a client writes it."""
    return f"http://{f'[{host}]' if ':' in host else host}:{listener.getsockname()[1]}"


def config_of(application: ASGIApp, *, keep_alive_seconds: int, grace_seconds: int) -> uvicorn.Config:
    """How a server for people and their tools treats its clients; after a signal they have so long to end."""
    return uvicorn.Config(
        application, http=counted(Receiving), log_level="warning", access_log=False, ws="none", lifespan="on",
        server_header=False, proxy_headers=False, timeout_keep_alive=keep_alive_seconds,
        timeout_graceful_shutdown=grace_seconds,
    )  # fmt: skip


async def serve_until_signal(
    config: uvicorn.Config,
    listener: socket.socket,
    ready: Callable[[], None],
    *,
    stop: Callable[[], None] = lambda: None,
    hurry: Callable[[], None] = lambda: None,
) -> None:
    """Serve until SIGTERM or Ctrl-C. Both call `stop`; a second Ctrl-C calls `hurry` as well.

    The event loop receives the signals before `ready` announces the address. A handler that raises an exception would
    be no substitute: Python drops the exception where it is raised inside a callback, and the server would not stop.
    """
    server = _Server(config)

    def stopping() -> None:
        server.should_exit = True
        stop()

    def interrupted() -> None:
        if server.should_exit:
            hurry()
        stopping()

    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, stopping)
    loop.add_signal_handler(signal.SIGINT, interrupted)
    ready()
    await server.serve([listener])
