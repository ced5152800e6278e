"""Tenants of one database neither see nor change each other's data, and learn nothing about each other (P28)."""

import random
from collections.abc import Callable, Sequence
from typing import Any

import psycopg
import pytest

from onrecord.errors import OnrecordError
from onrecord.log import head as heads
from onrecord.log.store import Lease, Snapshot
from onrecord.stores.postgres import PostgresStore
from onrecord.stores.postgres.search import Searcher
from onrecord.testing import FakeClock
from onrecord.testing.tools import Workbench
from tests.postgres.servers import APP, OWNER

SECRET = "canary"
LARGE = "".join(str(number * number) for number in range(20_000))
HOLDER = {"host": "elsewhere", "boot": "b", "pid": 1, "started": "s", "handle": "h"}
TABLES = ("sessions", "names", "events", "blobs", "leases", "snapshots", "words")


class Tenant(Workbench):
    """One tenant's workbench: the same calls in the same order make the same ids."""

    store: PostgresStore

    def __init__(self, url: str) -> None:
        self.url = url
        self.setup_method()

    def make_store(self) -> PostgresStore:
        return PostgresStore(self.url, clock=self.clock)


@pytest.fixture
def role():
    return APP


@pytest.fixture
def worlds(postgres, role):
    """A tenant beside one with secrets, and the same tenant alone in a database: what they see must be the same."""
    shared, lonely = (postgres.fresh_database().replace(f"//{APP}@", f"//{role}@") for _ in range(2))
    owner = Tenant(f"{shared}&tenant=owner")
    inside, alone = Tenant(f"{shared}&tenant=other"), Tenant(f"{lonely}&tenant=other")
    for bench in (inside, alone):
        bench.clock = bench.store._clock = FakeClock(1_800_000_000.0)  # so that its ids differ from the owner's
    yield owner, inside, alone
    for bench in (owner, inside, alone):
        bench.teardown_method()


class Loot:
    """Everything the owner has: ids, names, words, content, leases."""

    def __init__(self, owner: Tenant) -> None:
        self.sessions = [owner.open(f"{SECRET}-{number}", project="/secret") for number in range(3)]
        store = owner.store
        for session in self.sessions:
            owner.add(session, "item.added", "decision.made")
            store.append(session, [owner.draft(data={"text": f"{SECRET} word"}), owner.draft(data={"text": LARGE})])
            store.append(session, [owner.draft(id=f"link/vendor/{session}")])
        self.sessions.append(owner.fork(self.sessions[0], 3, f"{SECRET}-fork"))
        self.leases = [store.acquire(session, "main", HOLDER, seconds=10_000) for session in self.sessions]
        for session in self.sessions:
            store.save(session, Snapshot("note", store.head(session).position, bytes(32), SECRET.encode()))
        store.search(SECRET)
        self.records = [store.read(session) for session in self.sessions]
        self.heads = [store.head(session) for session in self.sessions]
        self.ids = [record.id for records in self.records for record in records]
        self.names = [head.name for head in self.heads]


def state_of(owner: Tenant, loot: Loot) -> Any:
    store = owner.store
    return [
        (store.head(one), store.read(one), store.leases(one), store.snapshot(one, "note"), store.weigh(one))
        for one in loot.sessions
    ], store.search(SECRET)


def outcome(call: Callable[[], Any]) -> Any:
    """What a caller learns: the answer, or the complete error."""
    try:
        return call()
    except OnrecordError as problem:
        return type(problem), problem.message, problem.details


def calls(chance: random.Random, bench: Tenant, loot: Loot) -> Callable[[], Any]:
    """One random call with something of the owner's in it."""
    store, number = bench.store, chance.randrange(len(loot.sessions))
    session, head, records = loot.sessions[number], loot.heads[number], loot.records[number]
    name, id_ = chance.choice(loot.names), chance.choice(loot.ids)
    draft = bench.draft(data={"text": chance.choice([SECRET, LARGE])}, id=chance.choice([id_, bench.new_id()]))
    opening = bench.draft("session.opened", {"name": name, "project": "/secret", "objective": SECRET}, run=0)
    erasure = bench.draft("payload.erased", {"scope": "positions", "ranges": [[1, 999_999]]})
    lease = loot.leases[number]
    choices: list[Callable[[], Any]] = [
        lambda: store.head(session),
        lambda: store.read(session, backwards=chance.random() < 0.5),
        lambda: store.find(session, id_),
        lambda: store.linked(f"link/vendor/{session}"),
        store.heads,
        lambda: store.heads(project="/secret"),
        lambda: store.heads(name=name),
        lambda: store.heads(prefix=chance.choice([SECRET[:3], session[:10]])),
        lambda: store.children(session),
        lambda: store.leases(session),
        lambda: store.snapshot(session, "note"),
        lambda: store.search(chance.choice([SECRET, "word", "ca"])),
        lambda: store.search(SECRET, session=session),
        lambda: store.weigh(session),
        lambda: store.append(session, [draft]),
        lambda: store.append(session, [draft], expect=head.position, lease=lease),
        lambda: store.create(heads.fresh(session, opening), [opening]),
        lambda: store.create(heads.fresh(bench.new_id(), opening), [opening]),
        lambda: store.create(heads.forked(head, bench.new_id(), name), [bench.draft("session.forked", {"name": name})]),
        lambda: store.acquire(session, "main", HOLDER, takeover=chance.random() < 0.5),
        lambda: store.renew(lease),
        lambda: store.release(Lease(*lease)),
        lambda: store.save(session, Snapshot("note", 999, bytes(32), b"theirs")),
        lambda: store.erase(session, [2], erasure),
        lambda: store.install(head, iter(records[-1:]), extend=True),
    ]  # fmt: skip
    return chance.choice(choices)


def test_a_tenant_learns_nothing_of_another(worlds, count):
    """Whatever a tenant asks, with any id, name, word, content or lease of another, it gets the same answer as alone (P28)."""
    owner, inside, alone = worlds
    loot = Loot(owner)
    before = state_of(owner, loot)
    told = set()
    for number in range(count(600, 100_000)):
        heard = [outcome(calls(random.Random(number), bench, loot)) for bench in (inside, alone)]
        assert heard[0] == heard[1], f"call {number}"
        told.add(str(heard[0])[:40])
    assert len(told) > 20
    assert state_of(owner, loot) == before


@pytest.mark.parametrize("role", [OWNER])
def test_a_role_above_the_law_keeps_to_its_tenant_too(worlds, count):
    """Even a superuser, who bypasses row-level security, learns nothing about another tenant: every statement filters."""
    test_a_tenant_learns_nothing_of_another(worlds, lambda ci, _full: ci // 3)


def as_tenant(app: psycopg.Connection[Any], tenant: str, statement: str, values: Sequence[Any] = ()) -> None:
    """Run a statement as a malicious client would."""
    with app.transaction():
        app.execute("SELECT set_config('onrecord.tenant', %s, true)", [tenant])
        app.execute(statement.encode(), values)


def test_without_a_tenant_there_is_nothing(worlds):
    """The app role sees and changes only rows of the tenant it names, and cannot learn whether others exist."""
    owner, inside, _alone = worlds
    loot = Loot(owner)
    with psycopg.connect(owner.url.partition("&tenant")[0], autocommit=True) as app:
        for tenant in (None, "", "other"):
            with app.transaction():
                if tenant is not None:
                    app.execute("SELECT set_config('onrecord.tenant', %s, true)", [tenant])
                for table in TABLES:
                    ((found,),) = app.execute(f"SELECT count(*) FROM onrecord.{table}".encode()).fetchall()
                    assert found == 0, (tenant, table)
        taken, free = (
            ("owner", "/secret", name, "x") for name in (loot.names[0], "free")
        )  # an insert for another tenant fails the same way whether the row is there or not
        said = []
        insert = "INSERT INTO onrecord.names (tenant, project, name, session) VALUES (%s, %s, %s, %s)"
        for row in (taken, free):
            with pytest.raises(psycopg.errors.InsufficientPrivilege) as refusal:
                as_tenant(app, "other", insert, row)
            said.append(str(refusal.value))
        assert said[0] == said[1]
    assert inside.store.heads() == []


def test_the_app_role_cannot_change_the_record(worlds, make_bench):
    """Events cannot be updated or deleted; sessions and blobs cannot be deleted; tables cannot be altered or given away."""
    owner, _inside, _alone = worlds
    Loot(owner)
    statements = [
        "UPDATE onrecord.events SET payload = NULL", "DELETE FROM onrecord.events", "DELETE FROM onrecord.sessions",
        "DELETE FROM onrecord.blobs", "UPDATE onrecord.blobs SET body = ''", "UPDATE onrecord.meta SET value = ''",
        "TRUNCATE onrecord.events", "ALTER TABLE onrecord.events DISABLE ROW LEVEL SECURITY", "DROP POLICY of_tenant ON onrecord.events",
        "SET ROLE onrecord_owner", "CREATE TABLE onrecord.mine (x int)",
    ]  # fmt: skip
    with psycopg.connect(owner.url.partition("&tenant")[0], autocommit=True) as app:
        for statement in statements:
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                as_tenant(app, "owner", statement)


def test_erasure_needs_its_event_its_tenant_and_no_hold(worlds):
    """The erasing function does nothing for another tenant, without the event that records it, or under a hold."""
    owner, _inside, _alone = worlds
    session = owner.open()
    owner.add(session, "item.added")
    owner.add(session, "item.added")
    erased = owner.store.erase(
        session, [2], owner.draft("payload.erased", {"scope": "positions", "ranges": [[1, 999_999]]})
    )
    kept = owner.store.read(session, after=2, upto=3)

    def erase(tenant: str, said_at: int) -> int:
        with psycopg.connect(owner.url.partition("&tenant")[0]) as app:
            app.execute("SELECT set_config('onrecord.tenant', %s, true)", [tenant])
            ((done,),) = app.execute("SELECT onrecord.erase(%s, ARRAY[3], %s)", [session, said_at]).fetchall()
            return int(done)

    assert erase("other", erased.position) == 0
    assert erase("owner", 2) == 0
    owner.add(session, "session.held")
    assert erase("owner", erased.position) == 0
    assert owner.store.read(session, after=2, upto=3) == kept
    owner.add(session, "session.released")
    assert erase("owner", erased.position) == 1


def test_a_forged_mark_finds_nothing(worlds):
    """The mark in the index of words only improves speed: with another tenant's mark a search finds none of its events."""
    owner, inside, _alone = worlds
    loot = Loot(owner)
    assert owner.store.search(SECRET) != []
    inside.store._searcher._mark = Searcher(owner.store._connections, owner.store.read, lambda: None)._mark
    assert inside.store.search(SECRET) == []
    assert inside.store.search(SECRET, session=loot.sessions[0]) == []


def test_content_is_kept_once_per_tenant(worlds, postgres):
    """Two tenants with the same large content have a copy each, and erasing one leaves the other."""
    owner, inside, _alone = worlds
    for bench in (owner, inside):
        session = bench.open()
        bench.store.append(session, [bench.draft(data={"text": LARGE}), bench.draft(data={"text": LARGE})])
    database = owner.url.partition("?")[0].rpartition("/")[2]
    query = "SELECT tenant, uses FROM onrecord.blobs ORDER BY tenant"
    assert postgres.server.execute(query, database=database) == [("other", 2), ("owner", 2)]
    (session,) = [head.session for head in owner.store.heads()]
    owner.store.erase(session, [2, 3], owner.draft("payload.erased", {"scope": "positions", "ranges": [[1, 999_999]]}))
    assert postgres.server.execute(query, database=database) == [("other", 2)]
    (theirs,) = [head.session for head in inside.store.heads()]
    assert all(record.payload for record in inside.store.read(theirs))
