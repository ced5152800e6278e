"""A small TCP proxy in front of a server: it forwards bytes until a test cuts the connection or drops answers.

It runs on a thread of the test and connects to the server's socket file, so that the server sees a local client.
"""

import asyncio
import contextlib
import random
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, Self
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from tests.postgres.servers import Server

WIRE = {"sslmode": "disable", "gssencmode": "disable"}
"""Protocols that the server's socket file does not support."""
_CHUNK = 1 << 16


class Proxy:
    """A proxy between clients and one server."""

    def __init__(self, server: Server, seed: int = 0) -> None:
        self.server = server
        self.port = 0
        self.lost = 0
        """How many connections were cut between a request and its answer."""
        self._chance = random.Random(seed)
        self._share = 0.0
        self._until_lost: int | None = None
        self._cut = False
        self._open: set[asyncio.StreamWriter] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._do(self._listen())
        return self

    def __exit__(self, *_problem: object) -> None:
        self.cut()
        self._do(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def instead_of(self, url: str) -> str:
        """The same store, through this proxy."""
        parts = urlsplit(url)
        options = {name: value for name, value in parse_qsl(parts.query) if name not in ("host", "port")}
        place = f"{parts.username}@127.0.0.1:{self.port}"
        return urlunsplit(parts._replace(netloc=place, query=urlencode(options | WIRE)))

    def cut(self) -> None:
        """End every connection and accept no new ones, until `heal`."""
        self._cut = True
        self._do(self._hang_up())

    def heal(self) -> None:
        self._cut = False

    def lose_answers(self, share: float) -> None:
        """From now on, with this probability, drop an answer of the server and end its connection."""
        self._share = share

    def lose_the(self, number: int) -> None:
        """Drop one answer after this many more, and end its connection."""
        self._until_lost = number

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        done: Future[None] = asyncio.run_coroutine_threadsafe(work, self._loop)
        done.result(30)

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _close(self) -> None:
        self._server.close()
        await self._hang_up()
        while serving := asyncio.all_tasks() - {asyncio.current_task()}:  # also a connection that was accepted just now
            await asyncio.wait(serving)
        await asyncio.sleep(0)  # the loop closes what was aborted in its next step

    async def _hang_up(self) -> None:
        for writer in self._open:
            writer.transport.abort()

    async def _serve(self, client_in: asyncio.StreamReader, client_out: asyncio.StreamWriter) -> None:
        self._open.add(client_out)
        try:
            await self._join(client_in, client_out)
        finally:
            client_out.transport.abort()
            self._open.discard(client_out)

    async def _join(self, client_in: asyncio.StreamReader, client_out: asyncio.StreamWriter) -> None:
        if self._cut:
            return
        place = f"{self.server.folder}/.s.PGSQL.{self.server.port}"
        try:
            server_in, server_out = await asyncio.open_unix_connection(place)
        except OSError:
            return
        ends = {client_out, server_out}
        self._open.add(server_out)
        try:
            if self._cut:  # while it was being opened
                return
            await asyncio.gather(
                self._pass_on(client_in, server_out, ends, lambda: False),
                self._pass_on(server_in, client_out, ends, self._is_lost),
            )
        finally:
            server_out.transport.abort()
            self._open.discard(server_out)

    def _is_lost(self) -> bool:
        lost = self._chance.random() < self._share
        if self._until_lost is not None:
            lost, self._until_lost = lost or self._until_lost == 0, self._until_lost - 1 if self._until_lost else None
        self.lost += lost
        return lost

    async def _pass_on(
        self,
        source: asyncio.StreamReader,
        sink: asyncio.StreamWriter,
        ends: set[asyncio.StreamWriter],
        lost: Callable[[], bool],
    ) -> None:
        with contextlib.suppress(OSError):
            while (data := await source.read(_CHUNK)) and not lost():
                sink.write(data)
                await sink.drain()
        for end in ends:
            end.transport.abort()
