"""`onrecord log`: the events as they are, from the log itself."""

from __future__ import annotations

import sys
from itertools import islice
from typing import TYPE_CHECKING

from onrecord.errors import InvalidInput
from onrecord.log.events import KINDS
from onrecord.machine.wall_clock import local_second
from onrecord.surfaces.cli.shared.exits import UsageError
from onrecord.surfaces.cli.shared.output import counted, dump, plain
from onrecord.surfaces.cli.shared.shapes import describe, event_data
from onrecord.surfaces.cli.shared.wrapping import columns_of
from onrecord.views.render import ago, iso, one_line, visible

if TYPE_CHECKING:
    from collections.abc import Iterator

    from onrecord.log.events import Event
    from onrecord.session.handle import Session
    from onrecord.surfaces.cli.shared.call import Call

LIMIT = 100
"""How many events are printed without --limit; --jsonl streams all of them."""
_KIND_WIDTH = 21
_AGENT_WIDTH = 8
_ROOM_FOR_TIME = 72
"""From this many columns on, a line also shows the time."""
_INDENT = 7
_LEAST_TEXT = 16
"""With less room than this, the text of an event goes to a line of its own."""


def log(call: Call) -> int:
    """Print events; with --follow also new ones."""
    session = call.session()
    kinds = _kinds(call)
    if "follow" in call and "after" in call and "limit" in call:
        raise UsageError("--follow prints every event after --after", hint="leave `--limit` out")
    limit = call.number("limit", 0 if "jsonl" in call or "follow" in call else LIMIT) or 0
    end = call.number("upto")
    stand = session.log.head().position
    if call.output.json and not ("jsonl" in call or "follow" in call):
        found = list(_chosen(call, session, kinds, limit, min(end or stand, stand)))
        data = {"session": session.id, "name": session.name, "position": stand, "left_out": _left_out(call, found)}
        call.output.envelope("log", data | {"events": [event_data(event) for event in found]})
        return 0
    last = None
    for event in _chosen(call, session, kinds, limit, min(end or stand, stand)):
        if last is None and "after" not in call and limit and event.position > 1 and not kinds:
            earlier = counted(event.position - 1, "earlier event is", "earlier events are")
            call.output.note(f"{earlier} not shown; `--limit 0` shows all")
        _print(call, event)
        last = event
    if "follow" in call:
        _follow(call, session, kinds, max(stand, call.number("after") or 0), end)
    return 0


def _kinds(call: Call) -> list[str] | None:
    """The requested kinds; one that ends in a dot means its family."""
    wanted: list[str] = []
    for kind in call.many("kind"):
        family = [name for name in KINDS if name.startswith(kind)] if kind.endswith(".") else [kind]
        if kind not in KINDS and not (kind.endswith(".") and family):
            from onrecord.surfaces.cli.catalogue import nearest

            guess = nearest(kind, list(KINDS))
            raise InvalidInput(
                f"unknown event kind {kind!r}", hint=f"did you mean `--kind {guess}`?" if guess else None
            )
        wanted += family
    return wanted or None


def _chosen(call: Call, session: Session, kinds: list[str] | None, limit: int, end: int) -> Iterator[Event]:
    """The first events after --after; without it the last ones."""
    after = call.number("after")
    if after is None and limit:
        yield from reversed(list(islice(session.log.newest(kinds, upto=end, page=limit), limit)))
        return
    for number, event in enumerate(session.events(after or 0, end, kinds)):
        if limit and number >= limit:
            return
        yield event


def _left_out(call: Call, found: list[Event]) -> int:
    """How many events come before the first one shown, when the newest were requested."""
    if "after" in call or call.many("kind") or not found:
        return 0
    return found[0].position - 1


def _follow(call: Call, session: Session, kinds: list[str] | None, last: int, end: int | None) -> None:
    """Print new events until Ctrl-C or the requested last position."""
    sys.stdout.flush()
    for event in session.follow(last, end, kinds):
        _print(call, event)
        sys.stdout.flush()


def _print(call: Call, event: Event) -> None:
    if "jsonl" in call or call.output.json:
        call.output.write(dump(event_data(event)) + "\n")
        return
    if not call.output.terminal:
        row = (str(event.position), iso(event.at), event.by, event.kind, describe(event))
        call.output.write("\t".join(plain(cell) for cell in row) + "\n")
        return
    # New events show the time of day; earlier ones show how long ago they were.
    moment = local_second(event.at) if "follow" in call else ago(event.at, call.now())
    for line in _lines(event, moment, columns_of(sys.stdout)):
        call.output.write(line.rstrip() + "\n")


def _lines(event: Event, moment: str, columns: int) -> list[str]:
    """An event on one line; position, agent and kind are never cut, so a narrow window may need more lines."""
    start = f"{event.position:>5}  " + (f"{moment:<8}  " if columns >= _ROOM_FOR_TIME else "")
    start += f"{visible(event.by):<{_AGENT_WIDTH}}  {visible(event.kind):<{_KIND_WIDTH}}  "
    room = columns - len(start)
    if room >= _LEAST_TEXT:
        return [start + fit(describe(event), room)]
    start = start.rstrip()
    folded = [start[at : at + columns] for at in range(0, len(start), columns)]
    said = fit(describe(event), columns - _INDENT)
    return [*folded, f"{'':{_INDENT}}{said}"] if said else folded


def fit(text: str, cells: int) -> str:
    """The text on one line of at most so many terminal cells; wide letters take two."""
    from unicodedata import east_asian_width

    line = one_line(text, cells)
    if line.isascii():
        return line
    room = cells
    kept: list[str] = []
    for letter in line:
        room -= 2 if east_asian_width(letter) in "WF" else 1
        if room < 0:
            return "".join(kept[:-1]) + "…"
        kept.append(letter)
    return line
