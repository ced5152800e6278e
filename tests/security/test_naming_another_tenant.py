"""A SQL user with a login of one tenant wants to read, change or learn about another tenant's sessions.

The attacker has what an application has: a login with the rights of the app role, bound to the tenant `mallory`. The
victim is the tenant `acme` in the same database. Each attack has its control: the same step by the victim's own login,
or by a superuser, whom no policy binds.
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from onrecord.errors import StoreReadOnly, TenantRefused
from onrecord.stores.postgres import PostgresStore, people, schema
from onrecord.stores.postgres.address import address_of, with_tenant
from onrecord.testing.tools import Workbench
from tests.postgres.servers import APP, OWNER, Stores

pytestmark = pytest.mark.timeout(120)

CANARY = "canary-of-acme"
LARGE = CANARY + "".join(str(number * number) for number in range(20_000))
CONTENT = ("sessions", "names", "events", "blobs", "leases", "snapshots", "words")
OTHERS = ("members", "tenants", "reads")


class Town:
    """One database with a victim, an attacker, an auditor of the victim, and a service that serves all."""

    def __init__(self, stores: Stores) -> None:
        self.admin = stores.empty_database()
        self.server = stores.server
        self.database = self.admin.partition("?")[0].rpartition("/")[2]
        schema.initialise(address_of(self.admin), schema.Roles())
        self.logins = {name: f"{name}_{self.database}" for name in ("acme", "mallory", "auditor", "both")}
        for login in self.logins.values():
            self.server.execute(f"CREATE ROLE {login} LOGIN")
        self.grant("acme", "acme")
        self.grant("mallory", "mallory")
        self.grant("auditor", "acme", "auditor")
        self.grant("both", "mallory")
        self.grant("both", "acme", "auditor")
        self.bench = _Bench(self.url("acme"))
        store = self.bench.store
        self.session = self.bench.open("secret-work", project="/secret")
        store.append(self.session, [self.bench.draft(data={"text": CANARY}), self.bench.draft(data={"text": LARGE})])
        store.acquire(self.session, "main", {"host": "h", "boot": "b", "pid": 1, "started": "s", "handle": "h"})
        store.search(CANARY)
        self.run("acme", f"INSERT INTO onrecord.snapshots VALUES ('acme', '{self.session}', 'v', 1, '', '{CANARY}')")

    def grant(self, who: str, tenant: str, role: str = "writer") -> bool:
        return people.grant(address_of(self.admin), self.logins[who], role, tenant)

    def url(self, who: str, tenant: str | None = None) -> str:
        login = self.logins.get(who, who)
        return with_tenant(self.admin.replace(f"//{OWNER}@", f"//{login}@"), tenant or who)

    @contextlib.contextmanager
    def as_(self, who: str, tenant: str | None = "acme") -> Iterator[psycopg.Connection[Any]]:
        """A bare connection of a login, with the tenant of its choice in the setting."""
        with psycopg.connect(self.admin.replace(f"//{OWNER}@", f"//{self.logins.get(who, who)}@")) as connection:
            connection.autocommit = True
            if tenant is not None:
                connection.execute("SELECT set_config('onrecord.tenant', %s, FALSE)", [tenant])
            yield connection

    def run(self, who: str, *statements: str, tenant: str | None = "acme") -> list[tuple[Any, ...]]:
        with self.as_(who, tenant) as connection:
            return _run(connection, *statements)


def _run(connection: psycopg.Connection[Any], *statements: str) -> list[tuple[Any, ...]]:
    found: list[tuple[Any, ...]] = []
    for statement in statements:
        cursor = connection.execute(statement.encode())
        found = cursor.fetchall() if cursor.description else []
    return found


class _Bench(Workbench):
    """The victim's store."""

    store: PostgresStore

    def __init__(self, url: str) -> None:
        self.url = url
        self.setup_method()

    def make_store(self) -> PostgresStore:
        return PostgresStore(self.url)


@pytest.fixture(scope="module")
def town(postgres: Stores) -> Iterator[Town]:
    made = Town(postgres)
    yield made
    made.bench.teardown_method()


def counts(town: Town, who: str, tables: tuple[str, ...] = CONTENT, tenant: str | None = "acme") -> list[int]:
    with town.as_(who, tenant) as connection:
        return [_run(connection, f"SELECT count(*) FROM onrecord.{table}")[0][0] for table in tables]


def test_naming_another_tenant_shows_nothing(town):
    """The setting names the victim, every tenant, none, or SQL: the attacker sees no row. The victim sees its own."""
    assert all(counts(town, "acme")), "the control: there is something in every table"
    for tenant in ("acme", "*", "", "ACME", "acme' OR 'a'='a", "mallory", None):
        assert not any(counts(town, "mallory", tenant=tenant)), tenant
    assert not any(counts(town, "mallory", ("tenants", "reads")))
    assert town.run("mallory", "SELECT DISTINCT login FROM onrecord.members") == [(town.logins["mallory"],)]


def test_the_store_refuses_in_one_sentence(town):
    """A URL with another tenant is refused before anything is read, in the same words whether that tenant exists or not."""
    said = []
    for tenant in ("acme", "nobody"):
        with pytest.raises(TenantRefused) as refusal:
            PostgresStore(town.url("mallory", tenant))
        said.append(str(refusal.value).replace(tenant, "TENANT"))
        assert refusal.value.details == {"login": town.logins["mallory"], "tenant": tenant}
    assert said[0] == said[1]
    PostgresStore(town.url("mallory")).close()


ESCALATIONS = {
    "the owner's role": "SET ROLE {owner}",
    "the victim's role": "SET ROLE {victim}",
    "the victim's login": "SET SESSION AUTHORIZATION {victim}",
    "a membership of its own": "INSERT INTO onrecord.members VALUES ('acme', session_user, 'writer', 0, 'me')",
    "a wider membership": "UPDATE onrecord.members SET tenant = 'acme'",
    "nobody else's membership": "DELETE FROM onrecord.members",
    "no audit": "UPDATE onrecord.tenants SET audited_from = NULL",
    "no trace": "DELETE FROM onrecord.reads",
    "a trace of another": "INSERT INTO onrecord.reads VALUES ('acme', 's', 'x', 0, 0)",
    "no policy": "ALTER TABLE onrecord.events DISABLE ROW LEVEL SECURITY",
    "another policy": "CREATE POLICY mine ON onrecord.events USING (TRUE)",
    "another function": "CREATE OR REPLACE FUNCTION onrecord.found(TEXT, TEXT, TEXT, BIGINT) RETURNS INT LANGUAGE sql AS 'SELECT 1'",
    "the rights of a group": "GRANT {owner} TO {attacker}",
    "a role": "CREATE ROLE helper SUPERUSER",
    "no binding": "ALTER ROLE {attacker} BYPASSRLS",
    "a file": "COPY onrecord.events TO '/tmp/loot'",
    "a program": "COPY onrecord.events TO PROGRAM 'cat'",
    "a backdoor in the schema": "CREATE FUNCTION onrecord.mine() RETURNS INT LANGUAGE sql AS 'SELECT 1'",
}


@pytest.mark.parametrize("wanted", ESCALATIONS)
def test_no_statement_gives_more_rights(town, wanted):
    """Roles, memberships, policies, functions, files: what would widen its rights is not allowed."""
    names = {"owner": schema.OWNER, "victim": town.logins["acme"], "attacker": town.logins["mallory"]}
    with town.as_("mallory") as connection, pytest.raises(psycopg.errors.InsufficientPrivilege):
        connection.execute(ESCALATIONS[wanted].format(**names).encode())


def test_what_an_administrator_may(town):
    """The control of the escalations: one that takes rights is allowed to the role that may take them."""
    assert town.run(OWNER, f"SET ROLE {schema.OWNER}", "SELECT current_user") == [(schema.OWNER,)]
    assert town.run(
        OWNER, f"SET SESSION AUTHORIZATION {town.logins['acme']}", "SELECT count(*) > 0 FROM onrecord.events"
    ) == [(True,)]


def test_switching_row_security_off_is_an_error(town):
    """`SET row_security = off` makes a query fail instead of showing more."""
    with town.as_("mallory") as connection:
        connection.execute("SET row_security = off")
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute("SELECT count(*) FROM onrecord.events")
    assert town.run(OWNER, "SET row_security = off", "SELECT count(*) > 0 FROM onrecord.events") == [(True,)]


def test_a_function_of_the_attacker_sees_no_foreign_row(town):
    """A cheap function in the condition is not called with rows that the policy hides; by the superuser it is."""
    spy = (
        "CREATE FUNCTION pg_temp.spy(seen TEXT) RETURNS BOOLEAN LANGUAGE plpgsql COST 0.0000001 AS"
        " $$BEGIN RAISE NOTICE 'saw %', seen; RETURN TRUE; END$$"
    )
    for who, heard in (("mallory", False), (OWNER, True)):
        with town.as_(who) as connection:
            notices: list[str] = []
            connection.add_notice_handler(lambda one, kept=notices: kept.append(str(one.message_primary)))
            _run(connection, spy, "SELECT count(*) FROM onrecord.events WHERE pg_temp.spy(session)")
            _run(connection, "SELECT count(*) FROM onrecord.members WHERE pg_temp.spy(login)")
            assert any("saw" in one and town.logins["mallory"] not in one for one in notices) is heard, who


def test_names_of_the_attacker_stand_for_nothing_of_ours(town):
    """Temporary tables and functions, and any search path, change neither the policies nor the functions of the owner."""
    path = (
        "CREATE TEMP TABLE members AS SELECT 'acme' AS tenant, session_user::text AS login, 'writer' AS role",
        "CREATE FUNCTION pg_temp.current_setting(TEXT, BOOLEAN) RETURNS TEXT LANGUAGE sql AS $$SELECT 'acme'$$",
        "CREATE FUNCTION pg_temp.session_user() RETURNS NAME LANGUAGE sql AS $$SELECT 'acme'::name$$",
        "CREATE FUNCTION pg_temp.pg_has_role(OID, NAME, TEXT) RETURNS BOOLEAN LANGUAGE sql AS 'SELECT TRUE'",
        "SET search_path = pg_temp, onrecord, pg_catalog",
    )
    look = (
        f"SELECT count(*) FROM onrecord.events UNION ALL SELECT count(*) FROM onrecord.found('{CANARY}', NULL, NULL, 9)"
    )
    assert town.run("mallory", *path, look) == [(0,), (0,)]
    assert town.run("acme", *path, "SELECT count(*) > 0 FROM onrecord.events") == [(True,)]


def test_functions_of_the_owner_serve_members_only(town):
    """Search, erasure, large payloads and signatures do nothing for a tenant that the login is no member of."""
    words = "(SELECT string_agg(quote_literal(lexeme), ' | ') FROM (SELECT %s AS lexeme) AS x)"
    ((lexeme,),) = town.run(
        "acme", "SELECT lexeme FROM onrecord.words, unnest(words) WHERE lexeme LIKE '%canary' LIMIT 1"
    )
    search = f"SELECT count(*) FROM onrecord.found({words % repr(lexeme)}, NULL, NULL, 9)"
    erase = f"SELECT onrecord.erase('{town.session}', ARRAY[2]::bigint[], 3)"
    drop = "SELECT onrecord.drop_unused(ARRAY(SELECT '\\x00'::bytea))"
    sign = f"SELECT onrecord.sign(ARRAY['{town.session}'])"
    assert town.run("acme", search)[0][0] > 0
    assert [town.run("mallory", one) for one in (search, erase, drop, sign)] == [[(0,)]] * 4
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        town.run("mallory", "SELECT onrecord.keep(ARRAY['\\x00'::bytea], ARRAY[1::bigint], ARRAY['\\x00'::bytea])")
    assert town.run("acme", "SELECT onrecord.keep(ARRAY['\\x00'::bytea], ARRAY[0::bigint], ARRAY['\\x00'::bytea])") == [
        (1,)
    ]
    assert town.run("acme", drop) == [(1,)], "the control: the same call by a member"


def test_a_prepared_statement_keeps_nothing(town):
    """A plan that was prepared under one tenant or role shows nothing of another later."""
    with town.as_("both", "mallory") as connection:
        _run(connection, "PREPARE look AS SELECT count(*) FROM onrecord.events", "EXECUTE look")
        connection.execute("SET onrecord.tenant = 'acme'")
        for _again in range(8):  # long enough for a generic plan
            assert _run(connection, "EXECUTE look")[0][0] > 0, "the control: an auditor of the other tenant"
        people.revoke(address_of(town.admin), town.logins["both"], "acme")
        try:
            assert _run(connection, "EXECUTE look") == [(0,)], "revoking holds at once, in open connections too"
        finally:
            town.grant("both", "acme", "auditor")
        assert _run(connection, "EXECUTE look")[0][0] > 0


def test_copies_cursors_and_views_show_the_same(town):
    """COPY, a cursor, a view of its own and a query by physical position are under the same policies."""

    def loot(who: str) -> list[Any]:
        with town.as_(who) as connection:
            with connection.cursor().copy("COPY (SELECT * FROM onrecord.events) TO STDOUT") as copy:
                copied = b"".join(bytes(part) for part in copy)
            _run(connection, "CREATE TEMP VIEW mine AS SELECT * FROM onrecord.events")
            with connection.transaction():
                _run(connection, "DECLARE c CURSOR FOR SELECT 1 FROM onrecord.events")
                fetched = _run(connection, "FETCH ALL FROM c")
            seen = _run(connection, "SELECT * FROM mine") + _run(connection, "TABLE onrecord.events")
            seen += _run(connection, "SELECT 1 FROM onrecord.events WHERE ctid = ANY (ARRAY['(0,1)'::tid, '(0,2)'])")
            return [copied, fetched, seen]

    assert loot("mallory") == [b"", [], []]
    assert all(loot("acme"))
    with town.as_("mallory") as connection, pytest.raises(psycopg.errors.FeatureNotSupported):
        connection.execute("COPY onrecord.events FROM STDIN")


WRITES = {
    "an event": "INSERT INTO onrecord.events SELECT 'acme', '{session}', 99, 'x', 'item.added', 1, 0, 'x', 1, NULL, '', '', '', 0, ''",
    "a session": "INSERT INTO onrecord.sessions (tenant, session, project, name, position, hash, run, status, title, opened_at, at, held, forked_at, moment) VALUES ('acme', 'new', 'p', 'n', 0, '', 0, 'open', '', 0, 0, FALSE, 0, 0)",
    "a name": "INSERT INTO onrecord.names VALUES ('acme', 'p', 'n', 's')",
    "a lease": "INSERT INTO onrecord.leases VALUES ('acme', '{session}', 'x', 1, 'x', 0, 0, 0)",
    "a snapshot": "INSERT INTO onrecord.snapshots VALUES ('acme', '{session}', 'x', 1, '', '')",
    "words": "INSERT INTO onrecord.words VALUES ('acme', '{session}', 99, NULL)",
    "a large payload": "INSERT INTO onrecord.blobs VALUES ('acme', 'x', 1, '')",
}
CHANGES = {
    "a head": "UPDATE onrecord.sessions SET held = FALSE, position = 0",
    "a tenant": "UPDATE onrecord.sessions SET tenant = 'mallory'",
    "a lease": "UPDATE onrecord.leases SET holder = NULL",
    "a snapshot": "UPDATE onrecord.snapshots SET body = ''",
    "a count": "UPDATE onrecord.blobs SET uses = 0",
    "snapshots": "DELETE FROM onrecord.snapshots",
    "words": "DELETE FROM onrecord.words",
    "names": "DELETE FROM onrecord.names",
}


@pytest.mark.parametrize("who", ["mallory", "both"])
@pytest.mark.parametrize("what", [*WRITES, *CHANGES])
def test_nothing_is_written_for_another_tenant(town, who, what):
    """Neither a stranger nor an auditor who writes elsewhere can insert a row for the tenant, or change or delete one."""
    if what in WRITES:
        with town.as_(who) as connection, pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute(WRITES[what].format(session=town.session).encode())
    if what in CHANGES:
        with town.as_(who) as connection:
            assert connection.execute(CHANGES[what].encode()).rowcount == 0


@pytest.mark.parametrize("what", [*WRITES, *CHANGES])
def test_a_writer_of_the_tenant_may(town, what):
    """The control: the same statements by the tenant's own login have an effect. (They are rolled back.)"""
    with town.as_("acme") as connection:
        for statement in (WRITES.get(what), CHANGES.get(what)):
            if statement is None:
                continue
            connection.autocommit = False
            connection.execute("SELECT set_config('onrecord.tenant', 'acme', FALSE)")
            try:
                assert connection.execute(statement.format(session=town.session).encode()).rowcount > 0
            except psycopg.errors.InsufficientPrivilege:
                assert what == "a tenant", "not even its own sessions can be given away"
            finally:
                connection.rollback()


def test_a_session_cannot_be_given_away(town):
    """A writer cannot move rows into a tenant that it is no member of."""
    with town.as_("mallory", "mallory") as connection, pytest.raises(psycopg.errors.InsufficientPrivilege):
        connection.execute("INSERT INTO onrecord.names VALUES ('acme', 'p', 'planted', 's')")
    assert town.run("acme", "SELECT count(*) FROM onrecord.names WHERE name = 'planted'") == [(0,)]


def test_locks_and_notifications_of_one_tenant_do_not_reach_another(town):
    """Advisory locks block no other login, a row of the victim cannot be locked, and notifications carry no name or id."""
    with town.as_("mallory") as connection:
        _run(connection, "SELECT pg_advisory_lock(n) FROM generate_series(1, 100) AS n", "LISTEN onrecord")
        with connection.transaction():
            assert _run(connection, "SELECT 1 FROM onrecord.sessions FOR UPDATE") == []
            town.bench.add(town.session, "item.added")  # it does not wait
        loud = PostgresStore(town.url("acme") + "&notify=on")
        try:
            loud.append(town.session, [town.bench.draft()])
        finally:
            loud.close()
        heard = [one.payload for one in connection.notifies(timeout=90, stop_after=1)]
    assert len(heard) == 1, "the control: there was a notification"
    for secret in ("acme", town.session, "secret-work"):
        assert secret not in heard[0]


def test_the_activity_of_others_is_hidden(town):
    """The queries of another login are hidden, and statistics of columns are not shown."""
    town.run(OWNER, "ANALYZE onrecord.events")
    with town.as_("acme") as victim:
        _run(victim, f"SELECT '{CANARY}'")
        look = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%canary-of-acm%' AND pid <> pg_backend_pid()"
        assert town.run("mallory", look) == [(0,)]
        assert town.run(OWNER, look)[0][0] > 0
    stats = "SELECT count(*) FROM pg_stats WHERE schemaname = 'onrecord' AND tablename = 'events'"
    assert town.run("mallory", stats) == [(0,)]
    assert town.run(OWNER, stats)[0][0] > 0


def test_an_auditor_reads_and_writes_nothing(town):
    """An auditor reads, searches and verifies through the store; every write is refused, by the store and by the server."""
    with contextlib.closing(PostgresStore(town.url("auditor", "acme"))) as store:
        assert store.read(town.session) == town.bench.store.read(town.session)
        assert store.search("canary")
        head = store.head(town.session)
        for write in (
            lambda: store.append(town.session, [town.bench.draft()]),
            lambda: store.acquire(
                town.session, "x", {"host": "h", "boot": "b", "pid": 1, "started": "s", "handle": "h"}
            ),
            lambda: store.erase(town.session, [2], town.bench.draft("payload.erased", {"ranges": [[2, 2]]})),
            lambda: store.install(head, iter(()), extend=True),
            store.tidy,
        ):
            with pytest.raises(StoreReadOnly):
                write()
    for statement in [*WRITES.values(), *CHANGES.values(), "SELECT onrecord.erase('s', ARRAY[2]::bigint[], 3)"]:
        with town.as_("auditor") as connection, pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute(statement.format(session=town.session).encode())
    with pytest.raises(TenantRefused):
        PostgresStore(town.url("auditor", "mallory"))


def test_one_login_may_write_here_and_only_read_there(town):
    """A login that writes for one tenant and audits another gets a clear refusal there, and nothing is written."""
    before = town.bench.store.head(town.session)
    with contextlib.closing(PostgresStore(town.url("both", "acme"))) as store, pytest.raises(StoreReadOnly) as refusal:
        store.append(town.session, [town.bench.draft()])
    assert "is an auditor of tenant acme" in str(refusal.value)
    assert town.bench.store.head(town.session) == before
    bench = _Bench(town.url("both", "mallory"))
    try:
        bench.add(bench.open(), "item.added")
    finally:
        bench.teardown_method()


def test_who_is_who(town):
    """The owner sees every member and who is bound by nothing; a login sees itself."""
    members, everybody = people.who(address_of(town.admin), None)
    found = {(member.login, member.tenant, member.role) for member in members}
    assert everybody
    assert {
        (APP, "default", "writer"), (town.logins["acme"], "acme", "writer"), (town.logins["auditor"], "acme", "auditor"),
        (OWNER, "*", "owner"),
    } <= found  # fmt: skip
    mine, everybody = people.who(address_of(town.url("mallory")), None)
    assert [(member.login, member.tenant) for member in mine] == [(town.logins["mallory"], "mallory")]
    assert not everybody


@pytest.mark.parametrize("change", ["grant", "revoke", "audit", "retain"])
def test_only_the_owner_decides(town, change):
    """A member can change neither members nor the audit nor the retention of any tenant, its own included."""
    place = address_of(town.url("mallory"))
    calls: dict[str, Callable[[], Any]] = {
        "grant": lambda: people.grant(place, town.logins["mallory"], "writer", "acme"),
        "revoke": lambda: people.revoke(place, town.logins["acme"], "acme"),
        "audit": lambda: people.audit(place, on=True),
        "retain": lambda: people.retain(place, {"erase_closed_after": 0}),
    }
    with pytest.raises(StoreReadOnly) as refusal:
        calls[change]()
    assert "the role that created the store" in refusal.value.hint
