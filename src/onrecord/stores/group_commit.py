"""Group commit: threads that write at the same moment share one transaction, and so one wait for the disk.

No writer thread: the first caller becomes batch leader and commits the queue. The leader takes along everyone who can
share its transaction, commits, wakes them, and hands the lead to the first caller it could not take along. A caller on
its own pays one uncontended lock for this.

**Signals.** The handler of a signal may raise in the main thread, and so end a write at any moment. No other thread may
get stuck or lose its answer by that. CPython runs handlers only after a call, at the start of a function and at the end
of a loop's round. So each step that others depend on is written without a call in between, and `_recover` can tell from
the fields how far an interrupted write got. Where the order of lines matters, the comment begins with "Order:";
`tests/laws/test_group_commit.py` interrupts a leader at every such point, and fails when a step is tidied up.

A handler that itself writes, while its own thread is in the middle of a write, is refused: waiting would be for ever.
"""

from __future__ import annotations

from collections import deque
from threading import Lock, RLock, get_ident, main_thread
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from onrecord.stores.refusals import reentered

if TYPE_CHECKING:
    from collections.abc import Callable

BATCH_WRITES = 256
"""The most writes that share one transaction."""
BATCH_BYTES = 4 * 1024 * 1024
"""The most bytes that writes which share a transaction write together."""


class Pending:
    """One write that waits to be committed, and its outcome."""

    __slots__ = ("answer", "problem", "thread", "waiter")

    thread: int
    """The thread that waits for it."""
    alone = True
    """Whether it needs a transaction of its own."""

    def __init__(self) -> None:
        self.answer: Any = None
        self.problem: BaseException | None = None
        self.waiter: Any = None
        """A lock that its thread waits for: released when the write is served, or when the thread is to lead."""

    @property
    def size(self) -> int:
        """About how many bytes it writes."""
        return 0

    def admits(self, other: Any) -> bool:
        """Whether another write may join the transaction that this one leads."""
        return not (self.alone or other.alone)


P = TypeVar("P", bound=Pending)


class GroupCommit(Generic[P]):
    """The queue before one log or one database file, and the election of its batch leader.

    `commit` writes a batch, the leader's own write first, and leaves an answer or a problem in each. It may be called
    again for writes of a leader that was interrupted, so each must be idempotent. `abandon` cleans up after it.
    """

    def __init__(self, commit: Callable[[list[P]], None], abandon: Callable[[], None] = lambda: None) -> None:
        self._commit = commit
        self._abandon = abandon
        self._mutex = RLock()
        """Guards `_leader` and `_queue` together. Reentrant: a handler may run while its own thread has it."""
        self._main_thread = main_thread().ident
        """Handlers of signals run there."""
        self._leader = 0
        """The thread that leads; 0 for none."""
        self._next: P | None = None
        """The write that was taken out of the queue to lead next, until its thread leads."""
        self._batch: list[P] = []
        """The writes that are being committed; the leader's own comes first."""
        self._queue: deque[Pending] = deque()

    def run(self, own: P) -> Any:
        """Commit a write, alone or in a batch; return its answer or raise its problem, once it is durable."""
        me = get_ident()
        if self._leader == me:
            raise reentered()
        try:
            if not self._leader:
                with self._mutex:
                    if not self._leader:
                        self._leader = me
            if self._leader != me:
                self._wait(own, me)
            if self._leader == me:
                self._lead(own)
                self._hand_on()
        except BaseException:
            try:
                self._recover(own, me)
            except BaseException:
                self._recover(own, me)  # a second signal arrived during the recovery from the first
                raise
            raise
        if own.problem is not None:
            raise own.problem
        return own.answer

    def pause(self, seconds: float) -> bool:
        """Take the lead, in turn, and keep it: no commit runs, and none begins. False if that took too long."""
        turn, me = Pending(), get_ident()
        if self._leader == me or self._is_waiting(me):
            return False
        try:
            self._wait(turn, me, seconds)
        except BaseException:
            self._recover(turn, me)
            raise
        return self._leader == me

    def resume(self) -> None:
        """After a pause: hand the lead on."""
        self._hand_on()

    def gather(self) -> list[P]:
        """Everyone who can share the leader's transaction; asked again, also those who came since."""
        batch = self._batch
        if self._queue and not batch[0].alone:
            first = batch[0]
            size = first.size
            with self._mutex:
                while self._queue and len(batch) < BATCH_WRITES:
                    pending: Any = self._queue[0]
                    size += pending.size
                    if size > BATCH_BYTES or not first.admits(pending):
                        break
                    # Order: out of the queue and into the batch without a call in between (`popleft` is one). A write
                    # that is in neither when a signal interrupts would never be served: its thread waits for ever.
                    del self._queue[0]
                    batch += (pending,)
        return batch

    def _wait(self, own: Pending, me: int, seconds: float = -1) -> None:
        """Wait in the queue until the write is served, or this thread is to lead, or for so many seconds."""
        if me == self._main_thread and self._is_waiting(me):
            raise reentered()
        own.thread = me
        waiter = Lock()
        waiter.acquire()
        with self._mutex:
            # Order: nobody leads, or one stands in the queue, decided under one lock. Else the last leader could leave
            # between the two, and nobody would wake this thread.
            if not self._leader:
                self._leader = me
                return
            own.waiter = waiter
            self._queue.append(own)
        if not waiter.acquire(timeout=seconds):
            self._leave(own)

    def _is_waiting(self, me: int) -> bool:
        """Whether this thread is in the queue already, and the handler of a signal interrupted it there."""
        return any(other.thread == me for other in self._queue.copy())

    def _leave(self, own: Pending) -> None:
        """Leave the queue. A write that a leader has taken out already is waited for: it is served any moment."""
        with self._mutex:
            if own in self._queue:
                self._queue.remove(own)
                return
        waiter = own.waiter
        if waiter is not None:
            waiter.acquire()

    def _lead(self, own: P) -> None:
        # Order: the batch is on `self` before anyone is taken out of the queue, for `_recover` puts back who is in it.
        self._batch = [own]
        self._commit(self.gather())
        for pending in self._batch[1:]:
            # Order: forget the waiter, then release it, without a call in between. If a signal came after the release
            # with the waiter still there, `_recover` would put back a write whose thread has gone.
            waiter, pending.waiter = pending.waiter, None
            waiter.release()
        self._batch = []

    def _hand_on(self) -> None:
        """Give the lead to the first who waits, or to nobody."""
        heir = self._next
        if heir is None:
            with self._mutex:
                if self._queue:
                    heir = self._queue[0]  # type: ignore[assignment] # a `Pending` of a pause is handed on like any other
                    # Order: remembered in `_next`, then out of the queue, without a call in between (`popleft` is one).
                    # Interrupted there, nobody would know who is to lead, and nobody ever would.
                    self._next = heir
                    del self._queue[0]
                else:
                    # Order: under the lock that callers queue up under, so that none arrives before this line.
                    self._leader = 0
        if heir is not None:
            waiter = heir.waiter
            # Order: all fields first, the release last, without a call in between. Released too early, the next leader
            # finds that it does not lead and returns without an answer; interrupted in between, nobody wakes it. The
            # leader before the waiter: an heir that was interrupted itself and finds no waiter asks whether it leads.
            self._next = None
            self._leader = heir.thread
            heir.waiter = None
            waiter.release()

    def _recover(self, own: Pending, me: int) -> None:
        """Something was raised in the middle of `run`: leave nothing behind that others would wait for."""
        if self._leader != me:
            self._leave(own)
        if self._leader == me:
            self._abandon()
            unserved = [other for other in reversed(self._batch[1:]) if other.waiter is not None]
            with self._mutex:
                # Order: forget the batch, then put it back. The other way round, a second signal after the call would
                # put the same writes back twice.
                self._batch = []
                self._queue.extendleft(unserved)
            self._hand_on()
