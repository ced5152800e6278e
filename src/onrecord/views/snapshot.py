"""A snapshot in parts: an index, then every view as JSON of its own, so that a view is decoded only when it is read.

The index begins with its hash and has the length and the hash of each part. A part is compared with its hash before it
is decoded, so a part that is not read costs nothing.
"""

from __future__ import annotations

from onrecord import lean_json as json
from onrecord.errors import DamagedLog
from onrecord.log import digest

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

DIGEST_BYTES = 32
"""What a snapshot begins with: the hash of its index, so that a damaged one is detected."""
_END = b"\n"


def as_json(value: Any) -> bytes:
    """A value as a snapshot has it, in the order of the fold: the tenth finding comes after the second.

    Views are trees: looking for circles would take a third of the time.
    """
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), check_circular=False).encode()


def joined(about: dict[str, Any], parts: Mapping[str, bytes]) -> bytes:
    """The snapshot of some parts, and of what is read with any of them."""
    rows = {name: [len(body), digest.checksum(body)] for name, body in parts.items()}
    index = as_json(about | {"parts": rows})
    return b"".join([digest.sha256(index).digest(), index, _END, *parts.values()])


class Parts:
    """The parts of a snapshot, each readable without the others. `DamagedLog` if one is not what was kept."""

    def __init__(self, body: bytes) -> None:
        start = body.find(_END, DIGEST_BYTES)
        index = body[DIGEST_BYTES:start]
        if start < 0 or digest.sha256(index).digest() != body[:DIGEST_BYTES]:
            raise _damaged()
        self.about: dict[str, Any] = json.loads(index)
        self._body = body
        self._rows: dict[str, tuple[int, int, str]] = {}
        """Where each part begins and ends, and its hash."""
        start += len(_END)
        for name, (length, hashed) in self.about.pop("parts").items():
            self._rows[name] = (start, start + length, hashed)
            start += length

    def raw(self, name: str) -> bytes:
        """A part as it was kept."""
        start, end, hashed = self._rows.get(name, (0, 0, ""))
        part = self._body[start:end]
        if digest.checksum(part) != hashed:
            raise _damaged()
        return part

    def decoded(self, name: str) -> Any:
        """The value of a part."""
        return json.loads(self.raw(name))


def _damaged() -> DamagedLog:
    return DamagedLog("a snapshot is damaged", hint="snapshots only save time: delete it", step="drop_snapshots")
