"""What a client can read without a tool: the brief, the note, STATE.md, the transcript by page, the sessions.

Addresses are `onrecord://sessions` and `onrecord://sessions/NAME/brief` (note, state, transcript/POSITION). The text
is the record's, so it is fenced like everywhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote, unquote

from onrecord import machine
from onrecord.agents.fencing import fence
from onrecord.errors import NotFound, OnrecordError
from onrecord.surfaces.mcp.reading import page_of
from onrecord.surfaces.mcp.schemas import TURNS
from onrecord.views.render import iso, one_line

if TYPE_CHECKING:
    from onrecord.session.handle import Session
    from onrecord.surfaces.mcp.finding import Caller, Sessions

ALL = "onrecord://sessions"
PARTS = {
    "brief": "what the next agent needs, in 2 KB",
    "note": "the whole note for the next agent",
    "state": "STATE.md, as it is rendered from the log",
    "transcript": "the turns, a page at a time",
}
SESSIONS_SHOWN = 100
MIME = "text/markdown"


class Address(NamedTuple):
    """A resource: a session by name or id, its part, and for a transcript the position where the page begins."""

    session: str = ""
    part: str = ""
    first: int = 0


def parse(uri: str) -> Address:
    """The parts of an address; `NotFound` if it is none of ours."""
    if uri.rstrip("/") == ALL:
        return Address()
    words = [unquote(word) for word in uri.removeprefix(f"{ALL}/").split("/")]
    session, part, *more = [*words, "", ""] if len(words) == 1 else words
    if uri.startswith(f"{ALL}/") and session and part in PARTS:
        if not more:
            return Address(session, part)
        if part == "transcript" and len(more) == 1 and more[0].isascii() and more[0].isdigit():
            return Address(session, part, int(more[0]))
    raise NotFound(f"there is no resource {uri!r:.200}", hint=f"{ALL} lists the sessions")


def listed(sessions: Sessions, caller: Caller) -> list[dict[str, Any]]:
    """The list of sessions, and the parts of the caller's own session."""
    found = [{"uri": ALL, "name": "sessions", "description": "the sessions of this project", "mimeType": MIME}]
    try:
        session = sessions.find(caller)
    except OnrecordError:
        return found
    return found + [
        {"uri": f"{ALL}/{quote(session.name)}/{part}", "name": f"{session.name} {part}", "description": about,
         "mimeType": MIME}
        for part, about in PARTS.items()
    ]  # fmt: skip


def templates() -> list[dict[str, Any]]:
    """The form of the addresses."""
    found = [
        {"uriTemplate": f"{ALL}/{{session}}/{part}", "name": part, "description": about, "mimeType": MIME}
        for part, about in PARTS.items()
    ]
    page = {"uriTemplate": f"{ALL}/{{session}}/transcript/{{position}}", "name": "transcript page",
            "description": "turns from a position on", "mimeType": MIME}  # fmt: skip
    return [*found, page]


def contents(sessions: Sessions, caller: Caller, uri: str) -> str:
    """The text of a resource."""
    address = parse(uri)
    if not address.session:
        return _sessions(sessions)
    session = sessions.find(caller, address.session)
    if address.part == "transcript":
        return str(page_of(session, first=address.first or 1, what=TURNS)["text"])
    return fence(_part(session, address.part))


def _part(session: Session, part: str) -> str:
    if part == "state":
        from onrecord.views import state_md

        return state_md.render(session.views, machine.is_gone)
    return session.note() if part == "note" else session.brief()


def _sessions(sessions: Sessions) -> str:
    heads = sessions.records().sessions(limit=SESSIONS_SHOWN)
    lines = [
        f"- {head.name} ({head.status}, position {head.position}, {iso(head.at)}): {one_line(head.title or '', 120)}"
        for head in heads
    ]
    return fence("\n".join(lines) or "none yet")


def position_of(sessions: Sessions, uri: str) -> tuple[Any, ...]:
    """A value that differs when the resource may have changed; reading it is cheap."""
    address = parse(uri)
    records = sessions.records()
    if not address.session:
        return tuple((head.session, head.position) for head in records.sessions(limit=SESSIONS_SHOWN))
    return (records.find(address.session).position,)
