"""The conversations that agents had before onrecord was set up: found, dated and imported, each once."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from onrecord.agents.importing import in_directory, prompt_in, refuse_foreign, session_with, take_in
from onrecord.agents.naming import create_for_prompt
from onrecord.errors import OnrecordError
from onrecord.work.project import Project, project_at

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from onrecord.agents.importing import Imported
    from onrecord.session.session_store import SessionStore
    from onrecord.vendors.port import Entry, Location, Vendor

HISTORY_DAYS = 30
"""How far back setup offers to import conversations."""
LOOKED_AT_BYTES = 256 * 1024
"""How much of a conversation is read to know its first prompt and when it began."""


class Past(NamedTuple):
    """A conversation that is not on record yet."""

    of: Vendor
    location: Location
    prompt: str
    """What the person said first."""
    began: float
    """Seconds since 1970; the file's last change if its records have no times."""
    ended: float


def past(
    records: SessionStore, vendors: Sequence[Vendor], env: Mapping[str, str], directory: str | None, since: float
) -> list[Past]:
    """The conversations in a directory (None: anywhere) with a prompt and a change since then, the oldest first.

    Those on record are left out, and files that cannot be read.
    """
    found: list[Past] = []
    for of in vendors:
        for location in in_directory(of, env, directory) if directory else of.locations(env):
            try:
                one = _looked_at(of, location, since)
                if one is not None and session_with(records, of, location.vendor_id) is None:
                    found.append(one)
            except (OnrecordError, OSError, ValueError):
                continue
    return sorted(found, key=lambda one: one.began)


def _looked_at(of: Vendor, location: Location, since: float) -> Past | None:
    changed = Path(location.path).stat().st_mtime
    if changed < since:
        return None
    chunk = of.read(location, limit=LOOKED_AT_BYTES)
    prompt = prompt_in(of, chunk.entries)
    if not prompt:
        return None
    times = list(_times(chunk.entries))
    # Some vendors keep all conversations in one file, whose time says nothing about one of them.
    whole = not of.read(location, chunk.mark, limit=LOOKED_AT_BYTES).entries
    began, ended = (min(times), max(times) if whole else changed) if times else (changed, changed)
    return Past(of, location, prompt, began, max(began, ended)) if ended >= since else None


def _times(entries: Sequence[Entry]) -> Iterator[float]:
    for entry in entries:
        if entry.at:
            try:
                when = datetime.fromisoformat(entry.at)
            except ValueError:
                continue
            yield (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()


def import_past(records: SessionStore, one: Past, env: Mapping[str, str]) -> Imported:
    """Import one: into a session of its own, named and titled by its first prompt, dated by when it happened.

    The session belongs to the project of the directory in which the conversation began.
    """
    of, location = one.of, one.location
    known = session_with(records, of, location.vendor_id)
    if known is not None:
        return take_in(records, of, location, env)
    refuse_foreign(of, location)  # before a session is opened for it
    now, here = records.clock, (records.project, records.also, records.place)
    records.clock = lambda: one.began
    if location.cwd:
        there = project_at(location.cwd) if Path(location.cwd).is_dir() else Project(location.cwd)
        records.project, records.also, records.place = there.key, there.also, there.root
    try:
        made = create_for_prompt(records, one.prompt, agent=of.name, spare=of.name, vendor_id=location.vendor_id)
    finally:
        records.clock = now
        records.project, records.also, records.place = here
    made.clock = lambda: one.ended
    return take_in(records, of, location, env, session=made)
