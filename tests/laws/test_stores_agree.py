"""Two SQLite stores on one file, used in turn, answer as the store in memory does, whatever an append remembers."""

import tempfile
from typing import Any

import apsw
from hypothesis import example, given, settings
from hypothesis import strategies as st

from onrecord.log import head as heads
from onrecord.log.codec import seal
from onrecord.log.events import NEW_RUN, Draft
from onrecord.log.store import Lease
from onrecord.stores.memory import MemoryStore
from onrecord.stores.sqlite import SQLiteStore
from onrecord.stores.sqlite.rows import MOMENT_BITS
from onrecord.testing import FakeClock
from onrecord.testing.keeping import HOLDER
from tests.laws.answers import FACTS, outcome

SESSION, OTHER_SESSION = "01J0000000000000000000TEST", "01J000000000000000000VTEST"
AGENTS = ("main", "other")
LEASE_SECONDS = 0.1
# Nothing; less and more than what changes the order of lists; more than half the time of a lease; and the clock set back.
PAUSES = (0.0, 0.001, 0.05, 0.2, 1.5, -0.3)
TURNS = ("turn.begun", "item.added", "turn.committed", "turn.aborted", "turn.recorded", "effect.finished")
DATA: dict[str, Any] = {
    "items": [], "tool": "bash", "act": "run", "text": "t", "name": "renamed", "part": "prompt", "ids": "", "summary": "s",
    "upto": 1, "reopen": True,
}  # fmt: skip

WORK = (0, "main", "take", 0.0)
STEPS = [(0, "main", "item.added", 0.001)] * 3

# (which store, which agent, what, how long after the last one, which session)
moves = st.lists(
    st.tuples(
        st.integers(0, 1),
        st.sampled_from(AGENTS),
        st.one_of(
            st.sampled_from(
                ("take", "again", "new run", "of a new run", "of a later run", "without a lease", "as expected")
            ),
            st.sampled_from(("several", "several", "several again", "several, some again")),
            st.sampled_from(TURNS),
            st.sampled_from(TURNS),
            st.sampled_from(FACTS),
        ),
        st.sampled_from(PAUSES),
        st.sampled_from((SESSION, OTHER_SESSION)),
    ),
    max_size=25,
)


def lanes(leases: list[Lease]) -> dict[str, Lease]:
    """The same in any order; the store decides how long each is held: a lease in use is not extended at once."""
    return {lease.lane: lease._replace(until=0) for lease in leases}


class Pair:
    """The same operations on two stores on one file and on one in memory."""

    def __init__(self, place: str) -> None:
        self.clock = FakeClock()
        self.stores = [SQLiteStore(f"{place}/store.db", durability="fast", clock=self.clock) for _ in range(2)]
        self.model = MemoryStore(clock=self.clock)
        self.leases: dict[tuple[int, str, str], tuple[Lease, Lease]] = {}
        self.drafts: list[Draft] = []
        for session in (SESSION, OTHER_SESSION):
            opening = self.draft("session.opened", "main", {"name": f"agree-{session}", "project": "/p"}, run=NEW_RUN)
            assert self.stores[0].create(heads.fresh(session, opening), [opening]) == self.model.create(
                heads.fresh(session, opening), [opening]
            )

    def draft(self, kind: str, agent: str, data: dict[str, Any], *, run: int = 1) -> Draft:
        number = len(self.drafts)
        at = int(self.clock() * 1e6)
        self.drafts.append(seal(kind, data, id=f"e{number}", at=at, by=agent, run=run, salt=bytes(16)))
        return self.drafts[-1]

    def move(self, which: int, agent: str, what: str, pause: float, session: str = SESSION) -> None:
        """Do one operation on both, and check that both answer alike."""
        store, model, mine = self.stores[which], self.model, (which, agent, session)
        self.clock.now += pause
        if what == "take":
            options: dict[str, Any] = {"seconds": LEASE_SECONDS, "takeover": True}
            taken = store.acquire(session, agent, HOLDER, **options), model.acquire(session, agent, HOLDER, **options)
            assert taken[0] == taken[1]
            self.leases[mine] = taken
            return
        here, there = self.leases.get(mine, (None, None))
        expect, more = None, []
        if what == "again":
            draft = self.drafts[len(self.drafts) // 2]
        elif what.startswith("several"):
            draft, *more = self.several(agent, what, model.head(session).run)
        elif what == "new run":
            draft = self.draft("agent.joined", agent, {}, run=NEW_RUN)
        elif what in ("of a new run", "of a later run"):
            draft = self.draft(
                "item.added", agent, {}, run=NEW_RUN if what == "of a new run" else model.head(session).run + 2
            )
        elif what == "without a lease":
            here = there = None
            draft = self.draft("tool.used", agent, DATA)
        elif what == "as expected":
            expect = len(model.read(session)) - len(self.drafts) % 2
            draft = self.draft("item.added", agent, {})
        else:
            draft = self.draft(what, agent, DATA)
        drafts = [draft, *more]
        answer = outcome(lambda: store.append(session, drafts, expect=expect, lease=here))
        assert answer == outcome(lambda: model.append(session, drafts, expect=expect, lease=there))
        if here is not None and isinstance(answer, list) and answer[0].new:
            (held,) = (lease for lease in store.leases(session) if lease.lane == agent)
            assert held.until - self.clock() * 1e6 >= LEASE_SECONDS * 1e6 / 2 - 1, "a lane in use would be lost"

    def several(self, agent: str, what: str, run: int) -> list[Draft]:
        """The events of one append: new ones, those of the last such append again, or some of each."""
        known = self.drafts[-3:]
        if what == "several again":
            return known
        kinds = TURNS[: 2 + len(self.drafts) % 4]
        return [*known[1:][: what.count("again")], *(self.draft(kind, agent, DATA, run=run) for kind in kinds)]

    def check(self) -> None:
        """Both have the same content, whichever store answers."""
        for session in (SESSION, OTHER_SESSION):
            for store in self.stores:
                assert store.read(session) == self.model.read(session)
                assert store.head(session) == self.model.head(session)
                assert lanes(store.leases(session)) == lanes(self.model.leases(session))
        with apsw.Connection(self.stores[0].path) as connection:
            moments = connection.execute("SELECT moment FROM sessions ORDER BY number").fetchall()
        for (moment,), session in zip(moments, (SESSION, OTHER_SESSION), strict=True):
            assert moment == self.model.head(session).at >> MOMENT_BITS, "lists would show it in the wrong place"

    def close(self) -> None:
        for store in self.stores:
            store.close()


@given(moves)
@settings(deadline=None)
@example([WORK, *STEPS, (0, "main", "session.paused", 0.0), *STEPS])
@example([WORK, *STEPS, (1, "main", "take", 0.0), *STEPS, (1, "main", "item.added", 0.0), *STEPS])
@example([(0, "other", "take", 0.0), (1, "other", "take", 0.0), WORK, *STEPS, (0, "other", "item.added", 0.0), *STEPS])
@example([WORK, *STEPS, *[(0, "main", "item.added", pause) for pause in PAUSES], *STEPS])
@example([WORK, *STEPS, (0, "main", "item.added", -0.3), *STEPS])
@example(
    [
        WORK,
        *[
            (0, "main", what, 0.001, of)
            for what in ("several", "several again", "several, some again") * 2
            for of in (SESSION, OTHER_SESSION)
        ],
        *STEPS,
    ]
)
@example([WORK, *[(which, "main", "several", 0.0) for which in (0, 0, 1, 0, 1, 1)], *STEPS])
@example([WORK, *STEPS, (0, "main", "of a new run", 0.0), *STEPS, (0, "main", "of a later run", 0.0), *STEPS])
def test_an_append_is_placed_alike_whatever_was_remembered(played):
    """Other processes, leases taken over and running out, pauses, retries and a clock set back change nothing (A09, A10, B08)."""
    with tempfile.TemporaryDirectory() as place:
        pair = Pair(place)
        try:
            for one in played:
                pair.move(*one)
            pair.check()
        finally:
            pair.close()
