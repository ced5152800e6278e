"""What the SQLite store promises beyond the contract: its settings, its schema, its write lock, its indexes."""

import random
import re
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import apsw
import apsw.ext
import pytest

from onrecord.errors import (
    InvalidInput,
    StoreBusy,
    StoreError,
    StoreReadOnly,
)
from onrecord.log.codec import decode_payload
from onrecord.log.store import Hit
from onrecord.session.session_store import SessionStore
from onrecord.stores import payloads
from onrecord.stores.sqlite import SQLiteStore, connection, search, wal, write_lock
from onrecord.testing import derived
from tests.contracts.sqlite_bench import Bench, asked, shut

SQL = Path(connection.__file__).parent.parent / "sql" / "sqlite"


def schema_of(statements: list[str]) -> list[str]:
    """The schema that some scripts create, without comments and spacing."""
    memory = apsw.Connection(":memory:")
    for statement in statements:
        memory.execute(statement).fetchall()
    rows = memory.execute("SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY name").fetchall()
    return [re.sub(r"\s+", " ", re.sub(r"--[^\n]*", "", str(row[0]))) for row in rows]


def test_the_schema_is_the_sum_of_its_migrations():
    """A new store and one upgraded step by step have the same tables and indexes."""
    migrations = sorted((SQL / "migrations").glob("*.sql"))
    assert [int(file.name[:4]) for file in migrations] == list(range(1, connection.SCHEMA_VERSION + 1))
    assert schema_of([(SQL / "schema.sql").read_text()]) == schema_of([file.read_text() for file in migrations])


def test_every_query_is_used_and_every_used_query_exists():
    """No statement is unused, and none is missing."""
    modules = (Path(connection.__file__).parent).glob("*.py")
    used = set()
    for module in modules:
        used |= set(re.findall(r'(?:QUERIES\[|ask\()"(\w+)"', module.read_text()))
    reached_by_suffix = {"events", "events_backwards", "chosen_events", "chosen_events_backwards"}
    reached_by_choice = {"heads_newest", "heads_of_project", "heads_by_name"}
    assert set(connection.QUERIES) == used | reached_by_suffix | reached_by_choice


def test_every_query_says_what_it_is_for():
    """Each statement begins with a line `-- name: what it is for`."""
    titles = re.findall(r"^-- (\w+): (.+)$", (SQL / "queries.sql").read_text(), re.MULTILINE)
    assert {name for name, _purpose in titles} == set(connection.QUERIES)


@pytest.mark.parametrize("durability", ["full", "fast"])
def test_the_settings_are_in_force(path: Path, durability: str):
    """SQLite has the settings that the store asks for."""
    store = SQLiteStore(str(path), durability=durability)
    store.close()
    for opened in (connection.open_writer(str(path), durability), connection.open_reader(str(path))):
        settings = {
            name: opened.pragma(name)
            for name in (
                "secure_delete", "cell_size_check", "mmap_size", "temp_store", "wal_autocheckpoint",
                "journal_size_limit", "foreign_keys", "trusted_schema", "journal_mode", "page_size", "application_id",
            )
        }  # fmt: skip
        assert settings == {
            "secure_delete": 1, "cell_size_check": 1, "mmap_size": 0, "temp_store": 2, "wal_autocheckpoint": 0,
            "journal_size_limit": connection.WAL_BYTES, "foreign_keys": 1, "trusted_schema": 0, "journal_mode": "wal",
            "page_size": connection.PAGE_SIZE, "application_id": connection.APPLICATION_ID,
        }  # fmt: skip
        opened.close()
    chosen = connection.open_writer(str(path), durability)
    assert chosen.pragma("synchronous") == {"full": 2, "fast": 1}[durability]
    chosen.close()


def test_an_old_sqlite_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch):
    """A SQLite that can lose committed rows is not used, and the hint says what to install."""
    monkeypatch.setattr(apsw, "sqlite_lib_version", lambda: "3.51.2")
    monkeypatch.setattr(apsw, "sqlitelibversion", lambda: "3.51.2", raising=False)
    with pytest.raises(StoreError) as refused:
        SQLiteStore(str(path))
    assert "apsw" in refused.value.hint
    assert not path.exists()


def test_an_unknown_durability_is_refused(path: Path):
    """Only the two documented durability settings can be chosen."""
    with pytest.raises(InvalidInput):
        SQLiteStore(str(path), durability="sometimes")


def test_the_url_opens_the_same_store(bench: Bench, path: Path):
    """The store's URL names its file with four slashes, the absolute form."""
    assert bench.store.url == f"sqlite:///{path}"
    assert bench.store.url.startswith("sqlite:////")


def test_files_are_private(bench: Bench, path: Path):
    """Directory and files are for their owner alone."""
    bench.open()
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()}
    assert modes == dict.fromkeys(["store.db", "store.db-wal", "store.db-shm", "store.db.lock"], 0o600)


def test_a_link_to_a_store_is_followed(bench: Bench, path: Path, tmp_path: Path):
    """A symbolic link opens the store it points to, with the lock file beside the real one."""
    session = bench.open()
    link = tmp_path / "link.db"
    link.symlink_to(path)
    other = SQLiteStore(str(link))
    assert other.path == str(path)
    assert other.head(session).position == 1
    other.close()
    assert not (tmp_path / "link.db.lock").exists()


def test_a_large_payload_is_stored_once(bench: Bench, path: Path):
    """The same content, in several events and sessions, is one blob, under a key that cannot be guessed from it."""
    big = {"text": "".join(str(number) for number in range(20_000))}
    first, second = bench.open("first"), bench.open("second")
    for session in (first, first, second):
        bench.store.append(session, [bench.draft(data=big)])
    ((count, key, size),) = asked(path, "SELECT count(*), key, length(body) FROM blobs")
    assert count == 1
    assert size < payloads.INLINE_LIMIT * 3
    other = Bench(path.parent / "other.db")
    other.store.append(other.open(), [other.draft(data=big)])
    assert asked(path.parent / "other.db", "SELECT key FROM blobs") != [(key,)]
    other.teardown_method()
    for session, position in ((first, 2), (first, 3), (second, 2)):
        assert asked(path, "SELECT count(*) FROM blobs") == [(1,)]
        bench.store.erase(
            session, [position], bench.draft("payload.erased", {"scope": "positions", "ranges": [[1, 999_999]]})
        )
    assert asked(path, "SELECT count(*) FROM blobs") == [(0,)]


def test_payloads_are_kept_small(bench: Bench, path: Path):
    """Short payloads are kept as they are, longer ones compressed."""
    session = bench.open()
    bench.store.append(session, [bench.draft(data={"text": "short"}), bench.draft(data={"text": "again and " * 400})])
    rows = asked(path, "SELECT encoding, length(payload) FROM events WHERE key & 0xffffffff > 1 ORDER BY key")
    assert rows[0] == (payloads.PLAIN, len('{"text":"short"}'))
    assert rows[1][0] == payloads.COMPRESSED
    assert int(rows[1][1]) < 200


def test_many_payloads_come_back_in_order(bench: Bench):
    """A log so long that two threads decompress it reads like any other."""
    session = bench.open()
    count = payloads.MANY * 2 + 1
    bench.store.append(session, [bench.draft(data={"text": f"{number} " * 100}) for number in range(count)])
    records = bench.store.read(session)
    assert derived(records) == bench.store.head(session).hash
    assert [decode_payload((record.payload or b"").decode())["text"].split()[0] for record in records[1:]] == [
        str(number) for number in range(count)
    ]


def test_lists_use_their_indexes(bench: Bench, path: Path):
    """No list of sessions sorts or scans all of them."""
    values = {
        "project": "p", "statuses": None, "limit": 50, "moment": 1, "at": 1, "id": "", "name": "n", "prefix": "n",
        "prefix_end": "o", "id_prefix": "N", "id_prefix_end": "O",
    }  # fmt: skip
    plain = connection.open_reader(str(path))
    for name in ("heads_newest", "heads_of_project", "heads_by_name"):
        plan = plain.execute("EXPLAIN QUERY PLAN " + connection.QUERIES[name], values).fetchall()
        steps = [str(row[3]) for row in plan]
        assert not any(re.fullmatch(r"SCAN sessions", step) for step in steps), steps
        assert "USE TEMP B-TREE FOR ORDER BY" not in steps or name == "heads_by_name", steps
    plain.close()


def test_a_taken_write_lock_delays_and_does_not_prevent(bench: Bench, monkeypatch: pytest.MonkeyPatch):
    """A writer that does not get the write lock in time writes without it: SQLite's own lock still keeps writers apart."""
    session = bench.open()
    monkeypatch.setattr(write_lock.WriteLock.acquire, "__defaults__", (0.1,))
    with shut(bench.store):
        for _ in range(3):
            bench.add(session, "item.added")
    bench.add(session, "item.added")
    with shut(bench.store):
        pass
    assert bench.store.head(session).position == 5


def test_a_store_that_stays_locked_is_busy(bench: Bench, path: Path, monkeypatch: pytest.MonkeyPatch):
    """When another program keeps SQLite's lock, the caller gets an error in time and may retry."""
    session = bench.open()
    bench.store.close()
    monkeypatch.setattr(connection, "BUSY_SECONDS", 0.1)
    monkeypatch.setattr(wal, "BUSY_SECONDS", 0.1)
    rude = apsw.Connection(str(path))
    rude.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreBusy) as busy:
        bench.add(session, "item.added")
    assert busy.value.retryable
    assert bench.store.head(session).position == 1
    rude.execute("ROLLBACK")
    bench.add(session, "item.added")
    rude.close()


def test_search_answers_where_nothing_can_be_written(bench: Bench, monkeypatch: pytest.MonkeyPatch):
    """A search reads and compares what is not indexed yet, with the same answer."""
    session = bench.open()
    bench.store.append(session, [bench.draft(data={"text": "indexed needle"})])
    assert bench.store.search("needle") == [Hit(session, 2)]
    bench.store.append(session, [bench.draft(data={"text": "another needle"})])

    def refuse(*_anything: object) -> None:
        raise StoreReadOnly("for this test")

    monkeypatch.setattr(search.Index, "work", refuse)
    assert bench.store.search("needle") == [Hit(session, 3), Hit(session, 2)]
    assert bench.store.search("another nee") == [Hit(session, 3)]
    assert bench.store.search("needle", limit=1) == [Hit(session, 3)]
    monkeypatch.undo()
    assert bench.store.search("needle") == [Hit(session, 3), Hit(session, 2)]


def test_searching_from_many_threads_indexes_once(bench: Bench):
    """Searches that index at the same time neither fail nor count an event twice."""
    session = bench.open()
    count = search.BATCH_EVENTS * 2 + 7
    bench.store.append(session, [bench.draft(data={"text": f"needle n{number}"}) for number in range(count)])
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda _: bench.store.search("needle", limit=1_000), range(4)))
    assert all(len(hits) == len(set(hits)) == count for hits in found)


def test_the_write_ahead_log_is_given_room(bench: Bench, path: Path):
    """The WAL file is filled ahead of its pages, so that a sync need not change its size, and never beyond a limit."""
    session = bench.open()
    sizes = []
    for _ in range(60):
        bench.add(session, "item.added")
        sizes.append(Path(f"{path}-wal").stat().st_size)
    assert len(set(sizes)) <= 3
    assert sizes[-1] <= wal.CHECKPOINT_BYTES + wal.FIRST_ROOM
    bench.store.close()
    again = SQLiteStore(str(path))
    assert again.head(session).position == 61
    again.close()


def test_short_lived_writers_leave_a_short_log(bench: Bench, path: Path, monkeypatch: pytest.MonkeyPatch):
    """Many processes that write a little and close do not make the WAL longer and longer for the next one."""
    monkeypatch.setattr(wal, "LEFT_BEHIND_BYTES", 128 * connection.PAGE_SIZE)
    monkeypatch.setattr(wal, "FIRST_ROOM", 64 * connection.PAGE_SIZE)
    session = bench.open()
    lengths = []
    for _ in range(128):
        bench.add(session, "item.added")
        bench.store.close()
        lengths.append(Path(f"{path}-wal").stat().st_size)
    assert max(lengths) <= 3 * wal.LEFT_BEHIND_BYTES
    assert 0 in lengths
    assert bench.store.head(session).position == 129


def test_a_store_of_larger_pages_is_kept_as_well(path: Path):
    """In a store of an earlier version, with pages of 8 KiB, the write-ahead log is cut back at the same length."""
    path.parent.mkdir(mode=0o700)
    prepare = apsw.Connection(str(path))
    prepare.execute("PRAGMA page_size = 8192; PRAGMA journal_mode = WAL").fetchall()
    prepare.close()
    path.chmod(0o600)
    store = SQLiteStore(str(path))
    session = SessionStore(store).open("old")
    longest = 0
    for number in range(400):
        session.record_turn([{"role": "user", "content": random.Random(number).randbytes(12_000).hex()}])
        longest = max(longest, Path(f"{path}-wal").stat().st_size)
    assert apsw.Connection(str(path)).pragma("page_size") == 8192
    assert wal.CHECKPOINT_BYTES < longest < connection.WAL_BYTES
    assert session.verify().ok
    store.close()


def test_a_store_can_be_described(bench_on_disk: Bench):
    """The doctor's report has versions, settings, what a power cut can lose, files, counts, and on demand the state of the pages."""
    bench, path = bench_on_disk, bench_on_disk.path
    bench.add(bench.open(), "item.added")
    facts = bench.store.describe(check=True)
    assert facts["path"] == path
    assert (facts["journal_mode"], facts["synchronous"]) == ("wal", "full")
    assert facts["power_cut_can_lose"] == "nothing that was acknowledged"
    assert (facts["sessions"], facts["events"], facts["integrity"]) == (1, 2, "ok")
    assert facts["schema_version"] == connection.SCHEMA_VERSION
    assert facts["files"]["store.db"]["mode"] == facts["files"]["store.db.lock"]["mode"] == "0600"
    assert facts["wal_bytes"] > 0
    fast = SQLiteStore(path, durability="fast")
    assert fast.describe()["power_cut_can_lose"].startswith("the commits since")
    fast.close()


def test_a_closed_store_opens_again_when_it_is_used(bench: Bench):
    """Closing releases files and loses nothing, and a later call opens them again."""
    session = bench.open()
    bench.store.close()
    assert not [file for file in Path("/proc/self/fd").iterdir() if leads_to(file, bench.path)]
    bench.add(session, "item.added")
    assert bench.store.head(session).position == 2


def leads_to(file: Path, path: str) -> bool:
    try:
        return str(file.readlink()).startswith(path)
    except OSError:
        return False


LAGGING = {("sessions", "position"), ("sessions", "hash"), ("sessions", "at")}


def lagging_reads(plain: apsw.Connection, statement: str) -> list[str]:
    """The columns that may lag and that a statement reads from the table, not from the view `heads`."""
    actions = apsw.ext.query_info(plain, statement, actions=True).actions or []
    return [
        f"{action.table_name}.{action.column_name}"
        for action in actions
        if action.action == apsw.SQLITE_READ
        and (action.table_name, action.column_name) in LAGGING
        and action.trigger_or_view != "heads"
    ]


def test_a_closed_store_whose_file_was_replaced_is_read_anew(bench: Bench, path: Path, tmp_path: Path):
    """The same session may have another number in the other file: nothing that was known of the first file counts."""
    session = bench.open("s")
    bench.add(session, "item.added")
    before = bench.store.read(session)
    other = SQLiteStore(str(tmp_path / "place" / "other.db"), clock=lambda: bench.clock.now)
    SessionStore(other).open("first-of-all")
    other.install(bench.store.head(session), iter(before))
    copy = Path(other.backup(str(tmp_path / "copy.db")))
    other.close()
    bench.store.close()
    for file in path.parent.glob("store.db*"):
        file.unlink()
    copy.replace(path)
    assert bench.store.read(session) == before
    assert bench.store.read(session) == before


def test_only_the_view_heads_reads_columns_that_lag():
    """A row of `sessions` may lag behind its log: no statement reads position, hash or time from it directly."""
    plain = apsw.Connection(":memory:")
    plain.execute((SQL / "schema.sql").read_text()).fetchall()
    found = {name: lagging_reads(plain, statement) for name, statement in connection.QUERIES.items()}
    assert {name: columns for name, columns in found.items() if columns} == {}
    assert lagging_reads(plain, "SELECT at, status FROM sessions") == ["sessions.at"]
