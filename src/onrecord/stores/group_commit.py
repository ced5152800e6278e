"""Group commit: threads that write at the same moment share one transaction, and so one wait for the disk.

No writer thread: the first caller becomes batch leader and commits the queue. The leader adds every write that can
share its transaction, commits, wakes their threads, and hands the lead to the first caller whose write could not join.
A caller on its own pays one uncontended lock for this.

**Signals.** A signal handler may raise in the main thread, and so end a write at any moment. Other threads must neither
get stuck nor lose their answer because of it. CPython runs handlers only after a call, at the start of a function and
at the end of a loop's round. So each step that others depend on is written without a call in between, and `_recover`
can tell from the fields how far an interrupted write got. Where the order of lines matters, the comment begins with
"Order:"; `tests/laws/test_group_commit.py` interrupts a leader at every such point, and fails if the order changes.

A handler that writes while its own thread is in the middle of a write is refused: it would wait forever.
"""

from __future__ import annotations

import sys
from _thread import RLock, get_ident
from _thread import allocate_lock as Lock  # noqa: N812  # its name in `threading`, which a hook does not load
from collections import deque

from onrecord.lean_typing import TYPE_CHECKING, Any, Generic, TypeVar
from onrecord.stores.refusals import reentered

if TYPE_CHECKING:
    from collections.abc import Callable

BATCH_WRITES = 256
"""The most writes that share one transaction."""
BATCH_BYTES = 4 * 1024 * 1024
"""The most bytes that the writes of one transaction may have together."""


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
        """A lock that its thread waits for: released when the write is served, or when the thread must lead."""

    @property
    def size(self) -> int:
        """About how many bytes it writes."""
        return 0

    def admits(self, other: Any) -> bool:
        """Whether another write may join the transaction that this one leads."""
        return not (self.alone or other.alone)


P = TypeVar("P", bound=Pending)


def _main_thread() -> int | None:
    """The id of the main thread. Without `threading` nothing has started another one that writes."""
    threading = sys.modules.get("threading")
    return threading.main_thread().ident if threading is not None else get_ident()


class GroupCommit(Generic[P]):
    """The queue of writes to one log or one database file, and the election of its batch leader.

    `commit` writes a batch, the leader's own write first, and stores an answer or a problem in each write. It may be
    called again for the writes of a leader that was interrupted, so each must be idempotent. `abandon` cleans up after
    it.
    """

    def __init__(self, commit: Callable[[list[P]], None], abandon: Callable[[], None] = lambda: None) -> None:
        self._commit = commit
        self._abandon = abandon
        self._mutex = RLock()
        """Guards `_leader` and `_queue` together. Reentrant: a handler may run while its own thread has it."""
        self._main_thread = _main_thread()
        """Signal handlers run in it."""
        self._leader = 0
        """The thread that leads; 0 for none."""
        self._next: P | None = None
        """The write that was taken out of the queue to lead next, until its thread leads."""
        self._batch: list[P] = []
        """The writes that are being committed; the leader's own comes first."""
        self._queue: deque[Pending] = deque()
        self._waits_in_main: Pending | None = None
        """The newest write that the main thread waited for. Its waiter is there as long as the wait lasts."""

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
        """Wait for the lead and keep it: no commit runs, and none begins. False if that took too long."""
        turn, me = Pending(), get_ident()
        waits = self._waits_in_main
        if self._leader == me or (me == self._main_thread and waits is not None and waits.waiter is not None):
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
        """Every write that can share the leader's transaction; a second call adds those that arrived since."""
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
                    # that is in neither when a signal interrupts would never be served: its thread would wait forever.
                    del self._queue[0]
                    batch += (pending,)
        return batch

    def _wait(self, own: Pending, me: int, seconds: float = -1) -> None:
        """Wait in the queue until the write is served, this thread must lead, or the time is up."""
        own.thread = me
        is_main = me == self._main_thread
        waiter = Lock()
        waiter.acquire()
        with self._mutex:
            # Order: one lock covers both the question whether a thread leads and the joining of the queue. Without it
            # the last leader could leave between the two, and no thread would wake this one.
            if not self._leader:
                self._leader = me
                return
            # A signal handler interrupted this thread while it waited for another write. That one may be in the queue,
            # in a batch, or the next to lead: in the last case this thread would wait for itself.
            waits = self._waits_in_main
            reenters = is_main and (self._leader == me or (waits is not None and waits.waiter is not None))
            if not reenters:
                # Order: no call before this one with the lock taken: a handler would wait in here and keep the lock.
                own.waiter = waiter
                if is_main:
                    self._waits_in_main = own
                self._queue.append(own)
        if reenters:
            raise reentered()
        if not waiter.acquire(timeout=seconds):
            self._leave(own)

    def _leave(self, own: Pending) -> None:
        """Leave the queue. If a leader has already taken the write out, wait for it: it is served in a moment."""
        with self._mutex:
            if own in self._queue:
                place = self._queue.index(own)
                # Order: without a waiter, then out of the queue, without a call in between or afterwards. A handler
                # that writes is refused only while there is a waiter: later it would wait in here and keep the lock.
                own.waiter = None
                del self._queue[place]
                return
        waiter = own.waiter
        if waiter is not None:
            waiter.acquire()

    def _lead(self, own: P) -> None:
        # Order: the batch is on `self` before any write leaves the queue, because `_recover` puts the batch back.
        self._batch = [own]
        self._commit(self.gather())
        for pending in self._batch[1:]:
            # Order: forget the waiter, then release it, without a call in between. If a signal came after the release
            # with the waiter still there, `_recover` would put back a write whose thread has gone.
            waiter, pending.waiter = pending.waiter, None
            waiter.release()
        self._batch = []

    def _hand_on(self) -> None:
        """Give the lead to the first thread that waits; if there is none, no thread leads."""
        heir = self._next
        if heir is None:
            with self._mutex:
                if self._queue:
                    heir = self._queue[0]  # type: ignore[assignment] # a `Pending` of a pause is handed on like any other
                    # Order: stored in `_next`, then out of the queue, without a call in between (`popleft` is one).
                    # Interrupted in between, no field would name the next leader, and no thread would ever lead.
                    self._next = heir
                    del self._queue[0]
                else:
                    # Order: under the lock that callers take to join the queue, so that none arrives before this line.
                    self._leader = 0
        if heir is not None:
            waiter = heir.waiter
            # Order: all fields first, the release last, without a call in between. Released too early, the next leader
            # finds that it does not lead and returns without an answer; interrupted in between, it is never woken.
            # `_leader` before the waiter: a next leader that was interrupted itself and finds no waiter checks whether
            # it leads.
            self._next = None
            self._leader = heir.thread
            heir.waiter = None
            waiter.release()

    def _recover(self, own: Pending, me: int) -> None:
        """Clean up after an exception in the middle of `run`: leave nothing that other threads would wait for."""
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
