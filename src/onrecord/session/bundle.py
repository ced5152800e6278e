"""Bundles: a session in one file, to move it to another machine or to keep it.

A bundle is JSON lines: a heading, one line per event (inherited history included), and an end line with the count, the
last hash and a digest of all lines before it, so that truncation or a change of any byte is detected. An import derives
the whole chain again before anything is written; nothing is merged silently.
"""

from __future__ import annotations

import json
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from onrecord.errors import Conflict, DamagedBundle, DamagedLog
from onrecord.log.events import Record
from onrecord.log.names import check_name, is_ulid
from onrecord.log.verify import Verifier, advance
from onrecord.session.copying import check_items, extend, lineage_of, present, refuse_held, refuse_moved
from onrecord.session.handle import READ_PAGE, Session

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from onrecord.log.head import Head
    from onrecord.session.session_store import SessionStore

FORMAT = "onrecord-bundle"
VERSION = 1
_TYPES = {
    "session": str, "position": int, "id": str, "kind": str, "v": int, "at": int, "by": str, "run": int, "because": int,
}  # fmt: skip
_FIELDS = tuple(_TYPES)[1:]


def lines_of(session: Session) -> Iterator[str]:
    """The bundle of a session, line by line. It is checked on the way: an error at its end means that it is no bundle.

    `LogMoved` says that another process erased a part while this one read; the next try includes that erasure.
    """
    head = session.store.head(session.id)
    digest, verifier = sha256(), Verifier(session.id)
    for line in _body(session, head, verifier):
        digest.update(line.encode())
        yield line
    refuse_moved(session.store, head, verifier)
    if problems := verifier.finish(head.position, head.hash).problems:
        first = problems[0]
        raise DamagedLog(f"{head.name!r} is damaged at position {first.position}: {first.cause}: {first.detail}")
    yield _end(digest.hexdigest(), head.position, head.hash)


def _body(session: Session, head: Head, verifier: Verifier) -> Iterator[str]:
    chain = lineage_of(session.store, head)
    heading = {"format": FORMAT, "version": VERSION, "session": session.id, "name": head.name, "project": head.project}
    yield _line(heading | {"lineage": [{"session": id_, "upto": upto} for id_, upto in chain]})
    after = 0
    while page := session.store.read(session.id, after=after, upto=head.position, limit=READ_PAGE):
        verifier.feed(page)
        for record in page:
            yield _line(_packed(record))
        after = page[-1].position


def _end(digest: str, events: int, last: bytes) -> str:
    return _line({"end": True, "events": events, "hash": last.hex(), "digest": digest})


def take_in(records: SessionStore, lines: Iterable[str], *, name: str | None = None, update: bool = False) -> Session:
    """Verify a bundle and keep its session in this project, under its own name or another one.

    The log arrives as it was, to the last bit. Its name here and its project are not part of it, so it can be updated
    later. A session that is already here is extended only with `update`, and only if it is the beginning of the bundle.
    """
    heading, found = _unpack(lines)
    session_id = heading["session"]
    final = check_name(name or heading["name"])
    here = present(records.store, session_id)
    if update and here:
        return _extend(records, here, found)
    if here:
        raise Conflict(
            f"session {session_id} is already in this store",
            hint="update it instead, or import a fork of it",
            step="update_import",
        )
    if records.store.heads(project=records.project, name=final, limit=1):
        raise Conflict(
            f"this project already has a session named {final!r}",
            hint="import it under another name",
            step="import_as",
            name=final,
        )
    lineage = [(part["session"], part["upto"]) for part in heading["lineage"]]
    _install(records, lineage, found, final)
    return Session(records.store, session_id, clock=records.clock)


def _install(records: SessionStore, lineage: list[tuple[str, int]], found: list[Record], name: str) -> None:
    """Put each session of the lineage into the store; ancestors that are already here must have the same history."""
    folded = {record.session: head for record, head in _steps(None, found)}
    wanted = []
    for id_, upto in lineage:
        if present(records.store, id_):
            known = records.store.read(id_, after=upto - 1, upto=upto)
            if not known or known[0].hash != found[upto - 1].hash:
                raise Conflict(f"session {id_}, which this one was forked from, has a different history here")
            continue
        label = name if id_ == lineage[-1][0] else f"ancestor-{id_}"
        wanted.append(folded[id_]._replace(project=records.project, name=label))
    for head in wanted:
        records.store.install(head, iter([record for record in found if record.session == head.session]))


def _steps(head: Head | None, found: Iterable[Record]) -> list[tuple[Record, Head]]:
    """Each record with the head of its log after it; what the lifecycle forbids is refused."""
    steps = []
    try:
        for record in found:
            head = advance(head, record)
            steps.append((record, head))
    except DamagedLog as problem:
        raise DamagedBundle(problem.message) from None
    return steps


def _extend(records: SessionStore, here: Head, found: list[Record]) -> Session:
    if here.position > len(found) or found[here.position - 1].hash != here.hash:
        raise Conflict(
            f"session {here.name!r} has a different history here, from position {here.position} or earlier",
            hint="import it into another store, or fork one of the two",
        )
    steps = _steps(here, found[here.position :])
    refuse_held(records.store, here, steps)
    extend(records.store, here, steps, here.name)
    return Session(records.store, here.session, clock=records.clock)


def _line(value: dict[str, Any]) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")) + "\n"


def _packed(record: Record) -> dict[str, Any]:
    packed: dict[str, Any] = {"session": record.session} | {name: getattr(record, name) for name in _FIELDS}
    packed |= {"payload_hash": record.payload_hash.hex(), "hash": record.hash.hex()}
    if record.payload is not None and record.salt is not None:
        packed |= {"salt": record.salt.hex(), "payload": record.payload.decode()}
    return packed


def _unpack(lines: Iterable[str]) -> tuple[dict[str, Any], list[Record]]:
    rows = iter(lines)
    digest = sha256()
    try:
        first = next(rows)
        digest.update(first.encode())
        heading = json.loads(first)
        if heading.get("format") != FORMAT:
            raise DamagedBundle("this is not an onrecord bundle")
        if heading.get("version") != VERSION:
            raise DamagedBundle(
                f"the bundle has version {heading.get('version')}, which this onrecord does not know",
                hint="upgrade onrecord",
            )
        found: list[Record] = []
        end: dict[str, Any] = {}
        for row in rows:
            value = json.loads(row)
            if end:
                raise DamagedBundle("the bundle has data after its end")
            if value.get("end"):
                end = value
                if row.removesuffix("\n") + "\n" != _end(digest.hexdigest(), len(found), found[-1].hash):
                    raise DamagedBundle("the bundle was changed or truncated: its end does not match the rest")
            else:
                digest.update(row.encode())
                found.append(_record(value))
    except StopIteration:
        raise DamagedBundle("the bundle is empty") from None
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as problem:
        raise DamagedBundle(f"the bundle cannot be read: {problem}") from None
    _check(heading, found, end)
    return heading, found


def _record(value: dict[str, Any]) -> Record:
    salt, payload = value.get("salt"), value.get("payload")
    for name, kind in _TYPES.items():
        if type(value[name]) is not kind and not (name == "because" and value[name] is None):
            raise TypeError(f"{name} is {value[name]!r:.50}")
    return Record(
        session=value["session"],
        **{name: value[name] for name in _FIELDS},
        salt=bytes.fromhex(salt) if salt else None,
        payload=payload.encode() if payload is not None else None,
        payload_hash=bytes.fromhex(value["payload_hash"]),
        hash=bytes.fromhex(value["hash"]),
    )


def _check(heading: dict[str, Any], found: list[Record], end: dict[str, Any]) -> None:
    if not end or not found:
        raise DamagedBundle("the bundle is truncated: its end is missing")
    report = Verifier(str(heading.get("session"))).feed(found).finish()
    if report.problems:
        first = report.problems[0]
        raise DamagedBundle(f"the bundle was changed: position {first.position}, {first.cause}: {first.detail}")
    try:
        for record in found:
            check_items(record)
    except DamagedLog as problem:
        raise DamagedBundle(problem.message) from None
    lineage = heading.get("lineage")
    expected, last = [], 0
    for part in lineage if isinstance(lineage, list) else []:
        expected += [part["session"]] * (part["upto"] - last)
        last = part["upto"]
    if [record.session for record in found] != expected or not all(is_ulid(part["session"]) for part in lineage or ()):
        raise DamagedBundle("the bundle's heading does not match its events")
    if expected[-1] != heading["session"]:
        raise DamagedBundle("the bundle's heading names another session")
