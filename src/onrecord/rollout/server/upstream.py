"""The upstream: the engine behind the proxy. One request, one whole reply."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NamedTuple

import httpx

from onrecord.errors import BadReply, UpstreamFailed
from onrecord.rollout.engines import endpoint, load_json
from onrecord.rollout.server.settings import CONNECT_SECONDS, IDLE_SECONDS, REPLY_LIMIT, Settings

if TYPE_CHECKING:
    from collections.abc import Mapping

_PASSED_ON = ("content-type", "retry-after")
"""The headers of a refusal that the client gets."""


_HEADERS = {"content-type": "application/json"}


class Refusal(NamedTuple):
    """An engine's answer with a status other than 200: it goes to the client unchanged and is not recorded."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Upstream:
    """One engine, over HTTP. Each running turn has its own connection, which the next turn reuses.

    A single client for all turns would scan all its connections at every step of every request.
    """

    def __init__(self, settings: Settings) -> None:
        self._url = settings.upstream.rstrip("/").removesuffix("/v1") + endpoint(settings.dialect)
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

    async def ask(self, content: bytes) -> Any:
        """The engine's reply as JSON, or its refusal; `UpstreamFailed` without an answer, `BadReply` if it is not JSON.

        Nothing is sent twice: a silent engine may or may not have generated.
        """
        client = self._client()
        try:
            async with client.stream("POST", self._url, content=content, headers=_HEADERS) as response:
                received = await _whole(response)
        except httpx.HTTPError as problem:
            raise UpstreamFailed(f"the engine did not answer: {type(problem).__name__} {problem}".rstrip()) from None
        finally:
            self._free.append(client)
        if response.status_code != httpx.codes.OK:
            headers = {name: response.headers[name] for name in _PASSED_ON if name in response.headers}
            return Refusal(response.status_code, headers, received)
        try:
            return load_json(received)
        except ValueError:
            raise BadReply("the engine's reply is not JSON") from None

    async def close(self) -> None:
        """Close the connections."""
        for client in self._free:
            await client.aclose()


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
