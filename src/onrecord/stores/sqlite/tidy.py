"""Tidying: free the space of caches and deleted pages. Recorded events stay as they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onrecord.stores.sqlite.connection import QUERIES
from onrecord.stores.sqlite.scrub import scrub
from onrecord.stores.sqlite.writer import PendingWrite, Writer

if TYPE_CHECKING:
    import apsw


class _DropSnapshots(PendingWrite):
    """Drop every snapshot of every session: the next opening folds the log again."""

    __slots__ = ()

    def work(self, cursor: apsw.Cursor) -> None:
        cursor.execute(QUERIES["drop_every_snapshot"])

    def recall(self, cursor: apsw.Cursor) -> bool:
        """Snapshots that are still there do no harm."""
        return True


def tidy(writer: Writer) -> None:
    """Drop every snapshot, rewrite the index of words, and truncate the write-ahead log."""
    writer.run(_DropSnapshots())
    scrub(writer)
