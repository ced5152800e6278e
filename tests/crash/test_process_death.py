"""Acknowledged events survive the death of the process that wrote them (P17)."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.crash.ledger import Ack, acks_in, complaints
from tests.crash.nursery import Nursery, Worker

CYCLES_PER_STORE = 25
LONGEST_LIFE_SECONDS = 0.02


class Pool:
    """Writers on one store, replaced as they are killed, and everything that was acknowledged to them."""

    def __init__(self, nursery: Nursery, path: str, writers: int, job: str = "write_turns") -> None:
        self._nursery = nursery
        self._path = path
        self._job = job
        self.acks: list[Ack] = []
        self._writers = [self._start(number) for number in range(writers)]

    def _start(self, number: int) -> Worker:
        # Two agents share each session, so that their events interleave in one log.
        return self._nursery.start(
            self._job,
            path=self._path,
            session=f"session-{number // 2}",
            agent=f"agent-{number}",
            form="streamed" if number % 2 else "recorded",
        )

    def kill_one(self, chance: random.Random) -> None:
        number = chance.randrange(len(self._writers))
        victim = self._writers[number]
        # Half of the victims die at a random moment of their work, the others while they start.
        if chance.random() < 0.5:
            self.acks += acks_in([victim.line()])  # it is ready
            self.acks += [] if self.acks else acks_in([victim.line()])  # one acknowledgement at least, however slow
        self.acks += acks_in(victim.lines(chance.uniform(0, LONGEST_LIFE_SECONDS)))
        self.acks += acks_in(victim.kill())
        self._writers[number] = self._start(number)

    def kill_all(self) -> None:
        for writer in self._writers:
            self.acks += acks_in(writer.kill())


def losses(
    nursery: Nursery, path: str, chance: random.Random, *, writers: int, cycles: int, job: str = "write_turns"
) -> list[str]:
    """Kill writers again and again; return what was wrong afterwards, and how many acknowledgements there were."""
    pool = Pool(nursery, path, writers, job)
    found: list[str] = []
    try:
        for _cycle in range(cycles):
            pool.kill_one(chance)
            found += complaints(path, pool.acks)
            if found:
                break
    finally:
        pool.kill_all()
    found += complaints(path, pool.acks)
    assert pool.acks, "no writer was acknowledged for anything: nothing was tested"
    return found


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("writers", [1, 8])
def test_acknowledged_survives_kill_9(
    nursery: Nursery, tmp_path: Path, chance: random.Random, count: Callable[[int, int], int], writers: int
):
    """Whenever a writer is killed, every acknowledged event is there once, in order, without gaps, and the chain verifies (P17)."""
    cycles = count(200, 5_000)
    for start in range(0, cycles, CYCLES_PER_STORE):
        place = str(tmp_path / f"store-{start}" / "log.db")
        assert losses(nursery, place, chance, writers=writers, cycles=min(CYCLES_PER_STORE, cycles - start)) == []


def test_control_an_ack_before_the_commit_is_caught(nursery: Nursery, tmp_path: Path, chance: random.Random):
    """Control: a writer that acknowledges before it commits loses events under the same kills (P17)."""
    for attempt in range(20):
        place = str(tmp_path / f"store-{attempt}" / "log.db")
        found = losses(nursery, place, chance, writers=1, cycles=CYCLES_PER_STORE, job="write_turns_hastily")
        if found:
            assert "is lost" in found[0]
            return
    pytest.fail("500 kills of a writer that acknowledges too early lost nothing: this test cannot fail")
