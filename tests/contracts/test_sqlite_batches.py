"""Appends that share a transaction of the SQLite store: each gets the answer that it would get alone."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from onrecord.errors import IdReused, LeaseLost, LogMoved, SessionNotFound
from onrecord.log import head as heads
from onrecord.stores.sqlite import writer
from onrecord.stores.sqlite.rows import MOMENT_BITS
from onrecord.testing import derived
from onrecord.testing.keeping import HOLDER
from tests.contracts.sqlite_bench import Bench, asked, shut


def test_a_burst_of_appends_leaves_the_lists_alone(bench: Bench, path: Path):
    """The order of lists is exact although its index is updated only now and then."""
    sessions = [bench.open(f"s{number}") for number in range(5)]
    for step in range(40):
        bench.clock.advance(0.01)
        bench.add(sessions[step * 7 % 5], "item.added")
    listed = bench.store.heads()
    assert [head.session for head in listed] == [
        head.session for head in sorted(listed, key=lambda head: (head.at, head.session), reverse=True)
    ]
    ((moments,),) = asked(path, "SELECT count(DISTINCT moment) FROM sessions")
    assert int(moments) < 5


def test_one_request_of_a_shared_transaction_fails_alone(bench: Bench, monkeypatch: pytest.MonkeyPatch):
    """Threads that share a transaction share neither errors nor events, and none makes it restart."""
    monkeypatch.setattr(writer.Writer, "_retreat", lambda *_: pytest.fail("the shared transaction was given up"))
    session = bench.open()
    bench.store.append(session, [bench.draft(data={"text": "taken"}, id="taken")])
    good = [bench.draft() for _ in range(24)]
    results: dict[int, object] = {}

    def go(number: int) -> None:
        try:
            if number % 3 == 0:
                bench.store.append(session, [bench.draft(data={"text": "other"}, id="taken")])
            elif number % 3 == 1:
                bench.store.append(session, [bench.draft(id=f"late-{number}")], expect=1)
            else:
                results[number] = bench.store.append(session, [good[number]])[0]
        except (IdReused, LogMoved) as problem:
            results[number] = problem

    # While the write lock is taken every thread queues up; when it is free they share one transaction.
    with shut(bench.store):
        threads = [threading.Thread(target=go, args=(number,)) for number in range(24)]
        for thread in threads:
            thread.start()
        time.sleep(0.1)
    for thread in threads:
        thread.join()
    assert {type(results[number]) for number in range(0, 24, 3)} == {IdReused}
    assert {type(results[number]) for number in range(1, 24, 3)} == {LogMoved}
    assert bench.store.head(session).position == 2 + 8
    assert derived(bench.store.read(session)) == bench.store.head(session).hash


def test_threads_with_leases_in_many_sessions_share_a_transaction(bench: Bench, monkeypatch: pytest.MonkeyPatch):
    """Forks, leases, known ids, large payloads, renaming: each append of a batch gets the answer it would get alone."""
    monkeypatch.setattr(writer.Writer, "_retreat", lambda *_: pytest.fail("the shared transaction was given up"))
    parent = bench.open("parent")
    known = bench.draft(id="known")
    bench.store.append(parent, [known])
    sessions = [bench.fork(parent, 2, "fork"), *(bench.open(f"s{number}") for number in range(5))]
    leases = [bench.store.acquire(session, "main", HOLDER, seconds=10) for session in sessions]
    bench.store.release(leases[5])
    bench.clock.advance(8)
    batch = [
        lambda: bench.store.append(sessions[0], [known, bench.draft(id="a")], lease=leases[0]),
        lambda: bench.store.append(sessions[1], [bench.draft(data={"text": "x" * 50_000}, id="b")], lease=leases[1]),
        lambda: bench.store.append(sessions[2], [bench.draft("session.renamed", {"name": "new"}, id="c")]),
        lambda: bench.store.append(sessions[3], [bench.draft(id=f"d{n}") for n in range(40)], lease=leases[3]),
        lambda: bench.store.append(sessions[4], [bench.draft("session.paused", {"reason": "lunch"}, id="e")]),
        lambda: bench.store.append(sessions[5], [bench.draft(id="f")], lease=leases[5]),
        lambda: bench.store.append("01ARZ3NDEKTSV4RRFFQ69G5FAV", [bench.draft(id="g")]),
    ]
    with ThreadPoolExecutor(len(batch)) as threads, shut(bench.store):
        answers = [threads.submit(one) for one in batch]
        time.sleep(0.1)
    errors = [answer.exception() for answer in answers]
    assert [type(error) for error in errors[5:]] == [LeaseLost, SessionNotFound]
    assert [error for error in errors[:5] if error] == []
    assert [one.new for one in answers[0].result()] == [False, True]
    assert [bench.store.head(session).position for session in sessions] == [4, 2, 2, 41, 2, 1]
    assert bench.store.head(sessions[2]).name == "new"
    assert bench.store.head(sessions[4]).status == heads.PAUSED
    for session in sessions:
        assert derived(bench.store.read(session)) == bench.store.head(session).hash
    ends = {lease.session: lease.until for session in sessions for lease in bench.store.leases(session)}
    assert [ends[session] - leases[0].since for session in sessions[:5]] == [18e6, 18e6, 10e6, 18e6, 10e6]


def test_a_batch_updates_the_rows_of_all_its_sessions(bench: Bench, path: Path):
    """The row of a session says the same as its log: where only its end moved, within a moment or not, or everything."""
    sessions, batch = [], []
    for number in range(12):
        sessions.append(session := bench.open(f"s{number}"))
        bench.clock.advance(1.0 if number % 3 else 0.0)
        renamed = bench.draft("session.renamed", {"name": f"new-{number}"})
        batch.append(partial(bench.store.append, session, [renamed if number in range(2, 12, 3) else bench.draft()]))
    with ThreadPoolExecutor(len(batch)) as threads, shut(bench.store):
        answers = [threads.submit(one) for one in batch]
        time.sleep(0.1)
    assert [answer.exception() for answer in answers] == [None] * len(batch)
    found = asked(
        path, "SELECT id, project, name, position, hash, run, status, at, moment FROM sessions ORDER BY number"
    )
    told = [bench.store.head(session) for session in sessions]
    assert found == [
        (one.session, one.project, one.name, one.position, one.hash, one.run, one.status, one.at, one.at >> MOMENT_BITS)
        for one in told
    ]
    assert [one.name for one in told[2::3]] == [f"new-{number}" for number in range(2, 12, 3)]
