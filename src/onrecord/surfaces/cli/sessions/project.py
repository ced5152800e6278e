"""`onrecord project`: which project a directory is, and moving sessions between projects."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onrecord.connection import project_here
from onrecord.errors import InvalidInput, NameTaken, SessionErased, SessionNotFound
from onrecord.log.head import LIVE
from onrecord.log.names import NAME_LIMIT
from onrecord.surfaces.cli.shared.exits import NotInitialised, UsageError
from onrecord.surfaces.cli.shared.output import counted
from onrecord.surfaces.cli.shared.place import act, need
from onrecord.views.render import one_line
from onrecord.work.project import DIRECTORY, FIRST_COMMIT, NAME_CHARACTERS, project_named, remember_link

if TYPE_CHECKING:
    from collections.abc import Iterator

    from onrecord.log.head import Head
    from onrecord.session.session_store import SessionStore
    from onrecord.surfaces.cli.shared.call import Call
    from onrecord.work.project import Project

NAMES_TRIED = 100
"""How many names are tried for a session whose name is taken in its new project."""
_PAGE = 500


def project_verb(call: Call) -> int:
    """Do what the first word says."""
    return act(call, {"show": _show, "link": _link, "move": _move, "merge": _merge}, "show")


def _chosen(call: Call) -> Project:
    name = call.get("project")
    return project_named(name) if name else project_here()


def _show(call: Call, words: list[str]) -> int:
    need(call, words)
    here = _chosen(call)
    try:
        records = call.records(make=False)
        counts = {name: _count(records, name) for name in here.names}
    except NotInitialised:  # a store that is not there yet has no sessions
        counts = dict.fromkeys(here.names, (0, 0))
    data = {
        "project": here.key, "known_by": _known_by(here), "also": list(here.also), "directory": here.root or None,
        "sessions": {name: {"all": whole, "live": live} for name, (whole, live) in counts.items()},
    }  # fmt: skip
    if call.output.json:
        call.output.envelope("project", data)
        return 0
    call.output.line(f"project    {here.key} ({_known_by(here)})")
    for name in here.also:
        call.output.line(f"also       {name}")
    whole, live = counts[here.key]
    call.output.line(f"sessions   {whole} ({live} live)")
    others = sum(counts[name][0] for name in here.also)
    if others:
        call.output.note(
            f"{counted(others, 'session')} under its other names; `onrecord project merge` moves them here"
        )
    return 0


def _known_by(here: Project) -> str:
    """What the key is."""
    if here.key == here.root:
        return "its path"
    if here.key.startswith(FIRST_COMMIT):
        return "its first commit"
    if here.key.startswith(DIRECTORY):
        return "its marker file .onrecord/project"
    return "its remote, or a link" if here.root else "its name"


def _count(records: SessionStore, project: str) -> tuple[int, int]:
    found = list(_sessions(records, project))
    return len(found), sum(head.status in LIVE for head in found)


def _sessions(records: SessionStore, project: str) -> Iterator[Head]:
    """Every session under one name of a project."""
    last = None
    while page := records.sessions(project=project, limit=_PAGE, before=last):
        yield from page
        last = page[-1]


def _link(call: Call, words: list[str]) -> int:
    """From now on, this directory belongs to another project."""
    (name,) = need(call, words, "PROJECT")
    wanted = project_named(name).key.strip()
    if not wanted or not wanted.isprintable() or len(wanted) > NAME_CHARACTERS:
        raise InvalidInput(f"{one_line(name, 80)!r} cannot be the name of a project")
    if not call.records().sessions(project=wanted, limit=1):
        call.confirm(f"The store has no session of {wanted}. Link this directory to it?")
    before = _chosen(call)
    if before.key == wanted:
        return call.output.done("project", {"project": wanted, "state": "already_linked"}, f"this is {wanted} already")
    file = remember_link(os.curdir, wanted)
    data = {"project": wanted, "was": before.key, "file": file, "state": "linked"}
    return call.output.done("project", data, f"this directory is {wanted} now ({file}); it was {before.key}")


def _move(call: Call, words: list[str]) -> int:
    """Move one session into this project."""
    (name,) = need(call, words, "SESSION")
    here, records = _chosen(call), call.records(make=False)
    head = records.find(name)
    if head.project == here.key:
        data = {"project": here.key, "sessions": [], "state": "already_there"}
        return call.output.done("project", data, f"{head.name} is in {here.key} already")
    return _told(call, here, [_moved(call, records, head, here)])


def _merge(call: Call, words: list[str]) -> int:
    """Move all sessions of another project into this one; without a name, those under this project's other names."""
    here, records = _chosen(call), call.records(make=False)
    others = [*(need(call, words, "PROJECT") if words else here.also)]
    if words and Path(others[0]).is_dir():
        others = [name for name in project_named(others[0]).names if name != here.key]
    found = [head for name in others for head in _sessions(records, name) if name != here.key]
    if words and not found:
        raise SessionNotFound(
            f"the store has no session of the project {one_line(words[0], 200)!r}",
            hint="`onrecord list --all` shows the project of every session",
        )
    if len(found) > 1 and words:
        call.confirm(f"Move {counted(len(found), 'session')} of {', '.join(others)} to {here.key}?")
    return _told(call, here, [_moved(call, records, head, here) for head in found])


def _moved(call: Call, records: SessionStore, head: Head, here: Project) -> dict[str, Any]:
    """Move one session; if its name is taken there, it gets a number."""
    session = records.handle(head.session, agent=call.agent())
    about = {"id": head.session, "was": head.name, "from": head.project}
    for number in range(1, NAMES_TRIED):
        ending = f"-{number}" if number > 1 else ""
        name = head.name[: NAME_LIMIT - len(ending)] + ending
        try:
            session.rename(name, project=here.key, place=here.root)
        except NameTaken:
            continue
        except SessionErased:
            return about | {"name": None}
        return about | {"name": name}
    raise UsageError(f"{head.name} cannot be moved: every name like it is taken", hint="rename it first")


def _told(call: Call, here: Project, moved: list[dict[str, Any]]) -> int:
    done = [one for one in moved if one["name"]]
    for one in done:
        if one["name"] != one["was"]:
            call.output.note(f"{one['was']} is {one['name']} here: the name was taken")
    if len(done) < len(moved):
        call.output.note(f"{counted(len(moved) - len(done), 'erased session')} stayed where they were")
    data = {"project": here.key, "sessions": moved, "state": "moved" if done else "nothing_to_move"}
    return call.output.done("project", data, f"moved {counted(len(done), 'session')} to {here.key}")
