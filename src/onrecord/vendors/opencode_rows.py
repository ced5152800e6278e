"""opencode's database: reading a conversation's rows as records, finding changed rows, and restoring them."""

from __future__ import annotations

import heapq
import json
import sqlite3
from contextlib import closing, contextmanager
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from onrecord.errors import Conflict, InvalidInput, NotFound
from onrecord.vendors.port import Chunk, Entry, Mark

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

TABLES = ("project", "session", "message", "part")
OVERLAP = 2_000
"""By how many milliseconds a row may seem older than one that was committed before it."""
BUSY_SECONDS = 5.0

Row = dict[str, Any]


def _queries() -> dict[str, str]:
    found = {}
    for block in (Path(__file__).parent / "sql" / "opencode.sql").read_text(encoding="utf-8").split("\n\n-- ")[1:]:
        title, _, statement = block.partition("\n")
        found[title.partition(":")[0]] = statement.strip()
    return found


QUERIES = _queries()


@contextmanager
def opened(path: str, mode: str = "ro") -> Iterator[sqlite3.Connection]:
    """A connection to the database; its errors become ours."""
    if not Path(path).is_file():
        raise NotFound(f"opencode's database {path} does not exist", hint="start opencode once to create it")
    try:
        with closing(sqlite3.connect(f"file:{quote(path)}?mode={mode}", uri=True, timeout=BUSY_SECONDS)) as connection:
            connection.row_factory = sqlite3.Row
            yield connection
    except sqlite3.Error as error:
        raise InvalidInput(
            f"cannot use opencode's database {path}: {error}", hint="it may belong to another version of opencode"
        ) from None


def directories(path: str) -> Iterator[tuple[str, str]]:
    """Every conversation and where it began."""
    if Path(path).is_file():
        with opened(path) as connection:
            yield from [(str(row["id"]), str(row["directory"])) for row in connection.execute(QUERIES["sessions"])]


def directory_of(path: str, vendor_id: str) -> str | None:
    """The directory of a conversation; None if there is no such conversation."""
    if not Path(path).is_file():
        return None
    with opened(path) as connection:
        row = connection.execute(QUERIES["session"], (vendor_id,)).fetchone()
        return None if row is None else str(row["directory"])


def read(path: str, vendor_id: str, mark: Mark | None, limit: int, translate: Callable[[str], Entry]) -> Chunk:
    """The rows that are new or changed since the mark. A changed row is read again; its last form counts."""
    since = mark.offset if mark else 0
    seen: dict[str, str] = dict(mark.extra) if mark and isinstance(mark.extra, dict) else {}
    entries: list[Entry] = []
    size = 0
    last = since
    with opened(path) as connection:
        for table, row in _changed(connection, vendor_id, max(0, since - OVERLAP), first=mark is None):
            raw = json.dumps({"table": table, "row": row}, ensure_ascii=False, separators=(",", ":"))
            key, digest = f"{table}/{row['id']}", sha256(raw.encode("utf-8", "surrogatepass")).hexdigest()[:16]
            at = int(row["time_updated"])
            if seen.get(key, "").partition("@")[0] == digest:
                continue
            if size >= limit and at > last:
                break
            seen[key] = f"{digest}@{at}"
            entries.append(translate(raw))
            size += len(raw)
            if table != "project":
                # Every part that has rows ends later than it began: that is what its event is known by.
                last = max(last, at, since + 1)
    # Older rows are not read again unless they change; the conversation's own row always is.
    kept = {
        key: value
        for key, value in seen.items()
        if key.startswith("session/") or int(value.partition("@")[2]) >= last - OVERLAP
    }
    return Chunk(entries, Mark(last, kept))


def _changed(connection: sqlite3.Connection, vendor_id: str, since: int, *, first: bool) -> Iterator[tuple[str, Row]]:
    if first:
        yield from (("project", dict(row)) for row in connection.execute(QUERIES["project"], (vendor_id,)))

    def rows(rank: int, query: str, *given: object) -> Iterator[tuple[int, int, str, Row]]:
        for row in connection.execute(QUERIES[query], given):
            yield int(row["time_updated"]), rank, str(row["id"]), dict(row)

    sources = (rows(1, "session", vendor_id), rows(2, "messages", vendor_id, since), rows(3, "parts", vendor_id, since))
    for _at, rank, _id, row in heapq.merge(*sources, key=lambda one: one[:3]):
        yield TABLES[rank], row


def move_to(path: str, vendor_id: str, cwd: str) -> None:
    """Set the directory of one conversation."""
    with opened(path, "rw") as connection:
        connection.isolation_level = "IMMEDIATE"
        with connection:
            if connection.execute(QUERIES["move_session"], (cwd, vendor_id)).rowcount != 1:
                raise NotFound(f"opencode's database {path} has no conversation {vendor_id}", hint="restore it first")


def put_back(path: str, vendor_id: str, raws: Iterator[str], cwd: str) -> None:
    """Insert a conversation's rows, all or none, into a database with exactly the same columns."""
    with opened(path, "rw") as connection:
        columns = {
            table: {str(row["name"]) for row in connection.execute(QUERIES["columns"], (table,))} for table in TABLES
        }
        connection.isolation_level = "IMMEDIATE"
        with connection:
            for raw in raws:
                table, row = _row(raw, vendor_id, columns)
                if table == "session":
                    row["directory"] = cwd
                elif table == "project":
                    row["worktree"] = cwd
                connection.execute(QUERIES[f"put_{table}"], row)
            if connection.execute(QUERIES["session"], (vendor_id,)).fetchone() is None:
                raise Conflict("the mirrored rows contain no conversation", hint="import it again")


def _row(raw: str, vendor_id: str, columns: dict[str, set[str]]) -> tuple[str, Row]:
    record = json.loads(raw)
    table, row = (record.get("table"), record.get("row")) if isinstance(record, dict) else (None, None)
    if table not in TABLES or not isinstance(row, dict):
        raise InvalidInput("a mirrored record is not a row of opencode's database", hint="import it again")
    row.pop("role", None)
    if set(row) != columns[table]:
        differing = ", ".join(sorted(set(row) ^ columns[table]))
        raise Conflict(
            f"opencode's table {table} has different columns here ({differing}); nothing was restored",
            hint="use the version of opencode that the conversation comes from",
        )
    if row.get("session_id" if table in ("message", "part") else "id") != vendor_id and table != "project":
        raise InvalidInput("a mirrored row belongs to another conversation", hint="import it again")
    return table, row
