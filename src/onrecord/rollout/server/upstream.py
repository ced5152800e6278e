"""The upstream: the engine behind the proxy. One request; one whole reply, or chunks as they come."""

from __future__ import annotations

import asyncio
from contextlib import aclosing, suppress
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple
from zlib import crc32

from onrecord.errors import BadReply, UpstreamFailed
from onrecord.rollout.engines import endpoint
from onrecord.rollout.server.engine_json import load
from onrecord.rollout.server.settings import CONNECT_SECONDS, DOWN_SECONDS, IDLE_SECONDS, REPLY_LIMIT, Settings
from onrecord.rollout.server.wire import Silent, TooLong, Unreachable, Wire

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping

    from onrecord.rollout.server.wire import Answer

OK = 200
DONE_SECONDS = 0.05
"""How long the end of an answer may take after its last event; without it, the connection is closed."""
_PASSED_ON = ("content-type", "retry-after")
"""The headers of a refusal that the client gets."""


class Refusal(NamedTuple):
    """An engine's answer with a status other than 200: it goes to the client unchanged and is not recorded."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Whole(NamedTuple):
    """The reply of an engine that was asked for a stream and answered with one body."""

    body: Any


class Upstream:
    """The engines, over HTTP.

    A session stays with one engine, whose cache has its prefix, and so do its branches; if that engine refuses
    connections, it moves to the next one.
    """

    def __init__(self, settings: Settings, clock: Callable[[], float] = monotonic) -> None:
        bases = [url.rstrip("/").removesuffix("/v1") for url in (settings.upstream, *settings.more_upstreams)]
        self._urls = [base + endpoint(settings.dialect) for base in bases]
        self._down: dict[str, float] = {}
        self._clock = clock
        self._seconds = settings.upstream_seconds
        # The engine is at the --upstream address, whatever proxies the environment names.
        self._wires = {url: self._wire(url) for url in self._urls}
        self._models = {url: self._wire(base + "/v1/models") for url, base in zip(self._urls, bases, strict=True)}

    def _wire(self, url: str) -> Wire:
        return Wire(url, seconds=self._seconds, connect_seconds=CONNECT_SECONDS, idle_seconds=IDLE_SECONDS)

    def order(self, session: str) -> list[str]:
        """The engines for a session, its own first; the same in every proxy, and as little changed as possible."""
        return self._working_first(sorted(self._urls, key=lambda url: crc32(f"{session} {url}".encode())))

    def _working_first(self, urls: list[str]) -> list[str]:
        now = self._clock()
        return sorted(urls, key=lambda url: self._down.get(url, 0.0) > now)

    async def ask(self, content: bytes, session: str = "") -> Any:
        """The engine's reply as JSON, or its refusal; `UpstreamFailed` without an answer, `BadReply` if it is not JSON.

        Nothing is sent twice: a silent engine may or may not have generated. One that refuses the connection has not.
        """
        urls = self.order(session) if len(self._urls) > 1 else self._urls
        for url in urls:
            try:
                answer, received = await self._wires[url].whole("POST", content, REPLY_LIMIT)
                return _parsed(received) if answer.status == OK else _refusal(answer, received)
            except TooLong:
                raise _too_long() from None
            except Silent as problem:
                self._unanswered(url, problem, last=url == urls[-1])
        raise AssertionError  # there is at least one engine

    def _unanswered(self, url: str, problem: Silent, *, last: bool) -> None:
        """An engine gave no answer: raise that, unless it got nothing and there is another one."""
        if not isinstance(problem, Unreachable):
            raise UpstreamFailed(f"the engine did not answer: {problem}") from None
        self._down[url] = self._clock() + DOWN_SECONDS
        if last:
            raise UpstreamFailed(f"the engine accepts no connection at {problem}") from None

    async def chunks(self, content: bytes, session: str = "") -> AsyncGenerator[Any, None]:
        """The chunks of the engine's reply as they come; a `Refusal` or a `Whole` reply instead of them.

        Errors are those of `ask`; one that comes after the first chunk is `UpstreamFailed` too.
        """
        async with aclosing(self._answers(content, session)) as answers:
            async for answer, parts in answers:
                try:
                    if answer.status != OK:
                        yield _refusal(answer, await _whole(parts))
                    elif not answer.headers.get("content-type", "").startswith("text/event-stream"):
                        yield Whole(_parsed(await _whole(parts)))
                    else:
                        async for chunk in _events(parts):
                            yield chunk
                except Silent as problem:
                    raise UpstreamFailed(f"the engine failed during the reply: {problem}") from None

    async def _answers(self, content: bytes, session: str) -> AsyncGenerator[tuple[Answer, AsyncIterator[bytes]], None]:
        """The answer of the first engine that accepts a connection."""
        urls = self.order(session) if len(self._urls) > 1 else self._urls
        for url in urls:
            try:
                async with self._wires[url].asked("POST", content) as (answer, parts):
                    yield answer, parts()
                return
            except Silent as problem:
                self._unanswered(url, problem, last=url == urls[-1])

    async def models(self) -> Refusal:
        """The list of models of the first engine that has one, as it is; else what the last engine answered."""
        answered: Refusal | None = None
        silent: Silent | None = None
        for url in self._working_first(self._urls):
            try:
                answered = _refusal(*await self._models[url].whole("GET", b"", REPLY_LIMIT))
            except TooLong:
                raise _too_long() from None
            except Silent as problem:
                silent = problem
                continue
            if answered.status == OK:
                break
        if answered is None:
            raise UpstreamFailed(f"the engine did not answer: {silent}")
        return answered

    async def close(self) -> None:
        """Close the connections."""
        for wire in (*self._models.values(), *self._wires.values()):
            wire.close()


def _refusal(answer: Answer, received: bytes) -> Refusal:
    headers = {name: answer.headers[name] for name in _PASSED_ON if name in answer.headers}
    return Refusal(answer.status, headers, received)


def _too_long() -> BadReply:
    return BadReply(f"the engine's reply is longer than {REPLY_LIMIT:,} bytes")


async def _whole(parts: AsyncIterator[bytes]) -> bytes:
    received = bytearray()
    async for part in parts:
        received += part
        if len(received) > REPLY_LIMIT:
            raise _too_long()
    return bytes(received)


async def _events(parts: AsyncIterator[bytes]) -> AsyncIterator[Any]:
    """The events of an answer, each parsed, up to `[DONE]` or the end."""
    received, left = 0, b""
    async for part in parts:
        received += len(part)
        if received > REPLY_LIMIT:
            raise _too_long()
        *lines, left = (left + part).split(b"\n")
        for line in lines:
            said = line.removeprefix(b"data:").strip()
            if line.startswith(b"data:") and said == b"[DONE]":
                await _rest(parts)
                return
            if line.startswith(b"data:") and said:
                yield _parsed(said)
    said = left.removeprefix(b"data:").strip()
    if left.startswith(b"data:") and said != b"[DONE]":
        with suppress(BadReply):  # the connection ended inside an event: the reply is not whole
            yield _parsed(said)


async def _rest(parts: AsyncIterator[bytes]) -> None:
    """Read an answer to its end, so that its connection can be used again; whatever comes, the reply is whole."""
    with suppress(Silent, TimeoutError):
        async with asyncio.timeout(DONE_SECONDS):
            async for _part in parts:
                pass


def _parsed(received: bytes) -> Any:
    try:
        return load(received)
    except ValueError:
        raise BadReply("the engine's reply is not JSON") from None
