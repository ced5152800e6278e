"""The agents' part of `onrecord doctor`: programs, hooks, and transcripts that vendors will delete.

No program is started for it: versions are read from where the programs are installed.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from onrecord.agents.mirroring import location_of, standing
from onrecord.errors import OnrecordError
from onrecord.machine.wall_clock import local_day
from onrecord.session.handle import Session
from onrecord.setup import installing
from onrecord.setup.commands import installed_vendors
from onrecord.surfaces import trouble
from onrecord.surfaces.cli.shared.output import counted
from onrecord.surfaces.cli.upkeep.checks import Check
from onrecord.vendors.port import PROJECT_SCOPE, USER_SCOPE, VENDORS, vendor
from onrecord.views.render import ago, one_line
from onrecord.work.project import find_worktree

if TYPE_CHECKING:
    from onrecord.session.session_store import SessionStore
    from onrecord.vendors.port import Vendor
    from onrecord.views.values import Link

SESSIONS_LOOKED_AT = 50
"""How many of the newest sessions are searched for agents' conversations."""
CONVERSATIONS_SHOWN = 5
"""How many of the conversations that a vendor will delete are named, the next ones first."""
PACKAGE_LEVELS = 5
"""How many directories above a program are searched for its package's description."""
DAY = 86_400


def agents(records: SessionStore | None) -> list[Check]:
    """The coding agents on this machine and in this store."""
    links = _links(records) if records is not None else []
    checks = [_agent(of, links, records) for of in installed_vendors()]
    if not checks:
        checks.append(Check("agents", "info", "no coding agent is installed"))
    checks += _expiring(links)
    if last := trouble.last():
        checks.append(Check("hook trouble", "info", one_line(last, 200), f"see {trouble.path()}"))
    return checks


def _links(records: SessionStore) -> list[tuple[Session, Link]]:
    """Conversations on record, with their sessions; those of vendors that this version does not know are left out."""
    found = []
    for head in records.sessions(project="", limit=SESSIONS_LOOKED_AT):
        session = records.handle(head.session)
        try:
            roster = session.views.roster
        except OnrecordError:
            continue  # a damaged log is reported elsewhere
        found += [
            (session, link) for agent in roster.agents.values() for link in agent["links"] if link["vendor"] in VENDORS
        ]
    return found


def _agent(of: Vendor, links: list[tuple[Session, Link]], records: SessionStore | None) -> Check:
    program = next((path for name in of.programs if (path := shutil.which(name))), None)
    said = [f"{of.title} {version_of(program)}" if program else f"{of.title}: no program on PATH"]
    if not of.capabilities.verified:
        said.append("supported from its documentation, not tested with the program")
    root = Path(find_worktree(os.curdir))
    places = {scope: installing.Target(scope, root, os.environ) for scope in (PROJECT_SCOPE, USER_SCOPE)}
    counts = {scope: len(installing.installed_commands(of, place)) for scope, place in places.items()}
    there = [f"{count} for this {scope}" for scope, count in counts.items() if count]
    package = installing.package_of(of, places[USER_SCOPE])
    brought = len(installing.package_commands(of, package)) if package else 0
    there += [f"{brought} of the package"] if brought else []
    said.append(f"hooks: {', '.join(there)}" if there else "no hooks")
    seen = [
        link["seen_at"] for _session, link in links if link["vendor"] == of.name and link["last"].get("via") == "hook"
    ]
    if there or seen:
        now = int(records.clock() * 1e6) if records is not None else 0
        said.append(f"last used {ago(max(seen), now)}" if seen else "never used")
    said.append(f"briefs of up to {of.capabilities.context_bytes:,} bytes")
    if package is not None and any(installing.is_double(of, place) for place in places.values()):
        advice = f"it is set up twice; `{package.uninstall}` or `onrecord setup {of.name} --remove` leaves one"
        return Check(f"agent {of.name}", "wrong", "; ".join(said), advice)
    doubts = [line for place in places.values() for line in installing.doubts(of, place)]
    if doubts:
        return Check(f"agent {of.name}", "wrong", "; ".join(said), "; ".join(doubts))
    advice = "" if there else f"`onrecord setup {of.name}` installs them"
    return Check(f"agent {of.name}", "info", "; ".join(said), advice)


def version_of(program: str) -> str:
    """The version in the description of the package a program belongs to, if there is one."""
    for folder in list(Path(os.path.realpath(program)).parents)[:PACKAGE_LEVELS]:
        try:
            about = json.loads((folder / "package.json").read_bytes())
        except (OSError, ValueError):
            continue
        if isinstance(about, dict) and about.get("version"):
            return one_line(str(about["version"]), 40)
    return "(unknown version)"


def _expiring(links: list[tuple[Session, Link]]) -> list[Check]:
    """Transcripts that a vendor's own retention will delete, and whether the record has them."""
    found = []
    for session, link in links:
        of = vendor(link["vendor"])
        try:
            place = location_of(link, os.environ)
            when = of.expires_at(place, os.environ) if place is not None else None
        except (OnrecordError, OSError):
            continue
        if when is not None:
            kept = standing(session, link["vendor"], link["id"]).position > 0
            found.append((when, of, link["id"], session.name, kept))
    found.sort(key=lambda one: one[0])
    checks = []
    for when, of, id_, name, kept in found[:CONVERSATIONS_SHOWN]:
        day = local_day(int(when * 1e6))
        told = "it is mirrored" if kept else "it is not mirrored yet"
        advice = "" if kept else f"`onrecord import {of.name} {id_} --session {name}` mirrors it"
        checks.append(Check("transcript", "info", f"{of.title} deletes {id_} of {name} on {day}; {told}", advice))
    if len(found) > CONVERSATIONS_SHOWN:
        checks.append(
            Check(
                "transcript",
                "info",
                f"{counted(len(found) - CONVERSATIONS_SHOWN, 'more transcript')} will be deleted later",
            )
        )
    return checks
