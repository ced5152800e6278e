"""The doctor's checks of a store in PostgreSQL: what a lost server would lose, roles, tenants, replication, bloat."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from onrecord.surfaces.cli.shared.output import counted
from onrecord.surfaces.cli.upkeep.checks import Check
from onrecord.surfaces.cli.upkeep.retain import size

if TYPE_CHECKING:
    from onrecord.log.store import Store

DEAD_ROWS = 100_000
"""A table with at least this many dead rows, and more dead than live ones, counts as bloated."""


def server_checks(store: Store, facts: dict[str, Any], *, fix: bool) -> list[Check]:
    """The checks of a server; what can be lost comes first."""
    said = f"synchronous_commit {facts['synchronous_commit']}, fsync {facts['fsync']}"
    kept = ", ".join(counted(facts[f"{what}s"], what) for what in ("session", "event", "snapshot"))
    checks = [
        Check("postgresql", "ok", f"{facts['server']} (psycopg {facts['driver']}), schema {facts['schema_version']}"),
        Check("durability", "info", said),
        _loss("a power cut", facts["power_cut_can_lose"], "wrong", "set fsync and full_page_writes to on"),
        _loss("a lost server", facts["primary_loss_can_lose"], "info", "with a synchronous standby nothing is lost"),
        *_replication(facts),
        *_roles(facts),
        _bloat(facts["tables"]),
        Check("kept", "info", f"{kept} of tenant {facts['tenant']}; the database has {size(facts['bytes'])}"),
        Check("search", "info", f"the next search will index {counted(facts['search_behind'], 'event')}"),
    ]
    if fix:
        store.tidy()  # type: ignore[attr-defined]  # a store that describes itself can also tidy itself
        checks.append(Check("snapshots", "fixed", "deleted; the next open folds the log again"))
    return checks


def _loss(name: str, what: str, state: str, advice: str) -> Check:
    safe = what.startswith("nothing")
    return Check(name, "ok" if safe else state, f"can lose {what}", "" if safe else advice)


def _replication(facts: dict[str, Any]) -> list[Check]:
    if facts["standby"]:
        advice = "use a URL with every host; the one that accepts writes is found"
        return [Check("replication", "wrong", "this server is a standby: it is read-only", advice)]
    rows = [
        f"{row['name'] or 'a standby'} {row['sync_state'] or ''} {row['state'] or '(not visible to this role)'}"
        + (f", {size(row['behind'])} behind" if row["behind"] is not None else "")
        for row in facts["standbys"]
    ]
    wanted = facts["synchronous_standby_names"]
    waits = f"commits wait for {wanted}" if wanted else "no commit waits for a standby"
    if wanted and not rows:
        return [Check("replication", "wrong", f"{waits}, and none is connected", "commits wait until one reconnects")]
    return [Check("replication", "ok" if wanted else "info", "; ".join([waits, *rows]))]


def _roles(facts: dict[str, Any]) -> list[Check]:
    role, tables = facts["role"], ", ".join(facts["unforced"])
    bound = not (facts["superuser"] or facts["bypasses_rls"])
    advice = f"connect as {facts['app']}, or as a member of it"
    checks = [
        Check("roles", "ok", f"{role}; the tables belong to {facts['owner']}")
        if bound and role != facts["owner"] and not facts["events_changeable"]
        else Check("roles", "wrong", f"{role} could read or change what it should not", advice)
    ]
    if tables:
        checks.append(
            Check("tenants", "wrong", f"row-level security is not forced on {tables}", "run `onrecord store migrate`")
        )
    elif not bound:
        checks.append(Check("tenants", "wrong", f"{role} is not bound by row-level security", advice))
    else:
        checks.append(Check("tenants", "ok", "row-level security is forced on every table"))
    return [*checks, _member(facts)]


def _member(facts: dict[str, Any]) -> Check:
    """What the login may do, and whether the server keeps it to its tenant."""
    login, tenant = facts["login"], facts["tenant"]
    audited = "; who reads is recorded" if facts["audited"] else ""
    if facts["every_tenant"]:
        advice = (
            f"if its tenants do not trust it, bind it: `onrecord store grant {login} --tenant {tenant}`, then "
            f"`onrecord store revoke {login} --every-tenant`"
        )
        return Check("login", "info", f"{login} may name any tenant{audited}", advice)
    if facts["superuser"] or facts["bypasses_rls"]:
        return Check("login", "info", f"{login} is bound to no tenant{audited}")
    return Check("login", "ok", f"{login} is {_ROLES[facts['member']]} of tenant {tenant}{audited}")


_ROLES = {"writer": "a writer", "auditor": "an auditor"}


def _bloat(tables: list[dict[str, Any]]) -> Check:
    bloated = [table for table in tables if table["dead"] > max(DEAD_ROWS, table["live"])]
    dead = sum(table["dead"] for table in tables)
    if bloated:
        names = ", ".join(f"{table['name']} ({table['dead']:,} dead rows)" for table in bloated)
        return Check("bloat", "wrong", names, "VACUUM these tables, and let autovacuum run more often")
    return Check("bloat", "ok", f"{counted(dead, 'dead row')} to be vacuumed")
