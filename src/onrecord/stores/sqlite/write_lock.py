"""The write lock: `flock` on a lock file, which the writers of all processes take one after another.

SQLite's own lock keeps writers apart, but one lucky process can have it for seconds while others starve. So every write
and every WAL checkpoint is made while holding `flock` on `<database>.lock`. The write lock brings fairness and prevents
checkpoint races; correctness rests on SQLite's own lock: a writer that does not get the write lock in time writes
without it.
"""

from __future__ import annotations

import errno
import os
from _thread import allocate_lock as Lock  # noqa: N812  # its name in `threading`, which a hook does not load
from fcntl import LOCK_EX, LOCK_NB, LOCK_UN, flock

from onrecord.errors import StoreReadOnly, StoreUnsafe

LOCK_SECONDS = 5.0
"""How long a writer waits for the write lock before it writes without it."""

_IF_FREE = LOCK_EX | LOCK_NB
_UNWRITABLE = (errno.EROFS, errno.EACCES, errno.EPERM)


class WriteLock:
    """The write lock of one store, as one process has it. One thread at a time uses it: the batch leader."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._file = -1
        self._held = -1
        self._waiter: _Waiter | None = None

    def acquire(self, seconds: float = LOCK_SECONDS) -> bool:
        """Take the lock; False when others kept it for too long, or when this file system has no such locks."""
        if self._file < 0:
            self._file = open_lock_file(self._path)
        try:
            flock(self._file, _IF_FREE)
        except BlockingIOError:
            return seconds > 0 and self._wait(seconds)
        except OSError:
            return False
        self._held = self._file
        return True

    def release(self) -> None:
        """Release the lock; does nothing when it was not taken."""
        if self._held >= 0:
            held, self._held = self._held, -1
            try:
                flock(held, LOCK_UN)
            except OSError:  # no lock is left in the kernel's table: closing the file unlocks it too
                self.close()

    def release_after_interrupt(self) -> None:
        """Release the lock when a signal interrupted `acquire` and it is unknown how far it got."""
        for file in (self._file, self._waiter.give_up() if self._waiter is not None else -1):
            if file >= 0:
                _unlock(file)
        self._held = -1

    def close(self) -> None:
        """Close the lock file."""
        self.release()
        if self._waiter is not None:
            self._waiter.dismiss()
            self._waiter = None
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def forget(self) -> None:
        """In a forked child: close the inherited file without unlocking it: the lock is the parent's."""
        self._held = -1
        if self._waiter is not None:
            os.close(self._waiter.file)
            self._waiter = None
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _wait(self, seconds: float) -> bool:
        if self._waiter is None:
            self._waiter = _Waiter(open_lock_file(self._path))
        if not self._waiter.wait(seconds):
            return False
        self._held = self._waiter.file
        return True


class _Waiter:
    """A thread that waits for the lock on behalf of others, because `flock` has no timeout.

    It waits on a file descriptor of its own: if the caller gave up and later took the lock without this thread, and
    this thread then gets it, releasing it here must not release the caller's lock.
    """

    def __init__(self, file: int) -> None:
        self.file = file
        self._guard = Lock()
        self._wanted = Lock()
        self._wanted.acquire()
        self._granted = Lock()
        self._granted.acquire()
        self._waiting = False
        self._given_up = False
        self._dismissed = False
        from threading import Thread

        Thread(target=self._run, name="onrecord-write-lock", daemon=True).start()

    def wait(self, seconds: float) -> bool:
        with self._guard:
            self._given_up = False
            if not self._waiting:
                self._waiting = True
                self._wanted.release()
        if self._granted.acquire(timeout=seconds):
            return True
        with self._guard:
            if self._granted.acquire(blocking=False):
                return True
            self._given_up = True
            return False

    def give_up(self) -> int:
        """Stop waiting. Returns the file, which may be locked."""
        with self._guard:
            self._granted.acquire(blocking=False)
            self._given_up = True
        return self.file

    def dismiss(self) -> None:
        with self._guard:
            self._dismissed = self._given_up = True
            if not self._waiting:
                self._wanted.release()

    def _run(self) -> None:
        while True:
            self._wanted.acquire()
            locked = not self._dismissed and _lock(self.file)
            with self._guard:
                self._waiting = False
                if self._dismissed:
                    os.close(self.file)
                    return
                if not locked:
                    continue  # the caller gives up in time, and writes without the lock
                if self._given_up:
                    _unlock(self.file)
                else:
                    self._granted.release()


def _lock(file: int) -> bool:
    """Wait for the lock; False where the kernel has no room for one (ENOLCK)."""
    try:
        flock(file, LOCK_EX)
    except OSError:
        return False
    return True


def _unlock(file: int) -> None:
    """Release a lock; without one there is nothing to release."""
    try:
        flock(file, LOCK_UN)
    except OSError:
        return  # closing the file releases it, too


def open_lock_file(path: str) -> int:
    """Open the lock file, created if it is missing; only its owner may read and write it, whatever the umask."""
    try:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        if os.fstat(file).st_mode & 0o777 != 0o600:  # noqa: PLR2004 - the mode asked for above
            os.fchmod(file, 0o600)
    except OSError as problem:
        if problem.errno in _UNWRITABLE:
            raise StoreReadOnly(f"the store cannot be written: {path}: {problem.strerror}") from None
        if problem.errno == errno.ELOOP:
            raise StoreUnsafe(
                f"{path} is a symbolic link", hint="remove it; onrecord creates its own lock file"
            ) from None
        raise StoreReadOnly(f"the lock file cannot be made: {path}: {problem.strerror}") from None
    return file
