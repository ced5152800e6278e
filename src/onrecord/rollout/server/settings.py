"""How a recording proxy is set up, and every limit it keeps."""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import urlsplit

from onrecord.errors import InvalidInput
from onrecord.log.store import LEASE_SECONDS
from onrecord.rollout.engines import DIALECTS, SGLANG

RETRY, CONTINUE, PASS, UNAVAILABLE = "retry", "continue", "pass", "503"
ABORT_POLICIES = (RETRY, CONTINUE, PASS, UNAVAILABLE)
"""What becomes of an aborted turn: asked again, gone on with, handed to the client, or answered with 503."""
LOOPBACK = ("127.0.0.1", "localhost", "::1")
DEFAULT_PORT = 8700
PORT_LIMIT = 65_535
BODY_LIMIT = 32 * 1024 * 1024
"""The largest body of a request, in bytes."""
REPLY_LIMIT = 64 * 1024 * 1024
"""The largest reply of an engine, in bytes."""
TURNS_LIMIT = 1_024
"""How many turns one proxy has under way at most; one more is told to come back."""
MEMORY_SESSIONS = 1_024
"""How many sessions stay in memory; the one used longest ago leaves first, and comes back from its log."""
STEPS_AT_ONCE = 16
"""How many steps are put on record at once. They share a commit; more of them would only keep `/health` waiting."""
RETRIES = 8
"""How often an aborted turn is asked again before the abort stands."""
RETRY_PAUSE_SECONDS = 0.05
"""How long the first retry waits; each further one waits twice as long, up to `RETRY_PAUSE_LIMIT_SECONDS`."""
RETRY_PAUSE_LIMIT_SECONDS = 5.0
RETRY_AFTER_SECONDS = 1
"""What a client that is told to come back is told to wait."""
UPSTREAM_SECONDS = 600.0
"""How long a generation may take."""
CONNECT_SECONDS = 10.0
"""How long an engine may take to accept a connection."""
IDLE_SECONDS = 2.0
"""How long an idle connection to an engine may be used again: engines close theirs after 5 s, even under a request."""
RENEWALS_PER_LEASE = 3
"""How often within the time of its lease a lane is renewed while its engine generates."""
DRAIN_SECONDS = 30
"""How long a proxy that is asked to stop waits for turns under way."""


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
    """Further names a client may call this proxy by."""
    body_limit: int = BODY_LIMIT
    turns_limit: int = TURNS_LIMIT
    memory_sessions: int = MEMORY_SESSIONS
    retry_pause: float = RETRY_PAUSE_SECONDS
    upstream_seconds: float = UPSTREAM_SECONDS
    drain_seconds: int = DRAIN_SECONDS
    lease_seconds: float = LEASE_SECONDS

    @property
    def is_local(self) -> bool:
        """Whether only this machine can reach it."""
        return self.host in LOOPBACK

    def checked(self) -> Settings:
        """These settings if they go together."""
        if not _is_url(self.upstream):
            raise InvalidInput(
                f"{self.upstream!r} is not the URL of an engine", hint="use a URL like http://127.0.0.1:30000"
            )
        if self.dialect not in DIALECTS:
            raise InvalidInput(f"unknown dialect {self.dialect!r}", hint=f"use {' or '.join(DIALECTS)}")
        if self.abort_policy not in ABORT_POLICIES:
            raise InvalidInput(
                f"unknown abort policy {self.abort_policy!r}", hint=f"use one of {', '.join(ABORT_POLICIES)}"
            )
        if not self.is_local and not self.token:
            raise InvalidInput(
                f"anyone who can reach {self.host} could read and write rollouts",
                hint="a proxy that listens there needs a token",
                step="need_token",
            )
        if not 0 <= self.port <= PORT_LIMIT:
            raise InvalidInput(f"the port must be 0 to {PORT_LIMIT}, not {self.port}", hint="port 0 takes a free one")
        for name, least in (("retries", 0), ("body_limit", 1), ("turns_limit", 1), ("memory_sessions", 1)):
            if getattr(self, name) < least:
                raise InvalidInput(f"{name} must be at least {least}, not {getattr(self, name)}")
        for name, seconds in (("timeout", self.upstream_seconds), ("lease-seconds", self.lease_seconds)):
            if not seconds > 0:
                raise InvalidInput(f"--{name} must be a number of seconds above 0, not {seconds:g}")
        return self


def _is_url(text: str) -> bool:
    try:
        url = urlsplit(text)
        return url.scheme in ("http", "https") and bool(url.hostname) and (url.port is None or url.port > 0)
    except ValueError:
        return False
