"""Mirroring: the record gets a copy of an agent's vendor conversation as it grows, word for word.

How far it was read is deduced from the log: the newest `payload.kept` of a conversation says where the next one
begins, and that beginning is part of its id. So the same bytes are never recorded twice, also when a hook, a wrapper
and a person mirror at the same time. A file that the vendor rewrote begins a new generation (agents/generations.py).
Beside its records, a part carries what they say (agents/reading.py), which makes the conversation part of the
transcript. Files that belong to a conversation (subagents' transcripts, results of tools) are kept with it.
"""

from __future__ import annotations

import os
import time

from onrecord import machine
from onrecord.agents.beside import RECORDS, files_beside
from onrecord.agents.generations import Stand, event_id, has_gaps, kept, prefix_of, standing, standings
from onrecord.agents.reading import Read, read, says_something
from onrecord.errors import IdReused, NotFound
from onrecord.lean_typing import TYPE_CHECKING, Any, NamedTuple
from onrecord.log import digest
from onrecord.log.head import LIVE
from onrecord.session.funnel import clean_records, notice
from onrecord.vendors.known import load
from onrecord.vendors.transcripts import Chunk, Entry, Location, Mark

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from onrecord.redaction.values import Found
    from onrecord.session.handle import Session
    from onrecord.vendors.port import Vendor
    from onrecord.views.values import Link

__all__ = ["CHUNK_BYTES", "FOLLOW_SECONDS", "Mirrored", "Stand", "has_gaps", "kept", "links_of", "location_of",
           "mirror", "mirror_all", "mirror_until_ended", "standing"]  # fmt: skip

CHUNK_BYTES = 256 * 1024
"""About how many bytes of a transcript one event keeps, and one step of mirroring has in memory."""
PIECE_CHARACTERS = 8 * 1024 * 1024
"""A single record longer than this is kept in pieces of this length."""
FOLLOW_SECONDS = 0.75
"""How often a running conversation is mirrored while it is followed."""
STUB_BYTES = 64 * 1024
"""A file of more bytes is no stub."""
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


def location_of(link: Link, env: Mapping[str, str]) -> Location | None:
    """Where a recorded conversation is on this machine: by its recorded path, else by its id."""
    about = link["first"] | link["last"]
    of: Vendor = load(link["vendor"])
    if not of.is_id(link["id"]):
        return None  # the record may come from elsewhere: a short text would be found in any file
    path = about.get("transcript")
    if isinstance(path, str) and path and os.path.isfile(path):
        location = Location(link["id"], path, str(about.get("home") or ""), str(about.get("cwd") or ""))
        if _holds(of, location, env):
            return _with_words(of, location, env)
    return of.find(link["id"], env)


def _with_words(of: Vendor, location: Location, env: Mapping[str, str]) -> Location:
    """The location, or another file of the conversation if this one says nothing: a vendor may name a stub."""
    if os.path.getsize(location.path) > STUB_BYTES or says_something(of, location):
        return location
    found = of.find(location.vendor_id, env)
    return found if found is not None and found.path != location.path and says_something(of, found) else location


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
    of: Vendor = load(vendor_name)
    about = {"agent": link["agent"]} if link["agent"] != session.agent else {}
    done = _follow(session, of, location, done._replace(path=location.path), deadline, **about)
    for name, path in files_beside(of, location, session.id):
        further = location._replace(path=str(path))
        if path.suffix == RECORDS:
            more = _follow(session, of, further, done, deadline, beside=name, lane=path.stem, **about)
            done = done._replace(records=more.records, torn=more.torn, complete=more.complete)
        else:
            _keep_file(session, of.name, further, beside=name, **about)
        if deadline is not None and time.monotonic() >= deadline:
            return done._replace(complete=False)
    return done


def _follow(
    session: Session, of: Vendor, location: Location, done: Mirrored, deadline: float | None, **about: str
) -> Mirrored:
    beside = about.get("beside", "")
    stand, tries = standing(session, of.name, location.vendor_id, beside), 0
    if stand.generation and not stand.erased:
        stand = _fitting(session, of, location, beside) or stand
    if stand.unread and not has_gaps(session, of.name, location.vendor_id, generation=stand.generation):
        # Copied by an older version: the file is read once more, so that the transcript has it. Never what was erased.
        stand = Stand(None, _next(session, of.name, location.vendor_id, beside), 0)
    if stand.erased:
        stand = _begin_after_erasure(session, of, location, **about)
    while True:
        chunk = of.read(location, stand.mark, limit=CHUNK_BYTES)
        rewritten = chunk.rewritten and stand.mark is not None
        if rewritten and (other := _fitting(session, of, location, beside)) is not None:
            stand = other  # not a new file: another one that was read before
            continue
        done = done._replace(rewritten=done.rewritten or rewritten)
        if not chunk.entries and not chunk.torn and not rewritten:
            return done
        if rewritten:
            stand = Stand(None, _next(session, of.name, location.vendor_id, beside), 0)
        chunk, found = _redacted(session, of, chunk)
        read = _reading(session, of, location, stand, chunk, beside)
        try:
            position, new = _keep(session, of, location, stand, chunk, read, found, **about)
        except IdReused:
            # Another process began at the same offset and recorded more or less: continue after what it recorded.
            stands = standings(session, of.name, location.vendor_id, beside)
            stand, tries = next((one for one in stands if one.generation == stand.generation), stand), tries + 1
            if tries > _TRIES:
                return done._replace(complete=False)
            continue
        if new:
            done = done._replace(records=done.records + len(chunk.entries), torn=done.torn + chunk.torn)
        stand = Stand(chunk.mark, stand.generation, position, tip=read.tip)
        if deadline is not None and time.monotonic() >= deadline:
            return done._replace(complete=False)


def _fitting(session: Session, of: Vendor, location: Location, beside: str) -> Stand | None:
    """How far this very file is on record, if another file of the conversation was read since."""
    stands = standings(session, of.name, location.vendor_id, beside)
    fitting = [one for one in stands if one.mark is not None and not of.read(location, one.mark, limit=1).rewritten]
    return max(fitting, key=lambda one: one.mark.offset if one.mark else 0, default=None)


def _next(session: Session, vendor_name: str, vendor_id: str, beside: str) -> int:
    return max((stand.generation for stand in standings(session, vendor_name, vendor_id, beside)), default=-1) + 1


def _reading(session: Session, of: Vendor, location: Location, stand: Stand, chunk: Chunk, beside: str) -> Read:  # noqa: PLR0917  # one caller
    """What the chunk says, for the transcript."""

    def find(id_: str) -> tuple[int, int] | None:
        return _place(session, of, f"{prefix_of(of.name, location.vendor_id, beside)}{stand.generation}/", id_)

    return read(of, chunk.entries, stand.tip, find, _split([len(entry.raw) for entry in chunk.entries]))


def _place(session: Session, of: Vendor, prefix: str, id_: str) -> tuple[int, int] | None:
    """Where on record a record is, by its id: the newest parts are searched first, one in memory at a time."""
    for header in session.log.newest(("payload.kept",), headers=True, page=_PAGE):
        if header.id.startswith(prefix):
            lines = (session.log.event(header.position).data or {}).get("lines") or []
            for number, line in enumerate(lines):
                if id_ in line and of.parse(line).id == id_:
                    return header.position, number
    return None


def _split(lengths: list[int]) -> set[int]:
    """Which records `_pieces` divides among several events."""
    found, size = set(), 0
    for number, length in enumerate(lengths):
        if size + length > PIECE_CHARACTERS:
            found.add(number)
            size = (size + length) % PIECE_CHARACTERS or PIECE_CHARACTERS
        else:
            size += length
    return found


def _redacted(session: Session, of: Vendor, chunk: Chunk) -> tuple[Chunk, Found]:
    """The chunk without secrets, before anything is read from it: readings refer to parts of a record's text."""
    lines, found = clean_records(session.funnel, [entry.raw for entry in chunk.entries], session.head.project)
    if not found:
        return chunk, found
    entries = [
        entry if entry.raw == line else entry._replace(raw=line, items=of.parse(line).items if entry.items else ())
        for entry, line in zip(chunk.entries, lines, strict=True)
    ]
    return chunk._replace(entries=entries), found


def _keep(  # noqa: PLR0917  # as above
    session: Session, of: Vendor, location: Location, stand: Stand, chunk: Chunk, read: Read, found: Found, **about: Any
) -> tuple[int, bool]:
    """Append one chunk, all of it or nothing; a long record becomes several events in the same commit."""
    before = stand.mark or Mark()
    id_ = event_id(of.name, location.vendor_id, stand.generation, before.offset, about.get("beside", ""))
    # Further parts are small and many, and their ids say the same (`log.readings.part_of`).
    named = {"vendor": of.name, "vendor_id": location.vendor_id, "generation": stand.generation, "mark_before": [0]}
    shared = about if stand.mark is not None else named | about
    pieces = list(_pieces([entry.raw for entry in chunk.entries])) or [([], False)]
    drafts = []
    rows = iter(read.rows)
    for number, (lines, goes_on) in enumerate(pieces):
        whole = range(len(lines) - goes_on)
        said = [{"line": line} | row for line, found in zip(whole, rows, strict=False) for row in found]
        data: dict[str, Any] = shared | {"lines": lines, "reading": said}
        if goes_on:
            data["goes_on"] = True
        if number == 0 and stand.mark is None:
            data["source"] = {"path": location.path, "home": location.home, "cwd": location.cwd}
        if number == len(pieces) - 1:
            data["mark_after"] = [chunk.mark.offset, chunk.mark.extra]
            data |= {"torn": chunk.torn} if chunk.torn else {}
            data |= {"tip": read.tip} if read.tip else {}
        drafts.append(session.log.draft("payload.kept", data, id=f"{id_}.{number}" if number else id_))
    noticed = (
        [notice(drafts[-1], found, session.funnel.rules.policy_of(session.head.project), "lines/")] if found else []
    )
    if any(entry.usage for entry in chunk.entries):
        from onrecord.agents import counting

        part = counting.Part(location.vendor_id, id_)
        last = counting.last_of(session, part)
        with counting.Alone(location.home, last):
            events = session.log.append(*drafts, *counting.drafts(session, of, part, chunk, last), *noticed)
    else:
        events = session.log.append(*drafts, *noticed)
    # The same words recorded by another process have that one's salt, and so another hash.
    return events[len(drafts) - 1].position, events[0].payload_hash == drafts[0].payload_hash


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


def _keep_file(session: Session, vendor_name: str, location: Location, **about: str) -> None:
    """Keep a file that is no transcript, for instance the result of a tool: as a whole, if it changed."""
    from onrecord.vendors.jsonl import opened

    try:
        with opened(location.path) as file:
            text = file.read().decode()
    except (OSError, UnicodeDecodeError):
        return  # it is gone again, or its bytes are no text
    mark = Mark(len(text), {"digest": digest.sha256(text.encode()).hexdigest()[:32]})
    stand = standing(session, vendor_name, location.vendor_id, about["beside"])
    if stand.erased or stand.mark == mark:
        return
    begun = Stand(None, _next(session, vendor_name, location.vendor_id, about["beside"]), 0)
    made = Read("")
    made.rows.append([])
    chunk, found = _redacted(session, load(vendor_name), Chunk([Entry(text, "")], mark))
    try:
        _keep(session, load(vendor_name), location, begun, chunk, made, found, **about, whole=True)
    except IdReused:
        return  # another process keeps the next version of it at this moment


def _begin_after_erasure(session: Session, of: Vendor, location: Location, **about: str) -> Stand:
    """Erased text is not copied again: the mirror continues with what is written from now on."""
    mark: Mark | None = None
    while (chunk := of.read(location, mark, limit=CHUNK_BYTES)).entries or chunk.torn:
        mark = chunk.mark
    after = chunk._replace(entries=[], torn=0, mark=mark or chunk.mark)
    begun = Stand(None, _next(session, of.name, location.vendor_id, about.get("beside", "")), 0)
    position, _new = _keep(session, of, location, begun, after, Read(""), {}, **about, left_out=True)
    return Stand(after.mark, begun.generation, position)


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
