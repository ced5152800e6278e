"""Agents' conversations in and out: mirror them, take in those that were there before, put a mirrored one back."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onrecord import machine
from onrecord.agents.importing import in_directory, named, session_with, take_in, title_of
from onrecord.agents.mirroring import has_gaps, links_of, mirror_all, standing
from onrecord.agents.resuming import plan, put_back
from onrecord.errors import Conflict, NotFound
from onrecord.surfaces.cli.agents import common
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
    from onrecord.vendors.port import Place, Vendor

FOLLOW_SECONDS = 2.0
"""How often `mirror --follow` looks."""


def mirror(call: Call) -> int:
    """Take in what the agents' conversations have more than the record."""
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
    """Go on until every process that has one of the conversations is gone, or Ctrl-C."""
    try:
        while any(_alive(link) for link in links_of(session, agent)):
            time.sleep(FOLLOW_SECONDS)
            more = mirror_all(session, dict(os.environ), agent=agent)
            done = [
                new._replace(records=new.records + old.records, torn=new.torn + old.torn)
                for old, new in zip(done, more, strict=False)
            ] + more[len(done) :]
    except KeyboardInterrupt:
        call.output.note("stopped; everything until now is recorded")
    return done


def _alive(link: dict[str, Any]) -> bool:
    process = (link["first"] | link["last"]).get("process")
    here = machine.identity()
    return isinstance(process, dict) and process.get("host") == here["host"] and not machine.is_gone(process)


def _told(one: Mirrored) -> str:
    if one.why_not:
        return f"{one.vendor} {one.vendor_id}: not copied: {one.why_not}"
    torn = f", {counted(one.torn, 'incomplete line')}" if one.torn else ""
    again = ", read again because the file was replaced" if one.rewritten else ""
    return f"{one.vendor} {one.vendor_id}: {counted(one.records, 'new record')}{torn}{again}"


def import_vendor(call: Call) -> int:
    """List a vendor's conversations of this directory, or take one or all of them in."""
    of, what = common.vendor_named(call.positional["FILE"]), call.positional.get("WHAT")
    env = dict(os.environ)
    if what is None and "all" not in call:
        return _list(call, of, list(in_directory(of, env, str(Path.cwd()))))
    if what is not None and "all" in call:
        raise UsageError("name one conversation or use --all, not both")
    places = [named(of, env, what)] if what is not None else list(in_directory(of, env, str(Path.cwd())))
    if not places:
        raise NotFound(f"{of.title} has no conversation that started in {Path.cwd()}", hint="name its file or its id")
    records = call.records()
    into = None
    if call.get("session"):
        into = records.get(str(call.get("session")), agent=call.get("agent") or of.name)
    if len(places) > 1 and (into or call.get("as")):
        raise UsageError(f"{len(places)} conversations cannot be one agent's", hint="import them one by one")
    if what is None:
        _list(call, of, places, quiet=call.output.json)
    done = [
        take_in(records, of, place, env, session=into, agent=call.get("agent"), name=call.get("as")) for place in places
    ]
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


def _list(call: Call, of: Vendor, places: list[Place], *, quiet: bool = False) -> int:
    records, now = call.records(), time.time()
    found = []
    for place in places:
        known = session_with(records, of, place.vendor_id)
        changed = Path(place.path).stat().st_mtime
        found.append(place._asdict() | {
            "title": title_of(of, place), "changed_at": changed, "session": known.name if known else None,
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
    call.output.table(("#conversation", "changed", "session", "*title"), rows)
    if not found:
        call.output.note(f"{of.title} has no conversation that started in {Path.cwd()}")
    elif call.positional.get("WHAT") is None and "all" not in call:
        call.output.note(f"`onrecord import {of.name} ID` imports one, `onrecord import {of.name} --all` all of them")
    return 0


def restore(call: Call) -> int:
    """Put a mirrored conversation back where the vendor's program can resume it."""
    session = call.session()
    agent = common.agent_of(call, session)
    here = call.get("cwd") or worktree_for(session.head.project, os.curdir)
    if not Path(here).is_dir():
        raise UsageError(f"the directory {here} does not exist")
    planned = plan(session, agent, common.environment(session, here), here)
    cwd = str(Path(call.get("cwd") or planned.cwd).resolve())
    stand = standing(session, planned.of.name, planned.vendor_id)
    if not stand.position:
        raise NotFound(f"{planned.vendor_id} is not mirrored", hint=f"mirror it: `onrecord mirror {session.name}`")
    if has_gaps(session, planned.of.name, planned.vendor_id):
        raise Conflict(
            "the mirrored conversation is incomplete: part of it was erased",
            hint=f"start from the note: `onrecord resume {session.name} --policy never`",
        )
    there = planned.of.find(planned.vendor_id, planned.env)
    home = planned.of.home(planned.env)
    data: dict[str, Any] = {
        "session": session.id, "agent": agent, "vendor": planned.of.name, "vendor_id": planned.vendor_id, "cwd": cwd,
        "home": str(home), "next": f"onrecord resume {session.name} --agent {agent}",
    }  # fmt: skip
    if there is not None and (planned.of.capabilities.resumes_elsewhere or there.cwd == cwd):
        raise Conflict(
            f"{planned.of.title} already has this conversation, in {there.path}",
            hint=f"nothing was replaced; resume it: `{data['next']}`",
        )
    if "dry-run" in call:
        data |= {"state": "would_restore"}
        return call.output.done(
            "restore", data, f"would restore {planned.vendor_id} below {home}, to be resumed in {cwd}"
        )
    call.confirm(f"Restore the conversation {planned.vendor_id} below {home}?")
    place = put_back(session, planned, cwd)
    session = call.records().get(session.id, agent=agent)
    session.locate(planned.of.name, planned.vendor_id, cwd=cwd, home=place.home, transcript=place.path)
    data |= {"state": "restored", "transcript": place.path, "position": session.head.position}
    return call.output.done("restore", data, f"restored {place.path}; next: `{data['next']}`")
