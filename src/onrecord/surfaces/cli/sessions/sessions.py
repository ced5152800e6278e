"""Starting and finding sessions: open, list, search."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from onrecord.agents.noticing import notice
from onrecord.connection import load_profile
from onrecord.errors import NameTaken
from onrecord.log.head import LIVE
from onrecord.log.names import check_name
from onrecord.log.text import words_of
from onrecord.surfaces.cli.shared.call import any_number, pairs
from onrecord.surfaces.cli.shared.exits import NotInitialised
from onrecord.surfaces.cli.shared.hints import hint_of
from onrecord.surfaces.cli.shared.output import Cell
from onrecord.surfaces.cli.shared.shapes import event_data, session_data

if TYPE_CHECKING:
    from onrecord.log.head import Head
    from onrecord.session.handle import Session
    from onrecord.session.session_store import SessionStore
    from onrecord.surfaces.cli.shared.call import Call
    from onrecord.views.values import Profile

LISTED = 50
"""How many sessions a list shows without --limit."""
FOUND = 20
"""How many search results are shown without --limit."""


def open_session(call: Call) -> int:
    """Start a session, or find the one of this name. No process is left behind, so no lane is taken."""
    name, objective = call.positional["NEW"], call.get("objective")
    check_name(name)  # before a store is created for nothing
    records = call.records()
    budget = {key: any_number(value, f"--budget {key}") for key, value in pairs(call.many("budget"), "--budget")}
    metadata = dict(pairs(call.many("meta"), "--meta"))
    profile = load_profile(call.get("profile") or "") if "profile" in call else None
    agent = call.agent()
    try:
        session = records.create(name, agent=agent, objective=objective, metadata=metadata, budget=budget)
        state = "opened"
    except NameTaken:
        session, state = _existing(records, name, agent), "already_open"
        if objective and session.views.facts.purpose != objective:
            session.facts.set_objective(objective)
        if budget and session.views.spend.budget != budget:
            session.budget.set(**budget)
    _equip(call, session, profile)
    head = session.views.head
    if state != "opened" and head.status == "paused":
        call.output.note(f"it is paused; `onrecord resume {head.name}` resumes it")
    sentence = f"{state.replace('_', ' ')}: {head.name} ({head.session}), {head.status} at position {head.position}"
    return call.output.done("session", session_data(head) | {"state": state}, sentence)


def _equip(call: Call, session: Session, profile: Profile | None) -> None:
    """Choose the profile and render STATE.md before anything else happens in the session."""
    if profile is None and "stealth" not in call and "fresh" not in call:
        return
    from onrecord.surfaces.cli.work import state_file
    from onrecord.surfaces.cli.work.phases import choose
    from onrecord.workspace.files import STEALTH_KEY

    if "stealth" in call and session.views.facts.scratch.get(STEALTH_KEY) is not True:
        session.facts.set_scratch(STEALTH_KEY, value=True)
    if profile is not None:
        choose(session, profile)
    if session.views.phases.profile is not None and "fresh" in call:
        state_file.sync(call, session, fresh=True)
    state_file.after(call, session)


def _existing(records: SessionStore, name: str, agent: str) -> Session:
    from onrecord.log.head import refuse_ended
    from onrecord.session.handle import Session

    head = records.store.heads(project=records.project, name=name, limit=1)[0]
    refuse_ended(head)
    return Session(records.store, head.session, agent=agent, clock=records.clock)


def list_sessions(call: Call) -> int:
    """List sessions, newest first. A store that is not there yet has none."""
    limit = call.number("limit") or LISTED
    heads: list[Head] = []
    try:
        records = call.records(make=False)
        notice(records, os.environ, project="" if "all" in call else None)
        heads = _named(call, records) or records.sessions(
            project="" if "all" in call else None, status=call.many("status") or None, limit=limit
        )
    except NotInitialised as missing:
        call.output.note(f"{missing.message}; {hint_of(missing, call.verb)}")
    if call.output.json:
        call.output.envelope("sessions", [session_data(head) for head in heads])
        return 0
    columns = ["!", "#session", "!status", "*title", ">position", "active"]
    if "all" in call:
        columns.insert(2, "project")
    call.output.table(columns if call.output.terminal else columns[1:], [_row(call, head) for head in heads])
    if len(heads) == limit:
        call.output.note(f"only the newest {limit} are shown; `--limit N` shows more")
    if not heads and call.output.terminal and call._records is not None:  # noqa: SLF001  # only to word the note
        call.output.note("no matching sessions; `onrecord list --all` lists those of all projects")
    return 0


def _named(call: Call, records: SessionStore) -> list[Head]:
    """The one session that --session names, if it does."""
    name = call.get("session")
    return [records.find(name)] if name else []


def _row(call: Call, head: Head) -> list[str | Cell]:
    from onrecord.surfaces.cli.shared.attention import SHAPES
    from onrecord.views.render import ago, iso

    place = head.project.rpartition("/")[2] if call.output.terminal else head.project
    project: list[str | Cell] = [place] if "all" in call else []
    held = " (on hold)" if head.held else ""
    if not call.output.terminal:
        return [head.name, *project, head.status, head.title, str(head.position), iso(head.at), head.session]
    style = "" if head.status in LIVE else "quiet"
    return [
        Cell(SHAPES[head.status], style), Cell(head.name, style or "strong"), *project, Cell(head.status + held, style),
        Cell(head.title, style), Cell(str(head.position), style), Cell(ago(head.at, call.now()), "quiet"),
    ]  # fmt: skip


def search(call: Call) -> int:
    """Find words in transcripts and facts."""
    records = call.records(make=False)
    query = " ".join(call.words)
    found = records.search(
        query,
        project="" if "all" in call else None,
        session=call.get("session"),
        limit=call.number("limit") or FOUND,
    )
    if call.output.json:
        results: list[dict[str, Any]] = [
            {"session": session_data(hit.session), "event": event_data(hit.event), "snippet": hit.snippet}
            for hit in found
        ]
        call.output.envelope("search", {"query": query, "results": results})
        return 0
    words = words_of(query)
    rows: list[list[str | Cell]] = [
        [hit.session.name, str(hit.event.position), hit.event.kind, Cell(hit.snippet, "", words)] for hit in found
    ]
    call.output.table(("#session", ">position", "kind", "*text"), rows)
    if not found:
        elsewhere = "" if "all" in call else "; add `--all` to search all projects"
        call.output.note(f"no matches{elsewhere}")
    return 0
