"""Meanings: what PostgreSQL's errors mean to us, and which of them may go away by themselves."""

from __future__ import annotations

import psycopg

from onrecord.errors import (
    InvalidInput,
    StoreBusy,
    StoreCorrupt,
    StoreError,
    StoreFull,
    StoreReadOnly,
)

_TRY_AGAIN = frozenset(
    {"40001",  # serialization failure
     "40003",  # it is unknown whether the statement completed
     "40P01",  # deadlock
     "57P01",  # the server shuts down
     "57P02",  # the server crashed
     "57P03",  # the server starts up, or a standby is not ready
     "57P05",  # idle for too long
     "53300",  # too many connections
     "26000",  # a pooler gave us a connection that has not prepared the statement
     "08P01"}  # a pooler that lost its server
)  # fmt: skip
_READ_ONLY = "25006"
"""This server is a standby, or was made one."""
_NO_STORE = frozenset({"3F000", "42P01", "42883"})


class Unsure(Exception):  # not an error of PostgreSQL's: it says the commit went through
    """The server committed, but gave up waiting for its standby: a failover could still lose the commit."""


def state_of(problem: BaseException) -> str:
    """The SQLSTATE of an error, empty for a lost connection."""
    return (getattr(problem, "sqlstate", None) or "") if isinstance(problem, psycopg.Error) else ""


def may_pass(problem: BaseException, *, anywhere: bool) -> bool:
    """Whether the same work may succeed on another connection, once what happened to this one has been found out.

    Who takes a connection `anywhere` may have been given a server that only reads, and would be again.
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


def meaning(problem: psycopg.Error, place: str) -> StoreError | InvalidInput:
    """What an error of PostgreSQL means to a caller."""
    state, said = state_of(problem), str(problem).strip().partition("\n")[0]
    if state.startswith("53"):
        return StoreFull(f"no space left for the store {place}: {said}; nothing was written")
    if state == _READ_ONLY:
        return StoreReadOnly(f"{place} can only be read here: {said}", hint="give the URL of a server that writes")
    if state == "42501":
        return StoreReadOnly(
            f"this role may not do that in {place}: {said}",
            hint="connect as the app role that `onrecord store init` made, or as a member of it",
        )
    if state in ("55P03", "57014"):
        return StoreBusy(f"the store {place} was kept busy: {said}; nothing was written")
    if state in _NO_STORE:
        return no_store(place)
    if state.startswith("XX"):
        return StoreCorrupt(f"the database of {place} is damaged: {said}", hint="restore it from a backup")
    if isinstance(problem, psycopg.DataError):
        return InvalidInput(f"PostgreSQL cannot keep this: {said}", hint="a name or project cannot hold a zero byte")
    return StoreError(f"PostgreSQL failed on {place}: {said} ({state})", hint="onrecord doctor looks into it")


def no_store(place: str) -> StoreError:
    """A database nobody has made a store in."""
    return StoreError(
        f"there is no store in {place}", hint="onrecord store init URL makes one, as a role that may create roles"
    )
