"""Hash partitions: the same store, contract and promises on tables partitioned by (tenant, session)."""

import re

import pytest

from onrecord.connection import open_store
from onrecord.session.session_store import SessionStore
from onrecord.stores import statements
from onrecord.stores.postgres import PostgresStore, people, schema
from onrecord.stores.postgres.address import address_of
from onrecord.testing import StoreContract
from tests.crash.ledger import Ack, acks_in, complaints
from tests.crash.nursery import Nursery
from tests.postgres.servers import OWNER, Stores

PARTITIONS = 4
KEYS = {
    "sessions": "tenant, session",
    "events": "tenant, session",
    "leases": "tenant, session",
    "snapshots": "tenant, session",
    "words": "tenant, session",
    "names": "tenant, project, name",
    "blobs": "tenant, key",
}
TABLE = re.compile(r"(CREATE TABLE onrecord\.(\w+) \(.*?\n\));\n", re.DOTALL)


def partitioned(text: str) -> str:
    """The schema with every table of a tenant partitioned by hash, and no other difference."""

    def split(found: re.Match[str]) -> str:
        whole, table = found.group(1), found.group(2)
        if table not in KEYS:
            return found.group(0)
        parts = [
            f"CREATE TABLE onrecord.{table}_{part} PARTITION OF onrecord.{table} "
            f"FOR VALUES WITH (MODULUS {PARTITIONS}, REMAINDER {part});\n"
            for part in range(PARTITIONS)
        ]
        return "\n".join([f"{whole} PARTITION BY HASH ({KEYS[table]});\n", *parts])

    return TABLE.sub(split, text)


@pytest.fixture(scope="module")
def database(postgres: Stores) -> str:
    """The app role's URL of a database with partitioned tables."""
    url = postgres.empty_database()
    patch = pytest.MonkeyPatch()
    patch.setattr(schema, "load", _changed)
    try:
        schema.initialise(address_of(url), schema.Roles())
        people.grant(address_of(url), schema.APP, schema.WRITER, people.EVERY_TENANT)
    finally:
        patch.undo()
    return url.replace(f"//{OWNER}@", f"//{schema.APP}@")


def _changed(store: str, name: str) -> str:
    text = statements.load(store, name)
    return partitioned(text) if name == "schema.sql" else text


class TestOnPartitions(StoreContract):
    """The store contract on partitioned tables."""

    database: str
    made = 0

    @pytest.fixture(autouse=True, scope="class")
    @classmethod
    def _split(cls, database):
        cls.database = database

    def make_store(self):
        type(self).made += 1
        return PostgresStore(f"{self.database}&tenant=contract{self.made}", clock=self.clock)


def test_every_table_of_sessions_is_split(postgres: Stores, database: str):
    """The tables are partitioned, and every table with rows has them in more than one partition."""
    with SessionStore(open_store(f"{database}&tenant=spread")) as records:
        for number in range(20):
            with records.open(f"session-{number}") as session:
                session.record_turn([{"role": "user", "content": f"plover {number} " * 10_000}])
        assert len(records.search("plover")) == 20
        assert len(records.sessions(project="")) == 20
    name = database.rpartition("/")[2].partition("?")[0]
    kinds = postgres.server.execute(
        "SELECT relname, relkind FROM pg_class WHERE relnamespace = 'onrecord'::regnamespace AND relname = ANY "
        f"('{{{','.join(KEYS)}}}')",
        database=name,
    )
    assert dict(kinds) == dict.fromkeys(KEYS, "p")  # type: ignore[arg-type]  # rows of two
    for table in ("sessions", "events", "leases", "names", "blobs"):
        filled = postgres.server.execute(f"SELECT count(DISTINCT tableoid) FROM onrecord.{table}", database=name)
        assert int(str(filled[0][0])) > 1, table


def test_a_session_is_read_from_one_part(postgres: Stores, database: str):
    """An append and a read touch one partition: the plan names one table, so a hundred cost the same as one."""
    name = database.rpartition("/")[2].partition("?")[0]
    plan = postgres.server.execute(
        "EXPLAIN SELECT * FROM onrecord.events WHERE tenant = 'a' AND session = 'b' AND position > 5 ORDER BY position",
        database=name,
    )
    assert len(set(re.findall(r"events_\d\b", str(plan)))) == 1


def test_writers_meet_on_split_tables(database: str, nursery: Nursery):
    """Eight processes, killed in the middle: dense, chained, nothing acknowledged lost."""
    url = f"{database}&tenant=writers"
    workers = [
        nursery.start("write_through_failovers", path=url, session=f"session-{number // 2}", agent=f"agent-{number}")
        for number in range(8)
    ]
    acks: list[Ack] = []
    for worker in workers:
        acks += acks_in([worker.line(), worker.line(), worker.line()])
    for worker in workers:
        acks += acks_in(worker.kill())
    assert complaints(url, acks) == []
