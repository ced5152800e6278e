"""The writer: every change goes through here, one transaction at a time, many callers in each.

Threads that want to write at the same moment share a transaction and so a sync to disk. Nobody is the writer by office:
who finds no one writing leads, serves everyone who queued up meanwhile, and hands the lead to the first who came too
late. A caller on its own pays one uncontended lock for this. Whoever leads also prepares what others left to it, before
the gate: many in a row take less time than each in a thread that wakes up for it.

A signal's handler may raise between any two steps of the main thread. So what others depend on (who leads, who waits,
who was taken out of the queue) is changed without a call in between, where no handler runs, and `_recover` can always
tell how far it went. A handler that wants to write itself, in the middle of a write of its own thread, is refused.

An error while committing does not say whether the commit will be there after a crash. Then the connection is given up,
a fresh one is asked for the very events of each caller, and only what it answers is told: there, not there, or unknown.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from threading import Lock, RLock, get_ident, main_thread
from typing import TYPE_CHECKING, Any

import apsw

from onrecord.errors import InvalidInput, OnrecordError, OutcomeUnknown, StoreBusy, StoreError, StoreReadOnly
from onrecord.stores.refusals import reentered
from onrecord.stores.sqlite.connection import meaning, open_reader, open_writer, roll_back
from onrecord.stores.sqlite.wal import WriteAheadLog, copied, synced

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onrecord.stores.sqlite.gate import Gate

BATCH_REQUESTS = 256
"""The most callers that share one transaction."""
BATCH_BYTES = 4 * 1024 * 1024
"""No more callers join a transaction that already writes so much."""
CLOSE_SECONDS = 15.0
"""How long closing waits for other threads' writes."""
# Errors of the disk and the file, not of one request: they hit everyone in the transaction alike.
_SHARED = (
    apsw.FullError,
    apsw.IOError,
    apsw.ReadOnlyError,
    apsw.CorruptError,
    apsw.NotADBError,
    apsw.BusyError,
    apsw.LockedError,
    apsw.CantOpenError,
    apsw.PermissionsError,
    apsw.NoMemError,
)


class Request:
    """Something to write. `work` must make every check before its first write, unless the request is `alone`."""

    __slots__ = ("answer", "problem", "thread", "waiter")

    thread: int
    """Who waits for it."""
    alone = True
    """Whether it gets a transaction of its own, which is rolled back when it refuses."""
    in_transaction = True
    """False for a chore: it runs under the gate, outside of any transaction, and makes its own."""

    def __init__(self) -> None:
        self.answer: Any = None
        self.problem: BaseException | None = None
        self.waiter: Any = None
        """Locked while it waits for others to serve it, or to be told to lead."""

    late = False
    """Whether it must be prepared by whoever leads."""

    def prepare(self) -> None:
        """Make ready what is to be written; may be called again."""

    @property
    def size(self) -> int:
        """About how many bytes it writes."""
        return 0

    @property
    def large(self) -> bool:
        """Whether it may write more than a few pages."""
        return True

    def work(self, cursor: apsw.Cursor) -> Any:
        """Do it, inside a transaction, and return the answer."""
        raise NotImplementedError

    @classmethod
    def work_together(cls, cursor: apsw.Cursor, batch: Sequence[Request]) -> None:
        """Do many that are not `alone` in one transaction; each keeps its own answer or problem."""
        raise NotImplementedError

    def committed(self, connection: apsw.Connection) -> None:
        """It was alone in its transaction, and that is durable now."""

    def recall(self, cursor: apsw.Cursor) -> bool:
        """Whether what `work` wrote is there, asked after a commit that failed."""
        raise NotImplementedError


class TooLongForOthers(Exception):
    """Preparing a request takes a while: its own thread is to do it, and ask again."""


class Writer:
    """The one connection of this process that writes, and the queue before it."""

    def __init__(self, path: str, gate: Gate, durability: str) -> None:
        self._path = path
        self._gate = gate
        self._durability = durability
        self._start()

    def _start(self) -> None:
        self._mutex = RLock()
        self._main_thread = main_thread().ident
        """Where the handlers of signals run."""
        self._leader = 0
        """The thread that serves now; 0 for none."""
        self._heir: Request | None = None
        """Who was taken out of the queue to lead next."""
        self._batch: list[Request] = []
        """Those who are being served; the leader's own request comes first."""
        self._queue: deque[Request] = deque()
        self._connection: apsw.Connection | None = None
        self._cursor: apsw.Cursor | None = None
        self._log = WriteAheadLog(self._path)

    def run(self, request: Request) -> Any:
        """Write it, alone or together with others; return its answer or raise its problem, when it is durable."""
        me = get_ident()
        if self._leader == me:
            raise reentered()
        try:
            if not self._leader:
                with self._mutex:
                    if not self._leader:
                        self._leader = me
            if self._leader != me:
                self._wait(request, me)
            if self._leader == me:
                self._serve(request)
                self._hand_on()
        except BaseException:
            try:
                self._recover(request, me)
            except BaseException:
                self._recover(request, me)  # somebody presses Ctrl-C very fast
                raise
            raise
        if request.problem is not None:
            raise request.problem
        return request.answer

    def _wait(self, request: Request, me: int, seconds: float = -1) -> None:
        """Stand in the queue until the request is served, or this thread is to lead, or for so many seconds."""
        if me == self._main_thread and self._is_waiting(me):
            raise reentered()
        request.thread = me
        waiter = Lock()
        waiter.acquire()
        with self._mutex:
            if not self._leader:
                self._leader = me
                return
            request.waiter = waiter
            self._queue += (request,)
        if not waiter.acquire(timeout=seconds):
            self._leave(request)

    def _is_waiting(self, me: int) -> bool:
        """Whether this thread stands in the queue already, and the handler of a signal interrupted it there."""
        return any(other.thread == me for other in self._queue.copy())

    def _leave(self, request: Request) -> None:
        """Stand in the queue no longer; who is called at this moment comes all the same."""
        with self._mutex:
            if request in self._queue:
                self._queue.remove(request)
                return
        waiter = request.waiter
        if waiter is not None:
            waiter.acquire()

    def _recover(self, request: Request, me: int) -> None:
        """Something was raised in the middle of `run`: leave nothing of it behind that others would wait for."""
        if self._leader != me:
            self._leave(request)
        if self._leader == me:
            self._discard()
            self._gate.let_go()
            # Appends answer the same when they are served once more, whether they were written or not.
            again = [other for other in reversed(self._batch[1:]) if other.waiter is not None]
            with self._mutex:
                self._batch = []
                self._queue.extendleft(again)
            self._hand_on()

    def close(self) -> None:
        """Let go of the connection, after the writes that are under way."""
        paused = self.pause(CLOSE_SECONDS)
        try:
            # Where every process lives for one command only, nobody else would ever begin the log anew, and each opener
            # would read through all of it.
            if paused and self._connection is not None and self._log.is_long() and self._gate.enter(0.0):
                copied(self._connection, apsw.SQLITE_CHECKPOINT_TRUNCATE, 0)
            self._discard()
        finally:
            self._gate.close()
            if paused:
                self.go_on()

    def cut_back(self, patience: int) -> bool:
        """Leave nothing in the write-ahead log; False when readers still need it after `patience` milliseconds."""
        done: bool = self.run(_CutBack(patience))
        return done

    def forget(self) -> list[object]:
        """In a forked child: start anew, and return what was inherited, which must neither be used nor closed."""
        inherited: list[object] = [self._cursor, self._connection]
        self._gate.forget()
        self._start()
        return inherited

    def pause(self, seconds: float) -> bool:
        """Take the lead, in turn, and keep it: no transaction runs, and none begins. False if that took too long."""
        turn, me = Request(), get_ident()
        if self._leader == me or self._is_waiting(me):
            return False
        try:
            self._wait(turn, me, seconds)
        except BaseException:
            self._recover(turn, me)
            raise
        return self._leader == me

    def let_go(self) -> None:
        """While paused: close the connection; the next write opens another."""
        self._discard()

    def go_on(self) -> None:
        """After a pause: whoever waits may lead."""
        self._hand_on()

    def _hand_on(self) -> None:
        """Give the lead to the first who waits, or to nobody."""
        heir = self._heir
        if heir is None:
            with self._mutex:
                if self._queue:
                    self._heir = heir = self._queue[0]
                    del self._queue[0]
                else:
                    self._leader = 0
        if heir is not None:
            waiter = heir.waiter
            self._heir = None
            self._leader = heir.thread
            heir.waiter = None
            waiter.release()

    def _gather(self, first: Request) -> list[Request]:
        """Everyone who can share the transaction with the leader."""
        batch = self._batch
        if self._queue and not first.alone:
            size = first.size
            with self._mutex:
                while self._queue and len(batch) < BATCH_REQUESTS and size < BATCH_BYTES and not self._queue[0].alone:
                    request = self._queue[0]
                    del self._queue[0]
                    batch += (request,)
                    size += request.size
        return batch

    @staticmethod
    def _prepared(batch: list[Request]) -> list[Request]:
        """Those that can be written, ready to be: nothing is prepared while other processes wait at the gate."""
        ready = []
        for request in batch:
            try:
                if request.late:
                    request.prepare()
                ready.append(request)
            except (InvalidInput, TooLongForOthers) as refusal:  # anything else was raised by a signal's handler
                request.problem = refusal
        return ready

    def _serve(self, own: Request) -> None:
        self._batch = [own]
        batch = self._gather(own)
        if own.late or len(batch) > 1:
            batch = self._prepared(batch)
        if batch:
            self._write(own, batch)
        for request in self._batch[1:]:
            waiter, request.waiter = request.waiter, None
            waiter.release()
        self._batch = []

    def _write(self, own: Request, batch: list[Request]) -> None:
        self._gate.enter()
        try:
            if own.in_transaction:
                self._transact(self._begin(), batch)
                if self._connection is not None:
                    self._log.written(self._connection, small=len(batch) == 1 and not batch[0].large)
            else:
                own.answer = own.work(self._cursor or self._open())
        except apsw.Error as problem:
            # It did not even begin. Everyone in the queue would wait as long and hear the same, so they hear it now.
            batch = self._gather(own)
            if not own.in_transaction:
                self._discard()
            self._fail([request for request in batch if request.problem is None], self._meaning(problem))
        self._gate.leave()

    def _begin(self) -> apsw.Cursor:
        cursor = self._cursor
        if cursor is None:
            cursor = self._open()
        try:
            cursor.execute("BEGIN IMMEDIATE")
        except _SHARED:
            self._discard()
            raise
        if self._log.length >= self._log.room:
            self._log.make_room()
        return cursor

    def _open(self) -> apsw.Cursor:
        connection = open_writer(self._path, self._durability)
        self._log.watch(connection)
        self._connection = connection
        self._cursor = connection.cursor()
        return self._cursor

    def _transact(self, cursor: apsw.Cursor, batch: list[Request]) -> None:
        """Serve a batch inside the transaction that has begun, and commit."""
        asked = refused = False
        try:
            if len(batch) == 1:
                try:
                    batch[0].answer = batch[0].work(cursor)
                except OnrecordError as refusal:
                    batch[0].problem, refused = refusal, True
            else:
                batch[0].work_together(cursor, batch)
            asked = True
            cursor.execute("ROLLBACK" if refused else "COMMIT")
            if len(batch) == 1 and not refused:
                batch[0].committed(cursor.connection)
        except apsw.Error as problem:
            meant = self._meaning(problem)
            if asked:
                self._resolve(batch, meant)
            else:
                self._discard()
                self._retreat(batch, meant, shared=isinstance(problem, _SHARED))
        except Exception as problem:
            if asked:
                raise  # by a signal's handler
            # Whatever one request stumbles over must not take the others with it.
            self._discard()
            self._retreat(batch, problem, shared=False)
            if all(request.problem is None for request in batch):
                raise  # it was none of them, so it was the handler of a signal

    def _retreat(self, batch: list[Request], problem: Exception, *, shared: bool) -> None:
        """Nothing was written. If the cause may lie in one request, try each on its own."""
        if shared or len(batch) == 1:
            self._fail(batch, problem)
            return
        for request in batch:
            request.answer = request.problem = None
            try:
                self._transact(self._begin(), [request])
            except apsw.Error as again:
                request.problem = self._meaning(again)

    def _resolve(self, batch: list[Request], problem: StoreError) -> None:
        """The commit failed, which does not say what is on the disk: look, and tell only what is certain."""
        self._discard()
        waiting = [request for request in batch if request.problem is None]
        try:
            landed = self._landed(waiting)
        except (apsw.Error, OnrecordError) as unreachable:
            self._discard()
            self._fail(
                waiting, OutcomeUnknown(f"the store failed during a commit ({problem}), and then: {unreachable}")
            )
            return
        self._fail([request for request, there in zip(waiting, landed, strict=True) if not there], problem)

    def _landed(self, waiting: list[Request]) -> list[bool]:
        """Which of them are on the disk for certain."""
        try:
            cursor = self._open()
        except apsw.Error:
            # It cannot be written any more; perhaps it can still be read.
            reader = open_reader(self._path)
            try:
                found = [request.recall(reader.cursor()) for request in waiting]
            finally:
                reader.close()
            if any(found):
                raise StoreReadOnly("the existing events cannot be made durable") from None
            return found
        found = [request.recall(cursor) for request in waiting]
        if any(found):
            # Seen is not yet safe: a sync failed. Copied into the database and synced there, it is.
            self._settle()
        return found

    def _settle(self) -> None:
        connection = self._connection
        if connection is None:
            return
        total, done = connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_FULL)
        if total != done:
            raise StoreBusy("open readers prevent the WAL checkpoint")

    def _fail(self, batch: list[Request], problem: Exception) -> None:
        for request in batch:
            # Each thread raises an error of its own: a traceback cannot be shared.
            request.answer, request.problem = None, _own_copy(problem)

    def _meaning(self, problem: apsw.Error) -> StoreError:
        system = self._connection.system_errno if self._connection is not None else 0
        return meaning(problem, self._path, system)

    def _discard(self) -> None:
        """Give up a connection that has seen an error; the next use opens another."""
        if self._connection is not None:
            with suppress(apsw.Error):
                roll_back(self._connection)
                self._connection.close(force=True)
        self._connection = self._cursor = None


def _own_copy(problem: Exception) -> Exception:
    if not isinstance(problem, OnrecordError):
        return problem
    return type(problem)(problem.message, hint=vars(problem).get("hint"), step=problem.step, **problem.details)


class _CutBack(Request):
    """The write-ahead log copied into the database and cut back to nothing; whether that worked."""

    __slots__ = ("_patience",)

    in_transaction = False

    def __init__(self, patience: int) -> None:
        super().__init__()
        self._patience = patience

    def work(self, cursor: apsw.Cursor) -> bool:
        connection = cursor.connection
        return copied(connection, apsw.SQLITE_CHECKPOINT_TRUNCATE, self._patience) and synced(connection.filename_wal)
