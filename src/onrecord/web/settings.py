"""The settings of the live page, and its limits."""

from __future__ import annotations

import re
from typing import NamedTuple

from onrecord.errors import InvalidInput

LOOPBACK = ("127.0.0.1", "localhost", "::1")
EVERYWHERE = ("0.0.0.0", "::")  # noqa: S104  # refused as Host names, and only served with a token file
DEFAULT_PORT = 8711
PORT_LIMIT = 65_535
TOKEN_BYTES = 24
"""How many random bytes a token has that no person chose."""
TOKEN_LEAST = 16
"""The fewest characters of a token that a person chose."""
BODY_LIMIT = 64 * 1024
"""The largest body of a request, in bytes: one form."""
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
        if len(self.token) < TOKEN_LEAST:
            raise InvalidInput(
                f"the token must have at least {TOKEN_LEAST} characters", hint="for example: openssl rand -hex 24"
            )
        if not self.token.isascii() or not self.token.isprintable() or " " in self.token:
            raise InvalidInput(
                "the token must be one word of ASCII characters", hint="for example: openssl rand -hex 24"
            )
        if not 0 <= self.port <= PORT_LIMIT:
            raise InvalidInput(f"the port must be 0 to {PORT_LIMIT}, not {self.port}", hint="port 0 picks a free one")
        if self.prefix and not _PREFIX.fullmatch(self.prefix):
            raise InvalidInput(f"{self.prefix!r:.80} is not a path prefix", hint="for example: /onrecord")
        return self
