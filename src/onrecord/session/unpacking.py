"""Reading a bundle: every line is checked before anything of it is written, and none is kept longer than it is needed.

A bundle is a file from elsewhere. So it is read twice: first to check every promise of a log (types and ranges of every
header, canonical payloads, the chain, the lifecycle, the end line), then to write it. The digest of both must agree.
"""

from __future__ import annotations

import json
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NamedTuple

from onrecord.errors import Conflict, DamagedBundle, DamagedLog, InvalidInput
from onrecord.log.codec import as_read, check_payload, decode_payload, encode_plain
from onrecord.log.events import KINDS, Record
from onrecord.log.names import is_ulid
from onrecord.log.shapes import UNREADABLE
from onrecord.log.verify import Verifier, advance
from onrecord.session.copying import check_items

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from onrecord.log.head import Head

FORMAT = "onrecord-bundle"
VERSION = 1
LINEAGE_LIMIT = 1_000
"""The most sessions that one bundle contains: the session and those it was forked from."""
TYPES = {
    "session": str, "position": int, "id": str, "kind": str, "v": int, "at": int, "by": str, "run": int, "because": int,
}  # fmt: skip
FIELDS = tuple(TYPES)[1:]


class Checked(NamedTuple):
    """What must be known of a bundle before the first write."""

    session: str
    name: str
    lineage: list[tuple[str, int]]
    events: int
    digest: str
    size: int
    """The bytes of all payloads."""
    heads: dict[str, Head]
    """The head of each session of the lineage."""
    hashes: dict[int, bytes]
    """The hashes at the end of each session of the lineage, and at the position that the store has here."""


class Reader:
    """The events of a bundle, one after the other; what was read is not kept."""

    def __init__(self, lines: Iterable[str]) -> None:
        self._rows = iter(lines)
        self._digest = sha256()
        self.events = 0
        try:
            first = next(self._rows)
            self._digest.update(first.encode())
            self.session, self.name, self.lineage = _heading(json.loads(first))
        except StopIteration:
            raise DamagedBundle("the bundle is empty") from None
        except UNREADABLE as problem:
            raise _unreadable(problem) from None

    @property
    def digest(self) -> str:
        """The digest of all lines so far."""
        return self._digest.hexdigest()

    def __iter__(self) -> Iterator[Record]:
        last, ended = b"", False
        for row in self._rows:
            try:
                value = json.loads(row)
                if ended:
                    raise DamagedBundle("the bundle has data after its end")
                if value.get("end"):
                    ended = True
                    if row.removesuffix("\n") + "\n" != end_line(self.digest, self.events, last):
                        raise DamagedBundle("the bundle was changed or truncated: its end does not match the rest")
                    continue
                record = _record(value)
                self._digest.update(row.encode())
            except UNREADABLE as problem:
                raise _unreadable(problem) from None
            self.events += 1
            last = record.hash
            yield record
        if not ended or not self.events:
            raise DamagedBundle("the bundle is truncated: its end is missing")


def check(lines: Iterable[str], here: Callable[[str], int]) -> Checked:
    """Check a whole bundle; `here` says how far this store has a session already (0: not at all)."""
    reader = Reader(lines)
    verifier = Verifier(reader.session)
    asked = {upto for _id, upto in reader.lineage} | {here(reader.session)}
    parts = iter(reader.lineage)
    part, upto = next(parts, ("", 0))
    head: Head | None = None
    heads: dict[str, Head] = {}
    hashes: dict[int, bytes] = {}
    size = 0
    for record in reader:
        if record.position > upto:
            part, upto = next(parts, ("", 0))
        if record.session != part or record.position != reader.events:
            raise DamagedBundle("the bundle's heading does not match its events")
        if problems := verifier.feed((record,)).problems:
            first = problems[0]
            raise DamagedBundle(f"the bundle was changed: position {first.position}, {first.cause}: {first.detail}")
        head = heads[record.session] = _advanced(head, record)
        size += len(record.payload or b"")
        if record.position in asked:
            hashes[record.position] = record.hash
    if reader.events != reader.lineage[-1][1]:
        raise DamagedBundle("the bundle's heading does not match its events")
    if problems := verifier.finish().problems:
        first = problems[0]
        raise DamagedBundle(f"the bundle was changed: position {first.position}, {first.cause}: {first.detail}")
    return Checked(
        reader.session, reader.name, reader.lineage, reader.events, reader.digest, size, heads, hashes
    )  # fmt: skip


def again(lines: Iterable[str], checked: Checked) -> Iterator[Record]:
    """The events of a bundle that was checked; an error if it is no longer the same."""
    reader = Reader(lines)
    yield from reader
    if reader.digest != checked.digest:
        raise DamagedBundle("the bundle changed while it was imported", hint="import it again")


def collected(lines: Iterator[str]) -> list[str]:
    """Lines that can be read only once, kept to be read twice."""
    try:
        return list(lines)
    except ValueError as problem:  # the text of a file that is none
        raise _unreadable(problem) from None


def line_of(value: dict[str, Any]) -> str:
    """One line of a bundle."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")) + "\n"


def end_line(digest: str, events: int, last: bytes) -> str:
    """The last line of a bundle."""
    return line_of({"end": True, "events": events, "hash": last.hex(), "digest": digest})


def _unreadable(problem: Exception) -> DamagedBundle:
    return DamagedBundle(f"the bundle cannot be read: {problem!s:.300}")


def _heading(heading: Any) -> tuple[str, str, list[tuple[str, int]]]:
    if heading.get("format") != FORMAT:
        raise DamagedBundle("this is not an onrecord bundle")
    if heading.get("version") != VERSION:
        raise DamagedBundle(
            f"the bundle has version {heading.get('version')!r:.30}, which this onrecord does not know",
            hint="upgrade onrecord",
        )
    lineage = heading.get("lineage")
    if not isinstance(lineage, list) or not 0 < len(lineage) <= LINEAGE_LIMIT:
        raise DamagedBundle("the bundle's heading does not match its events")
    found = [(part["session"], part["upto"]) for part in lineage]
    last = 0
    for id_, upto in found:
        if type(id_) is not str or not is_ulid(id_) or type(upto) is not int or upto <= last:
            raise DamagedBundle("the bundle's heading does not match its events")
        last = upto
    if found[-1][0] != heading.get("session"):
        raise DamagedBundle("the bundle's heading names another session")
    return found[-1][0], heading["name"], found


def _record(value: dict[str, Any]) -> Record:
    salt, payload = value.get("salt"), value.get("payload")
    for name, kind in TYPES.items():
        if type(value[name]) is not kind and not (name == "because" and value[name] is None):
            raise TypeError(f"{name} is {value[name]!r:.50}")
    return Record(
        session=value["session"],
        **{name: value[name] for name in FIELDS},
        salt=bytes.fromhex(salt) if salt else None,
        payload=payload.encode() if payload is not None else None,
        payload_hash=bytes.fromhex(value["payload_hash"]),
        hash=bytes.fromhex(value["hash"]),
    )


def _advanced(head: Head | None, record: Record) -> Head:
    """The head after a record; what no log of ours can contain is refused."""
    try:
        if record.payload is not None:
            _check_payload(record, record.payload)
        return advance(head, record)
    except (DamagedLog, InvalidInput) as problem:
        raise DamagedBundle(problem.message) from None
    except (Conflict, *UNREADABLE) as problem:
        raise DamagedBundle(f"position {record.position} is invalid: {problem!s:.300}") from None


def _check_payload(record: Record, payload: bytes) -> None:
    data = decode_payload(payload.decode())
    if encode_plain(as_read(data)) != payload:
        raise DamagedLog(f"position {record.position}: the payload is not in canonical form")
    known = KINDS.get(record.kind)
    if known is not None and not isinstance(data, dict):
        check_payload(known, data)
    check_items(record)
