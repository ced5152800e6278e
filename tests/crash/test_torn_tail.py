"""A torn write-ahead log opens with everything that was acknowledged before the tear (T09)."""

import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from onrecord.session.session_store import SessionStore
from onrecord.stores.sqlite import SQLiteStore
from onrecord.stores.sqlite.connection import PAGE_SIZE
from tests.crash.disks import KEPT, Disk, images
from tests.crash.ledger import Ack, complaints, quick_complaints

FRAME_HEADER = 24


def last_transaction(path: str, place: Path) -> tuple[str, range, list[Ack]]:
    """A store as its process left it: the database in `place`, the bytes of the last turn in its WAL, and all turns."""
    acks = []
    with Disk() as disk:
        store = SQLiteStore(path)
        session = SessionStore(store).open("torn")
        for number in range(5):
            event = session.record_turn([{"role": "user", "content": f"turn {number}"}])
            acks.append(Ack(event.session, event.position, event.id))
            if number == 3:
                start = len(disk.steps)
        store.close()
    image = list(images(disk.steps, random.Random(0), (KEPT,), first=len(disk.steps) - 1))[-1]
    # The file may be longer than the WAL: its room is allocated beforehand, with zeros.
    written = [step for step in disk.steps[start:] if step.file.endswith("-wal") and any(step.data)]
    begin, end = min(step.offset for step in written), max(step.offset + len(step.data) for step in written)
    return image.write(place), range(begin, end + 1), acks


def cuts(span: range, step: int) -> list[int]:
    """Every `step`-th byte, and all around the edges of frames, where a frame's header is easily half written."""
    frame = FRAME_HEADER + PAGE_SIZE
    near = {
        edge + distance
        for edge in range(span.start, span.stop, frame)
        for distance in range(-2, FRAME_HEADER + 3)
        if span.start <= edge + distance < span.stop
    }
    return sorted(near | set(span[::step]) | {span.stop - 1}, reverse=True)


@pytest.mark.timeout(600)
def test_a_torn_tail_opens_to_what_was_acknowledged_before(
    path: str, memory_disk: Path, count: Callable[[int, int], int]
):
    """Cut at any byte of its last transaction, the WAL opens with exactly the turns before it; uncut, with all of them."""
    database, span, acks = last_transaction(path, memory_disk)
    before = acks[:-1]
    assert quick_complaints(database, acks) == []
    for size in cuts(span, count(11, 1))[1:]:
        os.truncate(f"{database}-wal", size)
        assert quick_complaints(database, before) == [], f"cut at byte {size}"
        assert len(quick_complaints(database, acks)) == 1, f"half a transaction counted, cut at byte {size}"
        (memory_disk / "log.db-shm").unlink(missing_ok=True)
    assert complaints(database, before) == []


def test_a_torn_tail_is_overwritten_by_the_next_turn(path: str, memory_disk: Path):
    """After a cut in the middle of a frame, the store accepts the lost turn again, under the same id, and verifies."""
    database, span, acks = last_transaction(path, memory_disk)
    os.truncate(f"{database}-wal", span.start + 100)
    store = SQLiteStore(database)
    session = SessionStore(store).open("torn", takeover=True)
    again = session.record_turn([{"role": "user", "content": "turn 4"}], id=acks[-1].id)
    store.close()
    assert complaints(database, [*acks[:-1], Ack(again.session, again.position, again.id)]) == []


def test_control_a_cut_before_the_last_transaction_is_caught(path: str, memory_disk: Path):
    """Control: the same check complains when the cut is one byte further, in what was acknowledged."""
    database, span, acks = last_transaction(path, memory_disk)
    os.truncate(f"{database}-wal", span.start - 1)
    assert quick_complaints(database, acks[:-1]) == [f"{acks[-2]} is lost"]
