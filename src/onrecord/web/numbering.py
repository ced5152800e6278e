"""The numbers of turns: how many turns each agent had before a stretch of the timeline.

The views know how many turns each lane has at their position. From there, or from a stretch that is known, the headers
of the turns between are counted; what was counted is kept, because a log only grows. Where a mirrored turn begins is in
the payloads: they are folded once, from the beginning, a bounded time for each request; until that is done, the turns
of a long conversation have no numbers.
"""

from __future__ import annotations

import time
from collections import Counter, OrderedDict
from threading import RLock
from typing import TYPE_CHECKING

from onrecord.log.codec import open_records
from onrecord.log.shapes import UNREADABLE
from onrecord.views.conversations import Conversations
from onrecord.views.transcript import SHARED_KINDS

if TYPE_CHECKING:
    from onrecord.log.item_values import Item
    from onrecord.log.store import Store
    from onrecord.views.conversations import Exchange
    from onrecord.views.fold import Whole

SESSIONS_KEPT = 8
"""Of how many sessions the counts are kept: those that were looked at last."""
COUNTING_SECONDS = 0.3
"""How long one request counts the turns of mirrored conversations; the next one continues."""
PAGE = 100
"""How many parts of mirrored conversations are in memory while they are counted."""
_BEGINNINGS = ("turn.begun", "turn.recorded")


class Mirrored:
    """How many turns of mirrored conversations each lane had before each stretch, as far as they were counted."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._fold = Conversations()
        self._counts: Counter[str] = Counter()
        self._begun = 0
        """How many turns of the fold were seen."""
        self._silent: list[Exchange] = []
        """Those that say nothing yet: they are not on the timeline."""
        self._known: list[Counter[str]] = [Counter()]
        self._seen = 0

    def before(self, store: Store, session: str, number: int) -> Counter[str] | None:
        """The counts before a stretch; None if counting takes longer than a request may."""
        deadline, upto = time.monotonic() + COUNTING_SECONDS, number * self._size
        while len(self._known) <= number:
            if time.monotonic() > deadline:
                return None
            found = store.read(session, after=self._seen, upto=upto, kinds=SHARED_KINDS, limit=PAGE)
            for event in open_records(found):
                self._pass(event.position)
                try:
                    self._fold.apply(event)
                except UNREADABLE:
                    continue
                self._count()
            self._seen = found[-1].position if len(found) == PAGE else upto
            if len(found) < PAGE:
                self._pass(upto + 1)
        return self._known[number]

    def _pass(self, position: int) -> None:
        """The stretches that end before a position are counted."""
        while position > len(self._known) * self._size:
            self._known.append(Counter(self._counts))

    def _count(self) -> None:
        """Count the turns that began, and forget what they say."""
        turns = [*self._silent, *self._fold.turns[self._begun :]]
        self._begun = len(self._fold.turns)
        self._silent = [turn for turn in turns if not any(turn.parts)]
        for turn in turns:
            if any(turn.parts):
                self._counts[turn.agent] += 1
                for later in self._known[-(-turn.begun // self._size) :]:
                    later[turn.agent] += 1  # it begins with a command that was held back until a model answered it
        for turn in self._fold.turns[-2:]:
            turn.parts[:] = [_SOMETHING if part else [] for part in turn.parts]


_SOMETHING: list[Item] = [{"role": "system"}]


class Numbering:
    """Counts of turns, by session and stretch."""

    def __init__(self, store: Store, size: int) -> None:
        self._store = store
        self._size = size
        self._kept: OrderedDict[str, dict[int, Counter[str]]] = OrderedDict()
        self._mirrored: dict[str, Mirrored] = {}
        self._lock = RLock()

    def before(self, whole: Whole, number: int) -> Counter[str] | None:
        """How many turns each agent had before this stretch; None if that is not counted yet."""
        with self._lock:
            known = self._kept.setdefault(whole.head.session, {0: Counter()})
            self._kept.move_to_end(whole.head.session)
            while len(self._kept) > SESSIONS_KEPT:
                self._mirrored.pop(self._kept.popitem(last=False)[0], None)
            if number not in known:
                below = max(one for one in known if one <= number)
                above = min((one for one in known if one >= number), default=0)
                if above and above - number <= number - below:
                    self._count_down(whole, known[above], number, above * self._size, known)
                elif whole.position - number * self._size < (number - below) * self._size:
                    turns = Counter({agent: lane["turns"] for agent, lane in whole.lanes.lanes.items()})
                    self._count_down(whole, turns, number, whole.position, known)
                else:
                    self._count_up(whole, below, number, known)
            mirrored = self._mirrored.setdefault(whole.head.session, Mirrored(self._size))
            more = mirrored.before(self._store, whole.head.session, number)
            return None if more is None else known[number] + more

    def _count_up(self, whole: Whole, first: int, last: int, known: dict[int, Counter[str]]) -> None:
        count, at = Counter(known[first]), first
        for position, agent in self._turns(whole, first * self._size, last * self._size):
            while position > (at + 1) * self._size:
                at += 1
                known[at] = Counter(count)
            count[agent] += 1
        for rest in range(at + 1, last + 1):
            known[rest] = Counter(count)

    def _count_down(
        self, whole: Whole, turns: Counter[str], first: int, upto: int, known: dict[int, Counter[str]]
    ) -> None:
        count, at = Counter(turns), (upto - 1) // self._size
        for position, agent in reversed(self._turns(whole, first * self._size, upto)):
            while position <= at * self._size:
                known[at] = Counter(count)
                at -= 1
            count[agent] -= 1
        for rest in range(first, at + 1):
            known[rest] = Counter(count)

    def _turns(self, whole: Whole, after: int, upto: int) -> list[tuple[int, str]]:
        found = self._store.read(whole.head.session, after=after, upto=upto, kinds=_BEGINNINGS, bodies=())
        return [(record.position, record.by) for record in found]
