"""The schema: created by `onrecord store init`, upgraded by `migrate` while clients work, checked at every opening.

Two numbers are kept with it: the last migration, and the oldest schema whose clients may still work with it. So older
clients keep working after a migration that only adds; one that removes something says which schema a client must know.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any, NamedTuple

import psycopg
from psycopg import sql

from onrecord.errors import StoreBusy, StoreError, StoreTooNew
from onrecord.stores.postgres.address import Address
from onrecord.stores.postgres.sqlstates import no_store, state_of, store_error
from onrecord.stores.statements import load, migration, queries, steps

if TYPE_CHECKING:
    from collections.abc import Mapping

SCHEMA_VERSION = 5
"""The number of the last migration."""
USABLE_FROM = 1
"""The oldest schema whose clients may work with the present one."""
POSTGRES_AT_LEAST = 14
"""The oldest PostgreSQL a store is made in."""
OWNER, APP, AUDITOR = "onrecord_owner", "onrecord_app", "onrecord_auditor"
WRITER = "writer"
"""What a login may be in a tenant: this, or an auditor."""
LOCK_SECONDS = 60.0
"""How long a migration tries to get the lock of a table, in short waits."""

INIT_TRIES = 20
"""How often `initialise` tries again while other processes make the same store."""
_MEETING_SECONDS = 0.25
_MEETING_STATES = ("42P06", "42P07", "42710", "23505", "40001", "40P01", "XX000", "55P03")
"""A schema, table, role or row that another transaction has just made; a deadlock; a tuple changed meanwhile."""
_ADMIN = queries("postgres", "admin.sql")
_LOCKED_OUT = "55P03"


class Roles(NamedTuple):
    """Who owns a store's tables, who works with them, and who only reads them."""

    owner: str = OWNER
    app: str = APP
    auditor: str = AUDITOR


class Done(NamedTuple):
    """The outcome of an init or a migration."""

    before: int
    """The schema that was there; 0 for none."""
    after: int
    roles: Roles


def check(facts: Mapping[str, str], shown: str) -> None:
    """Refuse a store with a schema that this code cannot work with."""
    version, usable_from = int(facts["schema"]), int(facts["usable_from"])
    if usable_from > SCHEMA_VERSION:
        raise StoreTooNew(f"{shown} has schema {version}; this onrecord knows up to {SCHEMA_VERSION}")
    if version < SCHEMA_VERSION:
        raise StoreError(
            f"{shown} has schema {version}; this onrecord needs {SCHEMA_VERSION}",
            hint="migrate the store",
            step="migrate_store",
        )


def initialise(address: Address, roles: Roles) -> Done:
    """Make roles, tables, policies and grants in one transaction; does nothing where a store exists.

    The app role becomes a writer of the tenant that the address names, and of no other.

    Of several that begin at the same moment one makes the store; the others meet what it makes, and then find it.
    """
    tries = 1
    while True:
        try:
            return _initialise(address, roles)
        except psycopg.Error as problem:
            if state_of(problem) not in _MEETING_STATES or tries >= INIT_TRIES:
                raise store_error(problem, address.shown) from problem
        tries += 1
        time.sleep(_MEETING_SECONDS)


def _initialise(address: Address, roles: Roles) -> Done:
    with _connected(address) as connection:
        _refuse_old_server(connection)
        present = read_facts(connection)
        if present is not None:
            return Done(int(present["schema"]), int(present["schema"]), roles_of(present))
        with connection.transaction():
            _make_roles(connection, roles)
            _run(connection, _ADMIN["make_schema"], roles)
            _run(connection, _ADMIN["become"], roles)
            for step in steps(load("postgres", "schema.sql")):
                _run(connection, step, roles)
            _grant(connection, roles)
            facts = {"schema": SCHEMA_VERSION, "usable_from": USABLE_FROM, "secret": os.urandom(32).hex()}
            for name, value in (facts | roles._asdict()).items():
                connection.execute(_ADMIN["set_meta"].encode(), {"name": name, "value": str(value)})
            _bind(connection, address, roles)
        return Done(0, SCHEMA_VERSION, roles)


def migrate(address: Address) -> Done:
    """Upgrade an older schema. Each step waits only briefly for its lock, so that clients keep working."""
    try:
        with _connected(address) as connection:
            facts = read_facts(connection)
            if facts is None:
                raise no_store(address.shown)
            before, roles = int(facts["schema"]), roles_of(facts)
            if before > SCHEMA_VERSION:
                raise StoreTooNew(f"{address.shown} has schema {before}; this onrecord knows up to {SCHEMA_VERSION}")
            usable_from = max(USABLE_FROM, int(facts["usable_from"]))
            if before < SCHEMA_VERSION:
                _make_role(connection, roles, roles.auditor, "make_auditor")
            _run(connection, _ADMIN["become"], roles)
            _run(connection, _ADMIN["be_patient"])
            for version in range(before + 1, SCHEMA_VERSION + 1):
                _patiently(connection, steps(migration("postgres", version)), roles)
                with connection.transaction():
                    if version == SCHEMA_VERSION:
                        _grant(connection, roles)
                    for name, value in (("schema", version), ("usable_from", usable_from), ("auditor", roles.auditor)):
                        connection.execute(_ADMIN["set_meta"].encode(), {"name": name, "value": str(value)})
            return Done(before, SCHEMA_VERSION, roles)
    except psycopg.Error as problem:
        raise store_error(problem, address.shown) from problem


def read_facts(connection: psycopg.Connection[Any]) -> dict[str, str] | None:
    """What a store says about itself; None where there is none."""
    if connection.execute(_ADMIN["is_store"].encode()).fetchone() is None:
        return None
    return dict(connection.execute(_ADMIN["meta"].encode()).fetchall())


def _connected(address: Address) -> psycopg.Connection[Any]:
    return psycopg.connect(address.conninfo, autocommit=True)


def roles_of(facts: Mapping[str, str]) -> Roles:
    """The roles of a store, as it says itself."""
    return Roles(facts["owner"], facts["app"], facts.get("auditor", AUDITOR))


def _refuse_old_server(connection: psycopg.Connection[Any]) -> None:
    row = connection.execute(_ADMIN["version"].encode()).fetchone()
    if row is not None and row[0] < POSTGRES_AT_LEAST * 10_000:
        raise StoreError(f"this is PostgreSQL {row[1]}", hint=f"a store needs PostgreSQL {POSTGRES_AT_LEAST} or newer")


def _make_roles(connection: psycopg.Connection[Any], roles: Roles) -> None:
    for name, statement in zip(roles, ("make_owner", "make_app", "make_auditor"), strict=True):
        _make_role(connection, roles, name, statement)
    if connection.execute(_ADMIN["is_superuser"].encode()).fetchone() != (True,):
        _run(connection, _ADMIN["join_owner"], roles)


def _make_role(connection: psycopg.Connection[Any], roles: Roles, name: str, statement: str) -> None:
    if connection.execute(_ADMIN["role"].encode(), {"name": name}).fetchone() is None:
        _run(connection, _ADMIN[statement], roles)


def _bind(connection: psycopg.Connection[Any], address: Address, roles: Roles) -> None:
    """The app role works for the tenant that the address names."""
    member = {"tenant": address.tenant, "login": roles.app, "role": WRITER}
    connection.execute(_ADMIN["add_member"].encode(), member)


def _grant(connection: psycopg.Connection[Any], roles: Roles) -> None:
    for step in steps(load("postgres", "grants.sql")):
        _run(connection, step, roles)


def _run(connection: psycopg.Connection[Any], statement: str, roles: Roles | None = None) -> None:
    """Run a statement of ours; names of roles are inserted as identifiers or literals, never as text."""
    if roles is None:
        connection.execute(statement.encode())
        return
    names: dict[str, sql.Composable] = {name: sql.Identifier(role) for name, role in roles._asdict().items()}
    names |= {f"{name}_name": sql.Literal(role) for name, role in roles._asdict().items()}
    connection.execute(sql.SQL(statement).format(**names))


def _patiently(connection: psycopg.Connection[Any], migration_steps: list[str], roles: Roles) -> None:
    """Run the steps of a migration, again from the first if a lock is not available. Each step may run twice."""
    deadline = time.monotonic() + LOCK_SECONDS
    while True:
        try:
            for step in migration_steps:
                _run(connection, step, roles)
        except psycopg.Error as problem:
            if state_of(problem) != _LOCKED_OUT:
                raise
            if time.monotonic() > deadline:
                raise StoreBusy(
                    "a table of the store stayed locked", hint="try again; the completed steps are kept"
                ) from None
        else:
            return
