"""Appends of many threads that share one transaction get the same answers as one after the other."""

import itertools
import tempfile
import time
from collections.abc import Callable
from fcntl import LOCK_EX, flock
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Any, NamedTuple
from unittest.mock import Mock

import apsw
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import onrecord
from onrecord.log import head as heads
from onrecord.log.codec import SealOnRead, seal
from onrecord.log.events import NEW_RUN, Draft
from onrecord.log.head import LIVE, QUIET, STATUSES
from onrecord.log.store import Lease, Store
from onrecord.stores.memory import MemoryStore
from onrecord.stores.refusals import reentered
from onrecord.stores.sqlite import SQLiteStore
from onrecord.stores.sqlite.append import Append, LateAppend
from onrecord.stores.sqlite.writer import Writer
from onrecord.testing import FakeClock
from onrecord.testing.keeping import HOLDER, OTHER
from tests.laws.answers import FACTS, outcome

TRUNK, BRANCH, TWIG, NOWHERE = (f"01J00000000000000000000{number:03}" for number in range(4))
SESSIONS = (TRUNK, BRANCH, TWIG, NOWHERE)
DATA: dict[str, Any] = {
    "items": [], "tool": "bash", "act": "run", "text": "t", "name": "renamed", "summary": "s", "upto": 1, "reopen": True,
}  # fmt: skip
KINDS = (*FACTS, "item.added", "turn.begun", "turn.committed")
LEASE_SECONDS = 10
LARGE = "a text that is kept out of line " * 2_000
TEXTS = ("t", "another", LARGE, "\ud800 cannot be sealed")


class Wish(NamedTuple):
    """An append of one of the threads."""

    session: str
    kinds: tuple[str, ...]
    ids: tuple[int, ...]
    """Few numbers, so that ids are used again: some are on record before, one in an ancestor."""
    data: int
    run: int
    lease: str
    """The lease it has; or "join" and "take": it acquires the lane, which may have a holder."""
    expect: int | None
    at: int
    """How many seconds its clock is off."""


wishes = st.builds(
    lambda session, steps, *others: Wish(
        session, tuple(step[0] for step in steps), tuple(step[1] for step in steps), *others
    ),
    st.sampled_from(SESSIONS),
    st.lists(st.tuples(st.sampled_from(KINDS), st.integers(0, 40)), min_size=1, max_size=2),
    st.sampled_from((0, 0, 0, 1, 2, 3)),
    st.sampled_from((1, 1, 1, 2, NEW_RUN)),
    st.sampled_from(("none", "none", "good", "lost", "join", "take")),
    st.sampled_from((None, None, None, 0, 1)),
    st.sampled_from((0, 0, 0, -1, 1)),
)


def fact(number: int, *, session: str = TRUNK, kind: str = "decision.made", **other: Any) -> Wish:
    return Wish(session, (kind,), (number,), 0, 1, "none", None, 0)._replace(**other)


class Pair:
    """The same on SQLite and in memory: a session, a fork of it, and a separate one."""

    def __init__(self, place: str) -> None:
        self.clock = FakeClock()
        self.file = SQLiteStore(f"{place}/store.db", durability="fast", clock=self.clock)
        self.memory = MemoryStore(clock=self.clock)
        self.leases: dict[tuple[int, str, str], Lease] = {}
        self._make(0, self.file)
        self._make(1, self.memory)

    def _make(self, which: int, store: Store) -> None:
        opening = self.draft("session.opened", "opened", {"name": "trunk", "project": "/p"}, NEW_RUN)
        store.create(heads.fresh(TRUNK, opening), [opening])
        store.append(TRUNK, [self.draft("decision.made", "e0", DATA, 1)])
        forking = self.draft("session.forked", "forked", {"name": "branch"}, 1)
        store.create(heads.forked(store.head(TRUNK), BRANCH, "branch"), [forking])
        opening = self.draft("session.opened", "opened", {"name": "twig", "project": "/p"}, NEW_RUN)
        store.create(heads.fresh(TWIG, opening), [opening])
        store.append(TWIG, [self.draft("turn.begun", "e1", DATA, 1)])
        for session in (TRUNK, BRANCH, TWIG):
            store.append(session, [self.draft("decision.made", "e2", DATA, 1)])
            self.leases[which, session, "lost"] = store.acquire(session, "main", HOLDER)
            self.leases[which, session, "good"] = store.acquire(
                session, "main", OTHER, takeover=True, seconds=LEASE_SECONDS
            )

    def draft(self, kind: str, id: str, data: dict[str, Any], run: int, off: int = 0) -> Draft:
        return seal(kind, data, id=id, at=int((self.clock() + off) * 1e6), by="main", run=run, salt=bytes(16))

    def call(self, which: int, wish: Wish, caller: int) -> Callable[[], Any]:
        """One append for either store; a single short event is sealed late."""
        store: Store = (self.file, self.memory)[which]
        data = DATA | {"text": TEXTS[wish.data]}
        makers = [
            partial(self.draft, kind, f"e{id_}", data, wish.run, wish.at)
            for kind, id_ in zip(wish.kinds, wish.ids, strict=True)
        ]
        late = len(makers) == 1 and TEXTS[wish.data] is not LARGE  # it would queue up again, after the others
        lease = self.leases.get((which, wish.session, wish.lease))
        expect = store.head(wish.session).position + wish.expect if wish.expect is not None else None
        if wish.lease in ("join", "take"):
            holder, takeover = HOLDER | {"handle": f"{caller} at {self.clock()}"}, wish.lease == "take"
            return lambda: store.join(
                wish.session, "main", holder, [make() for make in makers],
                expect=expect, seconds=LEASE_SECONDS, takeover=takeover,
            )  # fmt: skip
        return lambda: store.append(
            wish.session,
            SealOnRead(makers[0]) if late else [make() for make in makers],
            expect=expect,
            lease=lease,
        )

    def play(self, batch: list[Wish]) -> None:
        """All these appends wait in this order while no thread writes; then they run, with the answers of the store in memory."""
        self.clock.advance(LEASE_SECONDS * 0.6)
        batch = [wish for wish in batch if wish.session != NOWHERE or wish.expect is None]
        there = [self.call(1, wish, caller) for caller, wish in enumerate(batch)]
        found = together(self.file, [self.call(0, wish, caller) for caller, wish in enumerate(batch)])
        assert found == [outcome(call) for call in there]
        for session in (TRUNK, BRANCH, TWIG):
            assert self.file.read(session) == self.memory.read(session)
            assert self.file.head(session) == self.memory.head(session)
            assert self.holders(self.file, session) == self.holders(self.memory, session)
        for number, wish in enumerate(batch):
            if wish.lease == "good" and isinstance(found[number], list) and any(one.new for one in found[number]):
                (held,) = self.file.leases(wish.session)
                assert held.until - self.clock() * 1e6 >= LEASE_SECONDS * 1e6 / 2, "a lane in use would be lost"

    @staticmethod
    def holders(store: Store, session: str) -> list[tuple[int, Any]]:
        """Who has the lanes of a session, under which epoch."""
        return [(lease.epoch, lease.holder) for lease in store.leases(session)]


def together(store: Store, calls: list[Callable[[], Any]]) -> list[Any]:
    """The outcomes of calls by many threads that waited in this order while no thread wrote."""
    found: dict[int, Any] = {}
    threads = []
    assert isinstance(store, SQLiteStore)
    group = store._writer.group
    assert group.pause(5.0)
    for number, call in enumerate(calls):
        thread = Thread(target=lambda number=number, call=call: found.update({number: outcome(call)}))
        waiting = len(group._queue)
        thread.start()
        threads.append(thread)
        while thread.is_alive() and len(group._queue) == waiting:  # or it was refused before it had to wait
            time.sleep(0)
    group.resume()
    for thread in threads:
        thread.join()
    return [found[number] for number in range(len(calls))]


@given(st.lists(st.lists(wishes, min_size=2, max_size=6), min_size=1, max_size=3))
@settings(deadline=None)
@example([[fact(10), fact(11), fact(12)]])
@example([[fact(10), fact(2), fact(12)], [fact(12), fact(13)]])
@example([[fact(10), fact(10, data=1), fact(10)]])
@example([[fact(0, session=BRANCH), fact(0, session=BRANCH, data=1), fact(11, session=BRANCH)]])
@example([[fact(10, kind="session.paused"), fact(11, kind="turn.begun"), fact(12), fact(13, kind="session.resumed")]])
@example([[fact(2, lease="lost"), fact(11, lease="lost"), fact(12, lease="good")]])
@example([[fact(10, lease="take"), fact(11, lease="good"), fact(12, lease="take"), fact(13, lease="join")]])
@example([[fact(10, lease="good"), fact(11, lease="take", expect=0), fact(12, lease="good", data=2)]])
@example([[fact(10, lease="good"), fact(11, lease="take", expect=1), fact(12, lease="good")]])
@example([[fact(2, lease="take"), fact(10, lease="join", session=BRANCH)], [fact(11, lease="join"), fact(12)]])
@example([[fact(2, expect=1), fact(11, expect=1), fact(12, expect=0)]])
@example([[fact(2), fact(11, expect=0)]])
@example([[fact(10, data=3), fact(11), fact(12, data=3)], [fact(13, data=3)]])
@example([[fact(10, at=1), fact(11), fact(12, at=-1)], [fact(13, kind="item.added", session=TWIG)]])
@example([[fact(10, kind="session.closed"), fact(2), fact(11), fact(12, kind="session.resumed")]])
@example([[fact(10, run=NEW_RUN), fact(11, run=2), fact(12, run=NEW_RUN)]])
@example([[fact(10, session=session, kind="session.renamed") for session in (TRUNK, BRANCH)]])
@example([[fact(10, data=2), fact(11, data=2), fact(12, session=NOWHERE)]])
def test_a_batch_is_answered_like_its_parts_in_a_row(batches):
    """Many retries, forks, lost leases, endings and taken names in one transaction get the same answers (A10, B08)."""
    with tempfile.TemporaryDirectory() as place:
        pair = Pair(place)
        try:
            for batch in batches:
                pair.play(batch)
        finally:
            pair.file.close()


@given(st.sampled_from(STATUSES), st.integers(1, 5), st.integers(0, 10))
def test_what_is_quiet_moves_only_position_hash_run_and_time(status, run, at):
    """The fast path of a batch relies only on what the fold of the head does."""
    head = heads.fresh(TRUNK, seal("session.opened", {"name": "n", "project": "p"}, "o", 5, "main", 1, bytes(16)))
    head = head._replace(position=3, status=status, run=3)
    for kind in QUIET[status]:
        draft = seal("x.y", {}, "e", at, "main", run, bytes(16))._replace(kind=kind, data=DATA)
        assert heads.after(head, draft, run, b"h" * 32) == head._replace(
            position=4, hash=b"h" * 32, run=max(run, 3), at=max(at, 5)
        )
    assert bool(QUIET[status]) is (status in LIVE)


def test_one_known_id_leaves_a_batch_together(tmp_path, monkeypatch):
    """A retry among new events does not split the batch: all of it is looked up, and it is one transaction."""
    monkeypatch.setattr(Writer, "_retreat", None)
    pair = Pair(str(tmp_path))
    pair.play([fact(10), fact(2), fact(0, session=BRANCH), fact(11), fact(1, session=TWIG, kind="turn.begun")])
    pair.file.close()


def test_what_comes_while_another_process_writes_shares_a_transaction(tmp_path, monkeypatch):
    """Writes that arrive while the batch leader waits for the write lock are committed together with its own."""
    pair, sizes = Pair(str(tmp_path)), []
    usual, group, answers = Writer._transact, pair.file._writer.group, []

    def counted(writer: Writer, cursor: apsw.Cursor, batch: Any) -> None:
        sizes.append(len(batch))
        usual(writer, cursor, batch)

    def write(call: Callable[[], Any]) -> None:
        answers.append(call())

    monkeypatch.setattr(Writer, "_transact", counted)
    batch = [fact(10), fact(11, data=2), fact(12, lease="take", session=TWIG)]
    threads = [Thread(target=write, args=(pair.call(0, wish, 0),)) for wish in batch]
    with Path(pair.file.path + ".lock").open("rb") as other:
        flock(other, LOCK_EX)
        for waiting, thread in enumerate(threads):
            thread.start()
            # The first one has gathered its batch when it waits for the lock; the others are in the queue then.
            while pair.file._writer._lock._waiter is None or len(group._queue) < waiting:
                time.sleep(0)
    for thread in threads:
        thread.join()
    pair.file.close()
    assert (len(answers), sizes) == (3, [3])


def test_what_is_long_is_sealed_by_its_own_thread(tmp_path):
    """A long event is sealed by its own thread, not by the batch leader; it still lands, once."""
    with onrecord.connect(str(tmp_path / "store.db"), project="/p") as records:
        session = records.open("long")
        texts = ["short", "long " * 10_000, "also short", "longer " * 10_000]
        events = together(records.store, [partial(session.decide, "Decided", why=text) for text in texts])
        assert len({event.position for event in events}) == len(texts)
        assert [session.log.event(event.position).data["why"] for event in events] == texts
        assert session.verify().ok


def test_what_cannot_be_sealed_is_told_so_though_nothing_can_be_written(tmp_path, monkeypatch):
    """Each caller gets the error of its own append: one its invalid input, the others the disk error."""
    with onrecord.connect(str(tmp_path / "store.db"), project="/p") as records:
        session = records.open("full")
        before = session.decide("Before").position
        monkeypatch.setattr(Writer, "_begin", Mock(side_effect=apsw.FullError("disk full")))
        told = together(records.store, [partial(session.decide, text) for text in ("Good", "\ud800", "Good too")])
        assert told == ["store_full", "invalid_input", "store_full"]
        monkeypatch.undo()
        assert session.decide("After").position == before + 1


@pytest.mark.parametrize(("kind", "step"), [(LateAppend, "prepare"), (Append, "stage")])
def test_what_a_handler_raises_is_told_to_the_thread_it_interrupted(tmp_path, monkeypatch, kind, step):
    """When a handler interrupts the batch leader while it serves another thread, only the leader gets the error."""
    with onrecord.connect(str(tmp_path / "store.db"), project="/p") as records:
        session = records.open("handled")
        usual, calls = getattr(kind, step), itertools.count()

        def interrupted(*given: Any) -> Any:
            if next(calls) == 1:
                raise reentered()
            return usual(*given)

        monkeypatch.setattr(kind, step, interrupted)
        told = together(records.store, [partial(session.decide, text) for text in ("first", "second", "third")])
        assert told[0] == "store_busy"
        assert [event.data["text"] for event in told[1:]] == ["second", "third"]
        assert session.verify().ok
