"""Taking in conversations that were there before onrecord: listed, opened as sessions, linked and mirrored."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from onrecord.agents.mirroring import mirror
from onrecord.errors import NameTaken, NotFound
from onrecord.log.names import NAME_LIMIT
from onrecord.log.text import text_of
from onrecord.session.agents import link_id
from onrecord.vendors.hooks import IMPORTED
from onrecord.views.render import clip

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from onrecord.agents.mirroring import Mirrored
    from onrecord.session.handle import Session
    from onrecord.session.records import Records
    from onrecord.vendors.port import Place, Vendor

TITLE_CHARACTERS = 100
_SHORT_ID = 8


class Imported(NamedTuple):
    """One conversation that was taken in."""

    session: Session
    place: Place
    mirrored: Mirrored
    new: bool
    """Its session was opened for it just now, or it was linked to one."""


def in_directory(of: Vendor, env: Mapping[str, str], directory: str) -> Iterator[Place]:
    """The conversations that were begun in a directory or below it."""
    top = Path(directory).resolve()
    for place in of.places(env):
        if place.cwd and Path(place.cwd).resolve().is_relative_to(top):
            yield place


def named(of: Vendor, env: Mapping[str, str], what: str) -> Place:
    """The conversation of an id or in a file."""
    path = Path(what).expanduser()
    found = of.place_at(path, env) if path.is_file() else of.find(what, env)
    if found is None:
        raise NotFound(
            f"{of.title} has no conversation {what!r:.200}",
            hint="name a conversation that the vendor has",
            step="list_conversations",
            vendor=of.name,
        )
    return found


def session_with(records: Records, of: Vendor, vendor_id: str) -> Session | None:
    """The session that has a conversation on record already, opened as the agent whose it is."""
    for id_ in records.store.linked(link_id(of.name, vendor_id)):
        session = records.get(id_)
        link = session.views.roster.link(of.name, vendor_id)
        if link is not None:
            return records.get(id_, agent=link["agent"])
    return None


def take_in(
    records: Records, of: Vendor, place: Place, env: Mapping[str, str], *, session: Session | None = None,
    agent: str | None = None, name: str | None = None, reason: str = IMPORTED,
) -> Imported:  # fmt: skip
    """Link a conversation and mirror it: into the session that has it, the given one, or a new one."""
    known = session_with(records, of, place.vendor_id)
    target = known or session or _open(records, of, place, agent or of.name, name)
    if known is None:
        target.locate(
            of.name, place.vendor_id, reason=reason, cwd=place.cwd, home=place.home, transcript=place.path
        )  # fmt: skip
    done = mirror(target, of.name, place.vendor_id, env, place=place)
    return Imported(target, place, done, known is None)


def _open(records: Records, of: Vendor, place: Place, agent: str, name: str | None) -> Session:
    made = records.create(name, agent=agent) if name else _with_free_name(records, of, place, agent)
    title = title_of(of, place)
    if title:
        made.record("session.titled", {"text": title})
    return made


def _with_free_name(records: Records, of: Vendor, place: Place, agent: str) -> Session:
    """A name made from the id: as much of it as makes the name free."""
    letters = "".join(letter for letter in place.vendor_id if letter.isascii() and letter.isalnum())
    for length in range(_SHORT_ID, NAME_LIMIT - len(of.name) - 1):
        try:
            return records.create(f"{of.name}-{letters[:length]}", agent=agent)
        except NameTaken:
            if length >= len(letters):
                raise
    raise NameTaken(f"every name for {place.vendor_id} is already in use")


def title_of(of: Vendor, place: Place) -> str:
    """What the person asked first."""
    chunk = of.read(place, limit=256 * 1024)
    for entry in chunk.entries:
        for item in entry.items:
            said = " ".join(text_of(item.get("content")).split())
            if item.get("role") == "user" and said and not said.startswith("<"):
                return clip(said, TITLE_CHARACTERS)
    return ""
