"""Measures the PostgreSQL store on its own server: `python -m bench.postgres [LOAD...] [--small]`.

The server is durable (fsync and full page writes are on) and has default settings apart from its memory. Client and
server share the machine, so a round trip costs almost nothing.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

from bench import postgres_loads
from bench.postgres_loads import Place, Size
from bench.postgres_peer import statements
from bench.report import Figure, keep, show
from onrecord.stores.postgres.schema import APP
from tests.postgres.servers import OWNER, Stores, running

LOADS = {
    "append": postgres_loads.append,
    "writers": postgres_loads.writers,
    "resume": postgres_loads.resume,
    "listing": postgres_loads.listing,
    "growth": postgres_loads.growth,
}
FULL = Size(
    appends=2_000, seconds=8.0, writers=(1, 2, 4, 8, 16), resume=(10, 5_000), sessions=(10_000, 1_000_000),
    events=(100_000, 1_000_000, 10_000_000),
)  # fmt: skip
SMALL = Size(
    appends=400, seconds=2.0, writers=(1, 4, 16), resume=(10, 500), sessions=(10_000, 50_000), events=(20_000, 200_000)
)
SETTINGS = (
    ("fsync", "on"), ("full_page_writes", "on"), ("shared_buffers", "1GB"), ("max_wal_size", "8GB"),
    ("autovacuum_naptime", "60"), ("effective_cache_size", "4GB"),
)  # fmt: skip


@contextmanager
def place() -> Iterator[Place]:
    """A new store on its own server."""
    with running(SETTINGS) as server:
        stores = Stores(server)

        def fresh() -> Place:
            url = stores.fresh_database()
            admin = url.replace(f"//{APP}@", f"//{OWNER}@")
            with psycopg.connect(admin, autocommit=True) as connection:
                for statement in statements("raw_tables"):
                    connection.execute(statement)
            return Place(url, admin, fresh)

        yield fresh()


def chosen_size(arguments: argparse.Namespace) -> Size:
    size = SMALL if arguments.small else FULL
    if arguments.events:
        size = size._replace(events=tuple(arguments.events))
    if arguments.sessions:
        size = size._replace(sessions=tuple(arguments.sessions))
    if arguments.writers:
        size = size._replace(writers=tuple(arguments.writers))
    if arguments.seconds:
        size = size._replace(seconds=arguments.seconds)
    return size


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("loads", nargs="*", metavar="LOAD", help=f"one of {', '.join(LOADS)}; all of them by default")
    parser.add_argument("--small", action="store_true", help="a quick look, not a measurement")
    parser.add_argument("--events", type=int, nargs="+", help="sizes of the store for growth, rising")
    parser.add_argument("--sessions", type=int, nargs="+", help="sizes of the store for listing, rising")
    parser.add_argument("--writers", type=int, nargs="+", help="how many processes write at once")
    parser.add_argument("--seconds", type=float, help="how long they write")
    parser.add_argument("--json", type=Path, help="keep the figures in this file")
    parser.add_argument("--plot", type=Path, help="draw the figures into this SVG file")
    chosen = parser.parse_args()
    for name in chosen.loads:
        if name not in LOADS:
            parser.error(f"no load is named {name!r}; there are {', '.join(LOADS)}")
    figures: list[Figure] = []
    for name in chosen.loads or LOADS:
        with place() as where:
            found = LOADS[name](where, chosen_size(chosen))
        show(found)
        figures += found
    if chosen.json:
        keep(figures, chosen.json)
    if chosen.plot:
        from bench.postgres_plot import draw

        draw(figures, chosen.plot)
    return 0 if chosen.small or all(figure.met for figure in figures) else 1


if __name__ == "__main__":
    sys.exit(main())
