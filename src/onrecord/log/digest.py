"""SHA-256: the interpreter's own for the first megabyte, OpenSSL's from then on.

Loading OpenSSL takes as long as hashing a megabyte without it, and a hook is a process that records one event. Use it
as `digest.sha256(...)`: the name in this module changes.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Protocol

    class Hash(Protocol):
        """What became of some bytes."""

        def digest(self) -> bytes:
            """As bytes."""

        def hexdigest(self) -> str:
            """As text."""


OWN_BYTES = 1024 * 1024
"""How many bytes a process hashes before it loads OpenSSL."""
_left = OWN_BYTES


def _built_in() -> Callable[[bytes], Hash]:
    """The interpreter's own; under another name in each version."""
    for name in ("_sha2", "_sha256"):
        try:
            found: Callable[[bytes], Hash] = __import__(name).sha256
        except (ImportError, AttributeError):
            continue
        return found
    from hashlib import sha256 as openssl

    return openssl


_OWN = _built_in()


def _counted(data: bytes) -> Hash:
    global sha256, _left  # noqa: PLW0603 - it replaces itself
    _left -= len(data)
    if _left < 0:
        from hashlib import sha256 as openssl

        sha256 = openssl
        return openssl(data)
    return _OWN(data)


sha256: Callable[[bytes], Hash] = _counted
"""The hash object of some bytes."""


def checksum(data: bytes) -> str:
    """BLAKE2, for what only has to be found if it is damaged: a fifth of the time of the interpreter's SHA-256."""
    try:
        from _blake2 import blake2b  # without `hashlib`, which would load OpenSSL
    except ImportError:
        from hashlib import blake2b
    return blake2b(data, digest_size=32).hexdigest()
