"""Disks that remember and disks that fail: a layer under SQLite, and the images a power cut would have left of it.

A `Disk` becomes the default VFS of this process, so the store under test runs its normal code on it. It passes everything on to
the real file system and keeps the order of writes, truncations and syncs, also of those the store makes itself on the files
that SQLite has open (`os.pwrite`, `os.fsync`). `images` then rebuilds what a machine may find after
losing power at any moment: what was synced is there; of everything else any part may be there, in any order, and torn.
Shared memory (-shm) does not survive a power cut and is left out.
"""

import contextlib
import errno
import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

import apsw

from onrecord.log.events import Event
from tests.crash.ledger import Ack

BASE = "unix"
SECTOR = 512
READ, WRITE, TRUNCATE, SYNC, DELETE, ACK = "read", "write", "truncate", "sync", "delete", "ack"


class Step(NamedTuple):
    """One step that a file went through, or one acknowledgement between two steps."""

    what: str
    file: str
    offset: int = 0
    """For a truncation, the new size; for a deletion, whether the directory was synced."""
    data: bytes = b""
    ack: Ack | None = None


Fault = Callable[[Step], BaseException | None]
"""Called before each step. An error it returns is raised instead of the step; see `Disk.too_late` for after it."""


class _File(apsw.VFSFile):
    """A file of a `Disk`."""

    def __init__(self, disk: "Disk", name: Any, flags: list[int]) -> None:
        self._disk = disk
        whole = name.filename() if isinstance(name, apsw.URIFilename) else name
        self._name = Path(whole or "temporary").name
        super().__init__(BASE, name, flags)
        if whole:
            disk.paths.add(whole)

    def xRead(self, amount: int, offset: int) -> bytes:  # noqa: N802  # the names are SQLite's
        self._disk.may(Step(READ, self._name, offset))
        return super().xRead(amount, offset)

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802  # as above
        self._disk.do(Step(WRITE, self._name, offset, bytes(data)), lambda: super(_File, self).xWrite(data, offset))

    def xTruncate(self, newsize: int) -> None:  # noqa: N802  # as above
        self._disk.do(Step(TRUNCATE, self._name, newsize), lambda: super(_File, self).xTruncate(newsize))

    def xSync(self, flags: int) -> None:  # noqa: N802  # as above
        self._disk.do(Step(SYNC, self._name), lambda: super(_File, self).xSync(flags))


class Disk(apsw.VFS):
    """The file system as SQLite sees it in this process while the `with` block runs."""

    def __init__(self, fault: Fault | None = None, *, too_late: bool = False, errno_: int = 0) -> None:
        self.steps: list[Step] = []
        self.fault = fault
        self.too_late = too_late
        """Whether a failing step is carried out before its error is raised."""
        self.errno = errno_
        self.paths: set[str] = set()
        """The files SQLite has opened."""
        self._label = f"onrecord-crash-{id(self)}"
        super().__init__(self._label, BASE, makedefault=True)

    def __enter__(self) -> Self:
        self._really = (os.pwrite, os.fsync)
        os.pwrite = self._pwrite  # type: ignore[assignment]  # the store only ever writes bytes this way
        os.fsync = self._fsync  # type: ignore[assignment]  # and only ever syncs by number
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.pwrite, os.fsync = self._really
        self.unregister()

    def _pwrite(self, file: int, data: bytes, offset: int) -> int:
        name = self._name_of(file)
        if name:
            self._do_ourselves(Step(WRITE, name, offset, data), lambda: self._really[0](file, data, offset))
            return len(data)
        return self._really[0](file, data, offset)

    def _fsync(self, file: int) -> None:
        name = self._name_of(file)
        if name:
            self._do_ourselves(Step(SYNC, name), lambda: self._really[1](file))
        else:
            self._really[1](file)

    def _do_ourselves(self, step: Step, really: Callable[[], object]) -> None:
        """An operation of the store on a file without SQLite fails with an operating system error."""
        try:
            self.do(step, really)
        except apsw.Error as problem:
            raise OSError(self.errno or errno.EIO, str(problem)) from None

    def _name_of(self, file: int) -> str:
        """The name of a file that SQLite has opened; empty if it is another file."""
        facts = os.fstat(file)
        for path in self.paths:
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(facts, os.stat(path)):  # noqa: PTH116  # called for every write, and Path.stat is slow
                    return Path(path).name
        return ""

    def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:  # noqa: N802  # as above
        return _File(self, name, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:  # noqa: N802  # as above
        step = Step(DELETE, Path(filename).name, int(syncdir))
        self.do(step, lambda: super(Disk, self).xDelete(filename, syncdir))

    def xGetLastError(self) -> tuple[int, str]:  # noqa: N802  # as above
        return self.errno, os.strerror(self.errno) if self.errno else ""

    def may(self, step: Step) -> None:
        """Raise the error that is planned for this step, if any."""
        if self.fault and (problem := self.fault(step)):
            raise problem

    def do(self, step: Step, really: Callable[[], object]) -> None:
        problem = self.fault(step) if self.fault else None
        if problem is None or self.too_late:
            really()
            self.steps.append(step)
        if problem is not None:
            raise problem

    def acknowledge(self, *events: Event) -> None:
        """Note that a caller was informed, at this moment, that these events are durable."""
        for event in events:
            self.steps.append(Step(ACK, "", ack=Ack(event.session, event.position, event.id)))


class Image(NamedTuple):
    """What a machine finds after a power cut, and what must still be there."""

    files: dict[str, bytes]
    acks: list[Ack]
    cut: int
    how: str

    def write(self, directory: Path) -> str:
        """Write the files into an empty directory; return the path of the database."""
        database = "log.db"
        for name, content in self.files.items():
            (directory / name).write_bytes(content)
            (directory / name).chmod(0o600)
            if not name.endswith(("-wal", "-journal")):
                database = name
        return str(directory / database)


LOST, KEPT, PREFIX, ANY = "lost", "kept", "a torn prefix", "any part, reordered and torn"
WAYS = (LOST, PREFIX, ANY, KEPT)


def images(steps: list[Step], chance: random.Random, ways: tuple[str, ...] = WAYS, first: int = 0) -> Iterator[Image]:
    """For every moment from step `first` on, one image for each way in which a disk can lose what was not synced."""
    durable: dict[str, bytearray] = {}
    pending: dict[str, list[Step]] = {}
    acks: list[Ack] = []
    for cut, step in enumerate(steps):
        if step.ack is not None:
            acks.append(step.ack)
        else:
            _follow(step, durable, pending)
        if cut < first:
            continue
        unsynced = any(pending.values())
        for how in ways if unsynced else (LOST,):
            files = {name: bytes(content) for name, content in durable.items()}
            for name, waiting in pending.items():
                survived = _survivors(waiting, how, chance)
                if survived:
                    content = bytearray(files.get(name, b""))
                    for one in survived:
                        _apply(one, content)
                    files[name] = bytes(content)
            yield Image(files, list(acks), cut, how)


def _follow(step: Step, durable: dict[str, bytearray], pending: dict[str, list[Step]]) -> None:
    if step.what == DELETE:
        durable.pop(step.file, None)
        pending.pop(step.file, None)
    elif step.what == SYNC:
        # The first sync of a new file makes its name durable too: SQLite syncs the directory then.
        content = durable.setdefault(step.file, bytearray())
        for one in pending.pop(step.file, ()):
            _apply(one, content)
    else:
        pending.setdefault(step.file, []).append(step)


def _survivors(waiting: list[Step], how: str, chance: random.Random) -> list[Step]:
    if how == LOST:
        return []
    if how == KEPT:
        return waiting
    if how == PREFIX:
        end = chance.randrange(len(waiting) + 1)
        torn = [_torn(waiting[end], chance)] if end < len(waiting) else []
        return waiting[:end] + torn
    chosen = []
    for step in waiting:
        fate = chance.random()
        if fate < 0.45:
            chosen.append(step)
        elif fate < 0.7:
            chosen.append(_torn(step, chance))
    return chosen


def _torn(step: Step, chance: random.Random) -> Step:
    """Some sectors of a write: its beginning, its end, or one in the middle."""
    if step.what != WRITE or len(step.data) <= 1:
        return step
    edges = list(range(SECTOR - step.offset % SECTOR, len(step.data), SECTOR)) or [len(step.data) // 2]
    edge = chance.choice(edges)
    if chance.random() < 0.5:
        return step._replace(data=step.data[:edge])
    return step._replace(offset=step.offset + edge, data=step.data[edge:])


def _apply(step: Step, content: bytearray) -> None:
    if step.what == TRUNCATE:
        del content[step.offset :]
        content.extend(bytes(step.offset - len(content)))
        return
    if len(content) < step.offset:
        content.extend(bytes(step.offset - len(content)))
    content[step.offset : step.offset + len(step.data)] = step.data
