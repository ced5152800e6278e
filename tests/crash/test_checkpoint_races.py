"""No WAL checkpoint, however it races with writers, takes back an acknowledged event (P19)."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.crash.ledger import Ack, acks_in, complaints
from tests.crash.nursery import Nursery, Worker

CYCLES_PER_STORE = 100
LONGEST_PAUSE_SECONDS = 0.004


def jitter(workers: list[Worker], cycles: int, chance: random.Random) -> list[Ack]:
    """Suspend and continue workers at random moments, as a busy machine does; return what was acknowledged."""
    acks: list[Ack] = []
    for _cycle in range(cycles):
        one = chance.choice(workers)
        one.stop()
        # While one is suspended, perhaps in the middle of a WAL checkpoint, the others keep writing or wait for it.
        for other in workers:
            acks += acks_in(other.lines(chance.uniform(0, LONGEST_PAUSE_SECONDS)))
        one.go_on()
    return acks


@pytest.mark.timeout(3600)
def test_checkpoint_races_lose_nothing(
    nursery: Nursery, tmp_path: Path, chance: random.Random, count: Callable[[int, int], int]
):
    """Writers that run a WAL checkpoint after every turn, suspended and continued at random, lose nothing, not even by kill -9 (P19)."""
    cycles = count(600, 50_000)
    for start in range(0, cycles, CYCLES_PER_STORE):
        path = str(tmp_path / f"store-{start}" / "log.db")
        workers = [
            nursery.start(job, path=path, session=f"session-{number}", agent="main", form="recorded")
            for number, job in enumerate(["write_turns", "write_and_checkpoint", "write_and_checkpoint"])
        ]
        try:
            for worker in workers:
                assert worker.line() == "ready"
            acks = jitter(workers, CYCLES_PER_STORE, chance)
        finally:
            left = [line for worker in workers for line in worker.kill()]
        acks += acks_in(left)
        assert len(acks) > CYCLES_PER_STORE // 10
        assert complaints(path, acks) == []


def test_control_a_rude_checkpoint_is_caught(nursery: Nursery, tmp_path: Path, chance: random.Random):
    """Control: a WAL checkpoint that cuts the write-ahead log without its locks loses events, and the same check says so (P19)."""
    for attempt in range(20):
        path = str(tmp_path / f"store-{attempt}" / "log.db")
        worker = nursery.start("write_turns", path=path, session="one", agent="main", form="recorded")
        assert worker.line() == "ready"
        acks = acks_in([worker.line()])
        rude = nursery.start("cut_the_log_rudely", path=path, session="", agent="", form="")
        assert rude.line() == "ready"
        # The writer may fail, too; here only what was acknowledged counts.
        acks += acks_in(line for line in worker.lines(0.01) + worker.kill() if line.startswith("ack"))
        rude.kill()
        try:
            found = complaints(path, acks)
        except Exception as problem:  # noqa: BLE001  # a store without its tables is a loss too
            found = [f"lost: {problem}"]
        if any("lost" in line for line in found):
            return
    pytest.fail("20 rude checkpoints lost nothing: this test cannot fail")
