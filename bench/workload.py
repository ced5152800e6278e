"""The one workload of all benchmarks, and the raw program that onrecord is measured against."""

from __future__ import annotations

import json
import os
import random
import time
from hashlib import sha256
from pathlib import Path
from typing import Any, cast

import apsw
import zstandard

WORDS = """
the of and to in is that it was for on are as with his they at be this from have or by one had not but what
all were when we there can an your which their said if do will each about how up out them then she many some
so these would other into has more her two like him see time could no make than first been its who now people
my made over did down only way find use may water long little very after words called just where most know
session token invite membership middleware retry cache handler request response error trace failed passed
assert fixture module import return value index commit branch deploy rollout worker queue lease timeout limit
budget record replay verify chain
""".split()  # noqa: SIM905 - a text is easier to read than two hundred quoted words


def text(source: random.Random, size: int) -> str:
    """English-like text: words by a skewed distribution."""
    parts: list[str] = []
    length = 0
    while length < size:
        word = WORDS[min(int(source.expovariate(0.03)), len(WORDS) - 1)]
        parts.append(word)
        length += len(word) + 1
    return " ".join(parts)[:size]


def turns(count: int, seed: int = 1) -> list[list[dict[str, Any]]]:
    """Turns of three items: user 200 B, assistant with a tool call 1.5 KB, tool result 4 KB."""
    source = random.Random(seed)
    return [
        [
            {"role": "user", "content": text(source, 170)},
            {
                "role": "assistant",
                "content": text(source, 1_350),
                "tool_calls": [{"id": f"c{n}", "name": "bash", "arguments": {"cmd": f"pytest -k case_{n}"}}],
            },
            {"role": "tool", "call": f"c{n}", "content": text(source, 3_950)},
        ]
        for n in range(count)
    ]


class RawWriter:
    """What you would write by hand: one table, the same JSON, one commit per turn, the same durability."""

    def __init__(self, path: Path) -> None:
        self.connection = apsw.Connection(str(path))
        self.connection.pragma("journal_mode", "wal")
        self.connection.pragma("synchronous", "FULL")
        self.connection.execute(
            "CREATE TABLE IF NOT EXISTS items "
            "(session INTEGER, position INTEGER, data BLOB, PRIMARY KEY (session, position))"
        )
        self.position = 0

    def commit(self, items: list[dict[str, Any]]) -> None:
        """One durable transaction for these items."""
        execute = self.connection.execute
        execute("BEGIN IMMEDIATE")
        for item in items:
            self.position += 1
            execute("INSERT INTO items VALUES (1, ?, ?)", (self.position, json.dumps(item).encode()))
        execute("COMMIT")

    def read(self) -> list[dict[str, Any]]:
        """All items, decoded."""
        rows = self.connection.execute("SELECT data FROM items WHERE session = 1 ORDER BY position").fetchall()
        return [json.loads(cast("bytes", row[0])) for row in rows]

    def close(self) -> None:
        """Run a WAL checkpoint and close."""
        self.connection.pragma("wal_checkpoint(TRUNCATE)")
        self.connection.close()


class LeastWriter:
    """The smallest Python program that keeps the promises of our log, for one session and one writer.

    Canonical JSON as a copy, a salted commitment, a hash chain, compression and unique ids; no lease, lifecycle, other
    process, view or list of sessions. The difference to the raw program is the price of the promises; the difference
    to our store is the price of our code.
    """

    def __init__(self, path: Path) -> None:
        self.connection = apsw.Connection(str(path))
        self.connection.execute(
            "PRAGMA page_size = 2048; PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL"
        ).fetchall()
        self.connection.execute(
            "CREATE TABLE events (position INTEGER PRIMARY KEY, id TEXT UNIQUE, kind TEXT, at INTEGER, salt BLOB, "
            "payload_hash BLOB, hash BLOB, payload BLOB)"
        )
        parameters = zstandard.ZstdCompressionParameters(
            strategy=zstandard.STRATEGY_FAST, window_log=15, hash_log=11, min_match=7
        )
        self.compress = zstandard.ZstdCompressor(compression_params=parameters).compress
        self.position = 0
        self.hash = bytes(32)

    def commit(self, items: list[dict[str, Any]]) -> None:
        """One durable transaction for these items."""
        now = time.time_ns()
        entropy = os.urandom(23)
        id_ = ((now // 1_000_000).to_bytes(6) + entropy[16:]).hex()
        payload = _ENCODE({"items": _sorted(items)}).encode()
        commitment = sha256(entropy[:16] + payload).digest()
        packed = self.compress(payload)
        self.position += 1
        header = _ENCODE([self.position, id_, "turn.recorded", now]).encode()
        self.hash = sha256(self.hash + header + commitment).digest()
        execute = self.connection.execute
        execute("BEGIN IMMEDIATE")
        execute(
            "INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (self.position, id_, "turn.recorded", now, entropy[:16], commitment, self.hash, packed),
        )
        execute("COMMIT")


_ENCODE = json.JSONEncoder(separators=(",", ":")).encode


def _sorted(value: Any) -> Any:
    """A copy with sorted keys."""
    if isinstance(value, dict):
        return {key: _sorted(value[key]) for key in sorted(value)}
    return [_sorted(part) for part in value] if isinstance(value, list) else value
