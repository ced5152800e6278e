"""The raw peer of the PostgreSQL store: the same rows in the same tables, with psycopg alone.

It writes the rows of an append (the event with its compressed payload, the moved head) with the same keys, indexes and
durability. It leaves out what an append decides: hash chain, idempotency, lease, lifecycle, tenant.
"""

from __future__ import annotations

import json
import secrets
import sys
import time
from pathlib import Path
from typing import Any

import psycopg
import zstandard

from bench.workload import turns

_SQL = Path(__file__).with_name("postgres.sql")


def statements(name: str) -> list[bytes]:
    """The statements of a block of `postgres.sql`."""
    block = _SQL.read_text().partition(f"\n-- {name}: ")[2].partition("\n")[2].partition("\n-- ")[0]
    return [statement.encode() for statement in block.split(";\n") if statement.strip()]


def payloads(count: int) -> list[bytes]:
    """The payload of each turn's event, as JSON."""
    return [json.dumps({"items": items, "usage": None}).encode() for items in turns(count)]


class RawWriter:
    """One connection, one session."""

    def __init__(self, url: str, session: str) -> None:
        self.connection = psycopg.connect(url, autocommit=True, prepare_threshold=0)
        self.session = session
        self._pack = zstandard.ZstdCompressor(level=3).compress
        (made,), (self._append,) = statements("raw_session"), statements("raw_append")
        self._transaction = statements("raw_transaction")
        self.connection.execute(made, {"session": session})

    def _values(self, payload: bytes) -> dict[str, Any]:
        return {
            "session": self.session, "id": secrets.token_hex(13), "at": time.time_ns() // 1000, "salt": bytes(16),
            "hash": secrets.token_bytes(32), "payload": self._pack(payload),
        }  # fmt: skip

    def append(self, payload: bytes) -> None:
        """One statement, which is one transaction: the minimum."""
        self.connection.execute(self._append, self._values(payload))

    def append_by_hand(self, payload: bytes) -> None:
        """A transaction as people usually write it."""
        values = self._values(payload)
        with self.connection.transaction():
            row = self.connection.execute(self._transaction[0], values).fetchone()
            assert row is not None
            self.connection.execute(self._transaction[1], values | {"position": row[0]})

    def close(self) -> None:
        """Close the connection."""
        self.connection.close()


def main() -> None:
    """A writer process: URL, session, number of seconds; it starts on a signal from its parent."""
    url, session, seconds = sys.argv[1], sys.argv[2], float(sys.argv[3])
    writer = RawWriter(url, session)
    stock = payloads(50)
    print("ready", flush=True)
    sys.stdin.readline()
    samples: list[float] = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        start = time.perf_counter()
        writer.append(stock[len(samples) % 50])
        samples.append(time.perf_counter() - start)
    print(json.dumps({"count": len(samples), "worst": max(samples)}))


if __name__ == "__main__":
    main()
