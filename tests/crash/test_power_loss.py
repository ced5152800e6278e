"""Acknowledged events survive a power cut, and a torn write-ahead log opens without questions (P18)."""

import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import apsw
import pytest

from onrecord.session.session_store import SessionStore
from onrecord.stores.sqlite import SQLiteStore, connection, wal
from tests.crash.disks import Disk, Image, images
from tests.crash.ledger import Ack, complaints, complaints_about, quick_complaints
from tests.crash.workers import LARGE

EVERYTHING_EVERY = 40
"""One of so many images is opened with the whole API; the others are read with plain SQL, which is quicker."""

TURNS = 16
"""A store with so many turns leaves more than 5,000 images."""


@pytest.fixture
def small_checkpoints(monkeypatch: pytest.MonkeyPatch) -> None:
    """WAL checkpoints after a few turns, some of which cut the write-ahead log back, so that short runs have many."""
    monkeypatch.setattr(wal, "CHECKPOINT_BYTES", 40 * connection.PAGE_SIZE)
    monkeypatch.setattr(wal, "LOOK_EVERY", 1)
    monkeypatch.setattr(wal, "WAL_BYTES", 100 * connection.PAGE_SIZE)


def life_of_a_store(path: str, disk: Disk, chance: random.Random, durability: str, turns: int) -> None:
    """Everything that writes: sessions, turns in both forms, large payloads, facts, search, forks, snapshots, erasures."""
    store = SQLiteStore(path, durability=durability)
    records = SessionStore(store)
    first = records.open("first", objective="Survive a power cut")
    second = records.open("second", agent="helper")
    disk.acknowledge(first.log.event(1), second.log.event(1))
    for number in range(turns):
        text = LARGE + str(number) if chance.random() < 0.1 else f"turn {number} " * chance.randrange(1, 60)
        disk.acknowledge(first.record_turn([{"role": "user", "content": text}]))
        with second.turn() as turn:
            disk.acknowledge(second.log.event(turn.position), turn.user(text), turn.assistant("Looking."))
            if turn.commit():
                disk.acknowledge(second.log.event(second.views.position))
        if number % 6 == 5:
            disk.acknowledge(first.decide(f"decision {number}"))
            records.search("turn")
        if number % 10 == 9:
            disk.acknowledge(first.log.erase("privacy", positions=[first.views.position - 2]))
    fork = first.fork("third")
    disk.acknowledge(fork.log.event(fork.head.position), fork.decide("go another way"))
    store.close()


def everything(path: str, acks: list[Ack]) -> list[str]:
    """The same with the whole API, and one more turn: the store must not only be readable."""
    store = SQLiteStore(path)
    found = complaints_about(store, acks)
    found += damage_in(path)
    after = SessionStore(store).open("afterwards")
    event = after.record_turn([{"role": "user", "content": "The power is back."}])
    store.close()
    return found + complaints(path, [Ack(event.session, event.position, event.id)])


def damage_in(path: str) -> list[str]:
    """What SQLite's own check finds, which `describe` asks too, among slower questions."""
    connection = apsw.Connection(path)
    rows = connection.execute("PRAGMA quick_check(10)").fetchall()
    connection.close()
    return [str(problem) for (problem,) in rows if problem != "ok"]


def judged(image: Image, place: Path, *, wholly: bool) -> list[str]:
    directory = place / "image"
    directory.mkdir(mode=0o700)
    try:
        path = image.write(directory)
        # Before the first acknowledgement there may be no tables yet: opening must create them or use those that are there.
        found = everything(path, image.acks) if wholly or not image.acks else quick_complaints(path, image.acks)
        return [f"cut after step {image.cut}, unsynced: {image.how}: {line}" for line in found]
    finally:
        shutil.rmtree(directory)


def cut_power(path: str, place: Path, chance: random.Random, durability: str, turns: int) -> Iterator[list[str]]:
    """Run a store, cut the power at every step in every way, and judge each image."""
    with Disk() as disk:
        life_of_a_store(path, disk, chance, durability, turns)
    known: dict[tuple[int, int], list[str]] = {}
    for number, image in enumerate(images(disk.steps, chance)):
        wholly = number % EVERYTHING_EVERY == 0
        # Most steps change nothing on the disk before the next sync. The same bytes with the same acknowledgements: the same judgement.
        same = hash(frozenset(image.files.items())), len(image.acks)
        if wholly or same not in known:
            known[same] = judged(image, place, wholly=wholly)
        yield known[same]


@pytest.mark.timeout(3600)
@pytest.mark.usefixtures("small_checkpoints")
def test_acknowledged_survives_power_loss(
    tmp_path: Path, memory_disk: Path, chance: random.Random, count: Callable[[int, int], int]
):
    """After a power cut at any moment the store opens, and everything acknowledged before is there and verifies (P18)."""
    wanted, seen, stores = count(5_000, 100_000), 0, 0
    while seen < wanted:
        stores += 1
        for found in cut_power(str(tmp_path / f"store-{stores}" / "log.db"), memory_disk, chance, "full", turns=TURNS):
            assert found == []
            seen += 1


@pytest.mark.usefixtures("small_checkpoints")
def test_control_fast_durability_loses(tmp_path: Path, memory_disk: Path, chance: random.Random):
    """Control: with durability=fast (synchronous NORMAL) the same power cuts lose acknowledged events, and damage nothing (P18)."""
    judgements = list(cut_power(str(tmp_path / "store" / "log.db"), memory_disk, chance, "fast", turns=5))
    lost = [line for found in judgements for line in found]
    assert any("is lost" in line for line in lost)
    assert [line for line in lost if "is lost" not in line] == []
