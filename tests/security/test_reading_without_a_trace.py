"""A member of an audited tenant wants to read a session and leave no trace, or a false one.

The audit is on for the tenant `acme`: who reads a session signs for it first, and the policies show a login only what
it signed for. Its control is a tenant without an audit in the same database.
"""

import contextlib
import time
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from onrecord.errors import StoreTooNew
from onrecord.session.session_store import SessionStore
from onrecord.stores.postgres import PostgresStore, membership, people, schema
from onrecord.stores.postgres.address import address_of
from tests.postgres.servers import Stores
from tests.security.test_naming_another_tenant import CANARY, LARGE, Town, _run

pytestmark = pytest.mark.timeout(120)

SECRETS = ("events", "blobs", "snapshots", "words")
"""The tables with content. The others have names, positions and leases."""


@pytest.fixture(scope="module")
def town(postgres: Stores) -> Iterator[Town]:
    made = Town(postgres)
    other = made.bench.open("other-work", project="/secret")
    made.bench.store.append(other, [made.bench.draft(data={"text": LARGE + "2"})])
    made.bench.store.search(CANARY)
    made.bench.store.search("nothing")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(people, "GRACE_SECONDS", 0)
        assert people.audit(address_of(made.url("postgres", "acme")), on=True)[0]
    yield made
    made.bench.teardown_method()


def read_by(town: Town, who: str) -> set[str]:
    reads, _since = people.reads(address_of(town.url("postgres", "acme")), None, 100)
    return {read.name or read.session for read in reads if read.login == town.logins[who]}


def seen(connection: psycopg.Connection[Any]) -> dict[str, set[str]]:
    found = {table: _run(connection, f"SELECT * FROM onrecord.{table}") for table in SECRETS}
    return {table: {str(row) for row in rows} for table, rows in found.items()}


def test_nothing_is_read_without_a_signature(town):
    """A member that asks the tables directly sees no content; a signature shows that session's, and is on record."""
    with town.as_("both") as connection:
        assert not any(seen(connection).values())
        ((ids,),) = _run(connection, "SELECT array_agg(session) FROM onrecord.sessions")
        assert len(ids) == 2, "lists of sessions are not content"
        _run(connection, f"SELECT onrecord.sign(ARRAY['{town.session}'])")
        shown = seen(connection)
        assert all(shown.values())
        assert _run(connection, "SELECT DISTINCT session FROM onrecord.events") == [(town.session,)]
        assert len(shown["blobs"]) == 1, "the large payload of the other session stays hidden"
    assert read_by(town, "both") == {"secret-work"}


def test_a_signature_names_its_login(town):
    """A login signs only for itself, deletes no signature, and cannot sign for a tenant that it is no member of."""
    town.run("auditor", f"SET ROLE {town.logins['auditor']}", f"SELECT onrecord.sign(ARRAY['{town.session}'])")
    assert "secret-work" in read_by(town, "auditor")
    assert town.run("mallory", f"SELECT onrecord.sign(ARRAY['{town.session}'])") == [(0,)]
    assert read_by(town, "mallory") == set()
    for who in ("auditor", "acme"):
        for statement in ("DELETE FROM onrecord.reads", "UPDATE onrecord.reads SET login = 'x'"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                town.run(who, statement)


def test_a_search_is_on_record(town):
    """A search in all sessions finds nothing without a signature for all of them, which the store writes."""
    ((lexeme,),) = town.run(
        "acme",
        "SELECT onrecord.sign(ARRAY['*'])",
        "SELECT lexeme FROM onrecord.words, unnest(words) WHERE lexeme LIKE '%canary' LIMIT 1",
    )
    search = f"SELECT count(*) FROM onrecord.found(quote_literal('{lexeme}'), NULL, NULL, 9)"
    with town.as_("auditor") as connection:
        assert _run(connection, search) == [(0,)]
        with contextlib.closing(PostgresStore(town.url("auditor", "acme"))) as store:
            assert store.search("canary")
        assert _run(connection, search)[0][0] > 0
    assert "*" in read_by(town, "auditor")


def test_the_store_works_as_before_and_signs(town):
    """In an audited tenant every verb of the store works, forks and large payloads included, and leaves its trace."""
    records = SessionStore(PostgresStore(town.url("acme")), project="/secret")
    with records:
        session = records.open("audited-work", objective="Read me")
        for _twice in range(2):
            session.record_turn([{"role": "user", "content": LARGE}])
        fork = session.fork("audited-fork")
        fork.decide("inherited")
        assert sum(LARGE in str(one.data) for one in fork.events()) == 2
        assert fork.verify().ok
        assert [hit.session for hit in records.store.search("inherited")] == [fork.id]
        session.log.erase("a test", positions=[session.head.position])
        assert session.verify().ok
    assert {"audited-work", "audited-fork", "*"} <= read_by(town, "acme")


def test_a_signature_lasts_two_hours_at_most(town):
    """Content is shown for the hour of the signature and the next; then the login has to sign again."""
    sign = f"SELECT onrecord.sign(ARRAY['{town.session}'])"
    move = "UPDATE onrecord.reads SET hour = hour - {} WHERE login = '" + town.logins["both"] + "'"
    town.run("both", sign)
    for hours, visible in ((1, True), (1, False)):
        town.run("postgres", move.format(hours))
        assert bool(town.run("both", "SELECT 1 FROM onrecord.events LIMIT 1")) is visible
    town.run("both", sign)
    assert town.run("both", "SELECT 1 FROM onrecord.events LIMIT 1")


def test_a_tenant_without_an_audit_is_left_alone(town):
    """The control: in another tenant of the database nothing has to be signed, and nothing is recorded."""
    with contextlib.closing(PostgresStore(town.url("mallory"))) as store:
        assert store.heads() == []
    assert people.reads(address_of(town.url("postgres", "mallory")), None, 100) == ([], None)


def test_older_clients_are_refused_once_a_tenant_is_audited(town, monkeypatch):
    """A client that cannot sign would see logs without events; it is refused as too old instead."""
    monkeypatch.setattr(schema, "SCHEMA_VERSION", 3)
    with pytest.raises(StoreTooNew):
        PostgresStore(town.url("acme"))


def test_an_open_store_notices_the_switch(town, monkeypatch):
    """A store that was open when the audit was switched on asks again in time, before the audit begins."""
    assert membership.ASK_AGAIN_SECONDS < membership.GRACE_SECONDS
    monkeypatch.setattr(membership, "ASK_AGAIN_SECONDS", 0.2)
    monkeypatch.setattr(people, "GRACE_SECONDS", 1)
    place = address_of(town.url("postgres", "mallory"))
    records = SessionStore(PostgresStore(town.url("mallory")), project="/p")
    with records:
        session = records.open("long-lived")
        people.audit(place, on=True)
        try:
            time.sleep(1.1)
            session.decide("still here")
            assert [one.data for one in session.events()][-1]["text"] == "still here"
            assert [read.name for read in people.reads(place, None, 9)[0]] == ["long-lived"]
        finally:
            people.audit(place, on=False)
        time.sleep(0.3)
        assert session.decide("and now").position == session.head.position
