"""The gate: a lock file that lets the writers of all processes through one after another.

SQLite's own lock keeps writers apart, but it lets a lucky one go first for seconds while others starve. So every
write and every checkpoint is made while holding `flock` on `<database>.lock`. The gate is fairness and a shield
against checkpoint races; SQLite stays the lock that correctness rests on: whoever cannot pass the gate in time goes
on without it.
"""

from __future__ import annotations

import errno
import os
from fcntl import LOCK_EX, LOCK_NB, LOCK_UN, flock
from threading import Lock, Thread

from onrecord.errors import StoreReadOnly, StoreUnsafe

GATE_SECONDS = 5.0
"""How long a writer waits at the gate before it goes on without it."""

_IF_FREE = LOCK_EX | LOCK_NB
_UNWRITABLE = (errno.EROFS, errno.EACCES, errno.EPERM)


class Gate:
    """One process's end of the gate of one store. Entered by one thread at a time: the writer's turn sees to that."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._file = -1
        self._held = -1
        self._patience: _Patience | None = None

    def enter(self, seconds: float = GATE_SECONDS) -> bool:
        """Pass the gate; False when it stayed shut for so long, or when this file system has no such locks."""
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

    def leave(self) -> None:
        """Let the next one pass. Nothing happens when the gate was not passed."""
        if self._held >= 0:
            flock(self._held, LOCK_UN)
            self._held = -1

    def let_go(self) -> None:
        """Leave, although it is not known how far entering went: something was raised in the middle of it."""
        for file in (self._file, self._patience.give_up() if self._patience is not None else -1):
            if file >= 0:
                flock(file, LOCK_UN)
        self._held = -1

    def close(self) -> None:
        """Let go of the lock file."""
        self.leave()
        if self._patience is not None:
            self._patience.dismiss()
            self._patience = None
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def forget(self) -> None:
        """In a forked child: close what was inherited without unlocking it, for the lock is the parent's."""
        self._held = -1
        if self._patience is not None:
            os.close(self._patience.file)
            self._patience = None
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _wait(self, seconds: float) -> bool:
        if self._patience is None:
            self._patience = _Patience(open_lock_file(self._path))
        if not self._patience.wait(seconds):
            return False
        self._held = self._patience.file
        return True


class _Patience:
    """A thread that waits for the lock on behalf of others, because `flock` knows no deadline.

    It waits on a file of its own: if its caller gave up, passed the gate another way and the lock came in at last,
    letting go of it here must not let go of what the caller holds.
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
        Thread(target=self._run, name="onrecord-gate", daemon=True).start()

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
        """Nobody waits any more. The file, which may be locked."""
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
            if not self._dismissed:
                flock(self.file, LOCK_EX)
            with self._guard:
                self._waiting = False
                if self._dismissed:
                    os.close(self.file)
                    return
                if self._given_up:
                    flock(self.file, LOCK_UN)
                else:
                    self._granted.release()


def open_lock_file(path: str) -> int:
    """The lock file, made if it is missing; readable and writable by nobody else whatever the umask says."""
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
