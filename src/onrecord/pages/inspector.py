"""One event in full: its header, its payload, whether the chain was verified, and what it changed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from onrecord.log.events import KINDS
from onrecord.pages.text import at_second, attribute, link, short, shown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onrecord.log.events import Event
    from onrecord.views.values import Change

PAYLOAD_LIMIT = 20_000
"""How many characters of a payload are shown; the log has all of it."""
_ENDS = 12
_WIDTH = 300
_VERIFIED = ' <span class="m v">verified</span>'
_UNCHECKED = ' <span class="ev">not verified yet</span>'
_NAMES = {"next_action": "next action"}
"""What a person reads instead of a field's name."""
_BROKEN = ' <span class="m r">broken</span>'


def inspector(
    event: Event, *, verified: bool | None = None, changes: Sequence[Change] = (), conversation: str = ""
) -> str:
    """An event as the inspector shows it; `verified` says whether the hash chain up to it was verified."""
    known = KINDS.get(event.kind)
    state = _UNCHECKED if verified is None else _VERIFIED if verified else _BROKEN
    rows = [
        ("kind", f'<span title="{attribute(known.meaning if known else "")}">{shown(event.kind)}</span>'),
        ("by", f"{shown(event.by)} · run {event.run}"), ("at", at_second(event.at)),
        ("because", link(event.because) if event.because else ""), ("conversation", shown(conversation)),
        ("id", f"<code>{shown(event.id)}</code>"), ("hash", f"<code>{short_hash(event.hash)}</code>{state}"),
    ]  # fmt: skip
    made = "".join(f"<dt>{name}</dt><dd>{value}</dd>" for name, value in rows if value)
    meaning = f'<p class="ev">{shown(known.meaning)}</p>' if known else ""
    head = f"<h2>Event {event.position}</h2>{meaning}<dl>{made}</dl>"
    return f"{head}<h2>Payload</h2>{payload(event.data)}{what_changed(changes)}"


def short_hash(digest: bytes) -> str:
    """The two ends of a hash."""
    text = digest.hex()
    return f"{text[:_ENDS]}…{text[-6:]}"


def payload(data: Any, limit: int = PAYLOAD_LIMIT) -> str:
    """A payload as JSON; what is over the limit is counted."""
    if data is None:
        return '<p class="ev">The payload was erased.</p>'
    text = json.dumps(data, ensure_ascii=False, indent=2)
    more = f'<p class="ev">{len(text) - limit:,} more characters are in the log</p>' if len(text) > limit else ""
    return f'<pre class="j">{shown(text[:limit])}</pre>{more}'


def what_changed(changes: Sequence[Change]) -> str:
    """What an event changed in meaning, in short lines."""
    if not changes:
        return ""
    rows = "".join(f"<li>{_change(change)}</li>" for change in changes)
    return f'<h2>What it changed</h2><ul class="changed">{rows}</ul>'


def _change(change: Change) -> str:
    before, after, about = change["before"], change["after"], change.get("about")
    told = f"{short(before, _WIDTH)} → {short(after, _WIDTH)}" if before is not None else short(after, _WIDTH)
    return f"{_what(change)}: {told}" + (f' <span class="ev">{short(about, _WIDTH)}</span>' if about else "")


def changes_table(changes: Sequence[Change]) -> str:
    """What changed between two positions."""
    if not changes:
        return '<p class="empty">Nothing changed in meaning between these positions.</p>'
    rows = "".join(
        f"<tr><td>{_where(change)}</td><td>{_value(change['before'])}</td><td>{_value(change['after'])}"
        f"{_about(change)}</td></tr>"
        for change in changes
    )
    head = "<thead><tr><th>what</th><th>before</th><th>after</th></tr></thead>"
    return f'<div class="wide"><table class="grid">{head}<tbody>{rows}</tbody></table></div>'


def _where(change: Change) -> str:
    position = change.get("position")
    return _what(change) + (f" {link(position)}" if position else "")


def _what(change: Change) -> str:
    return shown(_NAMES.get(change["what"], change["what"]))


def _value(value: Any) -> str:
    if value is None:
        return '<span class="ev">none</span>'
    return short(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False), _WIDTH)


def _about(change: Change) -> str:
    about = change.get("about")
    return f'<div class="ev">{short(about, _WIDTH)}</div>' if about else ""
