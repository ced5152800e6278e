"""Upkeep: what `onrecord doctor` reports about a store in PostgreSQL, above all what is lost with its server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg

if TYPE_CHECKING:
    from onrecord.stores.postgres.connections import Connection, Connections

_NOTHING = "nothing that was acknowledged"


def describe(connections: Connections) -> dict[str, Any]:
    """The facts about a store and the server it is in."""
    (server,) = _named(connections, "server")
    (counts,) = _named(connections, "counts")
    tables = _named(connections, "tables")
    standbys = [] if server["standby"] else _named(connections, "standbys")
    return {
        **server, **counts, "tenant": connections.tenant, "driver": psycopg.__version__,
        "tables": tables, "standbys": standbys, "unforced": _unforced(tables),
        "events_changeable": any(table["changeable"] for table in tables if table["name"] == "events"),
        "power_cut_can_lose": _power_cut(server), "primary_loss_can_lose": _primary_loss(server, standbys),
    }  # fmt: skip


def _named(connections: Connections, name: str) -> list[dict[str, Any]]:
    """The rows of a query, by the names of their columns."""

    def work(connection: Connection) -> list[dict[str, Any]]:
        with connections.transaction(connection):
            cursor = connections.send(connection, name, {})
            columns = [column.name for column in cursor.description or ()]
            return [dict(zip(columns, row, strict=True)) for row in cursor.fetchall()]

    return connections.run(work)


def _unforced(tables: list[dict[str, Any]]) -> list[str]:
    """The tables with rows of tenants in which row-level security does not bind every role."""
    return [table["name"] for table in tables if not table["forced"] and table["name"] != "meta"]


def _power_cut(server: dict[str, Any]) -> str:
    if server["fsync"] != "on":
        return "anything, or the whole database (fsync is off)"
    if server["full_page_writes"] != "on":
        return "pages that were being written (full_page_writes is off)"
    return _NOTHING


def _primary_loss(server: dict[str, Any], standbys: list[dict[str, Any]]) -> str:
    """What is lost if the server's machine never comes back."""
    if server["synchronous_standby_names"]:
        # A commit is acknowledged only when the standby has it: `begin` ensures that in every transaction.
        return _NOTHING
    if not standbys:
        return "everything since the last backup: nothing follows this server"
    known = [row["behind"] for row in standbys if row["behind"] is not None]
    if not known:
        return "what the standbys have not received yet; this role may not see how much (grant it pg_read_all_stats)"
    return f"the last commits: the nearest standby is {min(known):,} bytes behind at this moment"
