"""Tidying: give back what only speed or chance has left in the files. Nothing that was recorded is touched."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onrecord.stores.sqlite.connection import QUERIES
from onrecord.stores.sqlite.scrub import scrub
from onrecord.stores.sqlite.writer import PendingWrite, Writer

if TYPE_CHECKING:
    import apsw


class _DropSnapshots(PendingWrite):
    """Every snapshot, of every session: the next opening folds anew."""

    __slots__ = ()

    def work(self, cursor: apsw.Cursor) -> None:
        cursor.execute(QUERIES["drop_every_snapshot"])

    def recall(self, cursor: apsw.Cursor) -> bool:
        """Snapshots that are still there do no harm."""
        return True


def tidy(writer: Writer) -> None:
    """Drop every snapshot, rewrite the index of words, and cut the write-ahead log back to nothing."""
    writer.run(_DropSnapshots())
    scrub(writer)
