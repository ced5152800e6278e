"""Scrubbing: after an erasure the bytes must be gone from every file, not only from the tables.

The database overwrites what it deletes (`secure_delete`). The index of words still contains deleted words until it is
rewritten, and the write-ahead log still contains old pages until it is truncated. This module does both, in steps that
keep other writers waiting only moments.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from onrecord.errors import StoreBusy
from onrecord.stores.sqlite.connection import QUERIES
from onrecord.stores.sqlite.writer import PendingWrite, Writer

if TYPE_CHECKING:
    import apsw

SCRUB_SECONDS = 20.0
"""How long an erasure waits for readers of older pages."""
REWRITE_PAGES = 200
"""How much of the index of words is rewritten in one transaction."""
_PATIENCE_MS = 100


class _Rewrite(PendingWrite):
    """Rewrite part of the index of words without what was deleted from it; True if more is left to do."""

    __slots__ = ("_pages",)

    def __init__(self, pages: int) -> None:
        super().__init__()
        self._pages = pages

    def work(self, cursor: apsw.Cursor) -> bool:
        before = cursor.connection.total_changes()
        cursor.execute(QUERIES["merge_words"], (self._pages,))
        # FTS5 changes one row for the command itself, and more when it had something to do.
        return cursor.connection.total_changes() - before > 1

    def recall(self, cursor: apsw.Cursor) -> bool:
        return False


def scrub(writer: Writer) -> None:
    """Remove from every file what the tables no longer contain."""
    more = writer.run(_Rewrite(-REWRITE_PAGES))  # negative: the whole index, from now on
    while more:
        more = writer.run(_Rewrite(REWRITE_PAGES))
    deadline = time.monotonic() + SCRUB_SECONDS
    while not writer.cut_back(_PATIENCE_MS):
        if time.monotonic() > deadline:
            raise StoreBusy(
                "the payloads are erased, but another process is still reading older pages",
                hint="stop that reader, then erase again with the same event id to complete the erasure",
            )
        time.sleep(0.02)
