"""A SQL user with the app role wants to erase what a hold protects, or what no event says was erased."""

import threading

import psycopg
import pytest

from onrecord.errors import InvalidInput
from onrecord.stores.postgres import PostgresStore, schema
from onrecord.stores.postgres.address import address_of
from onrecord.testing.tools import Workbench

pytestmark = pytest.mark.timeout(120)


class Bench(Workbench):
    """A workbench on one store."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.setup_method()

    def make_store(self) -> PostgresStore:
        return PostgresStore(self.url)


@pytest.fixture
def bench(postgres):
    made = Bench(postgres.empty_store())
    yield made
    made.teardown_method()


def as_app(bench: Bench, *statements: str) -> list[tuple[object, ...]]:
    """Run SQL as the app role, in the tenant of the store."""
    address = address_of(bench.url)
    with psycopg.connect(address.conninfo) as connection:
        connection.execute("SELECT set_config('onrecord.tenant', %s, FALSE)", (address.tenant,))
        found: list[tuple[object, ...]] = []
        for statement in statements:
            cursor = connection.execute(statement.encode())
            found = cursor.fetchall() if cursor.description else []
        return found


def test_a_hold_cannot_be_lifted_in_its_row(bench):
    """Setting `held` to false lets nothing be erased: the log says that there is a hold. A released one lets it."""
    session = bench.open()
    bench.add(session, "item.added", "session.held")
    said = bench.draft("payload.erased", {"ranges": [[2, 2]], "scope": "positions", "count": 1, "reason": "x"})
    bench.store.append(session, [said])
    take = f"SELECT onrecord.erase('{session}', ARRAY[2]::bigint[], 4)"
    lift = f"UPDATE onrecord.sessions SET held = FALSE WHERE session = '{session}'"
    assert as_app(bench, lift, take) == [(0,)]
    assert bench.store.read(session)[1].payload is not None
    bench.add(session, "session.released")
    assert as_app(bench, lift, take) == [(1,)], "the control: released on record"


def test_only_what_the_event_names_is_erased(bench):
    """`erase` takes nothing that the erasure event does not name, and nothing after it."""
    session = bench.open()
    bench.add(session, "item.added", "item.added", "item.added")
    many = [[number, number] for number in (3, *range(100, 3_000, 2))]  # long enough to be compressed elsewhere
    said = bench.draft("payload.erased", {"ranges": many, "scope": "positions", "count": 1, "reason": "x"})
    bench.store.append(session, [said])
    assert as_app(bench, f"SELECT onrecord.erase('{session}', ARRAY[1, 2, 3, 4, 5]::bigint[], 5)") == [(1,)]
    kept = [record.payload is not None for record in bench.store.read(session)]
    assert kept == [True, True, False, True, True]


def test_several_may_make_the_same_store_at_once(postgres):
    """Four `store init` at the same moment all succeed, and one of them made it."""
    url = postgres.empty_database()
    done: list[object] = []

    def make() -> None:
        try:
            done.append(schema.initialise(address_of(url), schema.Roles()).before)
        except Exception as problem:  # noqa: BLE001  # shown by the assertion
            done.append(problem)

    threads = [threading.Thread(target=make) for _number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(map(str, done)) == ["0", *[str(schema.SCHEMA_VERSION)] * 3], done


def test_a_url_names_each_option_once():
    """`?tenant=a&tenant=b` is refused: which one counts would be a guess."""
    with pytest.raises(InvalidInput, match="names 'tenant' twice"):
        address_of("postgresql://h/d?tenant=a&tenant=b")
    assert address_of("postgresql://h/d?tenant=a").tenant == "a", "the control"
