"""The writer: the one connection of this process that changes the store, one transaction at a time.

Threads that write at the same moment share a transaction (`stores/group_commit.py`). The batch leader also seals and
packs the short facts of others, before it takes the write lock: sealing many in a row takes less time than waking a
thread for each.

A failed commit does not say whether its events will be there after a crash. So the writer drops the connection, queries
a fresh one for the last event of each caller, and reports only what is certain: written, not written, or unknown.
"""

from __future__ import annotations

import os

import apsw

from onrecord.errors import InvalidInput, OnrecordError, OutcomeUnknown, StoreBusy, StoreError, StoreReadOnly
from onrecord.lean_typing import TYPE_CHECKING, Any
from onrecord.stores.group_commit import GroupCommit, Pending
from onrecord.stores.sqlite.connection import Moved, open_reader, open_writer, roll_back, store_error
from onrecord.stores.sqlite.wal import WriteAheadLog, copied, synced

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onrecord.stores.sqlite.write_lock import WriteLock

CLOSE_SECONDS = 15.0
"""How long closing waits for other threads' writes."""
# Errors of the disk and the file, not of one write: they affect every write of the transaction.
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


class PendingWrite(Pending):
    """Something to write. `work` makes every check before its first write, unless it is `alone`.

    One that is `alone` has a transaction of its own, which is rolled back when it refuses.
    """

    __slots__ = ()

    in_transaction = True
    """False for maintenance: it runs under the write lock, outside of any transaction, and makes its own."""
    late = False
    """Whether the batch leader must `prepare` it."""
    large = True
    """Whether it may write more than a few pages."""

    def prepare(self) -> None:
        """Seal and pack what will be written; may be called again."""

    def work(self, cursor: apsw.Cursor) -> Any:
        """Do it, inside a transaction, and return the answer."""
        raise NotImplementedError

    @classmethod
    def work_together(cls, cursor: apsw.Cursor, batch: Sequence[PendingWrite]) -> None:
        """Do many that are not `alone` in one transaction; each keeps its own answer or problem."""
        raise NotImplementedError

    def committed(self, connection: apsw.Connection) -> None:
        """It was alone in its transaction, and that is durable now."""

    def recall(self, cursor: apsw.Cursor) -> bool:
        """Whether what `work` wrote is on record; called after a commit that failed."""
        raise NotImplementedError


class TooLargeForLeader(Exception):
    """Sealing and packing this write takes a while: its own thread must do it, and queue again."""


class Writer:
    """The one connection of this process that writes, and its queue."""

    def __init__(self, path: str, lock: WriteLock, durability: str, key: bytes | None) -> None:
        self._path = path
        self._key = key
        self._lock = lock
        self._durability = durability
        self._file = self._identity()
        self._start()

    def _start(self) -> None:
        self.group = GroupCommit(self._commit, self._abandon)
        self.run = self.group.run
        """Write something, alone or in a batch; its answer or problem, once it is durable."""
        self._connection: apsw.Connection | None = None
        self._cursor: apsw.Cursor | None = None
        self._log = WriteAheadLog(self._path)

    def close(self) -> None:
        """Close the connection, after the writes that are running."""
        paused = self.group.pause(CLOSE_SECONDS)
        try:
            # Where every process runs one command only, no other writer would ever truncate the write-ahead log, and
            # each process that opens the store would read all of it.
            if paused and self._connection is not None and self._log.is_long() and self._lock.acquire(0.0):
                copied(self._connection, apsw.SQLITE_CHECKPOINT_TRUNCATE, 0)
            self._discard()
        finally:
            self._lock.close()
            if paused:
                self.group.resume()

    def cut_back(self, patience: int) -> bool:
        """Truncate the write-ahead log; False when readers still need it after `patience` milliseconds."""
        done: bool = self.run(_CutBack(patience))
        return done

    def forget(self) -> list[object]:
        """In a forked child: start again, and return what was inherited: it must be neither used nor closed."""
        inherited: list[object] = [self._cursor, self._connection]
        self._lock.forget()
        self._start()
        return inherited

    def let_go(self) -> None:
        """While paused: close the connection; the next write opens another."""
        self._discard()

    @staticmethod
    def _prepared(batch: list[PendingWrite]) -> list[PendingWrite]:
        """Seal and pack before taking the write lock, which other processes wait for; the writes that can be made."""
        ready = []
        for pending in batch:
            try:
                if pending.late:
                    pending.prepare()
                ready.append(pending)
            except (InvalidInput, TooLargeForLeader) as refusal:  # a signal handler raised anything else
                pending.problem = refusal
        return ready

    def _commit(self, batch: list[PendingWrite]) -> None:
        """Write a batch in one transaction; the leader's own write comes first."""
        own = batch[0]
        if own.late or len(batch) > 1:
            batch = self._prepared(batch)
            if not batch:
                return
        if not self._lock.acquire(0.0):
            self._lock.acquire()
            batch = self._prepared(self.group.gather())  # with all that came while another process was writing
        try:
            if own.in_transaction:
                self._transact(self._begin(), batch)
                if self._connection is not None:
                    self._log.written(self._connection, small=len(batch) == 1 and not own.large)
            else:
                own.answer = own.work(self._cursor or self._open())
        except apsw.Error as problem:
            # The transaction did not begin. Every write in the queue would wait as long and fail too: they fail now.
            batch = self.group.gather()
            if not own.in_transaction:
                self._discard()
            self._fail([pending for pending in batch if pending.problem is None], self._store_error(problem))
        self._lock.release()

    def _abandon(self) -> None:
        """The leader was interrupted in the middle of `_commit`."""
        self._discard()
        self._lock.release_after_interrupt()

    def _begin(self) -> apsw.Cursor:
        cursor = self._cursor
        if cursor is None:
            cursor = self._open()
        try:
            cursor.execute("BEGIN IMMEDIATE")
        except _SHARED:
            self._discard()
            raise
        if self._identity() != self._file:
            self._discard()
            raise Moved
        if self._log.length >= self._log.room:
            self._log.make_room()
        return cursor

    def _identity(self) -> tuple[int, int]:
        """Which file is at the store's path: one that was moved away or deleted would lose what is written to it."""
        try:
            facts = os.stat(self._path)
        except OSError:
            return 0, 0
        return facts.st_dev, facts.st_ino

    def _open(self) -> apsw.Cursor:
        if self._identity() != self._file:
            raise Moved  # opening it would create an empty store
        connection = open_writer(self._path, self._durability, self._key)
        self._log.watch(connection)
        self._connection = connection
        self._cursor = connection.cursor()
        return self._cursor

    def _transact(self, cursor: apsw.Cursor, batch: list[PendingWrite]) -> None:
        """Write a batch inside the transaction that has begun, and commit."""
        first, alone = batch[0], len(batch) == 1
        asked = refused = False
        try:
            if alone:
                try:
                    first.answer = first.work(cursor)
                except OnrecordError as refusal:
                    first.problem, refused = refusal, True
            else:
                first.work_together(cursor, batch)
            asked = True
            cursor.execute("ROLLBACK" if refused else "COMMIT")
            if alone and not refused:
                first.committed(cursor.connection)
        except apsw.Error as problem:
            meant = self._store_error(problem)
            if asked:
                self._resolve(batch, meant)
            else:
                self._discard()
                self._retreat(batch, meant, shared=isinstance(problem, _SHARED))
        except Exception as problem:
            if asked:
                raise  # raised by a signal handler
            # An error of one write must not fail the others.
            self._discard()
            self._retreat(batch, problem, shared=False)
            if all(pending.problem is None for pending in batch):
                raise  # each succeeded on its own, so a signal handler raised

    def _retreat(self, batch: list[PendingWrite], problem: Exception, *, shared: bool) -> None:
        """Nothing was written. If the cause may be one write of the batch, try each on its own."""
        if shared or len(batch) == 1:
            self._fail(batch, problem)
            return
        for pending in batch:
            pending.answer = pending.problem = None
            try:
                self._transact(self._begin(), [pending])
            except apsw.Error as again:
                pending.problem = self._store_error(again)

    def _resolve(self, batch: list[PendingWrite], problem: StoreError) -> None:
        """The commit failed, which does not say what is on the disk: read the disk, and report only what is certain."""
        self._discard()
        waiting = [pending for pending in batch if pending.problem is None]
        try:
            landed = self._landed(waiting)
        except (apsw.Error, OnrecordError) as unreachable:
            self._discard()
            self._fail(
                waiting, OutcomeUnknown(f"the store failed during a commit ({problem}), and then: {unreachable}")
            )
            return
        self._fail([pending for pending, there in zip(waiting, landed, strict=True) if not there], problem)

    def _landed(self, waiting: list[PendingWrite]) -> list[bool]:
        """Which of the writes are certainly on the disk."""
        try:
            cursor = self._open()
        except apsw.Error:
            # The store can no longer be written; perhaps it can still be read.
            reader = open_reader(self._path, self._key)
            try:
                found = [pending.recall(reader.cursor()) for pending in waiting]
            finally:
                reader.close()
            if any(found):
                raise StoreReadOnly("the existing events cannot be made durable") from None
            return found
        found = [pending.recall(cursor) for pending in waiting]
        if any(found):
            # Readable is not durable: a sync failed. A WAL checkpoint copies the events into the database and syncs.
            self._settle()
        return found

    def _settle(self) -> None:
        connection = self._connection
        if connection is None:
            return
        total, done = connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_FULL)
        if total != done:
            raise StoreBusy("open readers prevent the WAL checkpoint")

    def _fail(self, batch: list[PendingWrite], problem: Exception) -> None:
        for pending in batch:
            # Each thread raises an error object of its own: threads cannot share a traceback.
            pending.answer, pending.problem = None, _own_copy(problem)

    def _store_error(self, problem: apsw.Error) -> StoreError:
        system = self._connection.system_errno if self._connection is not None else 0
        return store_error(problem, self._path, system)

    def _discard(self) -> None:
        """Close a connection that has seen an error; the next use opens another."""
        if self._connection is not None:
            try:  # a hook does not load contextlib for this
                roll_back(self._connection)
                self._connection.close(force=True)
            except apsw.Error:
                pass
        self._connection = self._cursor = None


def _own_copy(problem: Exception) -> Exception:
    if not isinstance(problem, OnrecordError):
        return problem
    return type(problem)(problem.message, hint=vars(problem).get("hint"), step=problem.step, **problem.details)


class _CutBack(PendingWrite):
    """A WAL checkpoint that truncates the write-ahead log to nothing; whether that worked."""

    __slots__ = ("_patience",)

    in_transaction = False

    def __init__(self, patience: int) -> None:
        super().__init__()
        self._patience = patience

    def work(self, cursor: apsw.Cursor) -> bool:
        connection = cursor.connection
        return copied(connection, apsw.SQLITE_CHECKPOINT_TRUNCATE, self._patience) and synced(connection.filename_wal)
