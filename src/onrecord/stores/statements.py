"""SQL from `.sql` files: named queries, whole schemas, numbered migrations. Python never builds SQL from data."""

from __future__ import annotations

import os

SQL = os.path.join(os.path.dirname(__file__), "sql")


def load(store: str, name: str) -> str:
    """One file of a store's SQL."""
    with open(os.path.join(SQL, store, name), encoding="utf-8") as file:
        return file.read()


def queries(store: str, file: str = "queries.sql") -> dict[str, str]:
    """Every named query of a file: `-- name: what it is for`, then the statement."""
    found = {}
    for block in load(store, file).split("\n\n-- ")[1:]:
        title, _, statement = block.partition("\n")
        found[title.partition(":")[0]] = statement.strip()
    return found


def migration_name(store: str, version: int) -> str:
    """The file of one migration."""
    folder = os.path.join(SQL, store, "migrations")
    (name,) = (name for name in os.listdir(folder) if name.startswith(f"{version:04}_"))
    return name


def migration(store: str, version: int) -> str:
    """The statements that upgrade the schema to a version from the one before."""
    return load(store, os.path.join("migrations", migration_name(store, version)))


def steps(text: str) -> list[str]:
    """The statements of a file, each of which ends with a semicolon and an empty line; comments stay with them."""
    found = [part.strip().removesuffix(";") for part in (text.rstrip() + "\n").split(";\n\n")]
    return [part.strip().removesuffix(";") for part in found if part]
