"""Verification: re-derive the chain from what a store returns, and report where and why it breaks.

Erased is not damaged: a payload may be missing only where an event on the chain says that it was erased.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from onrecord.errors import DamagedLog, InvalidInput, OnrecordError
from onrecord.log.codec import GENESIS, check_header, commit_to, decode_payload, link, open_record
from onrecord.log.events import KINDS, Draft
from onrecord.log.head import QUIET, TITLE_KINDS, Head, after, forked, fresh
from onrecord.log.ranges import Ranges
from onrecord.log.shapes import UNREADABLE

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from onrecord.log.events import Record

COVERS = (
    "the hash chain and every payload that was not erased", "the head: position, status, hold, title, runs and times",
    "kept views (snapshots)",
)  # fmt: skip
"""What a verification derives again from the events."""
LEAVES_OUT = ("the search index", "the name and project of a session", "leases", "where a log came from")
"""What a store keeps beside its logs that no log says, or that is only a way to find events."""
PROBLEMS_LIMIT = 100
"""The most problems one report lists."""


class Problem(NamedTuple):
    """One position at which the log is not what was written."""

    position: int
    cause: str
    """gap, chain, payload, missing, unreadable, head, snapshot or checkpoint."""
    detail: str


class Report(NamedTuple):
    """The outcome of a verification."""

    session: str
    events: int
    position: int
    hash: bytes
    erased: int
    problems: list[Problem]
    unread: int = 0
    """Payloads that were not compared with their hashes, because the session's own key is not here."""

    @property
    def ok(self) -> bool:
        """Whether the log is exactly what was written, apart from what was erased on record."""
        return not self.problems


class Verifier:
    """Checks the events of one log in order, page by page; from the beginning, or after a position."""

    def __init__(self, session: str, position: int = 0, digest: bytes = GENESIS) -> None:
        self._session = session
        self._hash = digest
        self._position, self._events = position, 0
        self._problems: list[Problem] = []
        self._missing: set[int] = set()
        self._erased = Ranges()
        self._unread = 0

    def feed(self, records: Iterable[Record], *, locked: bool = False) -> Verifier:
        """Check more events; where their key is not here (`locked`), a payload that has a salt is not missing."""
        last, previous = self._position, self._hash
        for record in records:
            position, salt, payload, payload_hash, digest = record[1], *record[9:]
            self._events += 1
            if position != last + 1:
                self._blame(last + 1, "gap", f"position {position} comes after {last}")
            elif link(previous, record[:9], payload_hash) != digest:
                self._blame(position, "chain", "header, commitment or predecessor differs from what was written")
            last, previous = position, digest
            if payload is None or salt is None:
                if locked and salt is not None:
                    self._unread += 1
                else:
                    self._missing.add(position)
            elif commit_to(salt, payload) != payload_hash:
                self._blame(position, "payload", "the payload differs from what was written")
            elif record.kind == "payload.erased":
                self._note_erasure(record)
        self._position, self._hash = last, previous
        return self

    @property
    def problems(self) -> list[Problem]:
        """The problems so far; whether a missing payload was erased on record is known only at the end."""
        return self._problems[:PROBLEMS_LIMIT]

    def unexplained(self) -> bool:
        """Whether a payload is missing that no event read so far says was erased."""
        return any(position not in self._erased for position in self._missing)

    def finish(self, position: int | None = None, digest: bytes | None = None) -> Report:
        """The report; `position` and `digest` are those of the head in the store."""
        unexplained = sorted(position for position in self._missing if position not in self._erased)
        for missing in unexplained:
            self._blame(missing, "missing", "the payload is gone and no event says that it was erased")
        if position is not None and (position, digest) != (self._position, self._hash):
            self._blame(position, "head", f"the store says the log ends at {position}; it ends at {self._position}")
        found = self._problems[:PROBLEMS_LIMIT]
        erased = len(self._missing) - len(unexplained)
        return Report(self._session, self._events, self._position, self._hash, erased, found, self._unread)

    def shredded(self, first: int, last: int) -> None:
        """Note that the key of these events was destroyed, which erases them as an event would."""
        self._erased.add(first, last)

    def excuse(self, record: Record, upto: int) -> None:
        """Note an erasure in an ancestor's log, up to a position."""
        for first, last in erased_by(record, upto) or ():
            self._erased.add(first, last)

    def _note_erasure(self, record: Record) -> None:
        found = erased_by(record, record.position - 1)
        if found is None:
            self._blame(record.position, "unreadable", "the erasure event does not say what was erased")
        for first, last in found or ():
            self._erased.add(first, last)

    def _blame(self, position: int, cause: str, detail: str) -> None:
        if len(self._problems) < PROBLEMS_LIMIT:
            self._problems.append(Problem(position, cause, detail))


def draft_of(record: Record) -> Draft:
    """The draft of a record: `Tip.extend` after the same events makes the same record of it."""
    event = open_record(record)
    return Draft(*event[2:9], record.salt or b"", record.payload or b"", record.payload_hash, event.data)


def advance(head: Head | None, record: Record) -> Head:
    """The head of a log after one more of its records; refuses what no log can contain."""
    _refuse_misfit(record)
    draft = draft_of(record)
    if head is None:
        if draft.kind != "session.opened":
            raise DamagedLog("the log does not start with the opening of a session")
        known = draft.data or {}
        told = {"name": str(known.get("name", "")), "project": str(known.get("project", ""))}
        head = fresh(record.session, draft._replace(data=told))
    if (record.kind == "session.forked") != (record.session != head.session):
        raise DamagedLog(f"position {record.position} belongs to another session, and there was no fork")
    if record.kind == "session.forked":
        head = forked(head, record.session, head.name)
    return after(head, draft, record.run, record.hash)


def _refuse_misfit(record: Record) -> None:
    try:
        check_header(record[:9])
    except InvalidInput as problem:
        raise DamagedLog(f"position {record.position!r:.30}: {problem.message}") from None


class HeadFold:
    """The head of a log, folded from its events, to compare with the head in the store.

    A store keeps the head in a row of its own; an edit of that row must be found too.
    """

    def __init__(self) -> None:
        self._head: Head | None = None
        self._run = self._at = 0
        self._quiet: frozenset[str] = frozenset()
        self._certain = self._titled = True

    def feed(self, records: Sequence[Record]) -> None:
        """Fold more events in, in order, from the first event."""
        quiet = self._quiet
        for record in records:
            if record.kind not in quiet:
                self._step(record)
                quiet = self._quiet
        self._run = max(self._run, *map(attrgetter("run"), records))
        self._at = max(self._at, *map(attrgetter("at"), records))

    def _step(self, record: Record) -> None:
        if record.payload is None and record.kind in TITLE_KINDS:
            self._titled = False
        if record.kind not in KINDS and record.kind.startswith("session."):
            self._certain = False  # from a newer version: what it changes is unknown
        try:
            self._head = advance(self._head, record)
            self._quiet = QUIET[self._head.status]
        except (OnrecordError, *UNREADABLE):
            self._certain = False

    def disagreement(self, head: Head) -> str:
        """How the head in the store differs from the log, if it does; erased facts are not compared."""
        told = self._head
        if told is None or not self._certain:
            return ""
        if head.status != told.status:
            return f"the store says that the session is {head.status}; its log says {told.status}"
        if head.held != told.held:
            return f"the store says that the session has {'a' if head.held else 'no'} hold; its log says the opposite"
        if self._titled and head.title != told.title:
            return "the store shows another title than the log"
        if (head.run, head.opened_at, head.at) != (self._run, told.opened_at, self._at):
            return "the store says that the session was opened or used at another time, or in other runs, than the log"
        return ""


def erased_by(record: Record, upto: int) -> list[tuple[int, int]] | None:
    """The ranges that an erasure names, up to a position: it can excuse only events before it."""
    try:
        data: dict[str, Any] = decode_payload((record.payload or b"").decode())
        found = [(max(1, first), min(last, upto)) for first, last in data["ranges"]]
    except (ValueError, KeyError, TypeError):
        return None
    return found if all(type(first) is type(last) is int for first, last in found) else None


def ranges_of(positions: Iterable[int]) -> list[list[int]]:
    """Positions as closed ranges, the form an erasure event names them in."""
    ranges: list[list[int]] = []
    for position in sorted(set(positions)):
        if ranges and ranges[-1][1] == position - 1:
            ranges[-1][1] = position
        else:
            ranges.append([position, position])
    return ranges
