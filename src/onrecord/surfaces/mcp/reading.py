"""The tools that read: resume, search, read. What they quote from the record is fenced as data."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from onrecord import machine
from onrecord.agents.fencing import ABOUT, fence
from onrecord.errors import AmbiguousName, InvalidInput
from onrecord.log.head import LIVE
from onrecord.surfaces.cli.shared.shapes import describe, item_line
from onrecord.surfaces.mcp.schemas import (
    EVENTS,
    EVERYTHING,
    PROJECT,
    READ_TOKENS,
    READ_TOKENS_LIMIT,
    SEARCH_RESULTS,
    SEARCH_RESULTS_LIMIT,
    SESSION,
    TURNS,
)
from onrecord.views.attempts import RUNNING, status_of
from onrecord.views.context import BYTES_PER_TOKEN
from onrecord.views.render import clip, iso, one_line, visible

if TYPE_CHECKING:
    from collections.abc import Iterator

    from onrecord.log.events import Event
    from onrecord.session.handle import Session
    from onrecord.surfaces.mcp.finding import Caller, Sessions
    from onrecord.views.transcript import Turn

LINE_WIDTH = 400
"""The longest line of an event or an item in a list, in characters; `read` of one position shows all of it."""
NEWS_LIMIT = 40
"""How many changes `resume` lists."""
SMALLEST_BUDGET = 100
FIRST_PAGE = 16
"""How many events the first read of a page fetches."""


def resume(sessions: Sessions, caller: Caller, given: dict[str, Any]) -> dict[str, Any]:
    """The brief or the whole note, and what is new; where several sessions are possible, their names."""
    try:
        session = sessions.find(caller, given.get("session", ""))
    except AmbiguousName as several:
        return _choice(sessions, several)
    if given.get("since", 0) > session.views.position:
        raise InvalidInput(
            f"position {given['since']} does not exist yet; the newest is {session.views.position}",
            hint="leave `since` out",
        )
    look_around(session)
    position = session.views.position
    text = session.note() if given.get("full") else sessions.brief(session)
    if "since" in given:
        text = f"{text.rstrip()}\n\n{_news(session, given['since'])}"
    waiting = unresolved(session)
    said = f"You work in the onrecord session {session.name} as {session.agent}, at position {position}. "
    said += _ended(session)
    said += f"Unresolved attempts, settle them first: {waiting}. " if waiting else ""
    return {
        "session": session.name, "position": position, "status": session.status,
        "text": fence(text, about=said + ABOUT),
    }  # fmt: skip


def _ended(session: Session) -> str:
    """A warning before an agent works in a session that accepts nothing."""
    if session.status in LIVE:
        return ""
    again = f"ask the user to reopen it (`onrecord resume {session.name} --reopen`)"
    return f"It is {session.status}: you can read it, but to record something {again}. "


def _choice(sessions: Sessions, several: AmbiguousName) -> dict[str, Any]:
    """The sessions to choose from. Their titles are text of the record."""
    names: list[str] = several.details.get("sessions") or []  # type: ignore[assignment]  # set where it is raised
    if not names:
        raise several
    heads = sessions.records().sessions(status=LIVE, limit=len(names))
    lines = [f"- {head.name} ({head.status}, {iso(head.at)}): {one_line(head.title or '', 120)}" for head in heads]
    said = f"{several.message}. Call `resume` again with the one that you work in, or ask the user which one. {ABOUT}"
    return {"sessions": names, "text": fence("\n".join(lines), about=said)}


def look_around(session: Session) -> None:
    """Record what changed in the code since the record was last compared with it; a failure is not the caller's."""
    from onrecord.connection import workspace_paths
    from onrecord.work.git_files import stands_at
    from onrecord.work.history import record_commits
    from onrecord.work.project import project_at, worktree_for
    from onrecord.work.surveying import survey
    from onrecord.workspace.syncing import take_in, tolerating

    if session.refresh().status not in LIVE or session.head.project not in project_at(os.curdir).names:
        return
    root = worktree_for(session, os.curdir)
    if session.views.findings.anchors():
        tolerating(lambda: survey(session, root))
    if stands_at(root).get("revision", "") != (session.views.code.noted or ""):
        tolerating(lambda: record_commits(session, root))
    if session.views.phases.profile is not None:
        take_in(session, workspace_paths(session))


def unresolved(session: Session) -> str:
    """The numbers of attempts without an outcome."""
    waiting = [one for one in session.views.attempts.all() if one["status"] == RUNNING]
    return ", ".join(f"{one['number']} ({status_of(one, machine.is_gone)})" for one in waiting)


def _news(session: Session, since: int) -> str:
    position = session.views.position
    found = session.diff(since, position) if since < position else []
    lines = [
        f"- {one['what']}: {one_line(str(one['after']), LINE_WIDTH)}"
        + (f" ({one_line(str(one['about']), LINE_WIDTH)})" if one.get("about") else "")
        for one in found
    ]
    more = f"\n(and {len(lines) - NEWS_LIMIT} more)" if len(lines) > NEWS_LIMIT else ""
    return f"New since position {since}:\n" + ("\n".join(lines[:NEWS_LIMIT]) or "nothing") + more


def search(sessions: Sessions, caller: Caller, given: dict[str, Any]) -> dict[str, Any]:
    """Snippets of transcript and facts, each with its session and position."""
    scope = given.get("scope", SESSION if "session" in given else PROJECT)
    limit = min(given.get("limit") or SEARCH_RESULTS, SEARCH_RESULTS_LIMIT)
    within = sessions.find(caller, given.get("session", "")).id if scope == SESSION else None
    project = "" if scope == EVERYTHING else None
    found = sessions.records().search(given["query"], project=project, session=within, limit=limit)
    lines = [
        f"{hit.session.name} {hit.event.position} {iso(hit.event.at)} {hit.event.by} {hit.event.kind}: "
        f"{one_line(hit.snippet, LINE_WIDTH)}"
        for hit in found
    ]
    where = {SESSION: "this session", PROJECT: "this project", EVERYTHING: "all projects"}[scope]
    said = f"{len(found)} found in {where}: session, position, time, agent, kind, snippet. {ABOUT}"
    return {
        "results": [{"session": hit.session.name, "position": hit.event.position} for hit in found],
        "text": fence("\n".join(lines), about=said) if found else f"Nothing was found in {where}.",
    }


def read(sessions: Sessions, caller: Caller, given: dict[str, Any]) -> dict[str, Any]:
    """Events or turns of a session as text within a token budget; `next` is where the next page begins."""
    session = sessions.find(caller, given.get("session", ""))
    return page_of(session, **{name: given[name] for name in ("first", "last", "what", "tokens") if name in given})


def page_of(
    session: Session,
    *,
    first: int | None = None,
    last: int | None = None,
    what: str = EVENTS,
    tokens: int = READ_TOKENS,
) -> dict[str, Any]:
    """A page of a session's events or turns."""
    end = session.log.head().position
    last = min(last or end, end)
    if first is not None and first > end:
        raise InvalidInput(
            f"there is no position {first} yet; the newest is {end}", hint="leave `first` out to read the newest"
        )
    if first is not None and first > last:
        raise InvalidInput(f"`first` ({first}) is after `last` ({last})", hint="give the smaller one to `first`")
    size = min(max(tokens, SMALLEST_BUDGET), READ_TOKENS_LIMIT) * BYTES_PER_TOKEN
    # Without `first`, the newest part that fits is shown.
    backwards = first is None
    parts = _turns(session, first or 1, last, backwards=backwards) if what == TURNS else (
        _events(session, first or 1, last, backwards=backwards)
    )  # fmt: skip
    shown: list[str] = []
    used, after = 0, 0
    for begins, text in parts:
        need = len(text.encode()) + 1
        if used + need > size:
            if shown:
                after = begins
                break
            text, need = clip(text, size), size  # noqa: PLW2901  # the only part of this page is cut
        shown.append(text)
        used += need
    if backwards:
        shown.reverse()
    more = {"next": after} if after and not backwards else {}
    text = "\n".join(shown)
    said = f"{'Turns' if what == TURNS else 'Events'} of {session.name}. "
    said += f"There is more: read on with first={after}. " if more else ""
    said += f"There is more before this: read with last={after}. " if after and backwards else ""
    return {
        "session": session.name, "position": end, **more,
        "text": fence(text, about=said + ABOUT) if shown else f"{session.name} has no {what} there.",
    }  # fmt: skip


def _events(session: Session, first: int, last: int, *, backwards: bool) -> Iterator[tuple[int, str]]:
    found = session.log.newest(upto=last, page=FIRST_PAGE) if backwards else _in_order(session, first, last)
    width = LINE_WIDTH if last > first else None
    for event in found:
        said = describe(event)
        said = visible(said, lines=True) if width is None else one_line(said, width)
        yield event.position, f"{event.position} {iso(event.at)} {event.by} {event.kind}: {said}"


def _in_order(session: Session, first: int, last: int) -> Iterator[Event]:
    """Events in pages that grow: most readers want a few of a long log."""
    size = FIRST_PAGE
    while first <= last:
        upto = min(first + size - 1, last)
        yield from session.events(first - 1, upto)
        first, size = upto + 1, size * 2


def _turns(session: Session, first: int, last: int, *, backwards: bool) -> Iterator[tuple[int, str]]:
    told = session.transcript(upto=last)
    turns = sorted([*told.committed, *told.provisional], key=lambda turn: turn.begun)
    turns = [turn for turn in turns if turn.begun >= first]
    for turn in reversed(turns) if backwards else turns:
        yield turn.begun, turn_text(turn)


def turn_text(turn: Turn) -> str:
    """A turn, readable: who said what, and which tools were called."""
    head = f"[{turn.begun}] {turn.agent}, {turn.status}{f' ({turn.reason})' if turn.reason else ''}"
    return "\n".join([head, *(visible(item_line(item), lines=True) for item in turn.items)])
