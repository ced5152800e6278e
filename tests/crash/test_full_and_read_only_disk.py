"""On a full or read-only disk nothing acknowledged is lost, reads work, and writes work again when they can (P21)."""

import os
import random
import sys
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

from onrecord.errors import StoreFull, StoreReadOnly
from onrecord.session.handle import Session
from onrecord.session.session_store import SessionStore
from onrecord.stores.sqlite import SQLiteStore, connection, wal
from tests.crash.disks import DELETE, KEPT, LOST, TRUNCATE, WRITE, Disk, Step, images
from tests.crash.ledger import Ack, complaints, complaints_about
from tests.crash.nursery import Nursery
from tests.crash.workers import noise

TURNS = 30


class Space:
    """A disk with room for so many bytes; overwriting takes no room, truncating gives it back."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.peak = 0
        self._sizes: dict[str, int] = {}

    def __call__(self, step: Step) -> BaseException | None:
        size = self._sizes.get(step.file, 0)
        if step.what == WRITE:
            growth = max(0, step.offset + len(step.data) - size)
            if growth and sum(self._sizes.values()) + growth > self.room:
                return apsw.FullError("no space left")
            self._sizes[step.file] = size + growth
            self.peak = max(self.peak, sum(self._sizes.values()))
        elif step.what == TRUNCATE:
            self._sizes[step.file] = step.offset
        elif step.what == DELETE:
            self._sizes.pop(step.file, None)
        return None


def record(session: Session, number: int) -> Ack:
    event = session.record_turn(noise(number), id=f"turn-{number}")
    return Ack(event.session, event.position, event.id)


def used_by(path: str, turns: int) -> int:
    """The most bytes that a store with so many turns ever takes."""
    space = Space(1 << 40)
    with Disk(space):
        store = SQLiteStore(path)
        session = SessionStore(store).open("full")
        for number in range(turns):
            record(session, number)
        store.close()
    return space.peak


@pytest.mark.timeout(600)
@pytest.mark.parametrize("with_checkpoints", [False, True])
def test_a_full_disk_loses_nothing_and_recovers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: Callable[[int, int], int], with_checkpoints: bool
):
    """Wherever the space ends: StoreFull, all acknowledged turns readable, the same turns accepted when there is space (P21)."""
    if with_checkpoints:
        monkeypatch.setattr(wal, "CHECKPOINT_BYTES", 12 * connection.PAGE_SIZE)
        monkeypatch.setattr(wal, "LOOK_EVERY", 1)
        monkeypatch.setattr(wal, "WAL_BYTES", 24 * connection.PAGE_SIZE)
        # The space that a log gets in advance, for speed, would be enough for all turns.
        monkeypatch.setattr(wal, "FIRST_ROOM", connection.PAGE_SIZE)
    least = used_by(str(tmp_path / "empty" / "log.db"), 0)
    most = used_by(str(tmp_path / "enough" / "log.db"), TURNS)
    refused = 0
    for room in range(least, most, (most - least) // count(40, 2_000) or 1):
        path = str(tmp_path / str(room) / "log.db")
        space = Space(room)
        with Disk(space) as disk:
            store = SQLiteStore(path)
            session = SessionStore(store).open("full")
            acks: list[Ack] = []
            for number in range(TURNS):
                try:
                    acks.append(record(session, number))
                except StoreFull:
                    refused += 1
                    assert complaints_about(store, acks) == []
            cut = list(disk.steps)
            space.room = 1 << 40
            late = acks + [record(session, number) for number in range(TURNS)]
            assert complaints_about(store, late) == []
            store.close()
        for number, image in enumerate(images(cut, random.Random(room), (LOST, KEPT), first=len(cut) - 1)):
            directory = tmp_path / f"{room}-{number}"
            directory.mkdir(mode=0o700)
            assert complaints(image.write(directory), acks) == []
    assert refused
    assert StoreFull.retryable


def test_control_a_disk_that_swallows_writes_is_caught(path: str):
    """Control: where a full disk reports no error, a power cut loses acknowledged turns, and the check finds it (P21)."""
    with Disk() as disk:
        store = SQLiteStore(path)
        session = SessionStore(store).open("full")
        acks = [record(session, 0)]
        kept = len(disk.steps)
        acks.append(record(session, 1))
        store.close()
    (image,) = images(disk.steps[:kept], random.Random(0), (LOST,), first=kept - 1)
    directory = Path(path).parent / "after"
    directory.mkdir(mode=0o700)
    found = complaints(image.write(directory), acks)
    assert len(found) == 1
    assert "is lost" in found[0]


def test_a_disk_that_turns_read_only_under_a_writer_is_typed(path: str):
    """A store whose disk turns read-only while it is open refuses writes with a typed error, reads, and writes again later (P21)."""
    read_only = False

    def fault(step: Step) -> BaseException | None:
        return apsw.ReadOnlyError("attempt to write a readonly database") if read_only and step.what == WRITE else None

    with Disk(fault):
        store = SQLiteStore(path)
        session = SessionStore(store).open("turning")
        acks = [record(session, 0)]
        read_only = True
        for _ in range(3):
            with pytest.raises(StoreReadOnly):
                record(session, 1)
            assert complaints_about(store, acks) == []
            assert store.search("0") != []
        read_only = False
        acks.append(record(session, 1))
        assert complaints_about(store, acks) == []
        store.close()


def needs_mounts() -> None:
    if sys.platform != "linux" or os.geteuid() != 0:
        pytest.skip("cannot run here: mounting a file system needs root on Linux")


def lines_of(nursery: Nursery, job: str, **arguments: str) -> list[str]:
    lines = nursery.start(job, **arguments).wait()
    if (
        lines
        and lines[-1].startswith("error")
        and ("PermissionError" in lines[-1] or "CalledProcessError" in lines[-1])
    ):
        pytest.skip(f"cannot run here: no mounts allowed ({lines[-1][-80:]})")
    return lines


def test_a_really_full_disk(nursery: Nursery, tmp_path: Path):
    """On a real file system of 4 MB: StoreFull; reads work while it is full; writes work when there is room, without a restart (P21)."""
    needs_mounts()
    lines = lines_of(nursery, "fill_a_small_disk", directory=str(tmp_path), size="4m")
    assert lines[0].startswith("full ")
    assert int(lines[0].split()[1]) > 10
    assert lines[1:] == ["complaints while full []", "complaints with room again []"]


def test_a_really_read_only_mount(nursery: Nursery, tmp_path: Path):
    """On a file system that is remounted read-only, reads work, writes raise a typed error, and later they work again (P21)."""
    needs_mounts()
    lines = lines_of(nursery, "live_on_a_read_only_mount", directory=str(tmp_path))
    assert lines == ["reads []", "refused store_read_only", "goes on []"]
