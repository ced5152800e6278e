"""The engine behind the proxy: one request, one whole reply."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import httpx

from onrecord.errors import BadReply, UpstreamFailed
from onrecord.rollout.engines import endpoint, load_json
from onrecord.rollout.server.settings import CONNECT_SECONDS, REPLY_LIMIT, Settings

if TYPE_CHECKING:
    from collections.abc import Mapping

_PASSED_ON = ("content-type", "retry-after")
"""The headers of a refusal that a client gets to see."""


class Refusal(NamedTuple):
    """An answer of the engine that is no reply: it goes to the client as it is, and nothing is recorded."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Upstream:
    """One engine, over HTTP."""

    def __init__(self, settings: Settings) -> None:
        self._url = settings.upstream.rstrip("/").removesuffix("/v1") + endpoint(settings.dialect)
        self._client = httpx.AsyncClient(
            limits=httpx.Limits(max_connections=settings.turns_limit, max_keepalive_connections=settings.turns_limit),
            timeout=httpx.Timeout(settings.upstream_seconds, connect=CONNECT_SECONDS),
            trust_env=False,  # an engine is where --upstream says, whatever proxies the environment names
        )

    async def ask(self, content: bytes) -> Any:
        """The engine's reply as JSON, or its refusal; `UpstreamFailed` when there is none, `BadReply` when it is none.

        Nothing is sent twice: whether an engine that went silent has generated is its secret.
        """
        try:
            async with self._client.stream(
                "POST", self._url, content=content, headers={"content-type": "application/json"}
            ) as response:
                received = await _whole(response)
        except httpx.HTTPError as problem:
            raise UpstreamFailed(f"the engine did not answer: {type(problem).__name__} {problem}".rstrip()) from None
        if response.status_code != httpx.codes.OK:
            headers = {name: response.headers[name] for name in _PASSED_ON if name in response.headers}
            return Refusal(response.status_code, headers, received)
        try:
            return load_json(received)
        except ValueError:
            raise BadReply("the engine's reply is no JSON") from None

    async def close(self) -> None:
        """Let go of the connections."""
        await self._client.aclose()


async def _whole(response: httpx.Response) -> bytes:
    received = bytearray()
    async for part in response.aiter_bytes():
        received += part
        if len(received) > REPLY_LIMIT:
            raise BadReply(f"the engine's reply is over {REPLY_LIMIT:,} bytes")
    return bytes(received)
