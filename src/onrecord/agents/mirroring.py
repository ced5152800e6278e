"""Mirroring: the record gets a copy of an agent's vendor conversation as it grows, word for word.

How far it was read is deduced from the log: the newest `payload.kept` of a conversation says where the next one
begins, and that beginning is part of its id. So the same bytes are never recorded twice, also when a hook, a wrapper
and a person mirror at the same time. A file that the vendor rewrote begins a new generation; the older one stays on
record.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from onrecord import machine
from onrecord.errors import IdReused, InvalidInput, NotFound
from onrecord.log.codec import ID_LIMIT
from onrecord.log.head import LIVE
from onrecord.vendors.port import Location, Mark, vendor

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from onrecord.log.events import Event
    from onrecord.session.handle import Session
    from onrecord.vendors.port import Chunk, Vendor
    from onrecord.views.values import Link

CHUNK_BYTES = 1024 * 1024
"""About how many bytes of a transcript one event keeps, and one step of mirroring has in memory."""
PIECE_CHARACTERS = 8 * 1024 * 1024
"""A single record longer than this is kept in pieces of this length."""
FOLLOW_SECONDS = 2.0
"""How often a running conversation is mirrored while it is followed."""
MIRROR_PREFIX = "mirror/"
_PAGE = 200
_GLIMPSE = 16_384
_TRIES = 100
"""How often mirroring retries after another process was faster, before it leaves the rest to that one."""


class Mirrored(NamedTuple):
    """What one call of `mirror` did."""

    vendor: str
    vendor_id: str
    path: str
    """The vendor's file; empty when it is missing."""
    records: int = 0
    """How many records were copied."""
    torn: int = 0
    """Lines that were cut off or invalid JSON: counted, not kept."""
    rewritten: bool = False
    """The vendor replaced its file: it was read again from the start."""
    complete: bool = True
    """Everything the file had was read; False when time ran out first."""
    why_not: str = ""
    """Why nothing could be mirrored; empty if something was."""


class Stand(NamedTuple):
    """How far a conversation is on record."""

    mark: Mark | None
    generation: int
    position: int
    """The position of the newest part in the log."""
    erased: bool = False


class Kept(NamedTuple):
    """One record of a mirrored conversation, and its position in the log."""

    raw: str
    position: int


def location_of(link: Link, env: Mapping[str, str]) -> Location | None:
    """Where a recorded conversation is on this machine: by its recorded path, else by its id."""
    about, of = link["first"] | link["last"], vendor(link["vendor"])
    path = about.get("transcript")
    if isinstance(path, str) and path and os.path.isfile(path):
        location = Location(link["id"], path, str(about.get("home") or ""), str(about.get("cwd") or ""))
        if _holds(of, location, env):
            return location
    return of.find(link["id"], env)


def _holds(of: Vendor, location: Location, env: Mapping[str, str]) -> bool:
    """Whether a recorded path is really the conversation's: the record may come from another machine."""
    from pathlib import Path

    path = Path(location.path)
    if location.vendor_id in path.parts[-2:] or path.stem == location.vendor_id:
        return path.resolve().is_relative_to(of.home(env).resolve()) or _speaks_of(of, location)
    return _speaks_of(of, location)


def _speaks_of(of: Vendor, location: Location) -> bool:
    return any(location.vendor_id in entry.raw for entry in of.read(location, limit=_GLIMPSE).entries)


def mirror(
    session: Session, vendor_name: str, vendor_id: str, env: Mapping[str, str], *, location: Location | None = None,
    seconds: float | None = None,
) -> Mirrored:  # fmt: skip
    """Copy new messages of a conversation of this session into the record, for about `seconds` at most.

    For hooks (with a time bound), for the process that wraps an agent, and by hand. The conversation must be linked.
    """
    link = session.views.roster.link(vendor_name, vendor_id)
    if link is None:
        raise NotFound(
            f"session {session.name!r} has no conversation {vendor_id}",
            hint="name a conversation that the vendor has",
            step="list_conversations",
            vendor=vendor_name,
        )
    done = Mirrored(vendor_name, vendor_id, "")
    if session.head.status not in LIVE:
        return done._replace(why_not=f"the session is {session.head.status}")
    location = location or location_of(link, env)
    if location is None or not os.path.exists(location.path):
        return done._replace(why_not="the vendor's file is missing")
    deadline = None if seconds is None else time.monotonic() + seconds
    return _follow(session, vendor(vendor_name), location, done._replace(path=location.path), deadline)


def _follow(session: Session, of: Vendor, location: Location, done: Mirrored, deadline: float | None) -> Mirrored:
    stand, tries = standing(session, of.name, location.vendor_id), 0
    if stand.erased:
        stand = _begin_after_erasure(session, of, location, stand)
    while True:
        chunk = of.read(location, stand.mark, limit=CHUNK_BYTES)
        rewritten = chunk.rewritten and stand.mark is not None
        done = done._replace(rewritten=done.rewritten or rewritten)
        if not chunk.entries and not chunk.torn and not rewritten:
            return done
        if rewritten:
            stand = stand._replace(generation=stand.generation + 1, mark=None)
        try:
            position, new = _keep(session, of.name, location, stand, chunk)
        except IdReused:
            # Another process began at the same offset and recorded more or less: continue after what it recorded.
            stand, tries = standing(session, of.name, location.vendor_id), tries + 1
            if tries > _TRIES:
                return done._replace(complete=False)
            continue
        if new:
            done = done._replace(records=done.records + len(chunk.entries), torn=done.torn + chunk.torn)
        stand = Stand(chunk.mark, stand.generation, position)
        if deadline is not None and time.monotonic() >= deadline:
            return done._replace(complete=False)


def _keep(
    session: Session, vendor_name: str, location: Location, stand: Stand, chunk: Chunk, **about: Any
) -> tuple[int, bool]:
    """Append one chunk, all of it or nothing; a long record becomes several events in the same commit."""
    before = stand.mark or Mark()
    id_ = _id(vendor_name, location.vendor_id, stand.generation, before.offset)
    shared = {
        "vendor": vendor_name, "vendor_id": location.vendor_id, "generation": stand.generation,
        "source": {"path": location.path, "home": location.home, "cwd": location.cwd}, **about,
    }  # fmt: skip
    pieces = list(_pieces([entry.raw for entry in chunk.entries])) or [([], False)]
    drafts = []
    for number, (lines, goes_on) in enumerate(pieces):
        data: dict[str, Any] = shared | {"lines": lines}
        if goes_on:
            data["goes_on"] = True
        if number == 0:
            data["mark_before"] = [before.offset, before.extra]
        if number == len(pieces) - 1:
            data |= {"mark_after": [chunk.mark.offset, chunk.mark.extra], "torn": chunk.torn}
        drafts.append(session.log.draft("payload.kept", data, id=f"{id_}.{number}" if number else id_))
    events = session.log.append(*drafts)
    # The same words recorded by another process have that one's salt, and so another hash.
    return events[-1].position, events[0].payload_hash == drafts[0].payload_hash


def _pieces(lines: list[str]) -> Iterator[tuple[list[str], bool]]:
    """Lines in lists of bounded size; True means that the last line continues in the next list."""
    found: list[str] = []
    size = 0
    for line in lines:
        rest = line
        while size + len(rest) > PIECE_CHARACTERS:
            room = PIECE_CHARACTERS - size
            yield [*found, rest[:room]], True
            found, size, rest = [], 0, rest[room:]
        found.append(rest)
        size += len(rest)
    if found:
        yield found, False


def _id(vendor_name: str, vendor_id: str, generation: int, offset: int) -> str:
    prefix = _prefix(vendor_name, vendor_id)
    id_ = f"{prefix}{generation}/{offset}"
    if len(id_) + 8 > ID_LIMIT or not id_.isprintable():
        raise InvalidInput(f"{vendor_id!r:.80} is not the id of a conversation")
    return id_


def _prefix(vendor_name: str, vendor_id: str) -> str:
    return f"{MIRROR_PREFIX}{vendor_name}/{vendor_id}/"


def standing(session: Session, vendor_name: str, vendor_id: str) -> Stand:
    """How far a conversation is on record: what its newest part says."""
    prefix = _prefix(vendor_name, vendor_id)
    for header in session.log.newest(("payload.kept",), headers=True, page=_PAGE):
        if header.id.startswith(prefix):
            generation = int(header.id.removeprefix(prefix).partition("/")[0])
            data = session.log.event(header.position).data
            if data is None:
                return Stand(None, generation, header.position, erased=True)
            return Stand(Mark(*data["mark_after"]), generation, header.position)
    return Stand(None, 0, 0)


def _begin_after_erasure(session: Session, of: Vendor, location: Location, stand: Stand) -> Stand:
    """Erased text is not copied again: the mirror continues with what is written from now on."""
    mark: Mark | None = None
    while (chunk := of.read(location, mark, limit=CHUNK_BYTES)).entries or chunk.torn:
        mark = chunk.mark
    after = chunk._replace(entries=[], torn=0, mark=mark or chunk.mark)
    position, _new = _keep(session, of.name, location, Stand(None, stand.generation + 1, 0), after, left_out=True)
    return Stand(after.mark, stand.generation + 1, position)


def mirror_all(
    session: Session, env: Mapping[str, str], *, agent: str | None = None, seconds: float | None = None
) -> list[Mirrored]:
    """Mirror every conversation of the session, or of one agent."""
    return [
        mirror(session, link["vendor"], link["id"], env, seconds=seconds)
        for link in links_of(session, agent)
    ]  # fmt: skip


def mirror_until_ended(
    session: Session, env: Mapping[str, str], done: list[Mirrored], *, agent: str | None = None
) -> Iterator[list[Mirrored]]:
    """Mirror until every process that has one of the conversations open has ended; yields the sums so far."""
    while any(_is_running(link) for link in links_of(session, agent)):
        time.sleep(FOLLOW_SECONDS)
        more = mirror_all(session, env, agent=agent)
        done = [
            new._replace(records=new.records + old.records, torn=new.torn + old.torn)
            for old, new in zip(done, more, strict=False)
        ] + more[len(done) :]
        yield done


def _is_running(link: Link) -> bool:
    process = (link["first"] | link["last"]).get("process")
    here = machine.identity()
    return isinstance(process, dict) and process.get("host") == here["host"] and not machine.is_gone(process)


def links_of(session: Session, agent: str | None = None) -> list[Link]:
    """The conversations of the session, or of one agent, as its agents have them in order."""
    agents = session.views.roster.agents
    return [link for name, one in agents.items() if agent in (None, name) for link in one["links"]]


def kept(session: Session, vendor_name: str, vendor_id: str) -> Iterator[Kept]:
    """The newest generation of a mirrored conversation: record by record, each with its position."""
    generation = standing(session, vendor_name, vendor_id).generation
    prefix, rest = f"{_prefix(vendor_name, vendor_id)}{generation}/", ""
    for event in _parts(session, prefix):
        lines = (event.data or {}).get("lines") or []
        goes_on = bool((event.data or {}).get("goes_on"))
        for number, line in enumerate(lines):
            if goes_on and number == len(lines) - 1:
                rest += line
            else:
                yield Kept(rest + line, event.position)
                rest = ""


def _parts(session: Session, prefix: str) -> Iterator[Event]:
    """The events of one generation in order, one in memory at a time."""
    for header in session.log.headers(("payload.kept",), page=_PAGE):
        if header.id.startswith(prefix):
            yield session.log.event(header.position)


def has_gaps(session: Session, vendor_name: str, vendor_id: str) -> bool:
    """Whether a part of the mirrored conversation was erased, so that it cannot be restored completely."""
    stand = standing(session, vendor_name, vendor_id)
    prefix = f"{_prefix(vendor_name, vendor_id)}{stand.generation}/"
    return stand.erased or any((event.data or {"left_out": True}).get("left_out") for event in _parts(session, prefix))
