"""Lines of a page with the positions between which each one held, so that a report can show the session as it was.

The log is folded once. After each fact the lines that it may have changed are drawn again: a line that is new begins
there, a line that is gone ended there.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from onrecord.log.head import OPEN
from onrecord.pages.panel import Line
from onrecord.views.fold import Whole

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from onrecord.log.events import Event
    from onrecord.log.head import Head

    Draw = Callable[[Whole, Event | None], Mapping[str, list[Line]]]

SPANS_LIMIT = 10_000
"""After this many facts only the last state is drawn: a file with every state would be too large."""
_COMMITS = ("turn.committed", "turn.recorded")
_FIRST_TAG = re.compile(r"^<(\w+)")


class Chapter(NamedTuple):
    """Lines under keys, and the kinds of events after which some may differ (a kind may end with a dot)."""

    draw: Draw
    """The lines of each key that an event may have changed; without an event, of every key."""
    kinds: tuple[str, ...]
    positions: Collection[int] = ()
    """The positions of further events after which some may differ."""


class Span(NamedTuple):
    """A line, and the positions at which it began and ended."""

    line: Line
    begun: int
    ended: int | None


def start_of(head: Head) -> Whole:
    """Views before the first event of a log."""
    return Whole(
        head._replace(position=0, hash=bytes(32), run=0, status=OPEN, title="", held=False, parent=None, forked_at=0)
    )


def spans_of(head: Head, events: Iterable[Event], chapters: Mapping[str, Chapter]) -> dict[str, list[Span]]:
    """The spans of every chapter, by its name."""
    whole = start_of(head)
    begun: dict[str, dict[str, dict[Line, int]]] = {name: {} for name in chapters}
    ended: dict[str, list[Span]] = {name: [] for name in chapters}
    routes: dict[str, list[str]] = {}
    placed: dict[int, list[str]] = {}
    for name, chapter in chapters.items():
        for position in chapter.positions:
            placed.setdefault(position, []).append(name)
    facts = 0
    for event in events:
        # A commit is a fact if it supersedes turns; most do not, and a long log has many.
        commits = event.kind in _COMMITS and whole.lanes.lane(event.by)["provisional"]
        kind = "turn.aborted" if commits else event.kind
        whole.apply(event)
        if kind not in routes:
            routes[kind] = [name for name, chapter in chapters.items() if kind.startswith(chapter.kinds)]
        changed = {*routes[kind], *placed.get(event.position, ())}
        if changed:
            facts += 1
            for name in changed if facts <= SPANS_LIMIT else ():
                _draw(chapters[name].draw(whole, event), begun[name], ended[name], event.position)
    for name, chapter in chapters.items():
        _draw(chapter.draw(whole, None), begun[name], ended[name], whole.position)
        ended[name] += [Span(line, position, None) for held in begun[name].values() for line, position in held.items()]
    if facts > SPANS_LIMIT:
        return {name: [span for span in spans if span.ended is None] for name, spans in ended.items()}
    return ended


def _draw(drawn: Mapping[str, list[Line]], begun: dict[str, dict[Line, int]], ended: list[Span], position: int) -> None:
    for key, lines in drawn.items():
        held = begun.setdefault(key, {})
        ended += [Span(line, held.pop(line), position) for line in [one for one in held if one not in lines]]
        for line in lines:
            held.setdefault(line, position)


def marked(spans: Sequence[Span]) -> list[Line]:
    """The lines with the positions between which they held; those that ended are hidden."""
    return [
        span.line._replace(html=_FIRST_TAG.sub(_held(span), span.line.html, count=1), is_past=span.ended is not None)
        for span in spans
    ]


def _held(span: Span) -> str:
    until = "" if span.ended is None else f' data-to="{span.ended}" hidden'
    return rf'<\1 data-from="{span.begun}"{until}'
