"""SQLSTATEs: which errors of PostgreSQL become which of ours, and which are worth a retry."""

from __future__ import annotations

import psycopg

from onrecord.errors import (
    InvalidInput,
    NoStore,
    StoreBusy,
    StoreCorrupt,
    StoreError,
    StoreFull,
    StoreReadOnly,
)

NOT_PREPARED = "26000"
"""A pooler gave us a connection on which the statement is not prepared."""
_TRY_AGAIN = frozenset(
    {"40001",  # serialization failure
     "40003",  # it is unknown whether the statement completed
     "40P01",  # deadlock
     "57P01",  # the server shuts down
     "57P02",  # the server crashed
     "57P03",  # the server starts up, or a standby is not ready
     "57P05",  # idle for too long
     "53300",  # too many connections
     NOT_PREPARED,
     "08P01"}  # a pooler that lost its server
)  # fmt: skip
_READ_ONLY = "25006"
"""This server is a standby, or became one."""
_NO_STORE = frozenset({"3F000", "42P01", "42883"})


class Unsure(Exception):  # not an error of PostgreSQL's: it says the commit went through
    """The server committed, but gave up waiting for its standby: a failover could still lose the commit."""


def state_of(problem: BaseException) -> str:
    """The SQLSTATE of an error, empty for a lost connection."""
    return (getattr(problem, "sqlstate", None) or "") if isinstance(problem, psycopg.Error) else ""


def may_pass(problem: BaseException, *, anywhere: bool) -> bool:
    """Whether a retry on another connection may succeed, after `recall` has found what happened on this one.

    With `anywhere`, a read-only server was acceptable, and the next connection may lead to the same one.
    """
    if isinstance(problem, Unsure):
        return True
    state = state_of(problem)
    if state == _READ_ONLY:
        return not anywhere
    if not state:
        return isinstance(problem, psycopg.OperationalError | psycopg.InterfaceError)
    return state in _TRY_AGAIN or state.startswith("08")


def is_known_id(problem: psycopg.Error) -> bool:
    """Whether an insert met an event id that is on record."""
    return state_of(problem) == "23505"


def store_error(problem: psycopg.Error, address: str) -> StoreError | InvalidInput:
    """The onrecord error that a caller gets for an error of PostgreSQL."""
    state, said = state_of(problem), str(problem).strip().partition("\n")[0]
    if not state and isinstance(problem, psycopg.OperationalError):
        return unreachable(problem, address)
    if not state and isinstance(problem, psycopg.ProgrammingError):
        # The wrongly encoded part may be the password, and libpq would repeat it.
        wrong = "a % in it has no two hex digits behind it" if "%" in said else said
        return InvalidInput(f"{address} is not a PostgreSQL URL: {wrong}", hint="use postgresql://user@host/database")
    if state.startswith("53"):
        return StoreFull(f"no space left for the store {address}: {said}; nothing was written")
    if state == _READ_ONLY:
        return StoreReadOnly(f"{address} is read-only: {said}", hint="use the URL of a server that accepts writes")
    if state == "42501":
        return StoreReadOnly(
            f"this role may not do that in {address}: {said}",
            hint="the owner of the store grants logins a tenant; to migrate, connect as the role that created it",
        )
    if state in ("55P03", "57014"):
        return StoreBusy(f"the store {address} is busy: {said}; nothing was written")
    if state in _NO_STORE:
        return no_store(address)
    if state.startswith("XX"):
        return StoreCorrupt(f"the database of {address} is damaged: {said}", hint="restore it from a backup")
    if isinstance(problem, psycopg.DataError):
        return InvalidInput(
            f"PostgreSQL cannot store this: {said}", hint="a name or project cannot contain a zero byte"
        )
    return StoreError(
        f"PostgreSQL failed on {address}: {said} ({state})", hint="check the store and its disk", step="check_store"
    )


def unreachable(problem: BaseException, address: str) -> StoreBusy:
    """No answer, or no admission: libpq does not distinguish these."""
    said = str(problem).strip().partition("\n")[0] or state_of(problem)
    return StoreBusy(
        f"the store {address} cannot be reached: {said}",
        hint="check host, database, user and password in the URL; try again if the server is restarting",
    )


def no_store(address: str) -> NoStore:
    """A database without a store."""
    return NoStore(f"there is no store in {address}")
