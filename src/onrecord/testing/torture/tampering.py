"""Damage to the files of a store: one flipped bit, or bytes that would run a command if they are trusted."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_SQLITE = b"SQLite format 3"
_LEAST = 20
"""Cells shorter than this hold no message."""


def flipped(source: Path, target: Path, marker: str, bits: int) -> Iterator[Path]:
    """Copies of a store with one bit flipped in the text; if the text is not found, in places all over its files."""
    places = [(file, offset) for file in _files(source) for offset in _found(file.read_bytes(), marker.encode())]
    if not places:
        sizes = [(file, file.stat().st_size) for file in _files(source)]
        places = [
            (file, size * number // bits)
            for file, size in sizes
            if size > 4096 and not file.name.endswith("-shm")
            for number in range(1, bits)
        ]
    for number, (file, offset) in enumerate(_spread(places, bits)):
        copy = _copied(source, target / str(number))
        damaged = copy / file.relative_to(source)
        content = bytearray(damaged.read_bytes())
        content[offset] ^= 1
        damaged.write_bytes(content)
        yield copy


def _spread(places: list[tuple[Path, int]], count: int) -> list[tuple[Path, int]]:
    """So many of the places, from the first to the last."""
    if len(places) <= count:
        return places
    return [places[number * (len(places) - 1) // (count - 1)] for number in range(count)]


def settle(directory: Path) -> None:
    """Move what a database still has in its write-ahead log into its file: that is where text is kept."""
    for file in _files(directory):
        if file.exists() and file.read_bytes()[: len(_SQLITE)] == _SQLITE:
            with closing(sqlite3.connect(file)) as database:
                database.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def size_of(directory: Path) -> int:
    """The bytes of a store."""
    settle(directory)
    return sum(file.stat().st_size for file in _files(directory))


def poisoned(source: Path, target: Path, marker: str, bomb: bytes) -> Path:
    """A copy of a store in which everything that holds a message holds the bomb instead."""
    copy = _copied(source, target)
    for file in _files(copy):
        if not file.exists():
            continue  # a database removed its own companion when it was closed
        content = file.read_bytes()
        if content.startswith(_SQLITE):
            _poison_cells(file, marker, bomb)
        elif marker.encode() in content:
            file.write_bytes(bomb)
    return copy


def _poison_cells(file: Path, marker: str, bomb: bytes) -> None:
    with closing(sqlite3.connect(file)) as database:
        tables = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        cells = [(table, column) for table in tables if "_fts" not in table for column in _columns(database, table)]
        holds = "instr(CAST({1} AS BLOB), CAST(? AS BLOB)) > 0"
        named = [cell for cell in cells if _count(database, cell, holds, marker)]
        for table, column in named or cells:
            where = holds if named else f"typeof({{1}}) = 'blob' AND length({{1}}) > {_LEAST} AND ? <> ''"
            for value in (bomb, bomb.decode("latin-1")):
                kind = "blob" if isinstance(value, bytes) else "text"
                change = f"UPDATE OR IGNORE {{0}} SET {{1}} = ? WHERE typeof({{1}}) = '{kind}' AND {where}"
                try:
                    database.execute(_sql(change, table, column), (value, marker))
                except sqlite3.Error:
                    continue  # a column that cannot hold it: the others are enough
        database.commit()


def _count(database: sqlite3.Connection, cell: tuple[str, str], where: str, marker: str) -> int:
    try:
        found = database.execute(_sql(f"SELECT count(*) FROM {{0}} WHERE {where}", *cell), (marker,)).fetchone()
    except sqlite3.Error:
        return 0
    return int(found[0])


def _columns(database: sqlite3.Connection, table: str) -> list[str]:
    try:
        return [row[1] for row in database.execute(_sql("PRAGMA table_info({0})", table))]
    except sqlite3.Error:
        return []


def _sql(text: str, *names: str) -> str:
    """A statement with the names of a table and a column: identifiers cannot be bound, so they are quoted."""
    return text.format(*('"' + name.replace('"', '""') + '"' for name in names))


def _files(directory: Path) -> list[Path]:
    return sorted(path for path in directory.rglob("*") if path.is_file())


def _found(content: bytes, marker: bytes) -> list[int]:
    places, start = [], 0
    while (start := content.find(marker, start)) >= 0:
        places.append(start + len(marker) // 2)
        start += 1
    return places


def _copied(source: Path, target: Path) -> Path:
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target)
    return target
