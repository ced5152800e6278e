"""A primary dies and its standby takes over: nothing acknowledged is lost, and the clients recover on their own (P25)."""

import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from tests.crash.ledger import Ack, acks_in, complaints
from tests.crash.nursery import Nursery, Worker
from tests.postgres.replicas import Pair, paired

WRITERS = 8
PATIENCE_SECONDS = 60.0


class Writers:
    """Eight processes that write all the time, and a ledger of every acknowledgement outside the store."""

    def __init__(self, nursery: Nursery, url: str) -> None:
        # Two share each session, so that their events interleave in one log.
        self._writers = [
            nursery.start(
                "write_through_failovers", path=url, session=f"session-{number // 2}", agent=f"agent-{number}"
            )
            for number in range(WRITERS)
        ]
        self.acks: list[Ack] = []

    def go_on(self, turns: int) -> None:
        """Wait until each of them has some more acknowledgements."""
        waiting: dict[Worker, int] = dict.fromkeys(self._writers, turns)
        deadline = time.monotonic() + PATIENCE_SECONDS
        while waiting:
            assert time.monotonic() < deadline, f"{len(waiting)} of {WRITERS} writers do not go on"
            for writer in list(waiting):
                found = acks_in(writer.lines(0.01))
                self.acks += found
                waiting[writer] -= len(found)
                if waiting[writer] <= 0:
                    del waiting[writer]

    def hear(self) -> None:
        """Collect all acknowledgements so far."""
        for writer in self._writers:
            self.acks += acks_in(writer.lines())

    @contextmanager
    def resting(self) -> Iterator[None]:
        """Suspend them for a while, so that other processes make progress."""
        for writer in self._writers:
            writer.stop()
        yield
        for writer in self._writers:
            writer.go_on()

    def kill(self) -> None:
        for writer in self._writers:
            self.acks += acks_in(writer.kill())


@pytest.fixture
def pair() -> Iterator[Pair]:
    with paired() as found:
        yield found


@pytest.mark.timeout(1800)
def test_failovers_lose_nothing_and_writers_go_on(
    pair: Pair, nursery: Nursery, chance: random.Random, count: Callable[[int, int], int]
):
    """The primary is killed again and again while 8 processes write: nothing is lost or doubled, no gap, and they continue (P25)."""
    url = pair.store()
    writers = Writers(nursery, url)
    try:
        writers.go_on(3)
        for _round in range(count(10, 100)):
            time.sleep(chance.uniform(0, 0.05))
            pair.kill_primary()
            writers.hear()
            pair.promote()
            writers.go_on(2)
            with writers.resting():
                pair.attach()
            writers.hear()
            writers.go_on(2)
    finally:
        writers.kill()
    assert len(writers.acks) > count(10, 100) * WRITERS * 4
    assert complaints(url, writers.acks) == []


@pytest.mark.timeout(300)
def test_control_an_asynchronous_standby_loses(nursery: Nursery):
    """Control: with an asynchronous standby, the same check finds lost acknowledged events (P25)."""
    with paired(synchronous=False) as pair:
        url = pair.store()
        writers = Writers(nursery, url)
        writers.go_on(2)
        pair.stop_sending()
        writers.hear()
        writers.go_on(2)
        pair.kill_primary()
        writers.kill()
        pair.promote()
        assert any("is lost" in line for line in complaints(url, writers.acks))
