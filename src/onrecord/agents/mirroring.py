"""Mirroring: an agent's vendor conversation is taken into the record as it grows, word for word.

How far it was read is deduced from the log: the newest `payload.kept` of a conversation says where the next one
begins, and that beginning is part of its id. So the same bytes are never taken twice, also when a hook, a wrapper and a
person mirror at the same time. A file that the vendor rewrote begins a new generation; the older one stays on record.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from onrecord.errors import IdReused, InvalidInput, NotFound
from onrecord.log.codec import ID_LIMIT, open_record
from onrecord.log.head import LIVE
from onrecord.vendors.port import Mark, Place, vendor

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from onrecord.log.events import Event
    from onrecord.session.handle import Session
    from onrecord.vendors.port import Chunk, Vendor

CHUNK_BYTES = 1024 * 1024
"""About how much of a transcript one event keeps, and one step of mirroring has in memory."""
PIECE_CHARACTERS = 8 * 1024 * 1024
"""A single record longer than this is kept in pieces of this length."""
MIRROR_PREFIX = "mirror/"
_PAGE = 200
_GLIMPSE = 16_384
_TRIES = 100
"""How often mirroring goes on after another process was quicker, before it leaves the rest to that one."""


class Mirrored(NamedTuple):
    """What one call of `mirror` did."""

    vendor: str
    vendor_id: str
    path: str
    """The vendor's file; empty when it is not there."""
    records: int = 0
    """How many records were taken in."""
    torn: int = 0
    """Lines that were cut off or no JSON: counted, not kept."""
    rewritten: bool = False
    """The vendor's file is another one than before: it was read anew."""
    complete: bool = True
    """Everything the file had was read; False when time ran out first."""
    why_not: str = ""
    """Why nothing could be mirrored, if so."""


class Stand(NamedTuple):
    """How far a conversation is on record."""

    mark: Mark | None
    generation: int
    position: int
    """Where the newest part stands in the log."""
    erased: bool = False


class Kept(NamedTuple):
    """One record of a mirrored conversation, and where it stands."""

    raw: str
    position: int


def place_of(link: dict[str, Any], env: Mapping[str, str]) -> Place | None:
    """Where a conversation of the record is on this machine: by its recorded path, else by its id."""
    about, of = link["first"] | link["last"], vendor(link["vendor"])
    path = about.get("transcript")
    if isinstance(path, str) and path and Path(path).is_file():
        place = Place(link["id"], path, str(about.get("home") or ""), str(about.get("cwd") or ""))
        if _holds(of, place, env):
            return place
    return of.find(link["id"], env)


def _holds(of: Vendor, place: Place, env: Mapping[str, str]) -> bool:
    """Whether a recorded path really is the conversation's: the record may come from elsewhere, the file be another."""
    path = Path(place.path)
    if place.vendor_id in path.parts[-2:] or path.stem == place.vendor_id:
        return path.resolve().is_relative_to(of.home(env).resolve()) or _speaks_of(of, place)
    return _speaks_of(of, place)


def _speaks_of(of: Vendor, place: Place) -> bool:
    return any(place.vendor_id in entry.raw for entry in of.read(place, limit=_GLIMPSE).entries)


def mirror(
    session: Session, vendor_name: str, vendor_id: str, env: Mapping[str, str], *, place: Place | None = None,
    seconds: float | None = None,
) -> Mirrored:  # fmt: skip
    """Take in what a conversation of this session has more than the record; at most for about `seconds`.

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
    place = place or place_of(link, env)
    if place is None or not Path(place.path).exists():
        return done._replace(why_not="the vendor's file is not there")
    deadline = None if seconds is None else time.monotonic() + seconds
    return _follow(session, vendor(vendor_name), place, done._replace(path=place.path), deadline)


def _follow(session: Session, of: Vendor, place: Place, done: Mirrored, deadline: float | None) -> Mirrored:
    stand, tries = standing(session, of.name, place.vendor_id), 0
    if stand.erased:
        stand = _begin_after_erasure(session, of, place, stand)
    while True:
        chunk = of.read(place, stand.mark, limit=CHUNK_BYTES)
        rewritten = chunk.rewritten and stand.mark is not None
        done = done._replace(rewritten=done.rewritten or rewritten)
        if not chunk.entries and not chunk.torn and not rewritten:
            return done
        if rewritten:
            stand = stand._replace(generation=stand.generation + 1, mark=None)
        try:
            position, new = _keep(session, of.name, place, stand, chunk)
        except IdReused:
            # Another process began at the same place and had more or less of it: go on from where that one stands.
            stand, tries = standing(session, of.name, place.vendor_id), tries + 1
            if tries > _TRIES:
                return done._replace(complete=False)
            continue
        if new:
            done = done._replace(records=done.records + len(chunk.entries), torn=done.torn + chunk.torn)
        stand = Stand(chunk.mark, stand.generation, position)
        if deadline is not None and time.monotonic() >= deadline:
            return done._replace(complete=False)


def _keep(
    session: Session, vendor_name: str, place: Place, stand: Stand, chunk: Chunk, **about: Any
) -> tuple[int, bool]:
    """Append one chunk, all of it or nothing; a long record becomes several events in the same commit."""
    before = stand.mark or Mark()
    id_ = _id(vendor_name, place.vendor_id, stand.generation, before.offset)
    shared = {
        "vendor": vendor_name, "vendor_id": place.vendor_id, "generation": stand.generation,
        "source": {"path": place.path, "home": place.home, "cwd": place.cwd}, **about,
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
        drafts.append(session.draft("payload.kept", data, id=f"{id_}.{number}" if number else id_))
    events = session.append(*drafts)
    # What another process had put on record in the same words has that one's salt, and so another hash.
    return events[-1].position, events[0].payload_hash == drafts[0].payload_hash


def _pieces(lines: list[str]) -> Iterator[tuple[list[str], bool]]:
    """Lines in lists of bounded size; True says that the last line of a list goes on in the next list."""
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
        raise InvalidInput(f"{vendor_id!r:.80} is not a conversation id")
    return id_


def _prefix(vendor_name: str, vendor_id: str) -> str:
    return f"{MIRROR_PREFIX}{vendor_name}/{vendor_id}/"


def standing(session: Session, vendor_name: str, vendor_id: str) -> Stand:
    """How far a conversation is on record: what its newest part says."""
    prefix, upto = _prefix(vendor_name, vendor_id), None
    while page := session.store.read(
        session.id, upto=upto, kinds=("payload.kept",), bodies=(), limit=_PAGE, backwards=True
    ):
        for record in page:
            if record.id.startswith(prefix):
                generation = int(record.id.removeprefix(prefix).partition("/")[0])
                (whole,) = session.store.read(session.id, after=record.position - 1, upto=record.position)
                data = open_record(whole).data
                if data is None:
                    return Stand(None, generation, record.position, erased=True)
                return Stand(Mark(*data["mark_after"]), generation, record.position)
        upto = page[-1].position - 1
    return Stand(None, 0, 0)


def _begin_after_erasure(session: Session, of: Vendor, place: Place, stand: Stand) -> Stand:
    """What was erased is not brought back: the mirror goes on with what is written from here on."""
    mark: Mark | None = None
    while (chunk := of.read(place, mark, limit=CHUNK_BYTES)).entries or chunk.torn:
        mark = chunk.mark
    after = chunk._replace(entries=[], torn=0, mark=mark or chunk.mark)
    position, _new = _keep(session, of.name, place, Stand(None, stand.generation + 1, 0), after, left_out=True)
    return Stand(after.mark, stand.generation + 1, position)


def mirror_all(
    session: Session, env: Mapping[str, str], *, agent: str | None = None, seconds: float | None = None
) -> list[Mirrored]:
    """Mirror every conversation of the session, or of one agent."""
    return [
        mirror(session, link["vendor"], link["id"], env, seconds=seconds)
        for link in links_of(session, agent)
    ]  # fmt: skip


def links_of(session: Session, agent: str | None = None) -> list[dict[str, Any]]:
    """The conversations of the session, or of one agent, as its agents have them in order."""
    agents = session.views.roster.agents
    return [link for name, one in agents.items() if agent in (None, name) for link in one["links"]]


def kept(session: Session, vendor_name: str, vendor_id: str) -> Iterator[Kept]:
    """A mirrored conversation as it was last: record by record, with the position each stands at."""
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
    after = 0
    while page := session.store.read(session.id, after=after, kinds=("payload.kept",), bodies=(), limit=_PAGE):
        for record in page:
            if record.id.startswith(prefix):
                (whole,) = session.store.read(session.id, after=record.position - 1, upto=record.position)
                yield open_record(whole)
        after = page[-1].position


def has_gaps(session: Session, vendor_name: str, vendor_id: str) -> bool:
    """Whether a part of the mirrored conversation was erased, so that it cannot be put back whole."""
    stand = standing(session, vendor_name, vendor_id)
    prefix = f"{_prefix(vendor_name, vendor_id)}{stand.generation}/"
    return stand.erased or any((event.data or {"left_out": True}).get("left_out") for event in _parts(session, prefix))
