"""Scrubbing: after an erasure the bytes must be gone from every file, not only from the tables.

The database overwrites what it deletes (`secure_delete`). The index of words still holds deleted words until it is rewritten, and
the write-ahead log still holds old pages until it is cut back; both are done here.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from onrecord.errors import StoreBusy
from onrecord.stores.sqlite.connection import QUERIES
from onrecord.stores.sqlite.writer import Request, Writer

if TYPE_CHECKING:
    import apsw

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


def scrub(writer: Writer) -> None:
    """Remove from every file what the tables do not hold any more."""
    writer.run(_Rewrite())
    deadline = time.monotonic() + SCRUB_SECONDS
    while not writer.cut_back(_PATIENCE_MS):
        if time.monotonic() > deadline:
            raise StoreBusy(
                "the payloads are erased, but another process still reads pages of before",
                hint="end that reader and erase again with the same event id: it completes the erasure",
            )
        time.sleep(0.02)
