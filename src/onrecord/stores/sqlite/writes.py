"""The other writes: new sessions, erasures, copied logs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import apsw

from onrecord.errors import Conflict, StoreCorrupt
from onrecord.stores.payloads import OUT_OF_LINE, PLAIN, Packed
from onrecord.stores.refusals import id_taken, not_found, nothing_at, refuse_erasure, refuse_gaps, unlike_parent
from onrecord.stores.sqlite.append import Append, Remembered
from onrecord.stores.sqlite.connection import QUERIES
from onrecord.stores.sqlite.rows import (
    MOMENT_BITS,
    POSITION_BITS,
    Row,
    add_events,
    head_of,
    refuse_taken,
    row_of_record,
    whole_head_row,
    write_heads,
)
from onrecord.stores.sqlite.writer import PendingWrite

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from onrecord.log.events import Draft, Record
    from onrecord.log.head import Head
    from onrecord.log.store import Receipt
    from onrecord.stores.session_cipher import SessionCipher


def add_session(cursor: apsw.Cursor, head: Head, cipher: SessionCipher | None) -> int:
    """Insert the row of a session; return its number."""
    refuse_taken(cursor, head)
    if cipher is not None:
        head = cipher.head(head)
    key_id = None if cipher is None else cipher.key_id
    values = (*head[:10], int(head.held), head.parent, head.forked_at, head.at >> MOMENT_BITS, key_id)
    ((number,),) = cursor.execute(QUERIES["add_session"], values).fetchall()
    return int(number or 0)


class Create(Append):
    """Create a session with its first events; `cipher` is for one that gets a key of its own."""

    __slots__ = ("_head",)

    alone = True

    def __init__(self, head: Head, drafts: Sequence[Draft], packed: list[Packed], cipher: SessionCipher | None) -> None:
        super().__init__(head.session, drafts, packed, Remembered())
        self.cipher = cipher
        self._head = head

    def work(self, cursor: apsw.Cursor) -> list[Receipt]:
        head = self._head
        refuse_present(cursor, head.session)
        if head.parent is not None and hash_in_history(cursor, head.parent, head.forked_at) != head.hash:
            raise unlike_parent()
        add_session(cursor, head, self.cipher)
        return super().work(cursor)

    def recall(self, cursor: apsw.Cursor) -> bool:
        return cursor.execute(QUERIES["head"], (self.session,)).fetchone() is not None and super().recall(cursor)


def refuse_present(cursor: apsw.Cursor, session: str) -> None:
    """A session's id is never given twice."""
    if cursor.execute(QUERIES["head"], (session,)).fetchone() is not None:
        raise id_taken(session)


def hash_in_history(cursor: apsw.Cursor, session: str, position: int) -> bytes:
    """The hash at a position of a session's history, which may be an ancestor's event."""
    lines: list[Row] = cursor.execute(QUERIES["lineage"], (session,)).fetchall()
    if not lines:
        raise not_found(session)
    for number, _id, forked_at, upto in lines:
        if forked_at < position <= upto:
            row = cursor.execute(QUERIES["hash_at"], (number << POSITION_BITS | position,)).fetchone()
            if row is None:
                raise StoreCorrupt(f"the event at position {position} of {session} is missing")
            return bytes(row[0])
    raise nothing_at(position)


class Erase(Append):
    """Erase payloads for good, and append the event that says so."""

    __slots__ = ("_positions",)

    alone = True

    def __init__(self, session: str, positions: Collection[int], draft: Draft, packed: list[Packed]) -> None:
        super().__init__(session, [draft], packed, Remembered())
        self._positions = sorted(set(positions))

    def work(self, cursor: apsw.Cursor) -> list[Receipt]:
        row = cursor.execute(QUERIES["head"], (self.session,)).fetchone()
        if row is None:
            raise not_found(self.session)
        number, head = row[0], head_of(row)
        refuse_erasure(head, self._positions)
        receipts = super().work(cursor)
        self._scrub(cursor, number)
        return receipts

    def _scrub(self, cursor: apsw.Cursor, number: int) -> None:
        indexed = cursor.execute(QUERIES["progress"], (number,)).fetchone()
        for position in self._positions:
            key = number << POSITION_BITS | position
            blob = cursor.execute(QUERIES["blob_of"], (key,)).fetchone()
            if indexed is not None and position <= indexed[0]:
                cursor.execute(QUERIES["drop_words"], (key,))
            cursor.execute(QUERIES["erase_payload"], (key,))
            if blob is not None:
                cursor.execute(QUERIES["drop_blob"], (blob[0],))
        for (heir,) in cursor.execute(QUERIES["descendants"], (self.session,)).fetchall():
            cursor.execute(QUERIES["drop_snapshots"], (heir,))
            cursor.execute(QUERIES["scrub_session"], (heir, int(heir != number)))


class Install(PendingWrite):
    """Copy a log as it is, or the rest of one that is here in part."""

    __slots__ = ("_cipher", "_extend", "_head", "_packed", "_records")

    def __init__(
        self,
        head: Head,
        records: list[Record],
        pack: Callable[[Record], Packed],
        cipher: SessionCipher | None,
        *,
        extend: bool,
    ) -> None:
        super().__init__()
        self._head = head if cipher is None else cipher.head(head)
        self._cipher = cipher
        self._extend = extend
        self._records = records
        self._packed = [Packed(PLAIN, b"", None) if record.payload is None else pack(record) for record in records]

    def work(self, cursor: apsw.Cursor) -> None:
        head = self._head
        if self._extend:
            number, start = self._continued(cursor)
        else:
            refuse_present(cursor, head.session)
            number, start = add_session(cursor, head, self._cipher), head.forked_at
        refuse_gaps([record.position for record in self._records], start)
        try:
            add_events(cursor, [row_of_record(number, *pair) for pair in zip(self._records, self._packed, strict=True)])
        except apsw.ConstraintError:
            raise Conflict("one of the new event ids is already in the log") from None
        for packed in self._packed:
            if packed.encoding == OUT_OF_LINE:
                cursor.execute(QUERIES["add_blob"], (packed.stored, packed.body))
        if cursor.execute(QUERIES["hash_at"], (number << POSITION_BITS | head.position,)).fetchone() != (head.hash,):
            raise Conflict("the head does not match the events")
        cursor.execute(QUERIES["mark_arrived"], (number, head.position))

    def recall(self, cursor: apsw.Cursor) -> bool:
        row = cursor.execute(QUERIES["head"], (self._head.session,)).fetchone()
        return row is not None and head_of(row) == self._head

    def _continued(self, cursor: apsw.Cursor) -> tuple[int, int]:
        row = cursor.execute(QUERIES["head"], (self._head.session,)).fetchone()
        if row is None:
            raise not_found(self._head.session)
        present = head_of(row)
        if (present.name, present.project) != (self._head.name, self._head.project):
            refuse_taken(cursor, self._head)
        write_heads(cursor, (whole_head_row(row[0], self._head, self._cipher),))
        return row[0], present.position


class UseSessionKeys(PendingWrite):
    """From now on, new sessions get a key of their own; the answer is False if that was so already."""

    __slots__ = ()

    def work(self, cursor: apsw.Cursor) -> bool:
        if cursor.execute(QUERIES["session_keys"]).fetchone() is not None:
            return False
        cursor.execute(QUERIES["add_meta"], ("session_keys", b"1"))
        return True

    def recall(self, cursor: apsw.Cursor) -> bool:
        return cursor.execute(QUERIES["session_keys"]).fetchone() is not None
