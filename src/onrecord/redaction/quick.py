"""A quick look at a short text: whether it is so plain that the rules need not be loaded to know that it has no secret.

A hook is a process that records one short event; loading the rules would take longer than everything else it does.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

SHORT = 4_096
"""Up to how many bytes a text is looked at this way."""
LONGEST_PLAIN = 11
"""A word of more characters, not all lower-case letters, may be a secret."""
NAMES = (
    b"pass", b"pw", b"secret", b"token", b"key", b"credential", b"auth", b"://", b"cookie", b"bearer",
    b"-----", b"curl", b"--user", b"-u", b"mysql", b"mariadb", b"machine", b"identified by", b"session=",
    b"sid=", b"discord", b"private", b"flyv1", b"docker", b"redis-cli",
)  # fmt: skip
"""Parts of all names and surroundings that announce a secret, in lower case."""
_SPACE = ord(" ")
_APART = bytes(_SPACE if one in b'{}[]",:()' or one < _SPACE else one for one in range(256))
_DIGITS = b"0123456789"


def is_plain(data: bytes, known: Iterable[str]) -> bool:
    """Whether it certainly has no secret; `known` are exact values."""
    if len(data) > SHORT:
        return False
    lowered = data.lower()
    if any(name in lowered for name in NAMES):
        return False
    for word in data.translate(_APART).split():
        if len(word) > LONGEST_PLAIN and (word != word.lower() or len(word.translate(None, _DIGITS)) < len(word)):
            return False
    return not any(value.encode() in data or not value.isascii() or '"' in value or "\\" in value for value in known)
