"""Bundles: a session in one file, to move it to another machine or to keep it.

A bundle is JSON lines: a heading, one line per event (inherited history included), and an end line with the count, the
last hash and a digest of all lines before it, so that truncation or a change of any byte is detected. An import derives
the whole chain again before anything is written (`unpacking`); nothing is merged silently.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from itertools import islice
from typing import TYPE_CHECKING, Any

from onrecord.errors import Conflict, DamagedLog
from onrecord.log.names import check_name
from onrecord.log.verify import Verifier, advance
from onrecord.session.copying import COPY_PAGE, extend, lineage_of, present, refuse_held, refuse_moved
from onrecord.session.handle import READ_PAGE, Session
from onrecord.session.unpacking import FIELDS, FORMAT, VERSION, again, check, collected, end_line, line_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from onrecord.log.events import Record
    from onrecord.log.head import Head
    from onrecord.session.session_store import SessionStore
    from onrecord.session.unpacking import Checked

INSTALL_BYTES = 64 * 1024 * 1024
"""Up to so many bytes of payloads a bundle is written in one step; a larger one in pages, each durable on its own."""


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
    yield end_line(digest.hexdigest(), head.position, head.hash)


def _body(session: Session, head: Head, verifier: Verifier) -> Iterator[str]:
    chain = lineage_of(session.store, head)
    heading = {"format": FORMAT, "version": VERSION, "session": session.id, "name": head.name, "project": head.project}
    yield line_of(heading | {"lineage": [{"session": id_, "upto": upto} for id_, upto in chain]})
    after = 0
    while page := session.store.read(session.id, after=after, upto=head.position, limit=READ_PAGE):
        verifier.feed(page)
        for record in page:
            yield line_of(_packed(record))
        after = page[-1].position


def take_in(records: SessionStore, lines: Iterable[str], *, name: str | None = None, update: bool = False) -> Session:
    """Verify a bundle and keep its session in this project, under its own name or another one.

    The log arrives as it was, to the last bit. Its name here and its project are not part of it, so it can be updated
    later. A session that is already here is extended only with `update`, and only if it is the beginning of the bundle.
    `lines` is read twice; an iterator, which can be read only once, is kept in memory for that.
    """
    lines = collected(lines) if isinstance(lines, Iterator) else lines
    found = check(lines, lambda id_: here.position if (here := present(records.store, id_)) else 0)
    final = check_name(name or found.name)
    here = present(records.store, found.session)
    if update and here:
        return _extend(records, here, found, lines)
    if here:
        raise Conflict(
            f"session {here.name!r} ({found.session}) is already in this store",
            hint="update it instead, or fork it",
            step="update_import",
            name=here.name,
        )
    if records.store.heads(project=records.project, name=final, limit=1):
        raise Conflict(
            f"this project already has a session named {final!r}",
            hint="import it under another name",
            step="import_as",
            name=final,
        )
    _install(records, found, lines, final)
    return Session(records.store, found.session, clock=records.clock)


def _install(records: SessionStore, found: Checked, lines: Iterable[str], name: str) -> None:
    """Put each session of the lineage into the store; ancestors that are already here must have the same history."""
    labels: dict[str, str] = {}
    for id_, upto in found.lineage:
        if present(records.store, id_):
            known = records.store.read(id_, after=upto - 1, upto=upto)
            if not known or known[0].hash != found.hashes[upto]:
                raise Conflict(f"session {id_}, which this one was forked from, has a different history here")
            continue
        labels[id_] = name if id_ == found.session else f"ancestor-{id_}"
    size = found.events if found.size <= INSTALL_BYTES else COPY_PAGE
    head: Head | None = None
    events = again(lines, found)
    while page := list(islice(events, size)):
        steps = []
        for record in page:
            head = advance(head, record)
            steps.append((record, head))
        for id_, label in labels.items():
            part = [(record, after) for record, after in steps if record.session == id_]
            if part:
                first = part[0][0].position == 1 or part[0][0].kind == "session.forked"
                last = part[-1][1]._replace(project=records.project, name=label)
                records.store.install(last, iter([record for record, _after in part]), extend=not first)


def _extend(records: SessionStore, here: Head, found: Checked, lines: Iterable[str]) -> Session:
    if found.hashes.get(here.position) != here.hash:
        raise Conflict(
            f"session {here.name!r} has a different history here, from position {here.position} or earlier",
            hint="import it into another store, or fork one of the two",
        )
    refuse_held(records.store, here, _steps(here, found, lines))
    size = found.events if found.size <= INSTALL_BYTES else COPY_PAGE
    steps, head = _steps(here, found, lines), here
    while page := list(islice(steps, size)):
        extend(records.store, head, page, here.name)
        head = page[-1][1]
    return Session(records.store, here.session, clock=records.clock)


def _steps(here: Head, found: Checked, lines: Iterable[str]) -> Iterator[tuple[Record, Head]]:
    """Each event after those that are here, with the head of the log after it."""
    head = here
    for record in again(lines, found):
        if record.position > here.position:
            head = advance(head, record)
            yield record, head


def _packed(record: Record) -> dict[str, Any]:
    packed: dict[str, Any] = {"session": record.session} | {name: getattr(record, name) for name in FIELDS}
    packed |= {"payload_hash": record.payload_hash.hex(), "hash": record.hash.hex()}
    if record.payload is not None and record.salt is not None:
        packed |= {"salt": record.salt.hex(), "payload": record.payload.decode()}
    return packed
