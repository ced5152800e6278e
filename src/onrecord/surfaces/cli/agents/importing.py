"""Agents' conversations: mirror them, import older ones, restore a mirrored one."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onrecord.agents.generations import best, generations
from onrecord.agents.importing import in_directory, named, session_with, take_in, title_of
from onrecord.agents.mirroring import links_of, mirror_all, mirror_until_ended
from onrecord.agents.observing import note_stop
from onrecord.agents.restoring import plan_restore, replaced_in, restore_copy
from onrecord.agents.sessions import agent_with_conversation
from onrecord.errors import Conflict, InvalidInput, NotFound
from onrecord.surfaces.cli.agents import common
from onrecord.surfaces.cli.shared.call import whole_number
from onrecord.surfaces.cli.shared.exits import FAILED, UsageError
from onrecord.surfaces.cli.shared.output import counted
from onrecord.surfaces.cli.shared.shapes import session_data
from onrecord.views.render import ago
from onrecord.work.project import worktree_for

if TYPE_CHECKING:
    from onrecord.agents.importing import Imported
    from onrecord.agents.mirroring import Mirrored
    from onrecord.session.handle import Session
    from onrecord.surfaces.cli.shared.call import Call
    from onrecord.vendors.port import Location, Vendor


def mirror(call: Call) -> int:
    """Copy new messages from agents' conversations."""
    session = call.session()
    agent = call.get("agent")
    if not links_of(session, agent):
        raise NotFound(
            f"{session.name} has no conversation of a coding agent", hint="start an agent: `onrecord start claude`"
        )
    done = mirror_all(session, dict(os.environ), agent=agent)
    if "follow" in call:
        done = _follow(call, session, agent, done)
    if call.output.json:
        call.output.envelope("mirror", [one._asdict() for one in done])
    else:
        for one in done:
            call.output.line(_told(one))
    return FAILED if any(one.why_not for one in done) else 0


def _follow(call: Call, session: Session, agent: str | None, done: list[Mirrored]) -> list[Mirrored]:
    """Repeat until every process that has one of the conversations open has ended, or Ctrl-C."""
    try:
        for sums in mirror_until_ended(session, dict(os.environ), done, agent=agent):
            done = sums
            for name in {link["agent"] for link in links_of(session, agent)}:
                note_stop(call.records().get(session.id, agent=name), dict(os.environ))
    except KeyboardInterrupt:
        call.output.note("stopped; everything until now is recorded")
    return done


def _told(one: Mirrored) -> str:
    if one.why_not:
        return f"{one.vendor} {one.vendor_id}: not copied: {one.why_not}"
    torn = f", {counted(one.torn, 'incomplete line')}" if one.torn else ""
    again = ", read again because the file was replaced" if one.rewritten else ""
    return f"{one.vendor} {one.vendor_id}: {counted(one.records, 'new record')}{torn}{again}"


def import_vendor(call: Call) -> int:
    """List a vendor's conversations of this directory, or import one or all of them."""
    of, what = common.vendor_named(call.positional["FILE"]), call.positional.get("WHAT")
    env = dict(os.environ)
    if what is None and "all" not in call:
        return _list(call, of, list(in_directory(of, env, str(Path.cwd()))))
    if what is not None and "all" in call:
        raise UsageError("name one conversation or use --all, not both")
    locations = [named(of, env, what)] if what is not None else list(in_directory(of, env, str(Path.cwd())))
    if not locations:
        raise NotFound(f"{of.title} has no conversation that started in {Path.cwd()}", hint="name its file or its id")
    records = call.records()
    into = None
    if call.get("session"):
        into = records.get(str(call.get("session")), agent=call.get("agent") or of.name)
    if len(locations) > 1 and (into or call.get("as")):
        raise UsageError(
            f"{len(locations)} conversations cannot be imported into one session under one name",
            hint="import them one by one",
        )
    if what is None:
        _list(call, of, locations, quiet=call.output.json)
    done = []
    for location in locations:
        try:
            done.append(take_in(records, of, location, env, session=into, agent=call.get("agent"), name=call.get("as")))
        except (InvalidInput, Conflict) as refused:
            if what is not None:
                raise
            call.output.note(f"not imported: {refused.message}")
    return _imported(call, done)


def _imported(call: Call, done: list[Imported]) -> int:
    data = [
        session_data(one.session.refresh().head)
        | {"state": "imported" if one.new else "updated" if one.mirrored.records else "already_imported",
           "agent": one.session.agent, **one.mirrored._asdict()}
        for one in done
    ]  # fmt: skip
    if call.output.json:
        call.output.envelope("imports", data)
    else:
        for one in data:
            new, torn = counted(one["records"], "new record"), counted(one["torn"], "incomplete line")
            call.output.line(
                f"{one['state'].replace('_', ' ')}: {one['name']} ({one['agent']}), {new} of "
                f"{one['vendor']} {one['vendor_id']}" + (f", {torn}" if one["torn"] else "")
            )
    return 0


def _list(call: Call, of: Vendor, locations: list[Location], *, quiet: bool = False) -> int:
    records, now = call.records(), time.time()
    found = []
    for location in locations:
        known = session_with(records, of, location.vendor_id)
        changed = Path(location.path).stat().st_mtime
        found.append(location._asdict() | {
            "title": title_of(of, location), "changed_at": changed, "session": known.name if known else None,
        })  # fmt: skip
    if quiet:
        return 0
    if call.output.json:
        call.output.envelope("conversations", found)
        return 0
    rows = [
        [one["vendor_id"], ago(int(one["changed_at"] * 1e6), int(now * 1e6)), one["session"] or "-", one["title"]]
        for one in found
    ]
    call.output.table(("#conversation", "changed", "!session", "*title"), rows)
    if not found:
        call.output.note(f"{of.title} has no conversation that started in {Path.cwd()}")
    elif call.positional.get("WHAT") is None and "all" not in call:
        call.output.note(f"`onrecord import {of.name} ID` imports one, `onrecord import {of.name} --all` all of them")
    return 0


def restore(call: Call) -> int:
    """Write a mirrored conversation back where the vendor's program can resume it."""
    session = call.session()
    agent = agent_with_conversation(session, call.get("agent"))
    here = call.get("cwd") or worktree_for(session, os.curdir)
    if not Path(here).is_dir():
        raise UsageError(f"the directory {here} does not exist")
    chosen = call.get("generation")
    number = whole_number(chosen, "--generation") if chosen is not None else None
    planned = plan_restore(session, agent, here, call.get("cwd"), generation=number)
    data: dict[str, Any] = {
        "session": session.id, "agent": agent, "vendor": planned.of.name, "vendor_id": planned.vendor_id,
        "cwd": planned.cwd, "home": str(planned.of.home(planned.env)),
        "generation": best(session, planned.of.name, planned.vendor_id) if number is None else number,
        "generations": generations(session, planned.of.name, planned.vendor_id),
        "next": f"onrecord resume {session.name} --agent {agent}",
    }  # fmt: skip
    if "dry-run" in call:
        data |= {"state": "would_restore"}
        return call.output.done(
            "restore", data,
            f"would restore {planned.vendor_id} below {data['home']}, to be resumed in {planned.cwd}",
        )  # fmt: skip
    foreign = ", which came from another store," if planned.copy_from_elsewhere else ""
    call.confirm(f"Restore the conversation {planned.vendor_id}{foreign} below {data['home']}?")
    session = call.records().get(session.id, agent=agent)
    location = restore_copy(session, planned)
    data |= {"state": "restored", "transcript": location.path, "position": session.head.position}
    data["replaced"] = replaced_in(session, planned)
    if data["replaced"]:
        said = ", ".join(f"{rule} {count}" for rule, count in data["replaced"].items())
        call.output.note(f"secrets were replaced when it was copied, so the restored file has placeholders: {said}")
    others = [one for one in data["generations"] if one != data["generation"]]
    if others:
        numbers = ", ".join(map(str, others))
        call.output.note(f"this is generation {data['generation']}; the record also has {numbers} (`--generation N`)")
    return call.output.done("restore", data, f"restored {location.path}; next: `{data['next']}`")
