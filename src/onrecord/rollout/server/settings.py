"""The settings of a recording proxy, and all its limits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from onrecord.errors import InvalidInput
from onrecord.log.store import LEASE_SECONDS
from onrecord.rollout.engines import DIALECTS, SGLANG

if TYPE_CHECKING:
    from collections.abc import Callable

RETRY, CONTINUE, PASS, UNAVAILABLE = "retry", "continue", "pass", "503"
ABORT_POLICIES = (RETRY, CONTINUE, PASS, UNAVAILABLE)
"""What happens to an aborted turn: retry it, continue it, pass the abort to the client, or answer 503."""
LOOPBACK = ("127.0.0.1", "localhost", "::1")
DEFAULT_PORT = 8700
BODY_LIMIT = 32 * 1024 * 1024
"""The largest body of a request, in bytes."""
REPLY_LIMIT = 64 * 1024 * 1024
"""The largest reply of an engine, in bytes."""
TURNS_LIMIT = 1_024
"""How many turns one proxy runs at once; further requests get 503 with Retry-After."""
MEMORY_SESSIONS = 1_024
"""How many sessions stay in memory; the least recently used one is evicted first and reloaded from its log."""
STEPS_AT_ONCE = 16
"""How many steps are recorded at once. They share a commit; more would only delay `/health`."""
PARTIALS_AT_ONCE = 4
"""How many of them may be the ids of streams that are still running."""
RETRIES = 8
"""How often an aborted turn is retried before the client gets the abort."""
RETRY_PAUSE_SECONDS = 0.05
"""The pause before the first retry; each further pause is twice as long, up to `RETRY_PAUSE_LIMIT_SECONDS`."""
RETRY_PAUSE_LIMIT_SECONDS = 5.0
RETRY_AFTER_SECONDS = 1
"""The Retry-After of a 503."""
UPSTREAM_SECONDS = 600.0
"""How long a generation may take."""
CONNECT_SECONDS = 10.0
"""How long an engine may take to accept a connection."""
DOWN_SECONDS = 5.0
"""How long an engine that refuses connections is left out, if there are others."""
IDLE_SECONDS = 2.0
"""How long an idle connection to an engine may be reused: engines close theirs after 5 s, even during a request."""
RENEWALS_PER_LEASE = 3
"""How often a lease is renewed within its duration while the engine generates."""
DRAIN_SECONDS = 30
"""How long a stopping proxy waits for running turns."""


class Settings(NamedTuple):
    """How one proxy behaves."""

    upstream: str
    dialect: str = SGLANG
    abort_policy: str = RETRY
    retries: int = RETRIES
    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    token: str | None = None
    hosts: tuple[str, ...] = ()
    """Further host names under which clients may reach this proxy."""
    body_limit: int = BODY_LIMIT
    turns_limit: int = TURNS_LIMIT
    memory_sessions: int = MEMORY_SESSIONS
    retry_pause: float = RETRY_PAUSE_SECONDS
    upstream_seconds: float = UPSTREAM_SECONDS
    drain_seconds: int = DRAIN_SECONDS
    lease_seconds: float = LEASE_SECONDS
    more_upstreams: tuple[str, ...] = ()
    """Further engines with the same weights; each session stays with one of them."""
    branches: bool = False
    """Whether a request that does not continue its session starts a branch of it."""
    whole_streams: bool = False
    """Whether a client that asks for a stream gets its chunks only after the commit."""
    parse: Callable[[dict[str, Any]], dict[str, Any]] | None = None
    """Finds the tool calls in the text of a reply; None: those between `<tool_call>` marks."""

    @property
    def is_local(self) -> bool:
        """Whether only this machine can reach the proxy."""
        return self.host in LOOPBACK

    def checked(self) -> Settings:
        """These settings, or an error if they are invalid."""
        for url in (self.upstream, *self.more_upstreams):
            if not _is_url(url):
                raise InvalidInput(f"{url!r} is not an engine's URL", hint="--upstream http://127.0.0.1:30000")
        if self.dialect not in DIALECTS:
            raise InvalidInput(f"unknown dialect {self.dialect!r}", hint=f"use one of {', '.join(DIALECTS)}")
        if self.abort_policy not in ABORT_POLICIES:
            raise InvalidInput(
                f"unknown abort policy {self.abort_policy!r}", hint=f"use one of {', '.join(ABORT_POLICIES)}"
            )
        if not self.is_local and not self.token:
            raise InvalidInput(
                f"without a token, anyone who can reach {self.host} could read and write rollouts",
                hint="set a token, or listen on 127.0.0.1",
                step="need_token",
            )
        for name, least in (("retries", 0), ("body_limit", 1), ("turns_limit", 1), ("memory_sessions", 1)):
            if getattr(self, name) < least:
                raise InvalidInput(f"{name} must be at least {least}, not {getattr(self, name)}")
        for name, seconds in (("timeout", self.upstream_seconds), ("lease-seconds", self.lease_seconds)):
            if not seconds > 0:
                raise InvalidInput(f"--{name} must be more than 0 seconds, not {seconds:g}")
        return self


def _is_url(text: str) -> bool:
    try:
        url = urlsplit(text)
        return url.scheme in ("http", "https") and bool(url.hostname) and (url.port is None or url.port > 0)
    except ValueError:
        return False
