"""Group commit: whatever interrupts a batch leader, wherever, every other thread gets its answer and can continue.

CPython runs signal handlers after a call, at the start of a function and at the end of a loop iteration. These
tests raise at every such point of `stores/group_commit.py`, once and twice in a row.
"""

import contextlib
import itertools
from collections.abc import Callable
from threading import Lock, Thread, get_ident
from time import monotonic, sleep
from typing import Any, ClassVar

import pytest

from onrecord.errors import StoreBusy
from onrecord.stores import group_commit
from onrecord.stores.group_commit import BATCH_BYTES, BATCH_WRITES, GroupCommit
from tests.laws.interrupting import SECONDS, Caller, Commits, Interrupt, Interrupter, Watched, Write


@pytest.fixture
def commits() -> Commits:
    return Commits()


def play(points: tuple[int, ...], *, in_commit: bool = False) -> tuple[Interrupter, list[str]]:
    """Interrupt the first of five writes at these points, or first in its commit; return what is wrong afterwards."""
    interrupter = Watched.interrupter = Interrupter(*points)
    commits = Commits(Watched)
    if in_commit:
        commits.interrupter = interrupter
    group = commits.group
    assert group.pause(SECONDS)
    victim = Caller(commits, Write("victim"), (lambda: None) if in_commit else interrupter.arm)
    others = [Caller(commits, Write(name, alone=name == "alone")) for name in ("one", "two", "alone", "last")]
    group.resume()
    found = [f"{caller.write.name} is stuck" for caller in (victim, *others) if not caller.ended()]
    found += [f"{caller.write.name} was told {caller.problem!r}" for caller in others if caller.problem is not None]
    found += [f"{caller.write.name} got {caller.answer!r}" for caller in others if caller.answer != caller.write.name]
    if interrupter.raised and not isinstance(victim.problem, Interrupt):
        found.append(f"what the handler raised was swallowed: {victim.problem!r}")
    if not interrupter.raised and (victim.problem, victim.answer) != (None, "victim"):
        found.append(f"the victim got {victim.answer!r}, {victim.problem!r}")
    if in_commit and not commits.abandoned:
        found.append("nobody cleaned up after the commit that was interrupted")
    if not found:
        if not commits.is_idle():
            found.append("somebody still leads, waits or is served")
        if group.run(Write("later")) != "later":
            found.append("nothing can be written any more")
    return interrupter, found


@pytest.mark.timeout(300)
def test_a_leader_may_be_interrupted_anywhere():
    """After one interrupt at any point the victim gets it, every other thread gets its answer, and the next batch can start."""
    wrong = {}
    for point in itertools.count():
        interrupter, found = play((point,))
        if found:
            wrong[point] = found
        if not interrupter.raised or len(wrong) > 2:
            break
    assert wrong == {}
    assert point > 30, "there are far more points than that: the watch sees nothing"


@pytest.mark.timeout(300)
def test_a_second_interrupt_may_hit_the_recovery_from_the_first():
    """The leader is interrupted while it commits, and again at any point of its recovery: the same holds."""
    wrong = {}
    for point in itertools.count():
        interrupter, found = play((point,), in_commit=True)
        if found:
            wrong[point] = found
        if interrupter.raised < 2 or len(wrong) > 2:
            break
    assert wrong == {}
    assert point > 10, "there are more points than that: the watch sees nothing"


class Slow:
    """A lock that gives others plenty of time once it is released, and can be interrupted while waiting."""

    raising: ClassVar[set[int]] = set()

    def __init__(self) -> None:
        self._lock = Lock()

    def acquire(self, **options: Any) -> bool:
        if options and get_ident() in self.raising:
            self.raising.discard(get_ident())
            sleep(0.02)
            raise Interrupt
        return self._lock.acquire(**options)

    def release(self) -> None:
        self._lock.release()
        sleep(0.05)


def test_a_write_that_waits_may_be_interrupted(commits, monkeypatch):
    """A handler that raises during a wait ends that write alone; the others get their answers."""
    monkeypatch.setattr(group_commit, "Lock", Slow)
    assert commits.group.pause(SECONDS)
    first = Caller(commits, Write("first"))
    victim = Caller(commits, Write("victim"), lambda: Slow.raising.add(get_ident()))
    last = Caller(commits, Write("last"))
    assert victim.ended()
    commits.group.resume()
    assert first.ended()
    assert last.ended()
    assert isinstance(victim.problem, Interrupt)
    assert (first.answer, last.answer) == ("first", "last")
    assert commits.is_idle()


@pytest.mark.timeout(300)
def test_a_second_interrupt_may_hit_a_write_that_leaves_the_queue(monkeypatch):
    """A write is interrupted while it waits, and again at any point while it leaves the queue: no thread gets stuck."""
    monkeypatch.setattr(group_commit, "Lock", Slow)
    stuck = []
    for point in itertools.count():
        interrupter = Watched.interrupter = Interrupter(point)
        commits = Commits(Watched)
        assert commits.group.pause(SECONDS)
        victim = Caller(commits, Write("victim"), lambda: Slow.raising.add(get_ident()))
        other = Caller(commits, Write("other"))
        stuck += [point] if not victim.ended() else []
        commits.group.resume()
        stuck += [point] if not other.ended() or not commits.is_idle() else []
        if not interrupter.raised or stuck:
            break
    assert stuck == []
    assert point > 4, "there are more points than that: the watch sees nothing"


@pytest.mark.timeout(300)
def test_a_handler_may_write_while_an_interrupted_write_leaves_the_queue(monkeypatch):
    """A write is interrupted while it waits, and a handler writes at any point while it leaves: served or refused, never stuck."""
    monkeypatch.setattr(group_commit, "Lock", Slow)
    stuck, outcomes = [], set()
    for point in itertools.count():
        commits = Commits(Watched)
        group = commits.group

        def handler(group: GroupCommit[Write] = group) -> None:
            try:
                outcomes.add(group.run(Write("inner")))
            except StoreBusy:
                outcomes.add("refused")

        def wait_as_main(group: GroupCommit[Write] = group) -> None:
            group._main_thread = get_ident()
            Slow.raising.add(get_ident())

        interrupter = Watched.interrupter = Interrupter(point, handler=handler)
        assert group.pause(SECONDS)
        pausing = group._leader
        victim = Caller(commits, Write("victim"), wait_as_main)
        sleep(0.05)  # the handler waits by now
        assert group._leader == pausing
        resuming = Thread(target=group.resume, daemon=True)
        resuming.start()
        resuming.join(SECONDS)
        if resuming.is_alive() or not victim.ended() or not commits.is_idle():
            stuck.append(point)
        if not interrupter.raised or stuck:
            break
    assert stuck == []
    assert outcomes == {"inner", "refused"}
    assert point > 4, "there are more points than that: the watch sees nothing"


class Interrupted:
    """A lock whose wait runs a signal handler, as a wait in the main thread does."""

    handler: ClassVar[Callable[[], Any]]

    def __init__(self) -> None:
        self._lock = Lock()

    def acquire(self, **options: Any) -> bool:
        if options:
            type(self).handler()
        return self._lock.acquire(**options)

    def release(self) -> None:
        self._lock.release()


@pytest.mark.parametrize("taken_out_for", ["the lead", "a batch"])
def test_a_handler_that_writes_while_its_thread_is_served_or_about_to_lead_is_refused(
    commits, monkeypatch, taken_out_for
):
    """A write that waits is no longer in the queue, and a handler writes in its thread: refused, because it could wait for itself."""
    group, refused, answers = commits.group, [], []

    def handler() -> None:
        monkeypatch.setattr(Interrupted, "handler", lambda: None)
        taken = group._queue.popleft()
        if taken_out_for == "the lead":
            group._next = taken  # the leader is between two lines of `_hand_on`
        with contextlib.suppress(StoreBusy):
            group.run(Write("inner"))
            refused.append("no")
        if taken_out_for == "a batch":
            group._queue.appendleft(taken)  # that batch failed, and its leader put the writes back
        refused.append("yes")

    def write() -> None:
        group._main_thread = get_ident()
        answers.append(group.run(Write("outer")))

    monkeypatch.setattr(group_commit, "Lock", Interrupted)
    monkeypatch.setattr(Interrupted, "handler", handler, raising=False)
    assert group.pause(SECONDS)
    thread = Thread(target=write, daemon=True)
    thread.start()
    deadline = monotonic() + SECONDS
    while not refused and monotonic() < deadline:
        sleep(0.001)
    assert refused == ["yes"]
    group.resume()
    thread.join(SECONDS)
    assert answers == ["outer"]
    assert commits.is_idle()


def test_the_next_leader_leads_before_it_wakes_up(commits, monkeypatch):
    """However quickly the next leader wakes up, it sees that it leads."""
    monkeypatch.setattr(group_commit, "Lock", Slow)
    assert commits.group.pause(SECONDS)
    callers = [Caller(commits, Write(name, alone=True)) for name in ("one", "two", "three")]
    commits.group.resume()
    assert all(caller.ended() for caller in callers)
    assert [caller.answer for caller in callers] == ["one", "two", "three"]
    assert commits.batches == [["one"], ["two"], ["three"]]
    assert commits.is_idle()


class Spied(GroupCommit[Write]):
    """Keeps the state at the moment when the lead changed hands."""

    def __init__(self, *options: Any) -> None:
        self.freed_under_lock: list[bool] = []
        super().__init__(*options)

    @property
    def _leader(self) -> int:
        return self._led_by

    @_leader.setter
    def _leader(self, thread: int) -> None:
        if thread == 0 and hasattr(self, "_queue"):
            self.freed_under_lock.append(self._mutex._is_owned())  # type: ignore[attr-defined] # of every RLock
        self._led_by = thread


def test_the_lead_is_given_up_under_the_lock_of_the_queue():
    """Between the check of the queue and the release of the lead no thread can queue up and then wait for ever."""
    commits = Commits(Spied)
    assert commits.group.run(Write("one")) == "one"
    assert commits.group.run(Write("two")) == "two"
    assert isinstance(commits.group, Spied)
    assert commits.group.freed_under_lock == [True, True]


class Heir(Write):
    """Keeps the leader at the moment when its waiter was removed."""

    led_by = 0
    group: Any = None

    @property
    def waiter(self) -> Any:
        return self._waiter

    @waiter.setter
    def waiter(self, lock: Any) -> None:
        if lock is None and self.group is not None:
            self.led_by = self.group._leader
        self._waiter = lock


def test_an_heir_without_a_waiter_already_leads(commits):
    """A thread that is interrupted while it becomes leader, and finds its waiter removed, sees that it leads."""
    heir = Heir("heir", alone=True)
    heir.group = commits.group
    assert commits.group.pause(SECONDS)
    caller = Caller(commits, heir)
    commits.group.resume()
    assert caller.ended()
    assert heir.led_by == caller.thread.ident


def test_a_handler_that_writes_while_its_thread_writes_is_refused(commits):
    """A write in the middle of a write of the same thread is refused: it would wait for itself."""
    refused = []

    def commit(batch: list[Write]) -> None:
        with pytest.raises(StoreBusy):
            commits.group.run(Write("inner"))
        refused.append(True)
        batch[0].answer = "outer"

    commits.group._commit = commit
    assert commits.group.run(Write("outer")) == "outer"
    assert refused == [True]
    assert commits.is_idle()


def test_who_can_share_a_transaction_does(commits):
    """A batch takes writes in order, up to a number and a size; an exclusive write is alone, and none overtakes another."""
    assert commits.group.pause(SECONDS)
    large = BATCH_BYTES // 2
    wanted = [
        Write("a"), Write("b"), Write("alone", alone=True), Write("c", size=large), Write("d", size=large),
        Write("e", size=large),
    ]  # fmt: skip
    callers = [Caller(commits, write) for write in wanted]
    commits.group.resume()
    assert all(caller.ended() for caller in callers)
    assert [caller.answer for caller in callers] == [write.name for write in wanted]
    assert commits.batches == [["a", "b"], ["alone"], ["c", "d"], ["e"]]
    assert len(wanted) < BATCH_WRITES


def test_a_pause_that_takes_too_long_is_given_up(commits):
    """While another thread leads, a pause waits up to its limit and no longer, and leaves nothing behind."""
    assert commits.group.pause(SECONDS)
    found: list[bool] = []
    thread = Thread(target=lambda: found.append(commits.group.pause(0.01)))
    thread.start()
    thread.join(SECONDS)
    assert found == [False]
    commits.group.resume()
    assert commits.is_idle()


class Turnstile:
    """The lock of a queue; before it admits one thread, something else happens."""

    def __init__(self, lock: Any, before: Callable[[], None]) -> None:
        self._lock = lock
        self.before: Callable[[], None] | None = before
        self.thread = 0

    def __enter__(self) -> None:
        if get_ident() == self.thread and self.before is not None:
            before, self.before = self.before, None
            before()
        self._lock.acquire()

    def __exit__(self, *_problem: object) -> None:
        self._lock.release()


def test_the_last_leader_may_leave_while_another_write_queues_up(commits):
    """A thread that sees a leader, and is about to queue up when that leader leaves, leads."""
    group = commits.group
    assert group.pause(SECONDS)
    usual, left = group._mutex, Lock()
    left.acquire()

    def leave() -> None:
        left.release()
        while group._leader:
            sleep(0)

    group._mutex = turnstile = Turnstile(usual, leave)
    found: list[Any] = []

    def call() -> None:
        turnstile.thread = get_ident()
        found.append(group.run(Write("late")))

    thread = Thread(target=call, daemon=True)
    thread.start()
    assert left.acquire(timeout=SECONDS)
    group.resume()
    thread.join(SECONDS)
    assert found == ["late"]
    assert commits.is_idle()
