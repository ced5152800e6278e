"""The shelf: every session of the store as the first page shows it, kept in memory and brought up to date.

A request reads only the heads that moved since the last one. What time changes (a process that ended, a limit that
passed) is looked at again in the background, every few seconds. Nothing here is a second truth: an empty shelf is
filled again from the store.
"""

from __future__ import annotations

import time
from bisect import bisect_left, insort
from contextlib import suppress
from threading import Event, RLock, Thread
from typing import TYPE_CHECKING, NamedTuple

from onrecord.agents import pricing
from onrecord.errors import OnrecordError
from onrecord.log.head import LIVE
from onrecord.log.store import PAGE_LIMIT
from onrecord.session.standing import Standing, standing
from onrecord.session.usage import spend_of
from onrecord.views.needs import KINDS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onrecord.log.head import Head
    from onrecord.session.session_store import SessionStore
    from onrecord.views.spend import Spend

LOOK_SECONDS = 3.0
"""How often the sessions that time may change are looked at again."""
WHOLE_SECONDS = 60.0
"""How often all heads are read again: a copied session may have an old time, and an erased one is gone."""
FIRST_PAGE = 20
"""How many heads the first read of a refresh fetches."""
POINTS = 28
"""How many points a sparkline has."""
HEADERS_READ = 600
"""Up to this many events, a sparkline counts each; of a longer log it reads samples."""
NEVER = -1e9
_CALM = len(KINDS)


class Used(NamedTuple):
    """What a session used, and when it was active."""

    tokens: int
    cost: float
    """In US dollars, estimates included."""
    unknown: bool
    """Whether the cost of some calls is not known."""
    activity: tuple[float, ...]


Key = tuple[int, bool, int, str]
"""The place of a session in a list: how pressing, whether it has ended, its last activity, its id."""


class Listed(NamedTuple):
    """The beginning of a list, and how long the list is."""

    shown: list[Standing]
    total: int


class Shelf:
    """The sessions of a store, by need and by last activity."""

    def __init__(self, records: SessionStore) -> None:
        self._records = records
        self._known: dict[str, Standing] = {}
        self._words: dict[str, str] = {}
        self._used: dict[str, tuple[bytes, Used]] = {}
        self.rows: dict[str, tuple[object, str]] = {}
        """Rendered rows, each with what it was rendered from."""
        self._orders: dict[str | None, list[Key]] = {None: []}
        """The sessions of each project in order; None: of all of them."""
        self._whole_at = NEVER
        self._lock = RLock()
        self._stopped = Event()
        self._thread: Thread | None = None
        self.changed = 0
        """Grows whenever a session on the shelf changed."""

    # Filling it

    def start(self) -> None:
        """Look again every few seconds, until `stop`."""
        self._thread = Thread(target=self._look_again, name="onrecord-shelf", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the background work."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join()

    def _look_again(self) -> None:
        while not self._stopped.is_set():
            with suppress(OnrecordError):  # a store that cannot be read now is read again in a moment
                self.refresh()
                self.recheck()
            self._stopped.wait(LOOK_SECONDS)

    def refresh(self) -> None:
        """Read the heads that moved; now and then all of them."""
        with self._lock:
            now = time.monotonic()
            if now - self._whole_at > WHOLE_SECONDS:
                heads = self._every_head()
                gone = self._known.keys() - {head.session for head in heads}
                for session in gone:
                    self._forget(session)
                self._whole_at = now
            else:
                heads = self._newest()
            self._place([head for head in heads if not self._is_known(head)])

    def _newest(self) -> list[Head]:
        """The heads at the top of the list, down to the first page of which nothing is new."""
        found: list[Head] = []
        limit, before = FIRST_PAGE, None
        while page := self._records.sessions(project="", limit=limit, before=before):
            fresh = [head for head in page if not self._is_known(head)]
            found += fresh
            if len(fresh) < len(page) or len(page) < limit:
                break
            limit, before = PAGE_LIMIT, page[-1]
        return found

    def _every_head(self) -> list[Head]:
        found: list[Head] = []
        before = None
        while page := self._records.sessions(project="", limit=PAGE_LIMIT, before=before):
            found += page
            if len(page) < PAGE_LIMIT:
                break
            before = page[-1]
        return found

    def _is_known(self, head: Head) -> bool:
        known = self._known.get(head.session)
        return known is not None and known.entry.head == head

    def _place(self, heads: list[Head]) -> None:
        if not heads:
            return
        now = int(self._records.clock() * 1e6)
        for entry in self._records.entries(heads):
            session = entry.head.session
            self._put(standing(entry, lambda at=session: self._records.leases(at), now))  # type: ignore[misc]  # a default binds it
            listed = entry.listing
            texts = (entry.head.name, entry.head.title, listed["next"], listed["prompt"], *listed["agents"])
            self._words[session] = " ".join(texts).casefold()

    def _put(self, one: Standing) -> None:
        """Place a session in every list that it belongs to; what was known of it before leaves them."""
        head = one.entry.head
        self._take(head.session)
        self._known[head.session] = one
        for order in (self._orders[None], self._orders.setdefault(head.project, [])):
            insort(order, _key(one))
        self.changed += 1

    def _take(self, session: str) -> None:
        known = self._known.pop(session, None)
        if known is not None:
            key = _key(known)
            for order in (self._orders[None], self._orders[known.entry.head.project]):
                del order[bisect_left(order, key)]

    def recheck(self) -> None:
        """Look again at the sessions that time may change: those with a process, a limit or an open attempt."""
        now = int(self._records.clock() * 1e6)
        with self._lock:
            restless = [one for one in self._known.values() if _is_restless(one)]
        for one in restless:
            session = one.entry.head.session
            again = standing(one.entry, lambda at=session: self._records.leases(at), now)  # type: ignore[misc]  # a default binds it
            with self._lock:
                if self._known.get(session) is one and (again.needs, again.working) != (one.needs, one.working):
                    self._put(again)

    def _forget(self, session: str) -> None:
        self._take(session)
        self._words.pop(session, None)
        self._used.pop(session, None)
        self.rows.pop(session, None)
        self.changed += 1

    # Reading it

    def listed(self, projects: Sequence[str] | None, words: str = "", limit: int = 60) -> tuple[Listed, Listed]:
        """The sessions that need a person, and the others; of some projects, and only those with these words."""
        self.refresh()
        wanted = words.casefold().split()
        with self._lock:
            order = self._order_of(projects)
            known = self._words
            for word in wanted:
                order = [key for key in order if word in known[key[-1]]]
            needing = bisect_left(order, (_CALM,))
            return (
                Listed([self._known[key[-1]] for key in order[: min(needing, limit)]], needing),
                Listed([self._known[key[-1]] for key in order[needing : needing + limit]], len(order) - needing),
            )

    def _order_of(self, projects: Sequence[str] | None) -> list[Key]:
        if projects is None:
            return self._orders[None]
        found = [order for one in projects if (order := self._orders.get(one))]
        return found[0] if len(found) == 1 else sorted(key for order in found for key in order)

    def get(self, session: str) -> Standing | None:
        """The standing of a session."""
        self.refresh()
        return self._known.get(session)

    def used(self, head: Head) -> Used:
        """What a session used; read again only when its log grew."""
        known = self._used.get(head.session)
        if known is not None and known[0] == head.hash:
            return known[1]
        used = used_of(spend_of(self._records.store, head), self._activity(head))
        self._used[head.session] = head.hash, used
        return used

    def _activity(self, head: Head) -> tuple[float, ...]:
        """Events per stretch of time, from the first to the last one."""
        store = self._records.store
        if head.position <= HEADERS_READ:
            times = [(record.position, record.at) for record in store.read(head.session, bodies=())]
        else:
            step = head.position // (POINTS * 2)
            places = [*range(1, head.position, step), head.position]
            found = [store.read(head.session, after=place - 1, upto=place, bodies=()) for place in places]
            times = [(page[0].position, page[0].at) for page in found if page]
        return activity(times)


def used_of(spend: Spend, activity: tuple[float, ...] = ()) -> Used:
    """What a view counted, with its cost."""
    total = pricing.nothing()
    for one in pricing.priced_by_model(spend).values():
        pricing.add_priced(total, one)
    tokens = int(total["input_tokens"] + total["output_tokens"])
    return Used(tokens, float(total["cost"]), bool(total["unknown_cost_calls"]), activity)


def _key(one: Standing) -> Key:
    head = one.entry.head
    pressing = KINDS.index(one.needs[0].kind) if one.needs else _CALM
    return pressing, head.status not in LIVE, -one.entry.active_at, head.session


def activity(times: list[tuple[int, int]]) -> tuple[float, ...]:
    """How many events fall into each of `POINTS` stretches of time, smoothed, from (position, time) of some of them."""
    first, last = min(at for _place, at in times), max(at for _place, at in times)
    width = max(1, last - first)
    found = [0.0] * POINTS
    before = 0
    for place, at in times:
        found[min(POINTS - 1, (at - first) * POINTS // width)] += place - before
        before = place
    padded = [0.0, *found, 0.0]
    return tuple((padded[at] + 2 * padded[at + 1] + padded[at + 2]) / 4 for at in range(POINTS))


def _is_restless(one: Standing) -> bool:
    listed = one.entry.listing
    return one.entry.head.status in LIVE and bool(
        one.needs or one.working or listed["attempts"] or any(agent["here"] for agent in listed["agents"].values())
    )
