"""The upstream: the engine behind the proxy. One request, one whole reply."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple
from zlib import crc32

import httpx

from onrecord.errors import BadReply, UpstreamFailed
from onrecord.rollout.engines import endpoint, load_json
from onrecord.rollout.server.settings import CONNECT_SECONDS, DOWN_SECONDS, IDLE_SECONDS, REPLY_LIMIT, Settings

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_PASSED_ON = ("content-type", "retry-after")
"""The headers of a refusal that the client gets."""


_HEADERS = {"content-type": "application/json"}


class Refusal(NamedTuple):
    """An engine's answer with a status other than 200: it goes to the client unchanged and is not recorded."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Upstream:
    """The engines, over HTTP. Each running turn has its own connection, which the next turn reuses.

    A single client for all turns would scan all its connections at every step of every request. A session stays with
    one engine, whose cache has its prefix; if that engine refuses connections, it moves to the next one.
    """

    def __init__(self, settings: Settings, clock: Callable[[], float] = monotonic) -> None:
        bases = [url.rstrip("/").removesuffix("/v1") for url in (settings.upstream, *settings.more_upstreams)]
        self._urls = [base + endpoint(settings.dialect) for base in bases]
        self._models = bases[0] + "/v1/models"
        self._down: dict[str, float] = {}
        self._clock = clock
        self._timeout = httpx.Timeout(settings.upstream_seconds, connect=CONNECT_SECONDS)
        self._trust = httpx.create_ssl_context(trust_env=False)
        self._free: list[httpx.AsyncClient] = []
        remember_what_is_missing("sniffio")

    def _client(self) -> httpx.AsyncClient:
        if self._free:
            return self._free.pop()
        # The engine is at the --upstream address, whatever proxies the environment names.
        limits = httpx.Limits(keepalive_expiry=IDLE_SECONDS)
        return httpx.AsyncClient(timeout=self._timeout, limits=limits, verify=self._trust, trust_env=False)

    def order(self, session: str) -> list[str]:
        """The engines for a session, its own first; the same in every proxy, and as little changed as possible."""
        ranked = sorted(self._urls, key=lambda url: crc32(f"{session} {url}".encode()))
        now = self._clock()
        return sorted(ranked, key=lambda url: self._down.get(url, 0.0) > now)

    async def ask(self, content: bytes, session: str = "") -> Any:
        """The engine's reply as JSON, or its refusal; `UpstreamFailed` without an answer, `BadReply` if it is not JSON.

        Nothing is sent twice: a silent engine may or may not have generated. One that refuses the connection has not.
        """
        urls = self.order(session) if len(self._urls) > 1 else self._urls
        for url in urls:
            try:
                return await self._asked(url, content)
            except httpx.ConnectError as problem:
                self._down[url] = self._clock() + DOWN_SECONDS
                if url == urls[-1]:
                    raise _silent(problem) from None
            except httpx.HTTPError as problem:
                raise _silent(problem) from None
        raise AssertionError  # there is at least one engine

    async def _asked(self, url: str, content: bytes) -> Any:
        client = self._client()
        try:
            async with client.stream("POST", url, content=content, headers=_HEADERS) as response:
                received = await _whole(response)
        finally:
            self._free.append(client)
        if response.status_code != httpx.codes.OK:
            return _refusal(response, received)
        try:
            return load_json(received)
        except ValueError:
            raise BadReply("the engine's reply is not JSON") from None

    async def models(self) -> Refusal:
        """The first engine's list of models, as it is."""
        client = self._client()
        try:
            async with client.stream("GET", self._models) as response:
                return _refusal(response, await _whole(response))
        except httpx.HTTPError as problem:
            raise _silent(problem) from None
        finally:
            self._free.append(client)

    async def close(self) -> None:
        """Close the connections."""
        for client in self._free:
            await client.aclose()


def _silent(problem: httpx.HTTPError) -> UpstreamFailed:
    return UpstreamFailed(f"the engine did not answer: {type(problem).__name__} {problem}".rstrip())


def _refusal(response: httpx.Response, received: bytes) -> Refusal:
    headers = {name: response.headers[name] for name in _PASSED_ON if name in response.headers}
    return Refusal(response.status_code, headers, received)


async def _whole(response: httpx.Response) -> bytes:
    received = bytearray()
    async for part in response.aiter_bytes():
        received += part
        if len(received) > REPLY_LIMIT:
            raise BadReply(f"the engine's reply is longer than {REPLY_LIMIT:,} bytes")
    return bytes(received)


def remember_what_is_missing(module: str) -> None:
    """Let Python remember that a module is not installed.

    The HTTP library tries to import this one at every step of every request, and searching every directory for a
    missing module costs more than the request.
    """
    if find_spec(module) is None:
        sys.modules.setdefault(module, None)  # type: ignore[arg-type]  # None is how Python marks a missing module
