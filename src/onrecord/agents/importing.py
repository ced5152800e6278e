"""Importing conversations that are older than onrecord: list them, open sessions for them, link and mirror them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from onrecord.agents.mirroring import mirror
from onrecord.agents.naming import title_of_prompt
from onrecord.agents.reading import says_something
from onrecord.errors import Conflict, InvalidInput, NameTaken, NotFound, OnrecordError
from onrecord.log.names import NAME_LIMIT
from onrecord.log.text import text_of
from onrecord.vendors.hooks import IMPORTED
from onrecord.vendors.port import VENDORS, vendor

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from onrecord.agents.mirroring import Mirrored
    from onrecord.session.handle import Session
    from onrecord.session.session_store import SessionStore
    from onrecord.vendors.port import Entry, Location, Vendor

_SHORT_ID = 8
_GLIMPSE = 256 * 1024
"""How many bytes of a file show whose it is."""


class Imported(NamedTuple):
    """One imported conversation."""

    session: Session
    location: Location
    mirrored: Mirrored
    new: bool
    """Whether it was not on record before."""


def in_directory(of: Vendor, env: Mapping[str, str], directory: str) -> Iterator[Location]:
    """The conversations that began in a directory or below it."""
    top = Path(directory).resolve()
    for location in of.locations(env):
        if location.cwd and Path(location.cwd).resolve().is_relative_to(top):
            yield location


def named(of: Vendor, env: Mapping[str, str], what: str) -> Location:
    """The conversation of an id or in a file."""
    path = Path(what).expanduser()
    found = of.location_at(path, env) if path.is_file() else of.find(what, env)
    if found is None:
        raise NotFound(
            f"{of.title} has no conversation {what!r:.200}",
            hint="name a conversation that the vendor has",
            step="list_conversations",
            vendor=of.name,
        )
    return found


def session_with(records: SessionStore, of: Vendor, vendor_id: str) -> Session | None:
    """The session that has a conversation on record already, opened as the conversation's agent."""
    for id_ in records.linked(of.name, vendor_id):
        session = records.get(id_)
        link = session.views.roster.link(of.name, vendor_id)
        if link is not None:
            return records.get(id_, agent=link["agent"])
    return None


def take_in(
    records: SessionStore, of: Vendor, location: Location, env: Mapping[str, str], *, session: Session | None = None,
    agent: str | None = None, name: str | None = None, reason: str = IMPORTED,
) -> Imported:  # fmt: skip
    """Link a conversation and mirror it: into the session that has it, the given one, or a new one."""
    known = session_with(records, of, location.vendor_id)
    refuse_foreign(of, location)
    if known is not None and reason == IMPORTED and not says_something(of, location):
        raise Conflict(
            f"{location.path} has no message, and {known.name} has this conversation already",
            hint="name the file with the messages; nothing was imported",
        )
    target = known or session or _open(records, of, location, agent or of.name, name)
    if known is None:
        target.agents.locate(
            of.name, location.vendor_id, reason=reason, cwd=location.cwd, home=location.home, transcript=location.path
        )  # fmt: skip
    done = mirror(target, of.name, location.vendor_id, env, location=location)
    return Imported(target, location, done, known is None)


def refuse_foreign(of: Vendor, location: Location) -> None:
    """Refuse a file whose records are mostly unknown to the vendor: another program's, or a capture of its output."""
    entries = of.read(location, limit=_GLIMPSE).entries
    unknown = sum(not entry.known for entry in entries)
    if unknown * 2 <= len(entries):
        return
    fitting = [name for name in VENDORS if name != of.name and _fits(vendor(name), location)]
    hint = f"it looks like a file of {vendor(fitting[0]).title}" if fitting else "name the file that the program keeps"
    raise InvalidInput(
        f"{location.path} is not a conversation of {of.title}: "
        f"{unknown} of its first {len(entries)} records are unknown",
        hint=f"{hint}; nothing was imported",
    )


def _fits(of: Vendor, location: Location) -> bool:
    try:
        entries = of.read(location, limit=_GLIMPSE).entries
    except OnrecordError:
        return False
    return bool(entries) and sum(entry.known for entry in entries) * 2 > len(entries) and says_something(of, location)


def _open(records: SessionStore, of: Vendor, location: Location, agent: str, name: str | None) -> Session:
    made = records.create(name, agent=agent) if name else _with_free_name(records, of, location, agent)
    title = title_of(of, location)
    if title:
        made.log.record("session.titled", {"text": title})
    return made


def _with_free_name(records: SessionStore, of: Vendor, location: Location, agent: str) -> Session:
    """A name made from the id: as many of its characters as make the name unique."""
    letters = "".join(letter for letter in location.vendor_id if letter.isascii() and letter.isalnum())
    for length in range(_SHORT_ID, NAME_LIMIT - len(of.name) - 1):
        try:
            return records.create(f"{of.name}-{letters[:length]}", agent=agent)
        except NameTaken:
            if length >= len(letters):
                raise
    raise NameTaken(f"no free name is left for {location.vendor_id}")


def title_of(of: Vendor, location: Location) -> str:
    """The person's first prompt, as a title."""
    return title_of_prompt(first_prompt(of, location))


def first_prompt(of: Vendor, location: Location) -> str:
    """What the person said first; "" if that is not near the beginning. Text that the program added does not count."""
    return prompt_in(of, of.read(location, limit=256 * 1024).entries)


def prompt_in(of: Vendor, entries: Iterable[Entry]) -> str:
    """The first of these records' prompts."""
    for entry in entries:
        for item in entry.items:
            said = text_of(item.get("content")).strip()
            if item.get("role") == "user" and said and not said.startswith(tuple(of.not_said)):
                return said
    return ""
