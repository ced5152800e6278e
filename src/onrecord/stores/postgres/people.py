"""What the owner does with a store: make and upgrade it; decide who may use it, who reads it, how long what is kept.

The decisions are rows that only the owner changes, so every function connects as a role that may act as the owner. A
login gets the rights of the app or the auditor role, and a row per tenant; the policies ask for both.
"""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import psycopg
from psycopg import sql

from onrecord.errors import InvalidInput, NotFound, StoreReadOnly
from onrecord.stores.postgres.membership import GRACE_SECONDS
from onrecord.stores.postgres.schema import (
    APP,
    AUDITOR,
    OWNER,
    WRITER,
    Roles,
    check,
    initialise,
    migrate,
    read_facts,
    roles_of,
)
from onrecord.stores.postgres.sqlstates import no_store, state_of, store_error
from onrecord.stores.statements import queries

if TYPE_CHECKING:
    from collections.abc import Iterator

    from onrecord.stores.postgres.address import Address
    from onrecord.stores.postgres.schema import Done

EVERY_TENANT = "*"
"""In place of a tenant: every one there is and will be. For a service that its tenants trust."""
SIGNING_CLIENTS = 4
"""The oldest schema whose clients sign for what they read: older ones would see nothing of an audited tenant."""
ENCRYPTING_CLIENTS = 5
"""The oldest schema whose clients know sessions with a key of their own: older ones would write what can be read."""
READS_LIMIT = 10_000
"""The most rows of an audit that are returned at once."""

Facts = dict[str, Any]
_ADMIN = queries("postgres", "admin.sql")
_NOT_ALLOWED = "42501"


class Member(NamedTuple):
    """One login in one tenant."""

    login: str
    tenant: str
    role: str
    """writer, auditor, or owner: no policy binds that one."""
    at: int | None
    """Since when, in microseconds since 1970."""
    by: str


class Read(NamedTuple):
    """A login read a session, at least once in an hour."""

    at: int
    login: str
    session: str
    """The id of the session, or `*`: a search in all of them."""
    name: str | None


class _Desk:
    """A connection of an administrator, before and after it acts as the owner."""

    def __init__(self, connection: psycopg.Connection[Any], roles: Roles) -> None:
        self.connection = connection
        self.roles = roles

    def ask(self, name: str, /, **values: Any) -> list[tuple[Any, ...]]:
        cursor = self.connection.execute(_ADMIN[name].encode(), values)
        return cursor.fetchall() if cursor.description else []

    def run(self, name: str, **more: str) -> None:
        """A statement with names of roles in it, which are inserted as identifiers."""
        names = {key: sql.Identifier(role) for key, role in (self.roles._asdict() | more).items()}
        self.connection.execute(sql.SQL(_ADMIN[name]).format(**names))


def make(address: Address, owner: str | None = None, app: str | None = None, auditor: str | None = None) -> Facts:
    """Create a store in a database: roles, tables, policies and grants. An existing one is left as it is."""
    return _told(initialise(address, Roles(owner or OWNER, app or APP, auditor or AUDITOR)), address)


def upgrade(address: Address) -> Facts:
    """Bring the schema of a store up to date while others work with it."""
    return _told(migrate(address), address)


def _told(done: Done, address: Address) -> Facts:
    facts = {"store": address.shown, "tenant": address.tenant, "before": done.before, "schema": done.after}
    return facts | done.roles._asdict()


def grant(address: Address, login: str, role: str, tenant: str) -> bool:
    """Bind a login to a tenant, or change what it may do there; False if it was so already."""
    with _desk(address) as desk:
        _refuse_unbound(desk, login)
        wanted = desk.roles.app if role == WRITER else desk.roles.auditor
        if desk.ask("has_role", login=login, role=wanted) != [(True,)]:
            desk.run("join_app" if role == WRITER else "join_auditor", login=login)
        desk.run("become")
        return bool(desk.ask("add_member", tenant=tenant, login=login, role=role))


def revoke(address: Address, login: str, tenant: str | None) -> list[str]:
    """Take a tenant from a login, or all of them (None); the tenants that were taken. It holds at once."""
    with _desk(address) as desk:
        desk.run("become")
        return [taken for (taken,) in desk.ask("remove_member", tenant=tenant, login=login)]


def who(address: Address, tenant: str | None) -> tuple[list[Member], bool]:
    """The members of a tenant, or of all; True if that is everybody: a login that is not the owner sees itself only."""
    with _desk(address) as desk:
        everybody = _may_become(desk)
        found = [Member(*row) for row in desk.ask("members", tenant=tenant)]
        if everybody:
            for login, superuser in desk.ask("unbound", owner=desk.roles.owner):
                found.append(Member(login, EVERY_TENANT, "owner", None, "superuser" if superuser else "acts as owner"))
        return found, everybody


def audit(address: Address, *, on: bool) -> tuple[bool, int | None]:
    """Record who reads the sessions of a tenant, or no longer: whether that is a change, and from when on it holds."""
    with _desk(address) as desk:
        desk.run("become")
        changed = desk.ask("audit", tenant=address.tenant, seconds=GRACE_SECONDS if on else None)
        if on:
            _refuse_older(desk, SIGNING_CLIENTS)
        ((since,),) = desk.ask("audited", tenant=address.tenant) or [(None,)]
        return bool(changed), since


def use_session_keys(address: Address) -> bool:
    """From now on, every new session of the tenant gets a key of its own; False if that was so already."""
    with _desk(address) as desk:
        desk.run("become")
        _refuse_older(desk, ENCRYPTING_CLIENTS)
        return bool(desk.ask("use_session_keys", tenant=address.tenant))


def _refuse_older(desk: _Desk, schema: int) -> None:
    """From now on, refuse clients that know only an older schema."""
    known = int(dict(desk.ask("meta"))["usable_from"])
    desk.ask("set_meta", name="usable_from", value=str(max(known, schema)))


def reads(address: Address, session: str | None, limit: int) -> tuple[list[Read], int | None]:
    """Who read the sessions of a tenant, newest first, and since when that is recorded. For owners and auditors."""
    with _desk(address) as desk:
        _may_become(desk)
        with desk.connection.transaction():
            desk.ask("name_tenant", tenant=address.tenant)
            rows = desk.ask("reads", tenant=address.tenant, session=session, limit=min(limit, READS_LIMIT))
            ((since,),) = desk.ask("audited", tenant=address.tenant) or [(None,)]
        return [Read(*row) for row in rows], since


def retain(address: Address, days: dict[str, float | None] | None) -> dict[str, Any]:
    """Decide after how many days what is erased of a tenant; None: only say what was decided."""
    with _desk(address) as desk:
        if days is None:
            _may_become(desk)
        else:
            desk.run("become")
        with desk.connection.transaction():
            desk.ask("name_tenant", tenant=address.tenant)
            if days is not None:
                desk.ask("retain", tenant=address.tenant, retention=json.dumps(days))
            ((kept,),) = desk.ask("retention", tenant=address.tenant) or [(None,)]
        return dict(json.loads(kept or "{}"))


@contextmanager
def _desk(address: Address) -> Iterator[_Desk]:
    try:
        with psycopg.connect(address.conninfo, autocommit=True) as connection:
            facts = read_facts(connection)
            if facts is None:
                raise no_store(address.shown)
            check(facts, address.shown)
            yield _Desk(connection, roles_of(facts))
    except psycopg.Error as problem:
        if state_of(problem) == _NOT_ALLOWED:
            raise StoreReadOnly(
                f"this role may not do that in {address.shown}: {str(problem).strip().partition(chr(10))[0]}",
                hint="connect as the role that created the store, or as one that may act as its owner",
            ) from problem
        raise store_error(problem, address.shown) from problem


def _may_become(desk: _Desk) -> bool:
    """Act as the owner if this role may; if not, it sees what its policies show."""
    try:
        desk.run("become")
    except psycopg.errors.InsufficientPrivilege:
        return False
    return True


def _refuse_unbound(desk: _Desk, login: str) -> None:
    rows = desk.ask("login", login=login)
    if not rows:
        raise NotFound(
            f"there is no login {login!r:.80} on this server",
            hint="create it first, in psql: CREATE ROLE name LOGIN, then \\password name",
        )
    can_log_in, unbound = rows[0]
    if unbound:
        raise InvalidInput(
            f"{login!r:.80} is a superuser: no policy binds it, and it sees every tenant",
            hint="use a login of its own for each tenant",
        )
    if not can_log_in:
        raise InvalidInput(f"{login!r:.80} is a role that cannot log in", hint="grant each login of its members")
