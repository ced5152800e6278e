"""The ledger: what a store acknowledged, and what is wrong with the store that should still have it.

Promises and their negative controls are judged by the same function, `complaints`: a promise is kept when it is empty, and a
control proves that it would not be empty if the store were weaker.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Any, NamedTuple

import apsw

from onrecord.connection import open_store
from onrecord.errors import SessionNotFound
from onrecord.log.codec import GENESIS, link
from onrecord.log.store import Store
from onrecord.session.handle import Session
from onrecord.stores.sqlite.rows import POSITION_BITS, POSITION_MASK


class Ack(NamedTuple):
    """One acknowledged event. Position 0: the writer knows that it is there, and not where."""

    session: str
    position: int
    id: str


def acks_in(lines: Iterable[str]) -> list[Ack]:
    """The acknowledgements among a worker's lines; an error of a worker is a failure of the test."""
    found = []
    for line in lines:
        word, _, rest = line.partition(" ")
        if word == "ack":
            session, position, id_ = rest.split(" ", 2)
            found.append(Ack(session, int(position), id_))
        elif word == "error":
            raise AssertionError(f"a worker failed: {rest}")
    return found


def complaints(path: str, acks: Iterable[Ack]) -> list[str]:
    """Everything that is wrong: lost, doubled, moved or reordered events, gaps, a chain that does not verify."""
    store = open_store(path)
    try:
        return complaints_about(store, acks)
    finally:
        store.close()


def complaints_about(store: Store, acks: Iterable[Ack]) -> list[str]:
    """The same for a store that is open."""
    found: list[str] = []
    expected: dict[str, list[Ack]] = defaultdict(list)
    for ack in acks:
        expected[ack.session].append(ack)
    for session, wanted in expected.items():
        try:
            records = store.read(session)
        except SessionNotFound:
            found.append(f"{session}: all of it is lost")
            continue
        positions = [record.position for record in records]
        if positions != list(range(1, len(records) + 1)):
            found.append(f"{session}: positions are not dense: {positions[:5]} ... {positions[-5:]}")
        copies = Counter(record.id for record in records)
        found += [f"{session}: {id_} is there {times} times" for id_, times in copies.items() if times > 1]
        where = {record.id: record.position for record in records}
        for ack in wanted:
            if ack.id not in where:
                found.append(f"{session}: {ack.id}, acknowledged at {ack.position}, is lost")
            elif ack.position not in (0, where[ack.id]):
                found.append(f"{session}: {ack.id} moved from {ack.position} to {where[ack.id]}")
        report = Session(store, session).verify()
        found += [f"{session}: {problem}" for problem in report.problems]
    return found


def quick_complaints(path: str, acks: Iterable[Ack]) -> list[str]:
    """Lost events, gaps and broken chains, read with plain SQL: a hundred checks take as long as one opening."""
    connection = apsw.Connection(path)
    try:
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        heads: list[tuple[Any, ...]] = connection.execute(
            "SELECT number, id, position, hash, parent, forked_at FROM heads"
        ).fetchall()
        rows: list[tuple[Any, ...]] = connection.execute(
            "SELECT key, id, kind, v, at, by, run, because, payload_hash, hash FROM events ORDER BY key"
        ).fetchall()
    except apsw.Error as problem:
        return [f"cannot be read: {problem!r}"]
    finally:
        connection.close()
    logs: dict[int, list[tuple[Any, ...]]] = defaultdict(list)
    for row in rows:
        logs[row[0] >> POSITION_BITS].append(row)
    found, there = [], set()
    hashes = {row[0]: row[9] for row in rows}
    numbers = {id_: number for number, id_, *_rest in heads}
    for number, id_, position, digest, parent, forked_at in heads:
        previous = hashes.get(numbers[parent] << POSITION_BITS | forked_at, b"") if parent else GENESIS
        expected = forked_at
        for key, event, kind, v, at, by, run, because, payload_hash, linked in logs[number]:
            expected += 1
            there.add((id_, key & POSITION_MASK, event))
            if key & POSITION_MASK != expected:
                found.append(f"{id_}: position {key & POSITION_MASK} where {expected} should be")
            if link(previous, (id_, expected, event, kind, v, at, by, run, because), payload_hash) != linked:
                found.append(f"{id_}: the chain breaks at {expected}")
            previous = linked
        if (expected, previous) != (position, digest):
            found.append(f"{id_}: the head says {position}, the log ends at {expected}")
    return found + [f"{ack} is lost" for ack in acks if ack not in there]
