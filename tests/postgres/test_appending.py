"""Appending to PostgreSQL: one round trip, and exactly once whatever happens to the connection."""

import contextlib
import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any

import psycopg
import pytest

from onrecord.errors import IdReused, InvalidInput, LeaseLost, LogMoved, OnrecordError, OutcomeUnknown, StoreBusy
from onrecord.stores.postgres import PostgresStore, connections
from onrecord.stores.postgres.append import Delivery
from onrecord.stores.postgres.connections import Connection, Connections
from onrecord.stores.postgres.round_trip import exchange
from onrecord.testing import derived
from onrecord.testing.keeping import HOLDER, OTHER
from tests.postgres.conftest import Bench
from tests.postgres.servers import APP, Server, Stores, running
from tests.waiting import until


@pytest.fixture
def packets(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The packets to the server: one entry for each that waits for an answer."""
    sent: list[str] = []
    pipeline, execute = Connection.pipeline, Connection.execute

    def one_exchange(*words: Any) -> Any:
        sent.append("pipeline")
        return exchange(*words)

    def one_packet(self: Connection) -> Any:
        sent.append("pipeline")
        return pipeline(self)

    def one_statement(self: Connection, *words: Any, **options: Any) -> Any:
        if self.pgconn.pipeline_status == psycopg.pq.PipelineStatus.OFF:
            sent.append("statement")
        return execute(self, *words, **options)

    monkeypatch.setattr(connections, "exchange", one_exchange)
    monkeypatch.setattr(Connection, "pipeline", one_packet)
    monkeypatch.setattr(Connection, "execute", one_statement)
    return sent


def test_the_ordinary_append_is_one_round_trip(bench, packets):
    """After its own append a store knows the head: the next one is one packet, with and without a lease, on a fork too."""
    parent = bench.open()
    bench.add(parent, "item.added")
    for session in (parent, bench.fork(parent, 2)):
        lease = bench.store.acquire(session, "main", HOLDER)
        bench.add(session, "item.added")
        packets.clear()
        bench.store.append(session, [bench.draft()])
        bench.store.append(
            session, [bench.draft()], lease=lease, expect=bench.store._appender.remembered(session).head.position
        )
        bench.store.append(session, [bench.draft(), bench.draft("decision.made", {"text": "two"})], lease=lease)
        assert packets == ["pipeline"] * 3


def test_another_process_in_the_same_log_costs_one_look(bench, make_bench, packets):
    """If another process appended in between, one query finds the new head, and the append follows it."""
    session = bench.open()
    other = make_bench(bench.url)
    bench.add(session, "item.added")
    other.add(session, "item.added")
    packets.clear()
    bench.add(session, "item.added")
    assert packets == ["pipeline"] * 3
    assert derived(bench.store.read(session)) == other.store.head(session).hash


def test_processes_that_fight_for_a_log_all_get_there(bench, make_bench, count):
    """Four stores with two threads each append to one session at once: every event lands once, in its thread's order."""
    session = bench.open()
    others = [make_bench(bench.url) for _ in range(4)]
    each = count(15, 300)

    def write(number: int) -> list[int]:
        store = others[number % 4].store
        drafts = [bench.draft(id=f"{number}-{index}") for index in range(each)]
        return [store.append(session, [draft])[0].position for draft in drafts]

    with ThreadPoolExecutor(8) as threads:
        written = list(threads.map(write, range(8)))
    assert sorted(position for positions in written for position in positions) == list(range(2, 2 + 8 * each))
    assert all(positions == sorted(positions) for positions in written)
    assert derived(bench.store.read(session)) == bench.store.head(session).hash


class Cut:
    """A connection that is lost at the worst moment: before the server gets the append, or after it has committed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, landed: bool, statement: str = "append_one") -> None:
        self.left = 1
        fetch = Connections.fetch

        def cut(of: Connections, connection: Connection, name: str, values: Any) -> Any:
            if name == statement and self.left:
                self.left -= 1
                if landed:
                    fetch(of, connection, name, values)
                connection.close()
                raise psycopg.OperationalError("the connection was lost")
            return fetch(of, connection, name, values)

        monkeypatch.setattr(Connections, "fetch", cut)


@pytest.mark.parametrize("landed", [True, False])
def test_a_lost_answer_is_found_out(bench, monkeypatch, landed):
    """After a lost answer the store looks the event up: it is there once, and reported as new (P20)."""
    session = bench.open()
    cut = Cut(monkeypatch, landed=landed)
    (receipt,) = bench.store.append(session, [bench.draft()])
    assert (cut.left, receipt.position, receipt.new) == (0, 2, True)
    assert bench.store.head(session).hash == receipt.hash
    bench.add(session, "item.added")
    assert bench.positions(session) == [1, 2, 3]


@pytest.mark.parametrize("landed", [True, False])
def test_a_lost_answer_to_a_lease_is_found_out(bench, monkeypatch, landed):
    """A lease acquired over a connection that died belongs to this holder, once."""
    session = bench.open()
    Cut(monkeypatch, landed=landed, statement="take_lease")
    lease = bench.store.acquire(session, "main", HOLDER)
    assert (lease.epoch, lease.holder) == (1, HOLDER)
    assert bench.store.leases(session) == [lease]


@pytest.mark.parametrize("landed", [True, False])
def test_a_lost_answer_to_a_join_is_found_out(bench, monkeypatch, landed):
    """A holder whose connection died as it joined has the lane and its first events, each once."""
    session, transaction, left = bench.open(), Connections.transaction, [1]

    @contextlib.contextmanager
    def cut(of: Connections, connection: Connection) -> Iterator[None]:
        with transaction(of, connection):
            yield
            if left and not landed:
                left.clear()
                connection.close()
                raise psycopg.OperationalError("the connection was lost")
        if left:
            left.clear()
            connection.close()
            raise psycopg.OperationalError("the connection was lost")

    monkeypatch.setattr(Connections, "transaction", cut)
    lease, receipts = bench.store.join(session, "main", HOLDER, [bench.draft(), bench.draft()], expect=1)
    assert (left, lease.epoch, lease.holder) == ([], 1, HOLDER)
    assert [(one.position, one.new) for one in receipts] == [(2, True), (3, True)]
    assert bench.store.leases(session) == [lease]
    assert bench.store.append(session, [bench.draft()], lease=lease)[0].position == 4


def test_a_server_that_stays_away_is_told_honestly(monkeypatch):
    """A write without an answer has an unknown outcome; reading and opening report that no server answers."""
    monkeypatch.setattr(connections, "PATIENCE_SECONDS", 0.2)
    with running() as server:
        bench = Bench(Stores(server).empty_store())
        session = bench.open()
        server.kill()
        with pytest.raises(OutcomeUnknown) as unknown:
            bench.store.append(session, [bench.draft()])
        assert unknown.value.retryable
        for call in (lambda: bench.store.head(session), lambda: PostgresStore(bench.url)):
            with pytest.raises(StoreBusy):
                call()
        server.start()
        bench.add(session, "item.added")
        bench.teardown_method()


def test_connections_that_are_ended_lose_and_double_nothing(postgres, make_bench, count):
    """If the server ends connections at random moments, writers still append every event exactly once (P20)."""
    url = postgres.empty_store()
    bench = make_bench(url)
    session = bench.open()
    over = threading.Event()
    each = count(25, 1_000)

    def end_connections() -> None:
        chance = random.Random(7)
        query = f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '{APP}' AND random() < 0.5"
        while not over.is_set():
            postgres.server.execute(query)
            time.sleep(chance.uniform(0.01, 0.1))

    def write(number: int) -> list[bool]:
        drafts = [bench.draft(id=f"{number}-{index}") for index in range(each)]
        return [bench.store.append(session, [draft])[0].new for draft in drafts]

    killer = threading.Thread(target=end_connections)
    killer.start()
    try:
        with ThreadPoolExecutor(4) as threads:
            told = list(threads.map(write, range(4)))
    finally:
        over.set()
        killer.join()
    assert all(new for answers in told for new in answers)
    records = bench.store.read(session)
    assert len(records) == 1 + 4 * each
    assert derived(records) == bench.store.head(session).hash


def waiting(server: Server, event: str) -> list[Any]:
    query = f"SELECT pid FROM pg_stat_activity WHERE usename = '{APP}' AND wait_event = '{event}'"
    return [row[0] for row in server.execute(query)]


def test_a_commit_that_gave_up_on_its_standby_is_not_acknowledged():
    """If the wait for a standby is cancelled, PostgreSQL commits locally and warns: onrecord does not acknowledge that."""
    with running() as server:
        bench = Bench(Stores(server).empty_store())
        session = bench.open()
        bench.add(session, "item.added")
        server.execute("ALTER SYSTEM SET synchronous_standby_names = 'gone'", "SELECT pg_reload_conf()")
        until(lambda: server.execute("SHOW synchronous_standby_names") == [("gone",)])
        with ThreadPoolExecutor(1) as thread:
            answer = thread.submit(bench.store.append, session, [bench.draft()])
            for _ in range(2):  # the append, and the query for its outcome, which waits for the standby as well
                until(lambda: waiting(server, "SyncRep"))
                server.execute(f"SELECT pg_cancel_backend({waiting(server, 'SyncRep')[0]})")
                time.sleep(0.05)
                assert not answer.done()
            until(lambda: waiting(server, "SyncRep"))
            server.execute("ALTER SYSTEM RESET synchronous_standby_names", "SELECT pg_reload_conf()")
            (receipt,) = answer.result(30)
        assert (receipt.position, receipt.new) == (3, True)
        assert bench.positions(session) == [1, 2, 3]
        bench.teardown_method()


def test_a_known_event_is_answered_only_when_it_is_safe():
    """A known id is acknowledged only after our own commit: an event on this server alone is not safe yet."""
    with running() as server:
        bench = Bench(Stores(server).empty_store())
        session = bench.open()
        draft = bench.draft()
        bench.store.append(session, [draft])
        server.execute("ALTER SYSTEM SET synchronous_standby_names = 'gone'", "SELECT pg_reload_conf()")
        until(lambda: server.execute("SHOW synchronous_standby_names") == [("gone",)])
        with ThreadPoolExecutor(1) as thread:
            answer = thread.submit(bench.store.append, session, [draft])
            until(lambda: waiting(server, "SyncRep"))
            assert not answer.done()
            server.execute("ALTER SYSTEM RESET synchronous_standby_names", "SELECT pg_reload_conf()")
            assert [receipt.new for receipt in answer.result(30)] == [False]
        bench.teardown_method()


def test_no_server_default_weakens_a_commit(postgres):
    """Our commits wait for the disk even if role or server do not by default; a stricter default stays in force."""
    url = postgres.fresh_database()
    for default, in_force in (("off", "on"), ("local", "on"), ("remote_write", "on"), ("remote_apply", "remote_apply")):
        postgres.server.execute(f"ALTER ROLE {APP} SET synchronous_commit = {default}")
        try:
            store = PostgresStore(url)
        finally:
            postgres.server.execute(f"ALTER ROLE {APP} RESET synchronous_commit")
        assert store.describe()["synchronous_commit"] == in_force
        store.close()


RAISES_ONCE = """
CREATE OR REPLACE FUNCTION public.raise_once() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
    IF nextval('public.tries') = 1 THEN RAISE EXCEPTION 'once' USING ERRCODE = '{state}'; END IF;
    RETURN NEW;
END $$
"""
"""A sequence keeps its value when the transaction is rolled back, so the error is raised once."""


def test_what_may_pass_is_tried_again_with_the_same_id(postgres, make_bench):
    """Every transient SQLSTATE costs one retry and no more; any other is an error, and nothing is written."""
    url = postgres.fresh_database()
    database = url.partition("?")[0].rpartition("/")[2]
    execute = partial(postgres.server.execute, database=database)
    execute(
        "CREATE SEQUENCE public.tries",
        RAISES_ONCE.format(state="40001"),
        "CREATE TRIGGER raise_once BEFORE INSERT ON onrecord.events FOR EACH ROW EXECUTE FUNCTION public.raise_once()",
        "SELECT nextval('public.tries')",
    )
    bench = make_bench(url)
    session = bench.open()
    passing = ("40001", "40003", "40P01", "57P01", "57P02", "57P03", "57P05", "53300", "08000", "08006", "08P01")
    for position, state in enumerate(passing, 2):
        execute(RAISES_ONCE.format(state=state), "ALTER SEQUENCE public.tries RESTART")
        (receipt,) = bench.store.append(session, [bench.draft(id=state)])
        assert (receipt.position, receipt.new) == (position, True), state
        assert execute("SELECT last_value FROM public.tries") == [(2,)], state
    execute(RAISES_ONCE.format(state="22012"), "ALTER SEQUENCE public.tries RESTART")
    with pytest.raises(OnrecordError, match="once"):
        bench.store.append(session, [bench.draft(id="not again")])
    assert [record.id for record in bench.store.read(session, after=1)] == list(passing)


def test_stricter_isolation_only_costs_tries(postgres, make_bench):
    """If transactions are serializable by default, serialization failures are retried with the same ids."""
    url = postgres.empty_store()
    postgres.server.execute(f"ALTER ROLE {APP} SET default_transaction_isolation = 'serializable'")
    try:
        benches = [make_bench(url) for _ in range(3)]
        session = benches[0].open()

        def write(number: int) -> None:
            for index in range(10):
                benches[number].store.append(session, [benches[0].draft(id=f"{number}-{index}")])

        with ThreadPoolExecutor(3) as threads:
            list(threads.map(write, range(3)))
    finally:
        postgres.server.execute(f"ALTER ROLE {APP} RESET default_transaction_isolation")
    assert derived(benches[1].store.read(session)) == benches[2].store.head(session).hash
    assert benches[0].store.head(session).position == 31


def test_a_lane_changes_hands_between_appends_never_during_one(bench, postgres, make_bench):
    """A takeover waits for an append in progress, and the process that lost the lease writes nothing afterwards (P15)."""
    session = bench.open()
    lease = bench.store.acquire(session, "main", HOLDER)
    bench.store.append(session, [bench.draft()], lease=lease)
    other = make_bench(bench.url)
    with psycopg.connect(postgres.server.url(postgres.shared())) as holding, ThreadPoolExecutor(2) as threads:
        holding.execute("SELECT 1 FROM onrecord.sessions WHERE session = %s FOR UPDATE", [session])
        append = threads.submit(bench.store.append, session, [bench.draft()], lease=lease)
        until(lambda: len(waiting(postgres.server, "transactionid")) == 1)
        takeover = threads.submit(other.store.acquire, session, "main", OTHER, takeover=True)
        until(lambda: len(waiting(postgres.server, "transactionid")) == 2)
        assert not takeover.done()
        holding.rollback()
        assert append.result(30)[0].position == 3
        assert takeover.result(30).epoch == lease.epoch + 1
    with pytest.raises(LeaseLost):
        bench.store.append(session, [bench.draft()], lease=lease)
    assert other.store.head(session).position == 3


def test_leases_run_on_the_clock_of_the_database(bench, postgres):
    """The machine's own clock does not count: since and until are the database's time."""
    session = bench.open()
    lease = bench.store.acquire(session, "main", HOLDER, seconds=100)
    ((now,),) = postgres.server.execute("SELECT (extract(EPOCH FROM clock_timestamp()) * 1000000)::bigint")
    assert isinstance(now, int)
    assert 0 <= now - lease.since < 60_000_000
    assert lease.until - lease.since == 100_000_000


def test_a_forked_child_has_connections_of_its_own(bench):
    """After a fork parent and child append side by side; neither uses or closes a connection of the other."""
    session = bench.open()
    bench.add(session, "item.added")
    child = os.fork()
    if child == 0:
        status = 1
        try:
            bench.store.append(session, [bench.draft(id="child")])
            bench.store.close()
            status = 0
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    bench.store.append(session, [bench.draft(id="parent")])
    assert [record.id for record in bench.store.read(session, after=2)] == ["child", "parent"]


def test_more_threads_than_connections_take_turns(bench, monkeypatch):
    """A store opens a limited number of connections; further threads wait for one."""
    monkeypatch.setattr(connections, "CONNECTIONS", 2)
    sessions = [bench.open(f"s{number}") for number in range(8)]
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda session: bench.store.append(session, [bench.draft(id="x")]), sessions))
    assert all(bench.store.head(session).position == 2 for session in sessions)
    assert len(bench.store._connections._idle) <= 2


def test_a_log_that_keeps_moving_is_taken_by_its_row(bench, monkeypatch):
    """An append that keeps losing the race locks the head row, and lands."""
    session = bench.open()
    monkeypatch.setattr(Delivery, "_move", lambda *_args: False)
    bench.add(session, "item.added", "item.added")
    assert bench.positions(session) == [1, 2, 3]
    assert derived(bench.store.read(session)) == bench.store.head(session).hash


def test_what_postgresql_cannot_write_is_not_on_record(bench):
    """A zero byte in a title is kept; in a name or project it is refused; asking for one finds nothing."""
    session = bench.open()
    bench.store.append(session, [bench.draft("objective.set", {"text": "a\0b"})])
    assert bench.store.head(session).title == "a\0b"
    with pytest.raises(InvalidInput):
        bench.open("zero", project="/a\0b")
    assert bench.store.heads(name="a\0b") == bench.store.heads(project="\0") == []
    assert bench.store.find(session, "\0") is None
    with pytest.raises(InvalidInput):
        bench.store.heads(name="\ud800")


@pytest.fixture
def held(bench, postgres):
    """A session with a locked head row and an append that waits for it: further appends gather behind that."""
    session = bench.open()
    bench.add(session, "item.added")
    with psycopg.connect(postgres.server.url(postgres.shared())) as holding, ThreadPoolExecutor(16) as threads:
        holding.execute("SELECT 1 FROM onrecord.sessions WHERE session = %s FOR UPDATE", [session])
        first = threads.submit(bench.store.append, session, [bench.draft(id="first")])
        until(lambda: len(waiting(postgres.server, "transactionid")) == 1)

        def gather(*calls: Callable[[], Any]) -> list[Future[Any]]:
            answers = [threads.submit(call) for call in calls]
            until(lambda: len(bench.store._appender._queue(session).group._queue) == len(calls))
            holding.rollback()
            assert first.result(30)[0].position == 3
            return answers

        yield session, gather
    assert derived(bench.store.read(session)) == bench.store.head(session).hash


def test_threads_at_one_log_share_a_commit(bench, held, packets):
    """While one append is in progress, those of other threads gather, and go together in one packet."""
    session, gather = held
    drafts = [bench.draft(id=f"thread-{number}") for number in range(12)]
    packets.clear()
    answers = gather(*[partial(bench.store.append, session, [draft]) for draft in drafts])
    written = {draft.id: answer.result(30)[0].position for draft, answer in zip(drafts, answers, strict=True)}
    assert packets == ["pipeline"]
    assert sorted(written.values()) == list(range(4, 16))
    assert {record.id: record.position for record in bench.store.read(session, after=3)} == written


def test_together_each_hears_its_own_answer(bench, held):
    """A refusal among appends that went together reaches only its own caller."""
    session, gather = held
    append = bench.store.append
    good, moved, reused, known = gather(
        lambda: append(session, [bench.draft(id="good")]),
        lambda: append(session, [bench.draft(id="late")], expect=1),
        lambda: append(session, [bench.draft(id="first", data={"text": "another"})]),
        lambda: append(session, [bench.draft(id="good")]),
    )
    assert sorted([good.result(30)[0].new, known.result(30)[0].new]) == [False, True]
    assert isinstance(moved.exception(30), LogMoved)
    assert isinstance(reused.exception(30), IdReused)
    assert bench.store.head(session).position == 4


def test_a_pooler_that_forgets_what_was_prepared_costs_a_try(bench, postgres):
    """Behind a pooler a prepared statement may be unknown: the store uses another connection, and nothing is lost."""
    session = bench.open()
    bench.add(session, "item.added")
    for connection in bench.store._connections._idle:
        connection.execute("DEALLOCATE ALL")
    bench.add(session, "item.added")
    assert bench.positions(session) == [1, 2, 3]


def test_a_list_by_name_is_planned_by_what_is_asked(bench, packets):
    """A prefix that matches nearly everything and one that matches nothing need different plans: neither is prepared."""
    for number in range(20):
        bench.open(f"name{number}")
    for _ in range(8):
        assert len(bench.store.heads(prefix="name", limit=50)) == 20
        assert len(bench.store.heads(prefix="name1")) == 11
    for connection in bench.store._connections._idle:
        rows = connection.execute(
            "SELECT statement FROM pg_prepared_statements WHERE statement LIKE '%%id_prefix%%' OR statement LIKE '%%name >= %%'"
        ).fetchall()
        assert rows == []
