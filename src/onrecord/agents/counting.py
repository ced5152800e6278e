"""Counting what coding agents use: the model calls in a part of a transcript become one usage event, each call once.

A call is known by the vendor's id of it. One that grows (some vendors write a message several times) counts by what it
grew. Vendors copy the beginning of a conversation when they fork it, change its id or rewrite its file; so the first
calls of a conversation are compared with everything that was counted, and later ones with the calls just before them.
"""

from __future__ import annotations

import fcntl
import os
import time
from binascii import b2a_base64
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from onrecord.log import digest
from onrecord.session.budget import usage_id
from onrecord.views.spend import ROW, TOKENS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from onrecord.log.events import Draft
    from onrecord.session.handle import Session
    from onrecord.vendors.port import Chunk, Entry, Usage, Vendor

    Pricing = Callable[[str, Mapping[str, int], int], float | None]

KEY_BYTES = 6
"""How many bytes of its hash a call is known by."""
LOOK_BACK = 200
"""How many usage events are searched for the last one of a file."""
ALONE_SECONDS = 2.0
"""For how long another process that counts is waited for."""
ALONE_PAUSE = 0.01
PAGE = 8
"""How many of them one read fetches: it is usually the newest."""
_URL_SAFE = str.maketrans("+/", "-_")
_EPOCH = 719_163
"""The ordinal of the first day of 1970."""


class Call(NamedTuple):
    """One model call of a part of a transcript."""

    key: str
    model: str
    day: int
    tokens: tuple[int, ...]
    """In the order of `TOKENS`."""
    cost: float | None
    again: bool


class Part(NamedTuple):
    """Where a part of a transcript belongs."""

    vendor_id: str
    id: str
    """Its id in the log; the ids of all parts of its generation differ after the last slash only."""

    @property
    def key(self) -> str:
        """What the parts of its generation of its file are known by in usage events."""
        return key_of(self.id.rpartition("/")[0])


def drafts(session: Session, of: Vendor, part: Part, chunk: Chunk, last: Last | None) -> list[Draft]:
    """The usage events for what a chunk states and was not counted yet, to append together with it.

    `last` is what `last_of` returns for the part.
    """
    used = [(entry, usage) for entry in chunk.entries for usage in entry.usage]
    if not used:
        return []
    link = session.views.roster.link(of.name, part.vendor_id)
    agent = link["agent"] if link else session.agent
    about: dict[str, Any] = {"vendor": of.name, "of": part.key}
    if agent != session.agent:
        about["agent"] = agent
    made, rows = [], []
    if (counted := _counted(session, of, part, used, last)) is not None:
        rows = counted.data["counted"]
        if "spend" in session.views.spend.budget:
            from onrecord.agents.costing import listed

            if settled := listed(session.views.spend, agent):
                counted.data["settled"] = settled
        made.append(session.log.draft("usage.recorded", about | counted.data, id=counted.id))
    sums = {usage.model: usage for _entry, usage in used if usage.total}
    if sums:
        from onrecord.agents.costing import told

        if (data := told(session, about, agent, sums, rows)) is not None:
            made.append(session.log.draft("usage.recorded", about | data, id=f"sums/{part.id}"))
    return made


class Last(NamedTuple):
    """What the last usage event of a file has."""

    calls: list[str]
    model: str
    """Of the last call."""
    tokens: list[int]
    """Of the last call, in the order of `TOKENS`."""

    @classmethod
    def of(cls, data: dict[str, Any]) -> Last:
        """A single call is its own row; that of several is kept apart from their sum."""
        model, *tokens = data.get("last") or [data["counted"][0][1], *data["counted"][0][3 : 3 + len(TOKENS)]]
        return cls(data["calls"], model, [*tokens, *[0] * (len(TOKENS) - len(tokens))])


class Counted(NamedTuple):
    """The payload and the id of a usage event."""

    data: dict[str, Any]
    id: str


def _counted(
    session: Session, of: Vendor, part: Part, used: list[tuple[Entry, Usage]], last: Last | None
) -> Counted | None:
    """The calls that were not counted yet."""
    if not any(usage.call for _entry, usage in used):
        return None
    calls = _calls(session, of, part, used, last)
    fresh, grown = _new(session, of.name, calls, last)
    if fresh and last and session.log.find(usage_id(of.name, fresh[0].key)):
        # A call that was counted long ago comes again: compare with everything.
        known = session.budget.counted(of.name, [call.key for call in fresh])
        fresh = [call for call in fresh if call.key not in known]
    newest = fresh[-1] if fresh else grown[0] if grown else None
    if newest is None:
        return None
    data: dict[str, Any] = {
        "counted": _rows(fresh, grown, _pricing(session)), "calls": [call.key for call in fresh] or [newest.key],
    }  # fmt: skip
    if len(fresh) != 1 or grown:
        data["last"] = [newest.model, *newest.tokens]
    return Counted(data, usage_id(of.name, fresh[0].key) if fresh else f"usage/{part.id}")


def _pricing(session: Session) -> Pricing | None:
    """The price list, if a rule depends on the cost."""
    if "spend" not in session.views.spend.budget:
        return None
    from onrecord.agents.costing import price

    return price


def last_of(session: Session, part: Part) -> Last | None:
    """What was counted last of this generation of the conversation.

    If there is nothing, its first calls are compared with those of all sessions: then it must be alone (`Alone`).
    """
    for event in islice(session.log.newest(("usage.recorded",), page=PAGE), LOOK_BACK):
        about = event.data or {}
        if about.get("of") == part.key and "calls" in about:
            return Last.of(about)
    return None


class Alone:
    """Lets one process after another compare first calls and append them: two may copy the same beginning at once.

    The lock is on the vendor's directory, in which copies of a conversation are made, and changes nothing there. A
    process that holds it too long is not waited for: no agent is held up for the sake of a number.
    """

    def __init__(self, home: str, last: Last | None) -> None:
        """`last` is what was counted last of the file: if there is something, nothing else can have copied the rest."""
        self._home = home if last is None else ""
        self._folder = -1

    def __enter__(self) -> None:
        if not self._home:
            return
        try:
            self._folder = os.open(self._home, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError:  # it was imported from elsewhere
            return
        deadline = time.monotonic() + ALONE_SECONDS
        while time.monotonic() < deadline:
            try:
                fcntl.flock(self._folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                time.sleep(ALONE_PAUSE)
            else:
                return

    def __exit__(self, *_: object) -> None:
        if self._folder >= 0:
            os.close(self._folder)


def _calls(session: Session, of: Vendor, part: Part, used: list[tuple[Entry, Usage]], last: Last | None) -> list[Call]:
    """The calls in their order, each once, in its largest form; those without a model have the one named before."""
    named: str | None = None
    found: dict[str, Call] = {}
    for entry, usage in used:
        if not usage.call:
            named = named if usage.total else usage.model
            continue
        scope = f"{part.vendor_id}/" if usage.local else ""
        key = key_of(f"{scope}{usage.call}")
        if not usage.model and named is None:
            named = _named_before(session, of, part, last)
        tokens = tuple(getattr(usage, name) for name in TOKENS)
        call = Call(key, usage.model or named or "", _day(session, entry.at), tokens, usage.cost, usage.again)
        if (before := found.pop(key, None)) is not None:
            most = tuple(map(max, before.tokens, tokens))
            cost = max(filter(None, (before.cost, usage.cost)), default=None)
            call = before._replace(tokens=most, cost=cost, again=before.again and usage.again)
        found[key] = call
    return list(found.values())


def key_of(call: str) -> str:
    """What a call is known by in the log: short, since every call is named there once."""
    key = digest.sha256(call.encode("utf-8", "surrogatepass")).digest()[:KEY_BYTES]
    # As base64.urlsafe_b64encode does, which a hook would have to load.
    return b2a_base64(key, newline=False).decode().translate(_URL_SAFE)


def _named_before(session: Session, of: Vendor, part: Part, last: Last | None) -> str:
    """The model that was named last in the earlier parts, or that of the call that comes after the name."""
    for header in session.log.newest(("payload.kept",), headers=True):
        if header.id.rpartition("/")[0] != part.id.rpartition("/")[0]:
            continue
        for line in reversed((session.log.event(header.position).data or {}).get("lines") or ()):
            if found := [usage for usage in of.parse(line).usage if not usage.total]:
                return last.model if last and found[-1].call else found[-1].model
    return ""


def _day(session: Session, at: str) -> int:
    """The number of the day on which a record was written, in the local time of this machine."""
    from datetime import UTC, datetime

    try:
        moment = datetime.fromisoformat(at)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        local = moment.astimezone()
    except (ValueError, OverflowError, OSError):
        local = datetime.fromtimestamp(session.clock()).astimezone()
    return local.date().toordinal() - _EPOCH


def _new(
    session: Session, vendor: str, calls: list[Call], last: Last | None
) -> tuple[list[Call], tuple[Call, tuple[int, ...]] | None]:
    """The calls that were not counted yet; and the last counted one with what it has grown by, if it has."""
    if last and not any(call.again for call in calls):
        known = frozenset(last.calls)
    else:
        known = session.budget.counted(vendor, [call.key for call in calls])
    fresh = [call for call in calls if call.key not in known]
    grown = None
    for call in calls:
        if last and call.key == last.calls[-1]:
            more = tuple(max(0, now - then) for now, then in zip(call.tokens, last.tokens, strict=True))
            grown = (call, more) if any(more) else None
    return fresh, grown


def _rows(
    fresh: Iterable[Call], grown: tuple[Call, tuple[int, ...]] | None, pricing: Pricing | None
) -> list[list[Any]]:
    """Sums for each day and model, calls of known and of unknown cost apart; see `ROW`."""
    rows: dict[tuple[int, str, bool], dict[str, Any]] = {}
    counted = [(call, 1, call.tokens) for call in fresh]
    if grown is not None:
        counted.append((grown[0]._replace(cost=None), 0, grown[1]))
    for call, number, amounts in counted:
        tokens = {name: amount for name, amount in zip(TOKENS, amounts, strict=True) if amount}
        cost = pricing(call.model, tokens, call.day) if call.cost is None and pricing else call.cost
        row = rows.setdefault(
            (call.day, call.model, cost is not None), {"day": call.day, "model": call.model, "calls": 0}
        )
        row["calls"] += number
        for name, amount in tokens.items():
            row[name] = row.get(name, 0) + amount
        if cost is not None:
            row["cost"] = round(row.get("cost", 0.0) + cost, 9)
    return [_short(row) for row in rows.values()]


def _short(row: dict[str, Any]) -> list[Any]:
    values = [row.get(name, 0) for name in ROW]
    if "cost" not in row:
        del values[-1]
        while values[-1] == 0:
            del values[-1]
    return values
