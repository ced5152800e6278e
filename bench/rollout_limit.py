"""The least that a recording proxy costs: an empty one, on the same server, threads, engine client and disk.

It checks nothing and knows no sessions. For a turn it does what no recording proxy can leave out: read a request, make
it durable (one row, one commit) before the engine is asked, ask the engine, make the answer durable, send it.

    python -m bench.rollout_limit --upstream http://127.0.0.1:30000 --store limit.db
"""

from __future__ import annotations

import argparse
import asyncio
import json
import socket
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import apsw
import uvloop

from onrecord.aio import settled
from onrecord.machine.http_server import listen, serve_until_signal, url_of
from onrecord.rollout.server.serving import config_of
from onrecord.rollout.server.settings import CONNECT_SECONDS, DRAIN_SECONDS, IDLE_SECONDS, REPLY_LIMIT, UPSTREAM_SECONDS
from onrecord.rollout.server.wire import Wire

if TYPE_CHECKING:
    from starlette.types import Message, Receive, Scope, Send

HOST = "127.0.0.1"
HEADERS = [(b"content-type", b"application/json")]


class Empty:
    """An ASGI application between clients and an engine that records bytes, and nothing else."""

    def __init__(self, upstream: str, store: str) -> None:
        url = f"http://{urlsplit(upstream).netloc}/v1/completions"
        self._wire = Wire(url, seconds=UPSTREAM_SECONDS, connect_seconds=CONNECT_SECONDS, idle_seconds=IDLE_SECONDS)
        self._lock = asyncio.Lock()
        self._connection = apsw.Connection(store)
        for pragma in ("journal_mode = WAL", "synchronous = FULL"):
            self._connection.execute(f"PRAGMA {pragma}")
        self._connection.execute("CREATE TABLE steps (number INTEGER PRIMARY KEY, body BLOB NOT NULL)")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or take part in the server's start and end."""
        if scope["type"] == "lifespan":
            while (await receive())["type"] == "lifespan.startup":
                await send({"type": "lifespan.startup.complete"})
            await send({"type": "lifespan.shutdown.complete"})
            return
        body = b""
        while True:
            part: Message = await receive()
            body += part.get("body", b"")
            if not part.get("more_body"):
                break
        answer = await self._turn(body)
        length = (b"content-length", str(len(answer)).encode())
        await send({"type": "http.response.start", "status": 200, "headers": [*HEADERS, length]})
        await send({"type": "http.response.body", "body": answer})

    async def _turn(self, asked: bytes) -> bytes:
        json.loads(asked)
        await self._recorded(asked)
        _head, answer = await self._wire.whole("POST", asked, REPLY_LIMIT)
        json.loads(answer)
        await self._recorded(answer)
        return answer

    async def _recorded(self, body: bytes) -> None:
        async with self._lock:
            await settled(partial(self._commit, body))

    def _commit(self, body: bytes) -> None:
        with self._connection:
            self._connection.execute("INSERT INTO steps (body) VALUES (?)", (body,))


def _announce(listener: socket.socket) -> None:
    print(f"empty proxy on {url_of(listener, HOST)}", flush=True)


def main() -> None:
    """Serve until it is stopped."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--upstream", required=True)
    parser.add_argument("--store", required=True)
    chosen = parser.parse_args()
    with listen(HOST, 0) as listener, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:

        async def serve() -> None:
            config = config_of(Empty(chosen.upstream, chosen.store), DRAIN_SECONDS)
            await serve_until_signal(
                config, listener, lambda: _announce(listener), stop=lambda: None, hurry=lambda: None
            )

        runner.run(serve())


if __name__ == "__main__":
    main()
