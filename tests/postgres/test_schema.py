"""The schema in PostgreSQL: it is the sum of its migrations, portable, and migrated while clients work."""

import re
import threading
from pathlib import Path

import psycopg
import pytest

from onrecord.errors import StoreBusy, StoreError, StoreReadOnly, StoreTooNew
from onrecord.stores import statements
from onrecord.stores.postgres import PostgresStore, connections, schema, store
from onrecord.stores.postgres.address import address_of
from onrecord.testing import derived
from tests.postgres.servers import APP, OWNER, Stores

SQL = Path(statements.SQL) / "postgres"
OF_SESSIONS = ("sessions", "events", "leases", "snapshots", "words", "reads")
FORBIDDEN = (
    r"\bserial\b", r"bigserial", r"\bsequence\b", r"nextval", r"\bidentity\b", r"advisory", r"\block\s+table\b",
    r"\btrigger\b", r"deferrable", r"\btemp(orary)?\s+(table|view)\b", r"plpgsql", r"\bdo\s+\$", r"unlogged", r"\bctid\b",
    r"\binherits\b", r"create\s+extension", r"\blisten\b", r"\btruncate\b",
)  # fmt: skip

FIRST_GRANTS = """
GRANT USAGE ON SCHEMA onrecord TO {app};

GRANT SELECT ON onrecord.meta TO {app};

GRANT SELECT, INSERT, UPDATE ON onrecord.sessions TO {app};

GRANT SELECT, INSERT, DELETE ON onrecord.names TO {app};

GRANT SELECT, INSERT ON onrecord.events TO {app};

GRANT SELECT, INSERT, UPDATE (uses) ON onrecord.blobs TO {app};

GRANT SELECT, INSERT, UPDATE ON onrecord.leases TO {app};

GRANT SELECT, INSERT, UPDATE, DELETE ON onrecord.snapshots TO {app};

GRANT SELECT, INSERT, DELETE ON onrecord.words TO {app};

GRANT EXECUTE ON FUNCTION onrecord.found(TEXT, TEXT, TEXT, BIGINT), onrecord.erase(TEXT, BIGINT[], BIGINT),
    onrecord.drop_unused(BYTEA[]) TO {app};
"""


class Unasked:
    """The membership of a client that is older than memberships: it neither asks nor signs."""

    def __init__(self, _connections: object) -> None: ...

    def writes(self) -> None: ...

    def sign(self, *_sessions: str) -> None: ...


def as_app(url: str) -> str:
    return url.replace(f"//{OWNER}@", f"//{APP}@")


def make_as(postgres: Stores, monkeypatch: pytest.MonkeyPatch, text: str, version: int) -> str:
    """A database with a store as another version of onrecord would create it."""
    url = postgres.empty_database()
    with monkeypatch.context() as other:
        other.setattr(schema, "load", lambda _store, name: text if name == "schema.sql" else FIRST_GRANTS)
        other.setattr(schema, "SCHEMA_VERSION", version)
        other.setattr(schema, "_bind", lambda *_arguments: None)  # the first schema knew no members
        schema.initialise(address_of(url), schema.Roles())
    return url


@pytest.fixture
def first(postgres, monkeypatch) -> str:
    """A store of the first schema; the superuser's URL."""
    return make_as(postgres, monkeypatch, statements.migration("postgres", 1), 1)


def dumped(postgres: Stores, url: str) -> str:
    text = postgres.server.site.run("pg_dump", "--schema-only", url)
    return "\n".join(line for line in text.splitlines() if not line.startswith(("\\restrict", "\\unrestrict", "--")))


def test_the_schema_is_the_sum_of_its_migrations(postgres, first):
    """A new store and one with every migration applied are the same, grants and policies included."""
    fresh = postgres.empty_database()
    schema.initialise(address_of(fresh), schema.Roles())
    done = schema.migrate(address_of(first))
    assert (done.before, done.after) == (1, schema.SCHEMA_VERSION)
    assert dumped(postgres, first) == dumped(postgres, fresh)
    assert schema.migrate(address_of(first)).before == schema.SCHEMA_VERSION
    assert dumped(postgres, first) == dumped(postgres, fresh)


def test_a_store_is_made_once(postgres):
    """Creating a store where one exists changes nothing and reports the existing one."""
    url = postgres.empty_database()
    assert schema.initialise(address_of(url), schema.Roles()).before == 0
    before = dumped(postgres, url)
    again = schema.initialise(address_of(url), schema.Roles("somebody", "else"))
    assert again == (schema.SCHEMA_VERSION, schema.SCHEMA_VERSION, schema.Roles())
    assert dumped(postgres, url) == before


@pytest.mark.parametrize(
    ("facts", "error", "said"),
    [
        ({"schema": 99, "usable_from": 99}, StoreTooNew, "upgrade onrecord"),
        ({"schema": 1}, StoreError, "migrate the store"),
        ({"schema": 99, "usable_from": 1}, None, ""),
    ],
)
def test_only_a_schema_that_fits_is_opened(postgres, facts, error, said):
    """A newer schema is refused unless it allows older clients; an older one must be migrated first."""
    url = postgres.fresh_database()
    database = url.partition("?")[0].rpartition("/")[2]
    for name, value in facts.items():
        postgres.server.execute(f"UPDATE onrecord.meta SET value = '{value}' WHERE name = '{name}'", database=database)
    if error is None:
        PostgresStore(url).close()
        return
    with pytest.raises(error) as refusal:
        PostgresStore(url)
    assert said in refusal.value.hint


def test_a_database_without_a_store_says_how_to_make_one(postgres):
    """Opening or migrating a database without a store is an error with the command that creates one; nothing is created."""
    url = postgres.empty_database()
    for attempt in (lambda: PostgresStore(url), lambda: schema.migrate(address_of(url))):
        with pytest.raises(StoreError) as refusal:
            attempt()
        assert "create the store first" in refusal.value.hint


def test_nothing_in_the_sql_is_peculiar_to_one_server():
    """No sequence, trigger, advisory or table lock, deferred constraint, temporary table or extension in any SQL file."""
    files = sorted(SQL.rglob("*.sql"))
    assert len(files) >= 6
    for file in files:
        code = re.sub(r"--[^\n]*", "", file.read_text(encoding="utf-8")).lower()
        for pattern in FORBIDDEN if file.name != "waking.sql" else set(FORBIDDEN) - {r"\blisten\b"}:
            assert not re.search(pattern, code), f"{file.name} has {pattern}"


def test_the_tenant_leads_every_key(postgres):
    """Every unique key begins with the tenant, and with tenant and session where rows belong to a session."""
    postgres.empty_store()
    query = (
        "SELECT c.relname, i.indisunique, array_agg(a.attname::text ORDER BY k.place) FROM pg_index AS i"
        " JOIN pg_class AS c ON c.oid = i.indrelid JOIN pg_namespace AS n ON n.oid = c.relnamespace,"
        " unnest(i.indkey::int[]) WITH ORDINALITY AS k (number, place)"
        " JOIN pg_attribute AS a ON a.attnum = k.number WHERE n.nspname = 'onrecord' AND a.attrelid = i.indrelid"
        " GROUP BY c.relname, i.indexrelid, i.indisunique"
    )
    found = postgres.server.execute(query, database=postgres.shared())
    assert {str(row[0]) for row in found} == {
        *OF_SESSIONS, "names", "blobs", "meta", "members", "tenants",
    }  # fmt: skip
    for table, unique, columns in found:
        if table == "meta" or columns == ["words"]:
            continue
        assert isinstance(columns, list)
        assert columns[0] == "tenant", (table, columns)
        if unique and table in OF_SESSIONS:
            assert columns[:2] == ["tenant", "session"], (table, columns)


def test_clients_work_while_the_schema_is_migrated(first, monkeypatch, make_bench, postgres):
    """A client of the older schema appends all the time, before, during and after; a new one joins it in the same log."""
    postgres.server.execute(f"GRANT {schema.AUDITOR} TO {APP}")  # it may be an auditor in another database
    with monkeypatch.context() as older:
        older.setattr(schema, "SCHEMA_VERSION", 1)
        older.setattr(store, "Membership", Unasked)
        old = make_bench(as_app(first))
    # Nor did it know sessions with a key of their own.
    old.store._cipher = old.store._new_cipher = lambda _session: None
    knew = connections.QUERIES["add_session"].replace(b",\n        key_id)", b")").replace(b", %(key_id)s", b"")
    with monkeypatch.context() as older:
        older.setitem(connections.QUERIES, "add_session", knew)
        session = old.open()
    over, problems = threading.Event(), []

    def append() -> None:
        try:
            while not over.is_set():
                old.store.append(session, [old.draft()])
        except Exception as problem:  # noqa: BLE001  # told by the test
            problems.append(problem)

    writer = threading.Thread(target=append)
    writer.start()
    try:
        before = old.store.head(session).position
        schema.migrate(address_of(first))
        new = make_bench(as_app(first))
        for number in range(20):
            new.store.append(session, [new.draft(id=f"link/new/{number}")])
    finally:
        over.set()
        writer.join()
    assert problems == []
    old.store.append(session, [old.draft(id="link/old/1")])
    assert new.store.linked("link/old/1") == [session]
    records = new.store.read(session)
    assert len(records) > before + 20
    assert derived(records) == old.store.head(session).hash


def test_a_migration_that_was_cut_off_can_be_taken_again(first, monkeypatch, postgres):
    """A migration that cannot get its lock gives up in time and leaves nothing that blocks the next one."""
    monkeypatch.setattr(schema, "LOCK_SECONDS", 0.0)
    with psycopg.connect(first) as reader:
        reader.execute("INSERT INTO onrecord.meta VALUES ('busy', '')")
        reader.execute("LOCK TABLE onrecord.events IN ROW EXCLUSIVE MODE")
        with pytest.raises(StoreBusy):
            schema.migrate(address_of(first))
        reader.rollback()
    done = schema.migrate(address_of(first))
    assert (done.before, done.after) == (1, schema.SCHEMA_VERSION)
    query = "SELECT count(*) FROM pg_index WHERE NOT indisvalid"
    assert postgres.server.execute(query, database=first.partition("?")[0].rpartition("/")[2]) == [(0,)]


def test_a_store_is_made_and_migrated_by_an_ordinary_administrator(postgres, make_bench):
    """No superuser is needed: a role that owns the database and may create roles creates the store and migrates it."""
    url = postgres.empty_database()
    database = url.partition("?")[0].rpartition("/")[2]
    admin, roles = f"admin_{database}", schema.Roles(f"owner_{database}", f"app_{database}")
    postgres.server.execute(f"CREATE ROLE {admin} LOGIN CREATEROLE", f"ALTER DATABASE {database} OWNER TO {admin}")
    place = address_of(url.replace(f"//{OWNER}@", f"//{admin}@"))
    assert schema.initialise(place, roles).roles == roles
    assert schema.migrate(place).after == schema.SCHEMA_VERSION
    app = url.replace(f"//{OWNER}@", f"//{roles.app}@")
    bench = make_bench(app)
    bench.add(bench.open(), "item.added")
    with pytest.raises(StoreReadOnly) as refusal:
        schema.migrate(address_of(app))
    assert "to migrate, connect as the role that created it" in refusal.value.hint
