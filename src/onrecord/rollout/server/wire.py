"""HTTP to an engine: connections that are reused, one request at a time on each, at little cost.

A general HTTP client costs more processor time than the rest of a turn. An engine needs little of it: a request with a
body, and an answer with a length, in chunks, or up to the end of the connection. Nothing is sent twice.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from base64 import b64encode
from contextlib import asynccontextmanager
from time import monotonic
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from typing import TypeVar

    T = TypeVar("T")

HEAD_LIMIT = 64 * 1024
"""The longest head of an answer, in bytes."""
PART = 256 * 1024
"""How much of an answer is read at once, in bytes."""
_NO_BODY = (204, 304)


class Silent(Exception):
    """No whole answer came. Whether the engine got the request is unknown."""


class Unreachable(Silent):
    """The engine did not accept a connection, so it got nothing."""


class TooLong(Exception):
    """The answer is longer than allowed."""


class Answer:
    """The head of an answer; its body is still to come."""

    def __init__(self, head: bytes) -> None:
        first, *lines = head.decode("latin-1").split("\r\n")
        version, _space, rest = first.partition(" ")
        if not version.startswith("HTTP/1.") or not rest[:3].isdigit():
            raise Silent(f"its answer is not HTTP: {first[:80]!r}")
        self.status = int(rest[:3])
        self.headers: dict[str, str] = {}
        for line in lines:
            name, _colon, value = line.partition(":")
            self.headers[name.strip().lower()] = value.strip()
        self.is_last = version == "HTTP/1.0" or self.headers.get("connection", "").lower() == "close"


class Connection:
    """One connection to an engine."""

    def __init__(self, streams: tuple[asyncio.StreamReader, asyncio.StreamWriter], seconds: float) -> None:
        self._reader, self._writer = streams
        self._seconds = seconds
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        """Looks whether an engine is silent for too long. One for many answers: a timer for each step would cost more
        than the step."""
        self.used = monotonic()
        """When the last part of an answer came."""
        self.is_free = True
        """Whether another request may be sent: the last answer was read to its end."""

    @property
    def is_open(self) -> bool:
        """Whether the engine has not closed it."""
        return not self._reader.at_eof() and not self._writer.is_closing()

    async def ask(self, request: bytes) -> Answer:
        """Send a request and read the head of its answer."""
        self.is_free, self.used = False, monotonic()
        if self._timer is None:
            self._timer = self._loop.call_later(self._seconds, self._look)
        self._writer.write(request)
        while True:
            head = await self._waited(self._reader.readuntil(b"\r\n\r\n"))
            answer = Answer(head[:-4])
            if answer.status >= 200:  # noqa: PLR2004  # before that, the answer is still to come
                return answer

    async def parts(self, answer: Answer) -> AsyncIterator[bytes]:
        """The body of an answer as it comes."""
        length = answer.headers.get("content-length", "")
        if answer.headers.get("transfer-encoding", "").lower() == "chunked":
            async for part in self._chunks():
                yield part
        elif length.isdigit() or answer.status in _NO_BODY:
            async for part in self._counted(int(length or 0)):
                yield part
        else:
            answer.is_last = True
            while part := await self._waited(self._reader.read(PART)):
                yield part
        self.is_free, self.used = not answer.is_last, monotonic()

    async def whole(self, answer: Answer, limit: int) -> bytes:
        """The body of an answer; `TooLong` if it has more bytes than that."""
        received, length = bytearray(), answer.headers.get("content-length", "")
        if not length.isdigit() or "transfer-encoding" in answer.headers:
            async for part in self.parts(answer):
                received += part
                if len(received) > limit:
                    raise TooLong
            return bytes(received)
        # Almost every answer: it is there at once, and generators would cost more than reading it.
        if int(length) > limit:
            raise TooLong
        while len(received) < int(length):
            received += await self._some(int(length) - len(received))
        self.is_free, self.used = not answer.is_last, monotonic()
        return bytes(received)

    async def _chunks(self) -> AsyncIterator[bytes]:
        while True:
            line = await self._waited(self._reader.readuntil(b"\r\n"))
            try:
                size = int(line.partition(b";")[0], 16)
            except ValueError:
                raise Silent("its answer has a malformed chunk") from None
            async for part in self._counted(size):
                yield part
            while await self._waited(self._reader.readuntil(b"\r\n")) != b"\r\n":
                pass  # trailers after the last chunk
            if not size:
                return

    async def _counted(self, left: int) -> AsyncIterator[bytes]:
        while left > 0:
            part = await self._some(left)
            left -= len(part)
            yield part

    async def _some(self, most: int) -> bytes:
        part = await self._waited(self._reader.read(min(most, PART)))
        if not part:
            raise Silent("it closed the connection in the middle of its answer")
        return part

    async def _waited(self, step: Awaitable[T]) -> T:
        try:
            found = await step
        except TimeoutError:
            raise Silent(f"it said nothing for {self._seconds:g} seconds") from None
        except asyncio.IncompleteReadError as problem:
            raise Silent("it closed the connection" + (" in its answer" if problem.partial else "")) from None
        except asyncio.LimitOverrunError:
            raise Silent("its answer has a head that is too long") from None
        except OSError as problem:
            raise Silent(str(problem) or type(problem).__name__) from None
        self.used = monotonic()
        return found

    def _look(self) -> None:
        """The time of an earlier step is up: wait for the rest of the present one, or end it."""
        self._timer = None
        left = self.used + self._seconds - monotonic()
        if self.is_free:
            return
        if left > 0:
            self._timer = self._loop.call_later(left, self._look)
        else:
            self._reader.set_exception(TimeoutError())

    def close(self) -> None:
        """Close it."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._writer.close()


class Wire:
    """The connections to one engine. A single one for all turns would have to wait for each."""

    def __init__(self, url: str, *, seconds: float, connect_seconds: float, idle_seconds: float) -> None:
        where = urlsplit(url)
        self._host, self._secure = where.hostname or "", where.scheme == "https"
        self._port = where.port or (443 if self._secure else 80)
        self._path = (where.path or "/") + (f"?{where.query}" if where.query else "")
        shown = f"[{self._host}]" if ":" in self._host else self._host
        self._where = f"{shown}:{self._port}"
        self._lines = f"host: {shown}{f':{where.port}' if where.port else ''}\r\naccept: */*\r\n"
        if where.username is not None:
            name = f"{unquote(where.username)}:{unquote(where.password or '')}"
            self._lines += f"authorization: Basic {b64encode(name.encode()).decode()}\r\n"
        self._seconds, self._connect_seconds, self._idle_seconds = seconds, connect_seconds, idle_seconds
        self._trust = ssl.create_default_context() if self._secure else None
        self._free: list[Connection] = []

    async def whole(self, method: str, content: bytes, limit: int) -> tuple[Answer, bytes]:
        """Send a request; returns the head of its answer and its body. `Silent` without an answer, `TooLong`."""
        connection = await self._connection()
        try:
            answer = await connection.ask(self._request(method, content))
            return answer, await connection.whole(answer, limit)
        finally:
            self._used(connection)

    def _request(self, method: str, content: bytes) -> bytes:
        body = f"content-type: application/json\r\ncontent-length: {len(content)}\r\n" if content else ""
        return f"{method} {self._path} HTTP/1.1\r\n{self._lines}{body}\r\n".encode() + content

    def _used(self, connection: Connection) -> None:
        if connection.is_free:
            self._free.append(connection)
        else:
            connection.close()

    @asynccontextmanager
    async def asked(
        self, method: str, content: bytes = b""
    ) -> AsyncIterator[tuple[Answer, Callable[[], AsyncIterator[bytes]]]]:
        """Send a request; yields the head of the answer, and what reads its body. `Silent` without an answer."""
        connection = await self._connection()
        try:
            answer = await connection.ask(self._request(method, content))
            yield answer, lambda: connection.parts(answer)
        finally:
            self._used(connection)

    async def _connection(self) -> Connection:
        while self._free:
            known = self._free.pop()
            if known.is_open and monotonic() - known.used < self._idle_seconds:
                return known
            known.close()
        try:
            async with asyncio.timeout(self._connect_seconds):
                streams = await asyncio.open_connection(self._host, self._port, ssl=self._trust, limit=HEAD_LIMIT)
        except TimeoutError:
            raise Unreachable(f"{self._where}: no connection within {self._connect_seconds:g} seconds") from None
        except OSError as problem:
            named = problem.errno is not None and not isinstance(problem, socket.gaierror)
            why = os.strerror(problem.errno or 0) if named else problem.strerror or problem
            raise Unreachable(f"{self._where}: {why}") from None
        return Connection(streams, self._seconds)

    def close(self) -> None:
        """Close the connections that are not in use."""
        for connection in self._free:
            connection.close()
        self._free.clear()
