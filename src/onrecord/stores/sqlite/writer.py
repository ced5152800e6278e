"""The writer: every change goes through here, one transaction at a time, many callers in each.

Threads that want to write at the same moment share a transaction and so a sync to disk. Nobody is the writer by office:
who finds no one writing leads, serves everyone who queued up meanwhile, and hands the lead to the first who came too
late. A caller on its own pays one uncontended lock for this.

An error while committing does not say whether the commit will be there after a crash. Then the connection is given up,
a fresh one is asked for the very events of each caller, and only what it answers is told: there, not there, or unknown.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # the functions alone: the module around them costs a millisecond
import os
import sys
from collections import deque
from threading import Lock, get_ident, main_thread
from typing import TYPE_CHECKING, Any

import apsw

from onrecord.errors import OnrecordError, OutcomeUnknown, StoreBusy, StoreError, StoreReadOnly
from onrecord.stores.sqlite.connection import (
    BUSY_SECONDS,
    PAGE_SIZE,
    WAL_BYTES,
    meaning,
    open_reader,
    open_writer,
    roll_back,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from onrecord.stores.sqlite.gate import Gate

BATCH_REQUESTS = 256
"""The most callers that share one transaction."""
BATCH_BYTES = 4 * 1024 * 1024
"""No more callers join a transaction that already writes so much."""
CHECKPOINT_PAGES = 1_000
"""The write-ahead log is copied into the database whenever it has grown by so many pages."""
CHECKPOINT_PATIENCE_MS = 20
"""How long cutting back an overgrown write-ahead log may wait for readers: writers wait with it."""
CLOSE_SECONDS = 15.0
"""How long closing waits for other threads' writes."""
LEFT_BEHIND_PAGES = 128
"""The most that a closing store leaves in the write-ahead log: the next opener may have to read through it."""
FRAME_BYTES = PAGE_SIZE + 24
"""What a page occupies in the write-ahead log."""
WAL_HEADER_BYTES = 32
FIRST_ROOM = 64
"""The pages the write-ahead log is given room for at first; whenever they are used up, twice as many."""

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

    __slots__ = ("answer", "given_up", "leads", "problem", "waiter")

    alone = True
    """Whether it gets a transaction of its own, which is rolled back when it refuses."""
    in_transaction = True
    """False for a chore: it runs under the gate, outside of any transaction, and makes its own."""
    size = 0
    """About how many bytes it writes."""

    def __init__(self) -> None:
        self.answer: Any = None
        self.problem: BaseException | None = None
        self.waiter: Any = None
        self.leads = False
        self.given_up = False

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


class Writer:
    """The one connection of this process that writes, and the queue before it."""

    def __init__(self, path: str, gate: Gate, durability: str) -> None:
        self._path = path
        self._gate = gate
        self._durability = durability
        self._start()

    def _start(self) -> None:
        self._mutex = Lock()
        self._led = False
        self._queue: deque[Request] = deque()
        self._connection: apsw.Connection | None = None
        self._cursor: apsw.Cursor | None = None
        self._pages = 0
        self._due = CHECKPOINT_PAGES
        self._room = 0

    def run(self, request: Request) -> Any:
        """Write it, alone or together with others; return its answer or raise its problem, when it is durable."""
        if get_ident() == main_thread().ident and callable(handler := _signal.getsignal(_signal.SIGINT)):
            return self._run_undisturbed(request, handler)
        return self._run(request)

    def _run_undisturbed(self, request: Request, handler: Callable[..., object]) -> Any:
        """Ctrl-C waits until it is decided what became of the request: who stops halfway would leave others waiting."""
        pressed: list[tuple[object, ...]] = []
        _signal.signal(_signal.SIGINT, lambda *details: pressed.append(details))
        try:
            return self._run(request)
        finally:
            _signal.signal(_signal.SIGINT, handler)
            if pressed:
                handler(*pressed[0])

    def _run(self, request: Request) -> Any:
        leads = False
        try:
            with self._mutex:
                if self._led:
                    request.waiter = Lock()
                    request.waiter.acquire()
                    self._queue.append(request)
                else:
                    self._led = leads = True
            if not leads:
                request.waiter.acquire()
                leads = request.leads
            if leads:
                self._serve(request)
        except BaseException:
            with self._mutex:
                request.given_up = True
                leads = leads or request.leads
            raise
        finally:
            if leads:
                self._hand_on()
        if request.problem is not None:
            raise request.problem
        return request.answer

    def close(self) -> None:
        """Let go of the connection, after the writes that are under way."""
        paused = self.pause(CLOSE_SECONDS)
        try:
            # Where every process lives for one command only, nobody else would ever begin the log anew, and each opener
            # would read through all of it.
            if paused and self._connection is not None and self._pages > LEFT_BEHIND_PAGES and self._gate.enter(0.0):
                _copied(self._connection, apsw.SQLITE_CHECKPOINT_TRUNCATE, 0)
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
        turn = Request()
        with self._mutex:
            if not self._led:
                self._led = True
                return True
            turn.waiter = Lock()
            turn.waiter.acquire()
            self._queue.append(turn)
        turn.waiter.acquire(timeout=seconds)
        with self._mutex:
            turn.given_up = True
            return turn.leads

    def let_go(self) -> None:
        """While paused: close the connection; the next write opens another."""
        self._discard()

    def go_on(self) -> None:
        """After a pause: whoever waits may lead."""
        self._hand_on()

    def _hand_on(self) -> None:
        """Give the lead to the first who waits, or to nobody."""
        with self._mutex:
            while self._queue:
                heir = self._queue.popleft()
                if not heir.given_up:
                    heir.leads = True
                    heir.waiter.release()
                    return
            self._led = False

    def _gather(self, first: Request) -> list[Request]:
        """Everyone who can share the transaction with the leader."""
        batch = [first]
        if not self._queue or first.alone:
            return batch
        size = first.size
        with self._mutex:
            while self._queue and len(batch) < BATCH_REQUESTS and size < BATCH_BYTES and not self._queue[0].alone:
                request = self._queue.popleft()
                if not request.given_up:
                    batch.append(request)
                    size += request.size
        return batch

    def _serve(self, own: Request) -> None:
        batch = [own]
        try:
            self._gate.enter()
            if own.in_transaction:
                cursor = self._begin()
                batch = self._gather(own)
                self._transact(cursor, batch)
            else:
                own.answer = own.work(self._cursor or self._open())
            if self._pages >= self._due:
                self._checkpoint()
        except apsw.Error as problem:
            # It did not even begin. Everyone in the queue would wait as long and hear the same, so they hear it now.
            batch = self._gather(own)
            if not own.in_transaction:
                self._discard()
            self._fail(batch, self._meaning(problem))
        finally:
            self._gate.leave()
            for request in batch[1:]:
                request.waiter.release()

    def _begin(self) -> apsw.Cursor:
        cursor = self._cursor
        if cursor is None:
            cursor = self._open()
        try:
            cursor.execute("BEGIN IMMEDIATE")
        except _SHARED:
            self._discard()
            raise
        if self._pages >= self._room:
            self._make_room()
        return cursor

    def _open(self) -> apsw.Cursor:
        connection = open_writer(self._path, self._durability)
        connection.set_wal_hook(self._grown)
        self._connection = connection
        self._cursor = connection.cursor()
        return self._cursor

    def _make_room(self) -> None:
        """Fill the write-ahead log's file with zeros beyond its last page.

        Syncing a file that grows takes twice as long as syncing one that is written over. SQLite stops reading the log
        at the first page that is not its own, so the zeros mean nothing to it; the write lock, which is held here,
        keeps every other process from adding pages at this moment.
        """
        most = CHECKPOINT_PAGES + FIRST_ROOM
        wanted = FIRST_ROOM
        while wanted < min(self._pages + FIRST_ROOM // 2, most):
            wanted *= 2
        wanted = min(wanted, most)
        self._room = sys.maxsize
        try:
            file = os.open(self._path + "-wal", os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
            try:
                size = os.fstat(file).st_size
                missing = WAL_HEADER_BYTES + wanted * FRAME_BYTES - size
                if missing > 0:
                    os.pwrite(file, bytes(missing), size)  # only ever beyond the end
            finally:
                os.close(file)
        except OSError:
            return  # it was only for speed
        if self._pages < most - FIRST_ROOM // 4:
            self._room = max(wanted, min(size // FRAME_BYTES, most)) - FIRST_ROOM // 4

    def _grown(self, connection: apsw.Connection, database: str, pages: int) -> int:
        if pages < self._pages:  # it began again from its first page, or was cut back
            self._due = CHECKPOINT_PAGES
            self._room = 0
        self._pages = pages
        return apsw.SQLITE_OK

    def _transact(self, cursor: apsw.Cursor, batch: list[Request]) -> None:
        """Serve a batch inside the transaction that has begun, and commit."""
        asked = False
        try:
            if len(batch) == 1:
                try:
                    batch[0].answer = batch[0].work(cursor)
                except OnrecordError as refusal:
                    batch[0].problem = refusal
            else:
                batch[0].work_together(cursor, batch)
            asked = True
            refused = batch[0].alone and batch[0].problem is not None
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
        except Exception as problem:  # noqa: BLE001  # whatever one request stumbles over must not take the others with it
            self._discard()
            self._retreat(batch, problem, shared=False)
        except BaseException:
            # Interrupted. Before the commit nothing was written and the others queue again; after it all is well.
            if not asked or cursor.connection.in_transaction:
                self._discard()
                with self._mutex:
                    self._queue.extendleft(reversed(batch[1:]))
                for request in batch:
                    request.answer = request.problem = None
                del batch[1:]
            raise

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
            self._fail(waiting, OutcomeUnknown(f"the store failed while committing ({problem}), then: {unreachable}"))
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
                raise StoreReadOnly("what is there cannot be made safe") from None
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
            raise StoreBusy("readers keep the events from being copied into the database")

    def _fail(self, batch: list[Request], problem: Exception) -> None:
        for request in batch:
            # Each thread raises an error of its own: a traceback cannot be shared.
            request.answer, request.problem = None, _own_copy(problem)

    def _meaning(self, problem: apsw.Error) -> StoreError:
        system = self._connection.system_errno if self._connection is not None else 0
        return meaning(problem, self._path, system)

    def _discard(self) -> None:
        """Give up a connection that has seen an error; the next use opens another."""
        connection, self._connection, self._cursor = self._connection, None, None
        if connection is not None:
            roll_back(connection)
            try:
                connection.close(force=True)
            except apsw.Error:
                return

    def _checkpoint(self) -> None:
        """Copy the write-ahead log into the database. Best effort: what a reader still needs stays for next time."""
        connection = self._connection
        if connection is None:
            return
        overgrown = self._pages * PAGE_SIZE > WAL_BYTES
        mode = apsw.SQLITE_CHECKPOINT_TRUNCATE if overgrown else apsw.SQLITE_CHECKPOINT_PASSIVE
        self._due = self._pages + CHECKPOINT_PAGES
        _copied(connection, mode, CHECKPOINT_PATIENCE_MS)


def _own_copy(problem: Exception) -> Exception:
    return type(problem)(problem.message, hint=problem.hint) if isinstance(problem, OnrecordError) else problem


class _CutBack(Request):
    """The write-ahead log copied into the database and cut back to nothing; whether that worked."""

    __slots__ = ("_patience",)

    in_transaction = False

    def __init__(self, patience: int) -> None:
        super().__init__()
        self._patience = patience

    def work(self, cursor: apsw.Cursor) -> bool:
        connection = cursor.connection
        return _copied(connection, apsw.SQLITE_CHECKPOINT_TRUNCATE, self._patience) and _synced(connection.filename_wal)


def _synced(path: str) -> bool:
    """Make a file's new size durable: SQLite does not, and a power cut would bring back what was cut off."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            os.fsync(file)
        finally:
            os.close(file)
    except OSError:
        return False
    return True


def _copied(connection: apsw.Connection, mode: int, patience: int) -> bool:
    """Whether a checkpoint copied everything, waiting for readers no longer than `patience` milliseconds."""
    connection.set_busy_timeout(patience)
    try:
        total, done = connection.wal_checkpoint(mode=mode)
    except apsw.Error:
        return False
    finally:
        connection.set_busy_timeout(int(BUSY_SECONDS * 1000))
    return total == done
