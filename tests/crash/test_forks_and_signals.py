"""A process that forks, and one whose user presses Ctrl-C, continue with the same store and lose nothing."""

import contextlib
import random
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from onrecord.session.session_store import SessionStore
from onrecord.stores.sqlite import SQLiteStore
from tests.crash.forkers import THREADS, TURNS_OF_A_CHILD
from tests.crash.ledger import acks_in, complaints
from tests.crash.nursery import Nursery


def troubles_of_forking(nursery: Nursery, path: str, forks: int, patience: float, *, careless: bool) -> list[str]:
    """Children and threads that got stuck or failed, and what is wrong with the store afterwards."""
    worker = nursery.start("fork_under_threads", path=path, forks=forks, patience=patience, careless=careless)
    lines = worker.wait()
    found = [line for line in lines if line.startswith(("child", "thread")) and not line.endswith((" well", " ended"))]
    found += [line for line in lines if line.startswith("error")]
    acks = acks_in(line for line in lines if line.startswith("ack"))
    if not found:
        assert lines[-1] == "done"
        assert len(acks) > forks * TURNS_OF_A_CHILD + THREADS
    return found + complaints(path, acks)


@pytest.mark.timeout(600)
def test_a_fork_loses_nothing_and_blocks_nobody(nursery: Nursery, path: str, count: Callable[[int, int], int]):
    """After a fork while threads append, child, parent and threads keep appending; none hangs, and nothing is lost."""
    assert troubles_of_forking(nursery, path, count(30, 1_000), 30, careless=False) == []


@pytest.mark.timeout(300)
def test_control_a_store_that_does_not_notice_a_fork_is_caught(nursery: Nursery, tmp_path: Path):
    """Control: a store that continues in the child with what it inherited hangs or fails."""
    for attempt in range(10):
        path = str(tmp_path / str(attempt) / "log.db")
        if troubles_of_forking(nursery, path, 5, 0.7, careless=True):
            return
    pytest.fail("50 forks of a store that does not notice them did no harm: this test cannot fail")


def test_a_child_outlives_its_parent_beside_other_processes(
    nursery: Nursery, path: str, count: Callable[[int, int], int]
):
    """A child that continues with its dead parent's store loses nothing, and neither do processes that come and go."""
    orphan = nursery.start("outlive_the_parent", path=path)
    assert orphan.line() == "orphaned"
    acks = []
    for number in range(count(30, 1_000)):
        orphan.order()
        other = nursery.start("open_when_told", path=path)
        assert other.line() == "ready"
        other.order()
        acks += acks_in([orphan.line()]) + acks_in(other.wait())
        if number % 10 == 9:
            assert complaints(path, acks) == []
    orphan.dismiss()
    assert complaints(path, acks) == []


def copies_after_interrupts(
    nursery: Nursery, path: str, interrupts: int, chance: random.Random, *, new_ids: bool
) -> list[str]:
    """Press Ctrl-C so many times at random moments; return what was lost, and which turns are there more than once."""
    worker = nursery.start("go_on_through_interrupts", path=path, new_ids=new_ids)
    lines = []
    while "ready" not in lines:
        lines += worker.lines(1.0)
    for _ in range(interrupts):
        lines += worker.lines(1.0)  # wait until something was done since the last time, however slow this machine is
        lines += worker.lines(chance.uniform(0, 0.002))
        with contextlib.suppress(ProcessLookupError):
            worker.signal(signal.SIGINT)
    Path(f"{path}.enough").touch()
    lines += worker.wait()
    word, noticed, thread = lines[-1].split(" ", 2)
    assert (word, thread) == ("interrupts", "ended"), lines[-1]
    assert int(noticed) > 5
    found = complaints(path, acks_in(lines))
    store = SQLiteStore(path)
    session = SessionStore(store).get("interrupted")
    times = Counter(turn.items[0]["content"] for turn in session.transcript().committed)
    store.close()
    return found + [f"{text!r} is there {number} times" for text, number in times.items() if number != 1]


@pytest.mark.timeout(300)
def test_an_interrupted_append_is_there_once(
    nursery: Nursery, path: str, chance: random.Random, count: Callable[[int, int], int]
):
    """Ctrl-C at any moment of an append leaves a store that works: a retry under the same id leaves one copy."""
    assert copies_after_interrupts(nursery, path, count(400, 20_000), chance, new_ids=False) == []


@pytest.mark.timeout(300)
def test_control_an_interrupted_append_that_is_tried_as_another_is_caught(
    nursery: Nursery, tmp_path: Path, chance: random.Random
):
    """Control: a writer that assumes an interrupted turn was not recorded sometimes records it twice."""
    for attempt in range(10):
        path = str(tmp_path / str(attempt) / "log.db")
        if copies_after_interrupts(nursery, path, 400, chance, new_ids=True):
            return
    pytest.fail("4,000 interrupts doubled nothing: this test cannot fail")


@pytest.mark.timeout(300)
def test_handlers_that_record_and_handlers_that_raise_leave_a_store_that_works(
    nursery: Nursery, path: str, chance: random.Random, count: Callable[[int, int], int]
):
    """A handler that records in the middle of a write is refused; at any other moment it succeeds; no thread hangs.

    Whatever another handler raises, and wherever, each turn is there once when it is tried again under its id.
    """
    worker = nursery.start("go_on_through_handlers", path=path)
    lines = []
    while "ready" not in lines:
        lines += worker.lines(1.0)
    for _ in range(count(600, 20_000)):
        lines += worker.lines(chance.uniform(0, 0.003))
        worker.signal(chance.choice((signal.SIGUSR1, signal.SIGUSR2)))
    Path(f"{path}.enough").touch()
    lines += worker.wait()
    word, *numbers = lines[-1].split()
    recorded, refused, raised, caught, stuck = map(int, numbers)
    assert (word, stuck) == ("handled", 0)
    assert raised == caught, "what a handler raised was swallowed"
    assert min(recorded, refused, raised) > 5
    assert complaints(path, acks_in(lines)) == []
    store = SQLiteStore(path)
    session = SessionStore(store).get("handled")
    times = Counter(turn.items[0]["content"] for turn in session.transcript().committed)
    assert set(times.values()) == {1}
    assert (
        len(list(session.events(kinds=["decision.made"]))) >= recorded
    )  # more: turns that were on record although they were interrupted
    store.close()
