"""Scrubbing: after an erasure the bytes must be gone from every file, not only from the tables.

The database overwrites what it deletes (`secure_delete`). The index of words still holds deleted words until it is rewritten, and
the write-ahead log still holds old pages until it is cut back; both are done here.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import apsw

from onrecord.errors import StoreBusy
from onrecord.stores.sqlite.connection import QUERIES
from onrecord.stores.sqlite.writer import Request, Writer, copied

if TYPE_CHECKING:
    from typing import Any

SCRUB_SECONDS = 20.0
"""How long an erasure waits for readers that still look at pages of before."""
_PATIENCE_MS = 100


class _Rewrite(Request):
    """The index of words without what was deleted from it."""

    __slots__ = ()

    def work(self, cursor: apsw.Cursor) -> None:
        cursor.execute(QUERIES["optimize_words"])

    def recall(self, cursor: apsw.Cursor) -> bool:
        return False


class _CutBack(Request):
    """The write-ahead log copied into the database and cut back to nothing; whether that worked."""

    __slots__ = ()

    in_transaction = False

    def work(self, cursor: apsw.Cursor) -> Any:
        return copied(cursor.connection, apsw.SQLITE_CHECKPOINT_TRUNCATE, _PATIENCE_MS)


def scrub(writer: Writer) -> None:
    """Remove from every file what the tables do not hold any more."""
    writer.run(_Rewrite())
    deadline = time.monotonic() + SCRUB_SECONDS
    while not writer.run(_CutBack()):
        if time.monotonic() > deadline:
            raise StoreBusy(
                "the payloads are erased, but another process still reads pages of before",
                hint="end that reader and erase again with the same event id: it completes the erasure",
            )
        time.sleep(0.02)
