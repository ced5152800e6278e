"""Every edit of a store's file is found, with position and cause; a rollback is found against a checkpoint (P07)."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import pytest

from onrecord.errors import OnrecordError
from onrecord.log.codec import GENESIS, commit_to, link
from onrecord.log.events import Record
from onrecord.log.verify import Report
from onrecord.session import kept_views
from onrecord.session.handle import Session
from onrecord.session.session_store import SessionStore
from onrecord.stores.sqlite import SQLiteStore
from onrecord.stores.sqlite.rows import POSITION_BITS, POSITION_MASK
from onrecord.views.values import Checkpoint

TURNS = 12
KINDS = ("plain", "compressed", "out of line")


@pytest.fixture
def store_file(path: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """A closed store with one session of short, compressed and large payloads, a snapshot of it, and a fork."""
    monkeypatch.setattr(kept_views, "SNAPSHOT_EVERY", 8)
    store = SQLiteStore(path)
    with SessionStore(store).open("tampered", objective="Be found out") as session:
        for number in range(TURNS):
            text = {0: "short", 1: f"longer {number} " * 80, 2: f"{number} " + os.urandom(30_000).hex()}[number % 3]
            session.record_turn([{"role": "user", "content": text}])
        session.fork("the-fork")
    store.close()
    settle(path)
    return path


def settle(path: str) -> None:
    """Move everything into the one file, so that a copy of it is a copy of the store."""
    connection = apsw.Connection(path)
    connection.execute(
        "SELECT count(*) FROM events"
    ).fetchall()  # SQLite has nothing to checkpoint until something is read
    connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    connection.close()


def edit(path: str, statement: str, values: tuple[Any, ...] = ()) -> int:
    """Change the file behind the store's back; return how many rows changed."""
    connection = apsw.Connection(path)
    connection.execute(statement, values)
    changed = connection.changes()
    connection.close()
    return changed


def ask(path: str, statement: str, values: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    connection = apsw.Connection(path)
    rows = connection.execute(statement, values).fetchall()
    connection.close()
    return rows


def verified(path: str, checkpoint: Checkpoint | None = None, name: str = "tampered") -> Report:
    store = SQLiteStore(path)
    try:
        return SessionStore(store).get(name).verify(checkpoint)
    finally:
        store.close()


def checkpoint_of(path: str) -> Checkpoint:
    store = SQLiteStore(path)
    try:
        return SessionStore(store).get("tampered").log.checkpoint()
    finally:
        store.close()


def other_than(value: Any) -> Any:
    """A value of the same type that is not the same."""
    if isinstance(value, bytes):
        return bytes([value[0] ^ 1]) + value[1:]
    if isinstance(value, int):
        return value + 1
    return "1" if value is None else f"{value}x"


COLUMNS = ("id", "kind", "v", "at", "by", "run", "because", "salt", "payload_hash", "hash", "encoding", "payload")


def what_comes_out(path: str) -> list[Record]:
    store = SQLiteStore(path)
    try:
        return store.read(SessionStore(store).find("tampered").session)
    finally:
        store.close()


@pytest.mark.parametrize("column", COLUMNS)
def test_every_edited_column_is_found(store_file: str, column: str):
    """Any column of any event, changed, is reported at that event's position, with a cause (P07)."""
    assert verified(store_file).ok
    good = what_comes_out(store_file)
    found = 0
    for key, value in ask(store_file, f"SELECT key, {column} FROM events WHERE key >> 32 = 1 ORDER BY key"):
        position = key & POSITION_MASK
        changed = 1 if column == "because" and value is None else other_than(value)
        if column == "encoding":
            changed = (value + 1) % 3
        edit(store_file, f"UPDATE events SET {column} = ? WHERE key = ?", (changed, key))
        problems = verified(store_file).problems
        if problems:
            found += 1
            assert position in {problem.position for problem in problems}
            assert all(problem.cause and problem.detail for problem in problems)
        else:
            assert what_comes_out(store_file) == good, f"{column} of position {position} was changed and nobody noticed"
        edit(store_file, f"UPDATE events SET {column} = ? WHERE key = ?", (value, key))
    assert verified(store_file).ok
    # How a payload is stored is not content: short ones read the same under another encoding, and only that may pass.
    assert found == len(good) if column != "encoding" else found >= TURNS // 2


def test_every_dropped_or_swapped_event_is_found(store_file: str):
    """An event that was removed, or swapped with another, is reported at the position where it should be (P07)."""
    good = Path(store_file).read_bytes()
    number = POSITION_BITS
    last = verified(store_file).position
    for position in range(1, last + 1):
        edit(store_file, "DELETE FROM events WHERE key = ?", (1 << number | position,))
        found = {problem.position for problem in verified(store_file).problems}
        assert found & {position, last}, f"position {position} is gone and nobody noticed"
        restore(store_file, good)
    for position in range(1, last):
        one, two, aside = 1 << number | position, 1 << number | position + 1, 1 << number | 1_000_000
        for old, new in ((one, aside), (two, one), (aside, two)):
            edit(store_file, "UPDATE events SET key = ? WHERE key = ?", (new, old))
        assert position in {problem.position for problem in verified(store_file).problems}
        restore(store_file, good)


def restore(path: str, good: bytes) -> None:
    for companion in ("-wal", "-shm"):
        Path(path + companion).unlink(missing_ok=True)
    Path(path).write_bytes(good)


def test_a_changed_or_missing_large_payload_is_found(store_file: str):
    """The chain also covers a large payload, which is stored apart from its event (P07)."""
    ((number, body),) = ask(store_file, "SELECT number, body FROM blobs ORDER BY number LIMIT 1")
    edit(store_file, "UPDATE blobs SET body = ? WHERE number = ?", (other_than(body), number))
    assert verified(store_file).problems
    edit(store_file, "UPDATE blobs SET body = (SELECT body FROM blobs WHERE number = 2) WHERE number = ?", (number,))
    assert [problem.cause for problem in verified(store_file).problems] == ["payload"]
    edit(store_file, "DELETE FROM blobs WHERE number = ?", (number,))
    assert [problem.cause for problem in verified(store_file).problems] == ["missing"]


def test_a_payload_that_is_erased_without_an_event_is_found(store_file: str):
    """A payload that was deleted without an event that says so is reported: erased differs from damaged (P07)."""
    edit(store_file, "UPDATE events SET payload = NULL, salt = NULL, encoding = 0 WHERE key = ?", (1 << 32 | 4,))
    assert [(problem.position, problem.cause) for problem in verified(store_file).problems] == [(4, "missing")]


def test_a_changed_head_is_found(store_file: str):
    """A head that is not at the end of its log is reported (P07)."""
    edit(store_file, "UPDATE sessions SET position = position - 1 WHERE number = 1")
    assert "head" in {problem.cause for problem in verified(store_file).problems}
    edit(store_file, "UPDATE sessions SET position = position + 1, hash = zeroblob(32) WHERE number = 1")
    assert "head" in {problem.cause for problem in verified(store_file).problems}


@pytest.mark.parametrize("column", ["status", "title", "held", "run", "opened_at", "at"])
def test_a_changed_row_of_a_list_is_found(store_file: str, column: str):
    """The log decides what lists and retention read: a lifted hold or an undone end in the head is found (P07)."""
    for number, name in ((1, "tampered"), (2, "the-fork")):
        ((value,),) = ask(store_file, f"SELECT {column} FROM sessions WHERE number = ?", (number,))
        changed = "closed" if column == "status" else other_than(value)
        edit(store_file, f"UPDATE sessions SET {column} = ? WHERE number = ?", (changed, number))
        problems = verified(store_file, name=name).problems
        assert [problem.cause for problem in problems] == ["head"], (column, name)
        edit(store_file, f"UPDATE sessions SET {column} = ? WHERE number = ?", (value, number))
        assert verified(store_file, name=name).ok


def test_a_changed_ancestor_is_found_from_its_fork(store_file: str):
    """A fork rests on its parent's history: verifying the fork finds an edit there (P07)."""
    assert verified(store_file, name="the-fork").ok
    edit(store_file, "UPDATE events SET at = at + 1 WHERE key = ?", (1 << 32 | 3,))
    assert 3 in {problem.position for problem in verified(store_file, name="the-fork").problems}


def cut_off(path: str) -> None:
    """The last three events are removed and the head is rewritten to fit: a log that is consistent in itself."""
    ((position,),) = ask(path, "SELECT position FROM sessions WHERE number = 1")
    kept = position - 3
    edit(path, "DELETE FROM events WHERE key >> 32 = 1 AND key > ?", (1 << 32 | kept,))
    edit(path, "DELETE FROM sessions WHERE number = 2")
    edit(
        path,
        "UPDATE sessions SET position = ?1, hash = (SELECT hash FROM events WHERE key = ?2), "
        "(run, at) = (SELECT max(run), max(at) FROM events WHERE key >> 32 = 1) WHERE number = 1",
        (kept, 1 << 32 | kept),
    )


def rewrite(path: str) -> None:
    """A payload is replaced and every hash after it computed again: what an attacker who knows the format can do."""
    rows = ask(
        path,
        "SELECT key, id, kind, v, at, by, run, because, salt, payload_hash FROM events WHERE key >> 32 = 1 ORDER BY key",
    )
    ((session,),) = ask(path, "SELECT id FROM sessions WHERE number = 1")
    previous, payload = GENESIS, b'{"items":[{"content":"something else","role":"user"}]}'
    for key, id_, kind, v, at, by, run, because, salt, kept in rows:
        position = key & POSITION_MASK
        commitment = kept
        if position == 3:
            commitment = commit_to(salt, payload)
            edit(path, "UPDATE events SET payload = ?, encoding = 0 WHERE key = ?", (payload, key))
        previous = link(previous, (session, position, id_, kind, v, at, by, run, because), commitment)
        edit(path, "UPDATE events SET payload_hash = ?, hash = ? WHERE key = ?", (commitment, previous, key))
    edit(path, "UPDATE sessions SET hash = ? WHERE number = 1", (previous,))


def roll_back(path: str, older: bytes) -> None:
    """The whole file is replaced by an earlier copy of it."""
    restore(path, older)


@pytest.fixture
def two_ages(store_file: str) -> tuple[str, bytes, Checkpoint]:
    """A store, an earlier copy of its file, and a current checkpoint, kept outside."""
    older = Path(store_file).read_bytes()
    store = SQLiteStore(store_file)
    with SessionStore(store).open("tampered") as session:
        session.record_turn([{"role": "user", "content": "since the copy was made"}])
    store.close()
    settle(store_file)
    return store_file, older, checkpoint_of(store_file)


@pytest.mark.parametrize("how", ["cut off", "rewritten", "rolled back"])
def test_the_whole_log_replaced_is_found_against_a_checkpoint(two_ages: tuple[str, bytes, Checkpoint], how: str):
    """Truncation, a rewritten history and a rollback of the whole file are found against a checkpoint kept outside.

    The control is inside: without the checkpoint each of them passes, since each is consistent in itself (P08).
    """
    path, older, checkpoint = two_ages
    assert verified(path, checkpoint).ok
    deeds: dict[str, Callable[[], None]] = {
        "cut off": lambda: cut_off(path),
        "rewritten": lambda: rewrite(path),
        "rolled back": lambda: roll_back(path, older),
    }
    deeds[how]()
    assert verified(path).ok, "the control: nothing inside the file can tell"
    assert [problem.cause for problem in verified(path, checkpoint).problems] == ["checkpoint"]
    assert verified(path, checkpoint).problems[0].position == checkpoint["position"]


def look_at_everything(path: str) -> bool:
    """Read a store the way people do; return whether verification found something."""
    store = SQLiteStore(path)
    try:
        records = SessionStore(store)
        found = not all(Session(store, head.session).verify().ok for head in records.sessions())
        for head in records.sessions():
            session = records.get(head.session)
            session.brief(), session.transcript(), session.context()
        records.search("short")
        return found
    finally:
        store.close()


def test_every_damaged_page_is_a_typed_error_or_a_report(store_file: str, count: Callable[[int, int], int]):
    """Bytes flipped anywhere in the file: whatever is read is right, reported or a typed error; never a hang or a crash (P07)."""
    good = Path(store_file).read_bytes()
    noticed = 0
    for offset in range(0, len(good), count(4_093, 97)):
        bad = bytearray(good)
        bad[offset : offset + 16] = bytes(byte ^ 0xFF for byte in bad[offset : offset + 16])
        restore(store_file, bytes(bad))
        try:
            noticed += look_at_everything(store_file)
        except OnrecordError:
            noticed += 1
    assert noticed > 20


def test_control_an_untouched_copy_verifies(store_file: str, tmp_path: Path):
    """Control: a copy of the file without edits verifies, with the checkpoint of the original (P07)."""
    checkpoint = checkpoint_of(store_file)
    copy = tmp_path / "copy"
    copy.mkdir(mode=0o700)
    shutil.copy(store_file, copy / "log.db")
    (copy / "log.db").chmod(0o600)
    assert verified(str(copy / "log.db"), checkpoint).ok


@pytest.mark.parametrize("kind", KINDS)
def test_a_flipped_bit_never_changes_what_is_read(store_file: str, kind: str) -> None:
    """Reading turns gives what was written or an error, also without a verification: short, compressed, large (P07)."""
    table, column = ("blobs", "body") if kind == "out of line" else ("events", "payload")
    rows = ask(
        store_file,
        "SELECT key, body FROM blobs"
        if kind == "out of line"
        else "SELECT key, payload FROM events WHERE tier = 0 AND encoding = ? ORDER BY length(payload) DESC",
        () if kind == "out of line" else (KINDS.index(kind),),
    )
    key, stored = rows[0]
    written, wrong, noticed = texts_of(store_file), [], 0
    for bit in range(0, len(stored) * 8, max(1, len(stored) * 8 // 97)):
        changed = bytearray(stored)
        changed[bit // 8] ^= 1 << bit % 8
        edit(store_file, f"UPDATE {table} SET {column} = ? WHERE key = ?", (bytes(changed), key))
        try:
            if texts_of(store_file) != written:
                wrong.append(bit)
        except OnrecordError as problem:
            noticed += problem.code == "damaged_log"
    assert not wrong
    assert noticed, "the bits that were flipped are those of the text"


def texts_of(path: str) -> list[Any]:
    """What was said, read without a verification."""
    store = SQLiteStore(path)
    try:
        return [item["content"] for item in SessionStore(store).get("tampered").transcript().items]
    finally:
        store.close()
