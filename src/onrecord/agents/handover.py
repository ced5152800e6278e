"""Handing over: another vendor's agent continues from the note and a bounded, cited extract of the conversation."""

from __future__ import annotations

from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from onrecord.agents.fencing import ABOUT, fence
from onrecord.agents.mirroring import kept, mirror_all
from onrecord.log.text import text_of
from onrecord.vendors.port import vendor
from onrecord.views.render import clip, visible

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from onrecord.log.item_values import Item
    from onrecord.session.handle import Session
    from onrecord.views.values import Link

EXTRACT_BYTES = 16 * 1024
"""How many bytes of the previous conversation are quoted."""
ITEM_CHARACTERS = 1_200
"""How many characters of one message are quoted."""
NOTE_BYTES = 24 * 1024
_ITEMS = 400
"""How many of the last messages are considered."""
_RECORDS = 2_000
"""In how many of the last records they are searched."""


def extract(session: Session, link: Link, *, limit: int = EXTRACT_BYTES) -> str:
    """The last messages of a mirrored conversation, each with its position, the oldest first."""
    last: deque[tuple[int, Item]] = deque(_items(session, link), maxlen=_ITEMS)
    lines: list[str] = []
    size = 0
    for position, item in reversed(last):
        line = f"[{position}] {_told(item)}"
        size += len(line.encode()) + 1
        if size > limit:
            break
        lines.append(line)
    return "\n".join(reversed(lines))


def _items(session: Session, link: Link) -> Iterator[tuple[int, Item]]:
    of = vendor(link["vendor"])
    last = deque(kept(session, link["vendor"], link["id"]), maxlen=_RECORDS)
    for number, item in of.items(of.parse(one.raw) for one in last):
        if item.get("role") in ("user", "assistant", "tool"):
            yield last[number].position, item


def _told(item: Item) -> str:
    calls = " ".join(
        f"(calls {call.get('name')}: {_brief(call.get('arguments'))})" for call in item.get("tool_calls") or []
    )
    said = _brief(item.get("content"))
    return visible(f"{item['role']}: {' '.join(part for part in (said, calls) if part)}")


def _brief(value: Any) -> str:
    return clip(" ".join(text_of(value).split()), ITEM_CHARACTERS)


class Handed(NamedTuple):
    """The next agent's prompt, and where it works."""

    text: str
    cwd: str


def hand_over(session: Session, task: str, env: Mapping[str, str], here: str) -> Handed:
    """Mirror the conversation that was seen last, and put its end, the note and the task into one prompt."""
    links = [link for one in session.views.roster.agents.values() for link in one["links"]]
    last = max(links, key=lambda link: link["seen_at"], default=None)
    if last is not None:
        mirror_all(session, env, agent=last["agent"])
    cwd = str((last["first"] | last["last"]).get("cwd") or "") if last else ""
    return Handed(handover(session, last, task), cwd if Path(cwd or "?").is_dir() else here)


def handover(session: Session, link: Link | None, task: str) -> str:
    """The first prompt of the next agent: note and extract as data, then the task."""
    before = f"{vendor(link['vendor']).title} as {link['agent']}" if link else "another agent"
    parts = [
        f"You take over work that {before} did in the session {session.name}.",
        fence(session.note(), limit=NOTE_BYTES),
    ]
    told = extract(session, link) if link else ""
    if told:
        about = f"The end of that conversation; [n] is its position in the record (`onrecord log {session.name}`)."
        parts.append(fence(told, about=f"{about} {ABOUT}"))
    parts.append(task or "Continue the work that the note describes. Begin with its next action.")
    return "\n\n".join(part.rstrip() for part in parts)
