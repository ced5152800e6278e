"""A stretch of the timeline, read from the middle of a log: only what it shows, and as much more as it depends on.

A turn belongs to the stretch in which it began. Its end may come much later, so the read continues until each of
its turns has an end or a successor. A long turn becomes several rows, so that a browser draws only what is in sight.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from onrecord.log.codec import open_records
from onrecord.pages.entries import Entry, entries_of
from onrecord.pages.timeline import draw_entry
from onrecord.views.transcript import COMMITTED, TURN_KINDS
from onrecord.web.sturdy import sturdy

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from onrecord.log.events import Event
    from onrecord.log.item_values import Item
    from onrecord.log.store import Store
    from onrecord.pages.options import Options
    from onrecord.views.fold import Whole

STRETCH = 50
"""How many positions one stretch has."""
AHEAD = 50
"""How many events behind a stretch the first look reads; each further look reads four times as many."""
AHEAD_LIMIT = 3_200
CLOSE_BEHIND = 3
"""How many events behind a stretch belong to its last turn: what it used, and what its tools did."""
ITEMS_IN_ROW = 8
"""How many items of a turn one row has."""
PARTS_LIMIT = 1_000
"""The parts of one turn are numbered below this."""
_JOINED = (*TURN_KINDS, "usage.recorded", "tool.used")


class Row(NamedTuple):
    """One row of the timeline."""

    position: int
    html: str


def stretch_of(position: int) -> int:
    """The number of the stretch that has this position."""
    return (position - 1) // STRETCH


class Stretch(NamedTuple):
    """The rows of a stretch, and whether later events may change them."""

    rows: list[Row]
    settled: bool


def stretch(
    store: Store, whole: Whole, number: int, options: Options, turns_before: Mapping[str, int] | None = None
) -> Stretch:
    """One stretch of a log, as it was at the position of the views.

    `turns_before` is how many turns each agent had before it; without it, turns have no numbers.
    """
    session, upto = whole.head.session, whole.position
    after, last = number * STRETCH, min(upto, (number + 1) * STRETCH)
    if last <= after:
        return Stretch([], settled=False)
    events = list(open_records(store.read(session, after=after, upto=min(upto, last + CLOSE_BEHIND))))
    found, settled = _complete(store, whole, events, last, turns_before)
    rows = [row for entry in found if entry.position <= last for row in _drawn(entry, options)]
    return Stretch(rows, settled and upto > last + CLOSE_BEHIND)


def _complete(
    store: Store, whole: Whole, events: list[Event], last: int, turns_before: Mapping[str, int] | None
) -> tuple[list[Entry], bool]:
    """The entries of these events, with what comes later and belongs to them; and whether that is all there can be."""
    upto, page = whole.position, AHEAD
    found = entries_of(events, whole, turns_before)
    while _is_cut(found, last):
        seen = events[-1].position
        if seen >= upto or page > AHEAD_LIMIT:
            return found, False
        more = store.read(whole.head.session, after=seen, upto=upto, kinds=_JOINED, limit=page)
        if not more:
            return found, False
        events += open_records(more)
        page *= 4
        found = entries_of(events, whole, turns_before)
    return found, True


def _is_cut(found: list[Entry], last: int) -> bool:
    """Whether a turn may continue, or be superseded, after what was read: it is the last one of its lane."""
    ends: dict[str, Entry] = {}
    for entry in found:
        if entry.turn is not None:
            ends[entry.turn.agent] = entry
    return any(
        entry.position <= last and not (entry.state == COMMITTED and _is_whole(entry)) for entry in ends.values()
    )


def _is_whole(entry: Entry) -> bool:
    """Whether one event has all of a turn: nothing can be added to it."""
    return entry.event.kind in ("turn.recorded", "turn.begun")


def _drawn(entry: Entry, options: Options) -> Iterator[Row]:
    turn = entry.turn
    if turn is None or len(turn.items) <= ITEMS_IN_ROW:
        yield Row(entry.position, _row(entry, options))
        return
    for number, part in enumerate(parts(turn.items)):
        copy = entry.copy * PARTS_LIMIT + number if number else entry.copy
        piece = entry._replace(turn=turn._replace(items=part), copy=copy, part=number)
        yield Row(entry.position, _row(piece, options))


def _row(entry: Entry, options: Options) -> str:
    drawn = sturdy(lambda: draw_entry(entry, options), entry.position)
    # A sentence about an event that cannot be drawn is a row too.
    return drawn if "empty" not in drawn[:20] else f'<div class="fact q" id="{entry.anchor}">{drawn}</div>'


def parts(items: list[Item]) -> Iterator[list[Item]]:
    """The items of a turn in small groups; a call and its answer stay together."""
    group: list[Item] = []
    waiting: set[object] = set()
    for item in items:
        if len(group) >= ITEMS_IN_ROW and not waiting:
            yield group
            group = []
        group.append(item)
        waiting.update(call.get("id") for call in item.get("tool_calls") or ())
        waiting.discard(item.get("call"))
        if len(group) >= 4 * ITEMS_IN_ROW:
            waiting.clear()  # an answer that never comes must not keep the rest together
    if group:
        yield group
