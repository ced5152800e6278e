"""Generations: the copies of a conversation that the record has, and which of them counts.

A vendor's file that was replaced begins a new generation; the older one stays on record and can be restored. A copy
with fewer or other records never supersedes a better one: a later generation counts only if it has everything of the
one before, or at least as many records and most of those.
"""

from __future__ import annotations

from itertools import islice

from onrecord.errors import InvalidInput
from onrecord.lean_typing import TYPE_CHECKING, NamedTuple
from onrecord.log.codec import ID_LIMIT
from onrecord.log.names import BESIDE, MIRROR_PREFIX
from onrecord.vendors.known import load
from onrecord.vendors.transcripts import Mark

if TYPE_CHECKING:
    from collections.abc import Iterator

    from onrecord.log.events import Event
    from onrecord.session.handle import Session

_PAGE = 200
_FEW = 3
"""The newest parts are read first: a conversation that grows has one of them, and a page of all reads the whole log."""
_KEY_BYTES = 12


class Stand(NamedTuple):
    """How far a conversation is on record."""

    mark: Mark | None
    generation: int
    position: int
    """The position of the newest part in the log."""
    erased: bool = False
    tip: str = ""
    """The id of the last record of its trunk: the one that the next prompt continues."""
    unread: bool = False
    """It was copied before there were readings."""


class Kept(NamedTuple):
    """One record of a mirrored conversation, and its position in the log."""

    raw: str
    position: int


def event_id(vendor_name: str, vendor_id: str, generation: int, offset: int, beside: str = "") -> str:
    """The id of a part: the same bytes have the same id, in every process."""
    id_ = f"{prefix_of(vendor_name, vendor_id, beside)}{generation}/{offset}"
    if len(id_) + 8 > ID_LIMIT or not id_.isprintable():
        raise InvalidInput(f"{beside or vendor_id!r:.80} is not the id of a conversation")
    return id_


def prefix_of(vendor_name: str, vendor_id: str, beside: str = "") -> str:
    """How the ids of a conversation's parts begin, or those of a further file of it."""
    whole = f"{MIRROR_PREFIX}{vendor_name}/{vendor_id}/"
    return f"{whole}{BESIDE}{beside}/" if beside else whole


def _generation(id_: str, prefix: str) -> int | None:
    number = id_.removeprefix(prefix).partition("/")[0] if id_.startswith(prefix) else ""
    return int(number) if number.isdigit() else None


def standings(session: Session, vendor_name: str, vendor_id: str, beside: str = "") -> Iterator[Stand]:
    """How far each generation is on record, the one that grew last first."""
    prefix = prefix_of(vendor_name, vendor_id, beside)
    seen: set[int] = set()
    for header in _newest(session):
        generation = _generation(header.id, prefix)
        if generation is not None and generation not in seen:
            seen.add(generation)
            data = session.log.event(header.position).data
            if data is None:
                yield Stand(None, generation, header.position, erased=True)
            else:
                tip = str(data.get("tip", ""))
                unread = "reading" not in data
                yield Stand(Mark(*data["mark_after"]), generation, header.position, tip=tip, unread=unread)


def _newest(session: Session) -> Iterator[Event]:
    """The headers of all parts, from the end of the log backwards."""
    few = list(islice(session.log.newest(("payload.kept",), headers=True, page=_FEW), _FEW))
    yield from few
    if len(few) == _FEW:
        upto = few[-1].position - 1
        yield from session.log.newest(("payload.kept",), upto=upto, headers=True, page=_PAGE)


def standing(session: Session, vendor_name: str, vendor_id: str, beside: str = "") -> Stand:
    """How far a conversation is on record: what its newest part says."""
    return next(standings(session, vendor_name, vendor_id, beside), Stand(None, 0, 0))


def generations(session: Session, vendor_name: str, vendor_id: str, beside: str = "") -> list[int]:
    """The numbers of the generations on record."""
    prefix = prefix_of(vendor_name, vendor_id, beside)
    headers = session.log.headers(("payload.kept",), page=_PAGE)
    return sorted({found for header in headers if (found := _generation(header.id, prefix)) is not None})


def best(session: Session, vendor_name: str, vendor_id: str, beside: str = "") -> int:
    """The generation that counts."""
    numbers = generations(session, vendor_name, vendor_id, beside)
    if len(numbers) < 2:  # noqa: PLR2004  # nothing to choose from
        return numbers[0] if numbers else 0
    chosen, had = -1, set[bytes]()
    for number in numbers:
        has = _keys(session, vendor_name, prefix_of(vendor_name, vendor_id, beside), number)
        common = len(had & has)
        if chosen < 0 or b"" in had or common == len(had) or (len(has) >= len(had) and common * 2 > len(had)):
            chosen, had = number, has
    return chosen


def _keys(session: Session, vendor_name: str, prefix: str, generation: int) -> set[bytes]:
    """What identifies the records of a generation; an empty key means that a part was erased."""
    from hashlib import blake2b  # hooks copy without it

    of, found = load(vendor_name), set[bytes]()
    for event in parts(session, f"{prefix}{generation}/"):
        if event.data is None:
            found.add(b"")
        for line in (event.data or {}).get("lines") or ():
            found.add(blake2b((of.parse(line).id or line).encode(), digest_size=_KEY_BYTES).digest())
    return found


def kept(
    session: Session, vendor_name: str, vendor_id: str, *, generation: int | None = None, beside: str = ""
) -> Iterator[Kept]:
    """The generation of a mirrored conversation that counts, or another: record by record, each with its position."""
    chosen = best(session, vendor_name, vendor_id, beside) if generation is None else generation
    rest = ""
    for event in parts(session, f"{prefix_of(vendor_name, vendor_id, beside)}{chosen}/"):
        lines = (event.data or {}).get("lines") or []
        goes_on = bool((event.data or {}).get("goes_on"))
        for number, line in enumerate(lines):
            if goes_on and number == len(lines) - 1:
                rest += line
            else:
                yield Kept(rest + line, event.position)
                rest = ""


def parts(session: Session, prefix: str) -> Iterator[Event]:
    """The events of one generation in order, one in memory at a time."""
    for header in session.log.headers(("payload.kept",), page=_PAGE):
        if header.id.startswith(prefix):
            yield session.log.event(header.position)


def has_gaps(session: Session, vendor_name: str, vendor_id: str, *, generation: int | None = None) -> bool:
    """Whether a part of the mirrored conversation was erased, so that it cannot be restored completely."""
    chosen = best(session, vendor_name, vendor_id) if generation is None else generation
    prefix = f"{prefix_of(vendor_name, vendor_id)}{chosen}/"
    return any((event.data or {"left_out": True}).get("left_out") for event in parts(session, prefix))


def source_path(session: Session, vendor_name: str, vendor_id: str, generation: int | None = None) -> str:
    """The path of the file that a generation was copied from; empty if it is unknown."""
    chosen = best(session, vendor_name, vendor_id) if generation is None else generation
    for event in parts(session, f"{prefix_of(vendor_name, vendor_id)}{chosen}/"):
        source = (event.data or {}).get("source")
        return str(source.get("path") or "") if isinstance(source, dict) else ""
    return ""


def besides(session: Session, vendor_name: str, vendor_id: str) -> list[str]:
    """The names of the further files of a conversation that are on record."""
    prefix = f"{prefix_of(vendor_name, vendor_id)}{BESIDE}"
    names = (
        header.id.removeprefix(prefix).rpartition("/")[0].rpartition("/")[0]
        for header in session.log.headers(("payload.kept",), page=_PAGE)
        if header.id.startswith(prefix)
    )
    return sorted(set(names))
