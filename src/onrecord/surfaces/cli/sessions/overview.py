"""A bare `onrecord`: the sessions of this project; those that need a person come first."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from onrecord.agents.noticing import notice
from onrecord.log.head import LIVE, STATUSES, Head
from onrecord.session.handle import Session
from onrecord.surfaces.cli.shared.attention import SHAPES, needs, presence
from onrecord.surfaces.cli.shared.exits import NotInitialised
from onrecord.surfaces.cli.shared.output import Cell, counted
from onrecord.surfaces.cli.shared.shapes import session_data
from onrecord.views.render import ago

if TYPE_CHECKING:
    from onrecord.session.session_store import SessionStore
    from onrecord.surfaces.cli.shared.call import Call

SHOWN = 20
"""How many sessions the overview shows without --limit."""
LOOKED_AT = 100
"""In how many of the newest live sessions the overview looks for something that needs a person."""
ENDED_SHOWN = 3
"""How many sessions that have ended are shown below the live ones."""

ENDED = tuple(status for status in STATUSES if status not in LIVE)

Entry = dict[str, Any]


def overview(call: Call) -> int:
    """Show the sessions of this project."""
    try:
        records = call.records(make=False)
    except NotInitialised:
        return _nothing(call, "no store yet")
    notice(records, os.environ, project="" if "all" in call else None)
    entries, more = _entries(call, records)
    if call.output.json:
        place = {"store": records.url, "project": records.project}
        sessions = [entry["session"] | {"needs": entry["needs"], "working": entry["working"]} for entry in entries]
        call.output.envelope("overview", place | {"sessions": sessions, "more": more})
        return 0
    if not entries:
        return _nothing(call, _elsewhere(records))
    call.output.table(("!", "#session", "!status", "*what", "active"), [_row(call, entry) for entry in entries])
    waiting = sum(bool(entry["needs"]) for entry in entries)
    if waiting and call.output.terminal:
        first = next(entry["session"]["name"] for entry in entries if entry["needs"])
        call.output.note(f"{counted(waiting, 'session needs', 'sessions need')} you; see `onrecord show {first}`")
    if more:
        call.output.note("there are more: `onrecord list` lists them")
    return 0


def _entries(call: Call, records: SessionStore) -> tuple[list[Entry], bool]:
    limit = call.number("limit") or SHOWN
    project = "" if "all" in call else None
    # More sessions are read than shown: an older one that needs a person must not be missed.
    live = records.sessions(project=project, status=LIVE, limit=max(limit, LOOKED_AT))
    ended = records.sessions(project=project, status=ENDED, limit=limit)
    entries = [_entry(call, records, head) for head in live]
    entries.sort(key=lambda entry: not entry["needs"])
    room = max(0, min(limit - len(entries), ENDED_SHOWN if live else limit))
    more = len(entries) > limit or len(ended) > room
    return entries[:limit] + [_ended(head) for head in ended[:room]], more


def _entry(call: Call, records: SessionStore, head: Head) -> Entry:
    session = Session(records.store, head.session, clock=records.clock)
    here = presence(session, call.now())
    facts = session.views.facts
    following = facts.next_action["text"] if facts.next_action else ""
    return {
        "session": session_data(session.head), "needs": needs(session, here), "next": following,
        "working": [lease.lane for lease in here.working], "at": head.at,
    }  # fmt: skip


def _ended(head: Head) -> Entry:
    return {"session": session_data(head), "needs": [], "next": "", "working": [], "at": head.at}


def _row(call: Call, entry: Entry) -> list[str | Cell]:
    session, reasons = entry["session"], entry["needs"]
    status = "working" if entry["working"] else session["status"]
    what = "; ".join(reasons) or (f"next: {entry['next']}" if entry["next"] else session["title"])
    live = session["status"] in LIVE
    ordinary = "" if live else "quiet"
    if not call.output.terminal:
        mark = "needs-you" if reasons else ""
        return [session["name"], status, mark, what, session["last_activity_at"]]
    return [
        Cell("!" if reasons else SHAPES[status], "attention" if reasons else ordinary),
        Cell(session["name"], "strong" if live else ordinary),
        Cell(status, ordinary),
        Cell(what, "attention" if reasons else ordinary),
        Cell(ago(entry["at"], call.now()), "quiet"),
    ]


def _elsewhere(records: SessionStore) -> str:
    others = records.sessions(project="", limit=1)
    return (
        "no sessions in this project; `onrecord list --all` lists those of all projects"
        if others
        else "no sessions yet"
    )


def _nothing(call: Call, why: str) -> int:
    """Show a newcomer the first two commands."""
    if call.output.json:
        call.output.envelope("overview", {"store": None, "project": None, "sessions": [], "more": False})
        return 0
    call.output.note(why)
    call.output.note("start a session: onrecord open fix-login --objective 'Fix the login error'")
    call.output.note("watch a demo:    onrecord demo")
    return 0
