"""What PostgreSQL keeps beside the log: words, large payloads, snapshots; and that races on them lose nothing."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from onrecord.errors import StoreReadOnly
from onrecord.log.store import Hit, Receipt, Snapshot
from onrecord.stores.postgres import PostgresStore, search
from onrecord.testing.keeping import HOLDER
from tests.postgres.servers import APP

LARGE = "".join(str(number * number) for number in range(20_000))


def erasure(bench):
    return bench.draft("payload.erased", {"scope": "positions", "ranges": [[1, 999_999]]})


def test_long_words_are_found_as_they_are_written(bench):
    """The index has only the beginning of a very long word; the rest is checked in the event."""
    session = bench.open()
    word = "a" * 5_000
    bench.store.append(session, [bench.draft(data={"text": f"{word}b other"}), bench.draft(data={"text": f"{word}c"})])
    assert set(bench.store.search(word)) == {Hit(session, 2), Hit(session, 3)}
    assert bench.store.search(f"{word}b") == [Hit(session, 2)]
    assert bench.store.search(f"{word}d") == []
    assert bench.store.search(f"{word}b other") == [Hit(session, 2)]
    assert bench.store.search(f"{'a' * 600} other") == []


def test_more_words_than_an_index_takes_are_found(bench, monkeypatch):
    """Search itself reads an event with more words than PostgreSQL indexes, until it is erased."""
    monkeypatch.setattr(search, "INDEXED_BYTES", 10_000)
    session = bench.open()
    bench.store.append(session, [bench.draft(data={"text": " ".join(f"w{n}" for n in range(5_000)) + " needle"})])
    bench.store.append(session, [bench.draft(data={"text": "needle"})])
    assert bench.store.search("needle") == [Hit(session, 3), Hit(session, 2)]
    assert bench.store.search("w4999 needle") == [Hit(session, 2)]
    assert bench.store.search("needle", project="/nowhere") == []
    bench.store.erase(session, [2], erasure(bench))
    assert bench.store.search("needle") == [Hit(session, 3)]


def test_postgresql_really_takes_what_we_think_it_takes(bench):
    """An event just under the limit of indexed bytes is indexed."""
    session = bench.open()
    words = " ".join(f"word{number:07}" for number in range(search.INDEXED_BYTES // 22))
    bench.store.append(session, [bench.draft(data={"text": f"{words} needle"})])
    assert bench.store.search("needle") == [Hit(session, 2)]
    assert bench.store._connections.ask("too_many_words", project=None, session=None) == []


def test_search_uses_its_index(bench, postgres):
    """Under row-level security PostgreSQL would not use the text index; the search function makes it use the index."""
    bench.open()
    bench.store.search("straw")

    def plan_of(role: str) -> str:
        query = "EXPLAIN SELECT session FROM onrecord.words WHERE words @@ 'x'::tsquery"
        as_role = ("SET enable_seqscan = off", f"SET ROLE {role}", query)
        return str(postgres.server.execute(*as_role, database=postgres.shared()))

    assert "words_by_word" in plan_of("onrecord_owner")
    assert "words_by_word" not in plan_of(APP)


def test_two_searches_at_once_index_everything_once(bench, make_bench):
    """Processes that update the index at the same time find everything, and no event is indexed twice."""
    session = bench.open()
    for _ in range(8):
        bench.store.append(session, [bench.draft(data={"text": "needle"}) for _ in range(100)])
    benches = [bench, make_bench(bench.url), make_bench(bench.url)]
    with ThreadPoolExecutor(3) as threads:
        found = list(threads.map(lambda one: len(one.store.search("needle", limit=1_000)), benches))
    assert found == [800] * 3
    assert bench.store.describe()["search_behind"] == 0


def test_what_is_erased_while_it_is_indexed_is_not_found(bench, make_bench, monkeypatch):
    """A search that read an event before its erasure does not restore its words afterwards."""
    session = bench.open()
    bench.store.append(session, [bench.draft(data={"text": "canary"})])
    other = make_bench(bench.url)
    own = search.Searcher._own
    erased: list[Receipt] = []

    def read_then_erase(self, *place):
        records = own(self, *place)
        if not erased:
            erased.append(bench.store.erase(session, [2], erasure(bench)))
        return records

    monkeypatch.setattr(search.Searcher, "_own", read_then_erase)
    assert other.store.search("canary") == []
    assert bench.store.search("canary") == []
    assert erased


def test_where_nothing_can_be_written_search_reads(postgres, make_bench):
    """On a standby, or for a read-only role, search also finds text that is not indexed yet."""
    url = postgres.empty_store()
    bench = make_bench(url)
    session = bench.open()
    bench.store.append(session, [bench.draft(data={"text": "needle"})])
    postgres.server.execute(f"ALTER ROLE {APP} SET default_transaction_read_only = on")
    try:
        store = PostgresStore(f"{url}&target_session_attrs=any")
        assert store.search("needle") == [Hit(session, 2)]
        with pytest.raises(StoreReadOnly):
            store.append(session, [bench.draft()])
        store.close()
    finally:
        postgres.server.execute(f"ALTER ROLE {APP} RESET default_transaction_read_only")


def test_large_content_outlives_the_erasure_of_its_twin(bench, make_bench, count):
    """While one session's copy is erased, others append the same content, and each of them can read it."""
    other = make_bench(bench.url)
    mine, theirs = bench.open("mine"), other.open("theirs", id=bench.new_id())
    over = threading.Event()

    def erase() -> None:
        while not over.is_set():
            (receipt,) = bench.store.append(mine, [bench.draft(data={"text": LARGE})])
            bench.store.erase(mine, [receipt.position], erasure(bench))

    eraser = threading.Thread(target=erase)
    eraser.start()
    try:
        for number in range(count(30, 1_000)):
            other.store.append(theirs, [other.draft(data={"text": LARGE}, id=f"large-{number}")])
            (record,) = other.store.read(theirs, backwards=True, limit=1)
            assert record.payload is not None
            assert LARGE.encode() in record.payload
    finally:
        over.set()
        eraser.join()
    bench.store.erase(theirs, [*range(2, bench.store.head(theirs).position + 1)], erasure(bench))
    assert bench.store.describe()["blobs"] == 0


def test_a_late_snapshot_never_outlives_an_erasure(bench, make_bench):
    """If snapshots are saved while payloads are erased, no snapshot from before the erasure remains."""
    session = bench.open()
    bench.add(session, *["item.added"] * 5)
    other = make_bench(bench.url)
    over = threading.Event()

    def save() -> None:
        while not over.is_set():
            other.store.save(session, Snapshot("note", 6, bytes(32), b"secret"))

    saver = threading.Thread(target=save)
    saver.start()
    try:
        for position in range(2, 7):
            bench.store.erase(session, [position], erasure(bench))
            assert bench.store.snapshot(session, "note") is None
    finally:
        over.set()
        saver.join()
    assert bench.store.snapshot(session, "note") is None


def test_a_refused_append_leaves_no_content_behind(bench):
    """The large content of a refused append is not kept."""
    session = bench.open()
    lease = bench.store.acquire(session, "main", HOLDER)
    bench.store.release(lease)
    bench.add(session, "session.closed")
    for options in ({}, {"lease": lease}, {"expect": 1}):
        with pytest.raises(Exception, match=r"closed|lane|is at position"):
            bench.store.append(session, [bench.draft(data={"text": LARGE})], **options)
    assert bench.store.describe()["blobs"] == 0
