"""The timeline as HTML: turns as conversations, facts between them. Each entry has the anchor of its event."""

from __future__ import annotations

import re
from itertools import islice
from typing import TYPE_CHECKING

from onrecord.pages.entries import TURN
from onrecord.pages.facts import draw_fact, header_of
from onrecord.pages.media import draw_parts, thinking
from onrecord.pages.options import Options
from onrecord.pages.text import at_clock, day, link, money, shown, tokens
from onrecord.pages.tools import draw_call, text_of
from onrecord.views.conversations import SUBLANE
from onrecord.views.transcript import RUNNING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from onrecord.log.item_values import Item
    from onrecord.pages.entries import Entry

SIZES = ((1_500, "z1"), (6_000, "z2"), (20_000, "z3"))
"""How much HTML a turn has, and the class that says how high it is about, so that scrolling does not jump."""


PART = 40
"""How many entries a part has: a browser skips a part that is not in sight, and looks at none of its entries."""
HEIGHTS = tuple(round(200 * 1.25**number) for number in range(26))
"""The heights that a part can be expected to have, in pixels; it gets the class of the nearest one."""
_FACT_HEIGHT, _TURN_HEIGHTS = 40, {"z1": 120, "z2": 260, "z3": 700, "z4": 1_500}
_SIZE = re.compile(r'<article class="turn (z\d)')


def in_parts(pieces: Iterable[str]) -> Iterator[str]:
    """Drawn entries in parts, each with a class that says how high it is about."""
    found = list(islice(pieces := iter(pieces), PART))
    while found:
        sizes = [_SIZE.match(piece) for piece in found]
        height = sum(_TURN_HEIGHTS[size[1]] if size else _FACT_HEIGHT for size in sizes)
        nearest = min(range(len(HEIGHTS)), key=lambda number: abs(HEIGHTS[number] - height))
        yield f'<div class="part h{nearest}">{"".join(found)}</div>\n'
        found = list(islice(pieces, PART))


def heights_style() -> str:
    """The rules of the classes that parts have."""
    return "".join(f".h{number}{{contain-intrinsic-size:auto {high}px}}" for number, high in enumerate(HEIGHTS))


def draw_timeline(entries: Iterable[Entry], options: Options | None = None) -> Iterator[str]:
    """Every entry, with a heading where a day begins."""
    before = ""
    for entry in entries:
        today = day(entry.at)
        if today != before:
            yield f'<h3 class="day" data-p="{entry.position}">{today} UTC</h3>\n'
            before = today
        yield draw_entry(entry, options or Options())


def draw_entry(entry: Entry, options: Options | None = None) -> str:
    """One entry."""
    return draw_turn(entry, options or Options()) if entry.kind == TURN else draw_fact(entry)


def draw_turn(entry: Entry, options: Options) -> str:
    """A turn: who said what, which tools were called and how they ended."""
    turn = entry.turn
    items = turn.items if turn else []
    said: list[str] = []
    answers = {str(item.get("call")): item for item in items if item.get("role") == "tool"}
    speaker = ""
    for item in items:
        if item.get("role") == "tool":
            continue
        name = _speaker(item, entry, options)
        if name != speaker:
            said.append(_who(name, entry, first=name == entry.by))
            speaker = name
        said.append(_item(item, entry, answers, options))
    if entry.by != speaker and entry.is_provisional:
        said.append(_who(entry.by, entry, first=True))
    if not said:
        said.append(_who(entry.by, entry, first=True))
        said.append('<p class="ev">nothing was said</p>' if turn and not turn.erased else "")
    if turn and turn.erased:
        said.append('<p class="ev">some of this turn was erased</p>')
    return _article(entry, "".join(said))


def _article(entry: Entry, body: str) -> str:
    css = " over" if entry.superseded_by or entry.state == "abandoned" else " prov" if entry.is_provisional else ""
    size = next((name for limit, name in SIZES if len(body) < limit), "z4")
    number = f"-{entry.copy}" if entry.copy > 1 else ""
    attributes = f'id="{entry.anchor}" data-p="{entry.position}"{header_of(entry)}'
    return (
        f'<article class="turn {size}{css}" {attributes}><div class="t">'
        f'{at_clock(entry.at)}<a href="#e{entry.position}{number}">{entry.position}</a></div>'
        f'<div class="body">{body}</div></article>\n'
    )


def _speaker(item: Item, entry: Entry, options: Options) -> str:
    role = item.get("role")
    if role == "assistant" or item.get("thinking"):
        return entry.by
    if role == "user":
        # A subagent is prompted by the agent that started it.
        return entry.by.rpartition(SUBLANE)[0] if SUBLANE in entry.by else options.person
    return "system"


def _who(name: str, entry: Entry, *, first: bool) -> str:
    about = _about(entry) if first else ""
    return f'<div class="who"><b>{shown(name)}</b>{about}</div>'


def _about(entry: Entry) -> str:
    """The number, state and usage of a turn."""
    parts = [f"turn {entry.number}"] if entry.number else []
    if entry.part:
        return "".join(f" · {part}" for part in [*parts, "continued"])
    used = entry.about.get("usage") or {}
    if used.get("tokens"):
        parts.append(f"{tokens(used['tokens'])} tokens")
    if used.get("cost") is not None:
        parts.append(money(used["cost"]))
    if entry.is_provisional and entry.turn:
        why = f": {shown(entry.turn.reason)}" if entry.turn.reason else ""
        parts.append(f'<em class="state">{shown(entry.state)}{why}</em>')
        if entry.superseded_by:
            parts.append(f"superseded by {link(entry.superseded_by)}")
    elif entry.turn and entry.turn.reason:
        parts.append(f'<em class="state">{shown(entry.turn.reason)}</em>')
    return "".join(f" · {part}" for part in parts)


def _item(item: Item, entry: Entry, answers: dict[str, Item], options: Options) -> str:
    role, content = item.get("role"), item.get("content")
    if item.get("thinking"):
        return thinking(text_of(item))
    if role == "system" or item.get("summary"):
        title = "summary of the conversation so far" if item.get("summary") else "instructions"
        return thinking(text_of(item), title)
    css = "md said" if role == "user" else "md"
    html = draw_parts(content, options)
    text = f'<div class="{css}">{html}</div>' if html else ""
    used, running = entry.about.get("tools") or {}, entry.state == RUNNING
    for call in item.get("tool_calls") or ():
        id_ = str(call.get("id"))
        text += draw_call(call, answers.get(id_), used.get(id_), options, ended=not running)
    return text
