"""Tokens that a person chose: in a file that only its owner can read, never on a command line, where everyone can."""

from __future__ import annotations

import stat
from pathlib import Path

from onrecord.errors import InvalidInput
from onrecord.shell.splitting import quote

TOKEN_CHARACTERS = 16
"""The shortest token that clients of a server may have to send."""
_OTHERS = 0o077


def read_token(place: str | Path) -> str:
    """The token in a file."""
    path = Path(place).expanduser()
    try:
        mode = path.stat().st_mode
        if not stat.S_ISREG(mode):
            raise InvalidInput(f"the token file {path} is not a regular file")
        if mode & _OTHERS:
            closing = f"`chmod 600 {quote(str(path))}`"
            raise InvalidInput(f"other users may read the token file {path}", hint=closing)
        token = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as problem:
        raise InvalidInput(f"the token file cannot be read: {problem}") from None
    if not token:
        raise InvalidInput(f"the token file {path} is empty", hint="write one line into it: the token")
    return checked_token(token, str(path))


def checked_token(token: str, where: str) -> str:
    """The token, if a client can send it in a header and it is too long to guess."""
    hint = "`openssl rand -hex 32` prints a good one"
    if len(token) < TOKEN_CHARACTERS:
        wrong = f"has {len(token)} characters; it needs at least {TOKEN_CHARACTERS}"
        raise InvalidInput(f"the token in {where} {wrong}", hint=hint)
    if not token.isascii() or not token.isprintable() or " " in token:
        raise InvalidInput(f"the token in {where} must be printable ASCII characters without spaces", hint=hint)
    return token
