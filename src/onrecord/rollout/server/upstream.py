"""The engine behind the proxy: one request, one whole reply."""

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
"""The headers of a refusal that a client gets to see."""


_HEADERS = {"content-type": "application/json"}


class Refusal(NamedTuple):
    """An answer of the engine that is no reply: it goes to the client as it is, and nothing is recorded."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Upstream:
    """One engine, over HTTP. Each turn under way has a connection of its own, and the next turn takes it over.

    One client for all would look through all its connections at every step of every request.
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
        # An engine is where --upstream says, whatever proxies the environment names.
        limits = httpx.Limits(keepalive_expiry=IDLE_SECONDS)
        return httpx.AsyncClient(timeout=self._timeout, limits=limits, verify=self._trust, trust_env=False)

    async def ask(self, content: bytes) -> Any:
        """The engine's reply as JSON, or its refusal; `UpstreamFailed` when there is none, `BadReply` when it is none.

        Nothing is sent twice: whether an engine that went silent has generated is its secret.
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
        """Let go of the connections."""
        for client in self._free:
            await client.aclose()


async def _whole(response: httpx.Response) -> bytes:
    received = bytearray()
    async for part in response.aiter_bytes():
        received += part
        if len(received) > REPLY_LIMIT:
            raise BadReply(f"the engine's reply is over {REPLY_LIMIT:,} bytes")
    return bytes(received)


def remember_what_is_missing(module: str) -> None:
    """Have Python know that a module is not installed.

    The HTTP library looks for this one at every step of every request, and looking through every directory for what is
    not there costs it more than the request.
    """
    if find_spec(module) is None:
        sys.modules.setdefault(module, None)  # type: ignore[arg-type]  # None is how Python notes that there is none
