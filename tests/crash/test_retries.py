"""An append that is delivered again, by any process and in any order, is there once and gets the same answer (P03)."""

import pickle
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path

import pytest

from onrecord.connection import open_store
from onrecord.log.events import Draft
from onrecord.log.store import Receipt
from onrecord.session.session_store import SessionStore
from onrecord.stores.sqlite import SQLiteStore
from tests.crash.nursery import Nursery

PROCESSES = 3
THREADS = 8
PATIENCE_SECONDS = 3_000.0
"""How long a worker may take for its part of a million appends."""


def prepared(path: str, letters: int) -> tuple[str, list[list[Draft]]]:
    """A session and batches of drafts for it: single events, several at once, a large one now and then."""
    store = open_store(path)
    session = SessionStore(store).create("retries", agent="main")
    batches = [
        [
            session.log.draft(
                "worklog.written", {"text": f"letter {number}, page {page} " * (900 if number % 50 == 0 else 1)}
            )
            for page in range(1 + number % 3)
        ]
        for number in range(letters)
    ]
    store.close()
    return session.id, batches


def wrong_with(
    path: str, session: str, batches: list[list[Draft]], receipts: list[tuple[str, Receipt]], recalled: Counter[str]
) -> list[str]:
    """Events that are there more or less often than once, and receipts for one event that differ.

    `recalled`: how often a process took an event on record for its own, after the network had lost the answer. These
    processes send the very same drafts, so that it may be another's (`Receipt.new`).
    """
    store = open_store(path)
    records = store.read(session, after=1)
    store.close()
    found = []
    delivered = {id_ for id_, _receipt in receipts}
    contents = Counter(record.payload for record in records)
    for draft in (draft for batch in batches for draft in batch):
        times = contents[draft.payload]
        if times > 1 or (draft.id in delivered and not times):
            found.append(f"{draft.id} is there {times} times")
    found += [f"{record.id} was never sent" for record in records if record.id not in delivered]
    answers: dict[str, set[tuple[int, bytes]]] = defaultdict(set)
    news: Counter[str] = Counter()
    for id_, receipt in receipts:
        answers[id_].add((receipt.position, receipt.hash))
        news[id_] += receipt.new
    places = {record.id: (record.position, record.hash) for record in records}
    found += [f"{id_} was answered with {given}" for id_, given in answers.items() if given != {places.get(id_)}]
    found += [f"{id_} was called new {news[id_]} times" for id_ in answers if not 1 <= news[id_] <= 1 + recalled[id_]]
    return found


def deliver_everything(
    nursery: Nursery,
    path: str,
    deliveries: int,
    *,
    letters: int,
    forge: bool = False,
    mail: str | None = None,
    job: str = "deliver",
) -> tuple[list[str], int]:
    session, batches = prepared(path, letters)
    mail = mail or f"{path}.mail"
    Path(mail).write_bytes(pickle.dumps((session, batches)))
    workers = [
        nursery.start(
            job,
            path=path,
            mail=mail,
            seed=seed,
            deliveries=deliveries // PROCESSES,
            threads=THREADS,
            forge=forge,
        )
        for seed in range(PROCESSES)
    ]
    receipts: list[tuple[str, Receipt]] = []
    recalled: Counter[str] = Counter()
    for worker in workers:
        line, *more = worker.wait(PATIENCE_SECONDS)
        assert line.startswith("receipts "), line
        receipts += pickle.loads(Path(line.removeprefix("receipts ")).read_bytes())
        recalled.update(one.removeprefix("recalled ") for one in more)
    return wrong_with(path, session, batches, receipts, recalled), len(receipts)


@pytest.mark.timeout(3600)
def test_a_retried_append_is_there_once(nursery: Nursery, path: str, count: Callable[[int, int], int]):
    """Threads and processes repeat appends, whole and in part: each event is there once, with one receipt, new exactly once (P03)."""
    wanted = count(10_000, 1_000_000)
    found, delivered = deliver_everything(nursery, path, wanted, letters=wanted // 8)
    assert found == []
    assert delivered > wanted


def test_control_a_retry_under_another_id_is_caught(nursery: Nursery, path: str):
    """Control: when a retry gets a new id, the same check finds the copies (P03)."""
    found, _delivered = deliver_everything(nursery, path, 300, letters=20, forge=True)
    assert any("times" in line for line in found)


def test_a_retry_is_answered_even_when_the_log_has_moved(path: str):
    """A retry that expects the position of its first try gets its receipt; a new event that expects it is refused (P03)."""
    store = SQLiteStore(path)
    session = SessionStore(store).create("moved", agent="main")
    first = session.log.draft("worklog.written", {"text": "first"})
    (receipt,) = store.append(session.id, [first], expect=1)
    store.append(session.id, [session.log.draft("worklog.written", {"text": "second"})])
    (again,) = store.append(session.id, [first], expect=1)
    assert again == receipt._replace(new=False)
    store.close()
