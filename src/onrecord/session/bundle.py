"""Bundles: a session in one file, to move it to another machine or to keep it.

A bundle is JSON lines: a heading, one line per event (inherited history included), and an end line with the count, the
last hash and a digest of all lines before it, so that a cut or a change of any byte is noticed. On the way in the whole
chain is derived again before anything is written; nothing is merged silently.
"""

from __future__ import annotations

import json
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from onrecord.errors import Conflict, DamagedBundle, OnrecordError, SessionHeld
from onrecord.log import head as heads
from onrecord.log.codec import open_record
from onrecord.log.events import Draft, Record
from onrecord.log.items import check_item
from onrecord.log.names import check_name, is_ulid
from onrecord.log.verify import Verifier
from onrecord.session.handle import READ_PAGE, Session
from onrecord.session.retention import wipe

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from onrecord.log.head import Head
    from onrecord.session.records import Records

FORMAT = "onrecord-bundle"
VERSION = 1
_TYPES = {
    "session": str, "position": int, "id": str, "kind": str, "v": int, "at": int, "by": str, "run": int, "because": int,
}  # fmt: skip
_FIELDS = tuple(_TYPES)[1:]


def lines_of(session: Session) -> Iterator[str]:
    """The bundle of a session, line by line."""
    head = session.store.head(session.id)
    digest = sha256()
    for line in _body(session, head):
        digest.update(line.encode())
        yield line
    yield _end(digest.hexdigest(), head.position, head.hash)


def _body(session: Session, head: Head) -> Iterator[str]:
    chain = _lineage(session, head)
    heading = {"format": FORMAT, "version": VERSION, "session": session.id, "name": head.name, "project": head.project}
    yield _line(heading | {"lineage": [{"session": id_, "upto": upto} for id_, upto in chain]})
    after = 0
    while page := session.store.read(session.id, after=after, upto=head.position, limit=READ_PAGE):
        for record in page:
            yield _line(_packed(record))
        after = page[-1].position


def _end(digest: str, events: int, last: bytes) -> str:
    return _line({"end": True, "events": events, "hash": last.hex(), "digest": digest})


def take_in(records: Records, lines: Iterable[str], *, name: str | None = None, update: bool = False) -> Session:
    """Verify a bundle and keep its session in this project, under its own name or another one.

    The log arrives as it was, to the last bit: what it is called here and which project keeps it is not part of it, so
    it can be brought up to date later. A session that is here already is only extended with `update`, and only if what
    is here is the beginning of the bundle.
    """
    heading, found = _unpack(lines)
    session_id = heading["session"]
    final = check_name(name or heading["name"])
    if update and (here := _here(records, session_id)):
        return _extend(records, here, found)
    if _here(records, session_id):
        raise Conflict(
            f"session {session_id} is here already",
            hint="import with --update to add what is new, or export a fork of it",
        )
    if records.store.heads(project=records.project, name=final, limit=1):
        raise Conflict(
            f"a session named {final!r} exists in this project", hint="import it under another name: --as NAME"
        )
    lineage = [(part["session"], part["upto"]) for part in heading["lineage"]]
    _install(records, lineage, found, final)
    return Session(records.store, session_id, clock=records.clock)


def _lineage(session: Session, head: Head) -> list[tuple[str, int]]:
    """The sessions whose events make up this log, oldest first, each with its last position in it."""
    chain = [(head.session, head.position)]
    while head.parent:
        chain.insert(0, (head.parent, head.forked_at))
        head = session.store.head(head.parent)
    return chain


def _install(records: Records, lineage: list[tuple[str, int]], found: list[Record], name: str) -> None:
    """Put each session of the lineage into the store; ancestors that are here already must be the very same."""
    folded, wanted = _folded(found), []
    for id_, upto in lineage:
        if _here(records, id_):
            known = records.store.read(id_, after=upto - 1, upto=upto)
            if not known or known[0].hash != found[upto - 1].hash:
                raise Conflict(f"session {id_}, which this one was forked from, is here with another history")
            continue
        label = name if id_ == lineage[-1][0] else f"ancestor-{id_}"
        wanted.append(folded[id_]._replace(project=records.project, name=label))
    for head in wanted:
        records.store.install(head, iter([record for record in found if record.session == head.session]))


def _folded(found: list[Record]) -> dict[str, Head]:
    """Where each session of the lineage stands at its last event here; what the lifecycle forbids is refused."""
    opening = _draft(found[0])
    if opening.kind != "session.opened":
        raise DamagedBundle("the bundle does not begin with the opening of a session")
    known = opening.data or {}
    fresh = opening._replace(data={"name": str(known.get("name", "")), "project": str(known.get("project", ""))})
    head = heads.fresh(found[0].session, fresh)
    folded: dict[str, Head] = {}
    for record in found:
        if (record.kind == "session.forked") != (record.session != head.session):
            raise DamagedBundle(f"position {record.position} belongs to another session without a fork")
        if record.kind == "session.forked":
            head = heads.forked(head, record.session, head.name)
        head = heads.after(head, _draft(record))[0]._replace(hash=record.hash)
        folded[record.session] = head
    return folded


def _draft(record: Record) -> Draft:
    event = open_record(record)
    return Draft(*event[2:9], record.salt or b"", record.payload or b"", record.payload_hash, event.data)


def _extend(records: Records, here: Head, found: list[Record]) -> Session:
    if here.position > len(found) or found[here.position - 1].hash != here.hash:
        raise Conflict(
            f"session {here.name!r} went on differently here, at or before position {here.position}",
            hint="import it on another store, or fork one of the two",
        )
    gone = _erased_elsewhere(records, here, found)
    head, fresh = here, found[here.position :]
    for record in fresh:
        head = heads.after(head, _draft(record))[0]
    if gone and (here.held or head.held):
        raise SessionHeld(f"session {here.name!r} is held, and the bundle tells of an erasure that has to be made here")
    if fresh:
        records.store.install(
            head._replace(hash=fresh[-1].hash, name=here.name, project=here.project), iter(fresh), extend=True
        )
    session = Session(records.store, here.session, clock=records.clock)
    if gone:
        wipe(session, gone, "erased where the bundle came from", "positions")
    return session


def _erased_elsewhere(records: Records, here: Head, found: list[Record]) -> list[int]:
    """What the bundle no longer has and this store still does: it goes here too."""
    own = {record.position for record in found[here.forked_at : here.position] if record.payload is None}
    kept = {weight.position for weight in records.store.weigh(here.session)} if own else set()
    return sorted(own & kept)


def _here(records: Records, session_id: str) -> Head | None:
    found = records.store.heads(prefix=session_id, limit=2)
    return next((head for head in found if head.session == session_id), None)


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
            raise DamagedBundle(f"this bundle has version {heading.get('version')}", hint="upgrade onrecord")
        found: list[Record] = []
        end: dict[str, Any] = {}
        for row in rows:
            value = json.loads(row)
            if end:
                raise DamagedBundle("something follows the end of the bundle")
            if value.get("end"):
                end = value
                if row.removesuffix("\n") + "\n" != _end(digest.hexdigest(), len(found), found[-1].hash):
                    raise DamagedBundle("the bundle was changed or cut: its end does not fit what is before it")
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
        raise DamagedBundle("the bundle was cut off: its end is missing")
    report = Verifier(str(heading.get("session"))).feed(found).finish()
    if report.problems:
        first = report.problems[0]
        raise DamagedBundle(f"the bundle was changed: position {first.position}, {first.cause}: {first.detail}")
    for record in found:
        _check_items(record)
    lineage = heading.get("lineage")
    expected, last = [], 0
    for part in lineage if isinstance(lineage, list) else []:
        expected += [part["session"]] * (part["upto"] - last)
        last = part["upto"]
    if [record.session for record in found] != expected or not all(is_ulid(part["session"]) for part in lineage or ()):
        raise DamagedBundle("the bundle's heading does not fit its events")
    if expected[-1] != heading["session"]:
        raise DamagedBundle("the bundle's heading names another session")


def _check_items(record: Record) -> None:
    """A chain proves that nothing was changed, not that it made sense: what a model may be handed is checked."""
    if record.kind not in ("turn.recorded", "item.added") or record.payload is None:
        return
    data = open_record(record).data
    try:
        for item in data["items"] if record.kind == "turn.recorded" else [data["item"]]:
            check_item(item)
    except (OnrecordError, KeyError, TypeError) as problem:
        raise DamagedBundle(f"position {record.position} has an item that is none: {problem}") from None
