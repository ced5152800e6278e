"""Starting and finding sessions: open, list, search."""

from __future__ import annotations

import os
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Any

from onrecord.agents.noticing import notice
from onrecord.connection import load_profile
from onrecord.errors import NameTaken
from onrecord.log.head import LIVE
from onrecord.log.names import check_name
from onrecord.log.text import words_of
from onrecord.surfaces.cli.shared.call import any_number, pairs
from onrecord.surfaces.cli.shared.choosing import mark_of, repeats, standing_data, standings, status_of, who
from onrecord.surfaces.cli.shared.exits import NotInitialised, UsageError
from onrecord.surfaces.cli.shared.hints import hint_of
from onrecord.surfaces.cli.shared.mistyped import refuse_mistyped
from onrecord.surfaces.cli.shared.output import Cell
from onrecord.surfaces.cli.shared.place import survey_worktree
from onrecord.surfaces.cli.shared.shapes import NEEDS_YOU, describe, event_data, session_data
from onrecord.views.render import ago, iso

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onrecord.log.head import Head
    from onrecord.session.handle import Session
    from onrecord.session.session_store import Found, SessionStore
    from onrecord.session.standing import Standing
    from onrecord.surfaces.cli.shared.call import Call
    from onrecord.views.values import Profile

LISTED = 50
"""How many sessions a list shows without --limit."""
WIDE = 110
"""From this many columns on, a list has columns of their own for title and last prompt."""
FOUND = 20
"""How many search results are shown without --limit."""
NAMING = ("session.opened", "session.titled", "session.renamed")
"""Events that name a session; automatic names are made from the first prompt."""
PLACES = {
    "payload.kept": "conversation", "turn.recorded": "conversation", "item.added": "conversation",
    "session.opened": "name", "session.renamed": "name", "session.titled": "title",
}  # fmt: skip
"""Where a search found something, in a person's words; others are called by the noun of their kind."""


def open_session(call: Call) -> int:
    """Start a session, or find the one of this name. No process is left behind, so no lane is taken."""
    name, objective = call.positional["NEW"], call.get("objective")
    check_name(name)  # before a store is created for nothing
    records = call.records_for_new()
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
    if state == "opened":
        survey_worktree(call, session)  # commits from here on are the session's
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
    if profile is not None:
        from onrecord.surfaces.cli.work.phases import what_comes_first

        state, note, _git = state_file.paths(call, session)
        files = [str(path) for path in (state, note) if path.is_file()]
        call.output.note(f"wrote {', '.join(files)}; {what_comes_first(session)}")


def _existing(records: SessionStore, name: str, agent: str) -> Session:
    from onrecord.log.head import refuse_ended

    head = records.named(name) or records.find(name)
    refuse_ended(head)
    return records.handle(head.session, agent=agent)


def list_sessions(call: Call) -> int:
    """List sessions, newest first. A store that is not there yet has none."""
    limit = call.number("limit") or LISTED
    found: list[Standing] = []
    try:
        records = call.records(make=False)
        notice(records, os.environ, project="" if "all" in call else None)
        heads = _named(call, records) or records.sessions(
            project="" if "all" in call else None, status=call.many("status") or None, limit=limit
        )
        if not heads:
            refuse_mistyped(call, records)
        found = sorted(standings(call, records, heads), key=lambda one: -one.entry.active_at)
    except NotInitialised as missing:
        call.output.note(f"{missing.message}; {hint_of(missing, call.verb)}")
    if call.output.json:
        call.output.envelope("sessions", [standing_data(one) for one in found])
        return 0
    several = len({person for one in found for person in one.entry.listing["people"]}) > 1
    narrow = call.output.terminal and get_terminal_size().columns < WIDE
    columns = ["!", "#session", "!status", "*title", "agent", "*last prompt", "active"]
    if narrow:
        columns[3:6] = ["agent", "*title, last prompt"]
    if "all" in call:
        columns.insert(2, "project")
    call.output.table(columns, [_row(call, one, narrow=narrow, several=several) for one in found])
    if len(found) == limit:
        call.output.note(f"only the newest {limit} are shown; `--limit N` shows more")
    if not found and call.output.terminal and call._records is not None:  # noqa: SLF001  # only to word the note
        call.output.note("no matching sessions; `onrecord list --all` lists those of all projects")
    return 0


def _named(call: Call, records: SessionStore) -> list[Head]:
    """The one session that --session names, if it does."""
    name = call.get("session")
    return [records.find(name)] if name else []


def _row(call: Call, one: Standing, *, narrow: bool, several: bool) -> list[str | Cell]:
    head, listed = one.entry.head, one.entry.listing
    place = head.project.rpartition("/")[2] if call.output.terminal else head.project
    project: list[str | Cell] = [place] if "all" in call else []
    if not call.output.terminal:
        plain = [head.name, *project, head.status, head.title, str(head.position), iso(one.entry.active_at)]
        whose = [listed["agent"], listed["vendor"] or ""]
        return [*plain, head.session, *whose, listed["prompt"], NEEDS_YOU if one.needs else ""]
    style = "" if head.status in LIVE else "quiet"
    # A title that is only the prompt again would take the room of both.
    prompt = "" if repeats(listed["prompt"], head.title) else listed["prompt"]
    people = listed["people"][:1] if several else []
    agent = Cell(" · ".join(name for name in (who(listed), *people) if name), "quiet")
    about = [Cell(head.title, style), agent, Cell(prompt, style)]
    if narrow:
        about = [agent, Cell(" · ".join(text for text in (head.title, prompt) if text), style)]
    status = status_of(one) + (" (on hold)" if head.held else "") + (", needs you" if one.needs else "")
    return [
        mark_of(one), Cell(head.name, style or "strong"), *project, Cell(status, "attention" if one.needs else style),
        *about, Cell(ago(one.entry.active_at, call.now()), "quiet"),
    ]  # fmt: skip


def search(call: Call) -> int:
    """Find words in transcripts and facts."""
    records = call.records(make=False)
    query = " ".join(call.words)
    if not query.strip():
        raise UsageError("there are no words to search for", hint=f"for example: `{call.verb.example}`")
    found = records.search(
        query,
        project="" if "all" in call else None,
        session=call.get("session"),
        limit=call.number("limit") or FOUND,
    )
    if not found:
        refuse_mistyped(call, records)
    if call.output.json:
        results: list[dict[str, Any]] = [
            {"session": session_data(hit.session), "event": event_data(hit.event), "snippet": hit.snippet}
            for hit in found
        ]
        call.output.envelope("search", {"query": query, "results": results})
        return 0
    words = words_of(query)
    rows: list[list[str | Cell]] = [
        [hit.session.name, str(hit.event.position), _where(call, hit), Cell(_said(call, hit, words), "", words)]
        for hit in (_worth_showing(found) if call.output.terminal else found)
    ]
    call.output.table(("#session", ">position", "in", "*text"), rows)
    if not found:
        elsewhere = "" if "all" in call else "; add `--all` to search all projects"
        call.output.note(f"no matches{elsewhere}")
    return 0


def _worth_showing(found: Sequence[Found]) -> list[Found]:
    """The hits, session by session; a name or title that only repeats what was said in the session is left out."""
    said = {hit.session.session for hit in found if hit.event.kind not in NAMING}
    order = [*dict.fromkeys(hit.session.session for hit in found)]
    kept = [hit for hit in found if hit.event.kind not in NAMING or hit.session.session not in said]
    return sorted(kept, key=lambda hit: order.index(hit.session.session))


def _said(call: Call, hit: Found, words: Sequence[str]) -> str:
    """What was found: for people a fact as the log shows it, if that has the words; else the text around them."""
    fact = describe(hit.event) if call.output.terminal and PLACES.get(hit.event.kind) != "conversation" else ""
    return fact if fact and any(word in fact.lower() for word in words) else hit.snippet


def _where(call: Call, hit: Found) -> str:
    """What was found: its kind for programs, a word for people."""
    kind = hit.event.kind
    return PLACES.get(kind, kind.partition(".")[0].replace("_", " ")) if call.output.terminal else kind
