"""The settings of the live page, and its limits."""

from __future__ import annotations

import re
from typing import NamedTuple

from onrecord.errors import InvalidInput

LOOPBACK = ("127.0.0.1", "localhost", "::1")
EVERYWHERE = ("0.0.0.0", "::")  # noqa: S104  # refused as Host names, and only served with a token file
DEFAULT_PORT = 8711
TOKEN_BYTES = 24
"""How many random bytes a token has that no person chose."""
TOKEN_LEAST = 16
"""The fewest characters of a token that a person chose."""
BODY_LIMIT = 64 * 1024
"""The largest body of a request, in bytes: one form."""
_HEADER = re.compile(r"[A-Za-z][A-Za-z0-9-]{0,63}")
_TAKEN = ("authorization", "cookie", "host", "origin", "forwarded", "referer", "accept", "user-agent", "connection",
          "content-length", "content-type", "x-onrecord")  # fmt: skip
"""Headers that browsers send or that mean something else."""
_PREFIX = re.compile(r"(/[A-Za-z0-9._~-]+)+")


class Settings(NamedTuple):
    """How one server behaves."""

    token: str
    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    hosts: tuple[str, ...] = ()
    """Further names under which browsers reach this server, for instance that of a reverse proxy."""
    prefix: str = ""
    """The path below which a reverse proxy serves the page."""
    allow_writes: bool = False
    person: str = "human"
    """The name that events get which are caused on the page."""
    chosen_token: bool = False
    """Whether a person chose the token, in a file; if not, this process made it up."""
    tenant_header: str = ""
    """The header in which a trusted proxy names the tenant of each request; without it, the store has one."""

    @property
    def is_local(self) -> bool:
        """Whether only this machine can reach the server."""
        return self.host in LOOPBACK

    def checked(self) -> Settings:
        """These settings, or an error if they are invalid."""
        if not self.is_local and not self.chosen_token:
            raise InvalidInput(
                f"{self.host} can be reached from other machines: everyone with the token could read every session",
                hint="choose the token yourself, and put a reverse proxy with TLS in front of it",
                step="web_token_file",
            )
        if self.tenant_header:
            self._check_tenants()
        if len(self.token) < TOKEN_LEAST:
            raise InvalidInput(
                f"the token must have at least {TOKEN_LEAST} characters", hint="for example: openssl rand -hex 24"
            )
        if not self.token.isascii() or not self.token.isprintable() or " " in self.token:
            raise InvalidInput(
                "the token must be one word of ASCII characters", hint="for example: openssl rand -hex 24"
            )
        if self.prefix and not _PREFIX.fullmatch(self.prefix):
            raise InvalidInput(f"{self.prefix!r:.80} is not a path prefix", hint="for example: /onrecord")
        return self

    def _check_tenants(self) -> None:
        if not _HEADER.fullmatch(self.tenant_header) or self.tenant_header.lower() in _TAKEN:
            raise InvalidInput(
                f"{self.tenant_header!r:.80} cannot be the header that names the tenant", hint="for example: X-Tenant"
            )
        if not self.chosen_token:
            raise InvalidInput(
                "any client could name any tenant: the proxy must prove itself with a token",
                hint="choose a token that only the proxy knows; it sends it as Authorization: Bearer",
                step="web_token_file",
            )
        if self.allow_writes:
            raise InvalidInput(
                "a page of many tenants can only read: what its users do would be recorded under your name",
                hint="start one server per tenant for people who act",
            )
