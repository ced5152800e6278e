"""Reading a chunk of a conversation as it is mirrored: what its records say, condensed into rows beside them."""

from __future__ import annotations

from onrecord import lean_json as json
from onrecord.lean_typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from onrecord.vendors.port import Entry, Location, Said, Vendor

_GLIMPSE = 256 * 1024
"""How many bytes of a file show whether it says anything."""
Place = tuple[int, int]
"""A position in the log (0: the event that is being made) and the number of a line."""


class Read:
    """The rows of a chunk, and the last record of the conversation's trunk."""

    def __init__(self, tip: str) -> None:
        self.rows: list[list[dict[str, Any]]] = []
        """One list for each entry of the chunk."""
        self.tip = tip
        """The id that the next prompt continues, if the user did not go back."""


def read(of: Vendor, entries: Sequence[Entry], tip: str, find: Callable[[str], Place | None], split: set[int]) -> Read:
    """What the entries say. `find` looks for a record on record by its id; `split` entries span several events."""
    from onrecord.log.readings import BEGINS, MAY_BEGIN  # a hook that finds nothing new does not load them

    made = Read(tip)
    known: dict[str, int] = {}
    for number, entry in enumerate(entries):
        rows, lane = [], ""
        record = _parsed(entry.raw)
        for said in _said(of, entry, record):
            lane = said.lane or lane
            rows.append(_row(said, record, clipped=number in split))
            if (
                said.turn in (BEGINS, MAY_BEGIN)
                and said.parent
                and made.tip
                and said.parent != made.tip
                and not said.lane
            ):
                # The user went back: the prompt continues an earlier record.
                here = known.get(said.parent)
                place = (0, here) if here is not None else find(said.parent)
                if place is not None:
                    rows[-1]["after"] = list(place)
        made.rows.append(rows)
        if entry.id and not lane:
            made.tip = entry.id
            known[entry.id] = number
    return made


def says_something(of: Vendor, location: Location) -> bool:
    """Whether the first records of a conversation's file say anything; a file that was only begun says nothing."""
    entries = of.read(location, limit=_GLIMPSE).entries
    return any(_said(of, entry, _parsed(entry.raw)) for entry in entries)


def _parsed(raw: str) -> Any:
    try:
        return json.loads(raw)
    except (ValueError, RecursionError):
        return None


def _said(of: Vendor, entry: Entry, record: Any) -> Sequence[Said]:
    if not entry.known or not isinstance(record, dict):
        return ()
    try:
        return of.said(entry, record)
    except (TypeError, ValueError, AttributeError, KeyError, LookupError, RecursionError):
        return ()  # a record in an unknown form says nothing; it is kept word for word all the same


def _row(said: Said, record: Any, *, clipped: bool) -> dict[str, Any]:
    from onrecord.log.items import without_verbatim
    from onrecord.log.readings import clip_texts, condense

    whole = {"items": [without_verbatim(item) for item in said.items]} | ({"id": said.id} if said.id else {})
    row: dict[str, Any] = clip_texts(whole) if clipped else condense(record, whole)
    about = {"turn": said.turn, "lane": said.lane, "weak": said.weak, "clipped": clipped}
    return row | {name: value for name, value in about.items() if value}
