"""A process that lost its lane writes nothing to it, however late it wakes up; a dead holder is replaced at once (P15)."""

import fcntl
import random
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from onrecord.errors import LeaseHeld, LeaseLost
from onrecord.log.events import Draft
from onrecord.log.store import Lease, Receipt, Store
from onrecord.session.handle import Session
from onrecord.session.session_store import SessionStore
from onrecord.stores.sqlite import SQLiteStore
from tests.crash.ledger import Ack, acks_in, complaints
from tests.crash.nursery import Nursery, Worker

LEASE_SECONDS = 0.15
FENCED = ("turn.begun", "item.added", "turn.committed", "turn.aborted", "turn.recorded", "agent.joined")


def stale_events(store: Store, session: str, lane: str = "main") -> list[str]:
    """Events of a run that come after a newer run has taken the lane."""
    newest, found = 0, []
    for record in store.read(session, kinds=FENCED):
        if record.by == lane:
            if record.run < newest:
                found.append(f"position {record.position} is of run {record.run}, after run {newest} had begun")
            newest = max(newest, record.run)
    return found


class Clock:
    """Time that passes when a test says so."""

    def __init__(self) -> None:
        self.now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


class Careless(SQLiteStore):
    """Wrong on purpose: checks the lease first and appends afterwards, in another transaction."""

    def __init__(self, path: str, *, clock: Clock, between: Callable[[], object]) -> None:
        super().__init__(path, clock=clock)
        self.between = between

    def append(
        self, session: str, drafts: Sequence[Draft], *, expect: int | None = None, lease: Lease | None = None
    ) -> list[Receipt]:
        if lease is not None and all(present.epoch != lease.epoch for present in self.leases(session)):
            raise LeaseLost("another process writes this lane now")
        self.between()
        return super().append(session, drafts, expect=expect)


@pytest.fixture
def stores(path: str) -> Iterator[Callable[[Clock], SQLiteStore]]:
    """Makes stores on one file, each as if in a process of its own, and closes them in the end."""
    made: list[SQLiteStore] = []

    def make(clock: Clock) -> SQLiteStore:
        made.append(SQLiteStore(path, clock=clock))
        return made[-1]

    yield make
    for store in made:
        store.close()


def take_over(clock: Clock, old: Session, heir: SessionStore, chance: random.Random) -> Session:
    """Pass the lane to another holder: the lease expires, is taken by force, or is given back."""
    way = chance.choice(("time", "force", "release"))
    if way == "force":
        return heir.open("fenced", takeover=True)
    if way == "release":
        old.leave()
        return heir.open("fenced")
    with pytest.raises(LeaseHeld):
        heir.open("fenced")
    clock.now += 301
    return heir.open("fenced")


@pytest.mark.timeout(3600)
def test_nothing_stale_after_many_takeovers(
    stores: Callable[[Clock], SQLiteStore], chance: random.Random, count: Callable[[int, int], int]
):
    """After many takeovers, by expiry, by force and in order, every turn of a former holder is refused (P15)."""
    clock = Clock()
    both = [SessionStore(stores(clock), clock=clock) for _ in range(2)]
    zombies: list[Session] = []
    holder = both[0].open("fenced")
    refused = 0
    for number in range(count(200, 10_000)):
        clock.now += chance.uniform(0, 60)
        holder.record_turn([{"role": "user", "content": f"turn {number}"}])
        left = holder.lease
        heir = take_over(clock, holder, both[(number + 1) % 2], chance)
        if holder.lease is not None:
            zombies.append(holder)
        heir.record_turn([{"role": "user", "content": "the new holder writes"}])
        for zombie in zombies[-3:]:
            with pytest.raises(LeaseLost):
                zombie.record_turn([{"role": "user", "content": "the old one wakes up"}])
            refused += 1
        assert left is not None
        assert heir.lease is not None
        assert heir.lease.epoch > left.epoch
        holder = heir
    assert refused > 100
    assert stale_events(both[0].store, holder.id) == []
    assert holder.verify().ok


def lose_the_lane(clock: Clock, other: SessionStore) -> Session:
    clock.now += 301
    return other.open("fenced")


def test_control_a_check_outside_of_the_transaction_is_caught(path: str, stores: Callable[[Clock], SQLiteStore]):
    """Control: a store that checks the lease before its transaction lets the old holder append, and the test sees it (P15)."""
    clock = Clock()
    other = SessionStore(stores(clock), clock=clock)
    pauses: list[Callable[[], object]] = []
    careless = Careless(path, clock=clock, between=lambda: pauses and pauses.pop()())
    old = SessionStore(careless, clock=clock).open("fenced")
    # The old holder stops between its check and its append; meanwhile its lease expires and another takes the lane.
    pauses.append(lambda: lose_the_lane(clock, other))
    old.record_turn([{"role": "user", "content": "too late"}])
    assert len(stale_events(careless, old.id)) == 1
    careless.close()


@pytest.mark.timeout(1800)
def test_a_stopped_process_writes_nothing_when_it_wakes(
    nursery: Nursery, tmp_path: Path, chance: random.Random, count: Callable[[int, int], int]
):
    """A process that is suspended at work, outlives its lease and wakes up after a takeover appends nothing (P15)."""
    for number in range(count(20, 500)):
        path = str(tmp_path / str(number) / "log.db")
        old = nursery.start("hold_and_write", path=path, session="fenced", seconds=LEASE_SECONDS)
        acks = acks_in([old.line(), old.line()])
        acks += acks_in(old.lines(chance.uniform(0, 0.01)))
        stop_outside_the_write_lock(old, path, chance)
        store = SQLiteStore(path)
        heir = patiently_opened(store)
        event = heir.record_turn([{"role": "user", "content": "the new holder writes"}])
        old.go_on()
        lines = old.wait()
        assert lines[-1] == "lost the lane"
        acks += [*acks_in(lines), Ack(event.session, event.position, event.id)]
        assert stale_events(store, heir.id) == []
        store.close()
        assert complaints(path, acks) == []


def stop_outside_the_write_lock(worker: Worker, path: str, chance: random.Random) -> None:
    """Suspend a writer while it does not have the write lock: with it, no other process could take its lane."""
    with Path(f"{path}.lock").open("rb") as lock:
        while True:
            worker.stop()
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                worker.go_on()
                time.sleep(chance.uniform(0, 0.002))
            else:
                return


def patiently_opened(store: Store) -> Session:
    """The session, as soon as the lease of a silent holder has expired."""
    deadline = time.monotonic() + 90
    while True:
        try:
            return SessionStore(store).open("fenced")
        except LeaseHeld:
            if time.monotonic() > deadline:
                raise
            time.sleep(LEASE_SECONDS / 10)


def test_a_dead_holder_is_replaced_at_once(nursery: Nursery, path: str, count: Callable[[int, int], int]):
    """A holder that was killed is replaced without waiting for its lease, again and again (P15)."""
    acks: list[Ack] = []
    for _ in range(count(20, 200)):
        holder = nursery.start("hold_and_obey", path=path, session="fenced", seconds=3_600)
        assert holder.line().startswith("holds")
        holder.order()
        acks += acks_in([holder.line()])
        holder.kill()
    store = SQLiteStore(path)
    assert stale_events(store, acks[0].session) == []
    store.close()
    assert complaints(path, acks) == []


def test_a_living_holder_is_not_replaced(nursery: Nursery, path: str):
    """Control of the test above: while the holder lives, suspended or not, other processes cannot take its lane (P15)."""
    holder = nursery.start("hold_and_obey", path=path, session="fenced", seconds=3_600)
    assert holder.line().startswith("holds")
    holder.stop()
    store = SQLiteStore(path)
    with pytest.raises(LeaseHeld):
        SessionStore(store).open("fenced")
    holder.go_on()
    holder.order()
    assert len(acks_in([holder.line()])) == 1
    holder.kill()
    store.close()
