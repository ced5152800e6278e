"""Leases: acquired, renewed and released inside a transaction, on the store's clock.

That clock is the steady one of the machine, shown as a time of day: each holder says how far its time of day was ahead
(`clock`). So a time of day that jumps, in one process or on the whole machine, takes no lane from a holder at work.
"""

from __future__ import annotations

from json import dumps, loads
from typing import TYPE_CHECKING, Any

from onrecord import machine
from onrecord.log.store import Lease
from onrecord.stores.refusals import held_by, lease_lost, not_found
from onrecord.stores.sqlite.append import Append
from onrecord.stores.sqlite.connection import QUERIES
from onrecord.stores.sqlite.rows import LeaseRow, take_leases
from onrecord.stores.sqlite.writer import PendingWrite

if TYPE_CHECKING:
    import apsw

    from onrecord.log.store import Receipt
    from onrecord.stores.sqlite.append import StagedSession


class Acquire(PendingWrite):
    """A new holder acquires the lease of a lane."""

    __slots__ = ("_takeover", "_wanted")

    def __init__(self, wanted: Lease, *, takeover: bool) -> None:
        super().__init__()
        self._wanted = wanted
        self._takeover = takeover

    def work(self, cursor: apsw.Cursor) -> Lease:
        row = cursor.execute(QUERIES["lease"], (self._wanted.session, self._wanted.lane)).fetchone()
        if row is None:
            raise not_found(self._wanted.session)
        number, name, epoch, holder, since, until = row
        known = LeaseRow(None, 0, 0, epoch or 0, holder, since or 0, until or 0)
        self._wanted = _granted(name, known, self._wanted, takeover=self._takeover)
        _session, lane, epoch, taken_by, since, until = self._wanted
        take_leases(cursor, [(number, lane, epoch, dumps(taken_by), since, until, until - since)])
        return self._wanted

    def recall(self, cursor: apsw.Cursor) -> bool:
        row = cursor.execute(QUERIES["lease"], (self._wanted.session, self._wanted.lane)).fetchone()
        return row is not None and (row[2], row[4]) == (self._wanted.epoch, self._wanted.since)


def _granted(name: str, known: LeaseRow, wanted: Lease, *, takeover: bool) -> Lease:
    """The lease under its next epoch; `LeaseHeld` if the lane is not free. `name` is that of the session.

    `wanted` has the epoch under which it was granted before, if this is the same write again.
    """
    if known.holder is not None and not takeover:
        present = Lease(wanted.session, wanted.lane, known.last, loads(known.holder), known.since, known.until)
        if (present.epoch, present.holder) != (wanted.epoch, wanted.holder):
            shift = _shift(present.holder, wanted)
            if present.until + shift > wanted.since and not machine.is_gone(present.holder):
                raise held_by(name, present._replace(since=present.since + shift, until=present.until + shift))
    return wanted._replace(epoch=known.last + 1)


def _shift(holder: dict[str, Any], wanted: Lease) -> int:
    """What to add to a moment of a holder to get the same moment as the one who asks sees it."""
    theirs = holder.get("clock")
    if type(theirs) is not int or "clock" not in wanted.holder or holder.get("boot") != machine.boot_id():
        return 0
    return wanted.since - int(machine.uptime() * 1e6) - theirs


class Join(Append):
    """A new holder acquires the lease of a lane, and appends its first events: both or neither.

    Like any append it may share a transaction with others; one under the old lease that comes after it is refused.
    """

    __slots__ = ("taken", "takeover")

    _lease: Lease
    taken: LeaseRow | None
    takeover: bool

    @property
    def lease(self) -> Lease:
        """The lease that it acquired."""
        return self._lease

    def work(self, cursor: apsw.Cursor) -> list[Receipt]:
        self.work_together(cursor, [self])
        if self.problem is not None:
            raise self.problem
        receipts: list[Receipt] = self.answer
        return receipts

    def stage(self, cursor: apsw.Cursor, session: StagedSession, lease_row: LeaseRow) -> bool:
        self.taken = None
        self._lease = _granted(session.tip.base.name, lease_row, self._lease, takeover=self.takeover)
        _session, _lane, epoch, holder, since, until = self._lease
        span = until - since
        taken = LeaseRow(epoch, until - span // 2, span, epoch, dumps(holder), since, until)
        follows = super().stage(cursor, session, taken)
        self.taken = taken
        return follows

    def committed(self, connection: apsw.Connection) -> None:
        """It queried everything, so it does not know whether what others remember is valid."""


class Renew(PendingWrite):
    """A holder renews its lease."""

    __slots__ = ("_lease", "_span", "_until")

    def __init__(self, lease: Lease, until: int, span: int) -> None:
        super().__init__()
        self._lease = lease
        self._until = until
        self._span = span

    def work(self, cursor: apsw.Cursor) -> Lease:
        lease = self._lease
        number, epoch, holder, since, until = present(cursor, lease)
        if epoch != lease.epoch or holder is None:
            raise lease_lost(lease.lane)
        self._until = max(until, self._until)
        cursor.execute(QUERIES["extend_lease"], (number, lease.lane, lease.epoch, self._until, self._span))
        return Lease(lease.session, lease.lane, epoch, loads(holder), since, self._until)

    def recall(self, cursor: apsw.Cursor) -> bool:
        return present(cursor, self._lease)[4] == self._until


class Release(PendingWrite):
    """A holder releases its lease."""

    __slots__ = ("_lease",)

    def __init__(self, lease: Lease) -> None:
        super().__init__()
        self._lease = lease

    def work(self, cursor: apsw.Cursor) -> None:
        number, epoch, _holder, _since, _until = present(cursor, self._lease)
        if epoch == self._lease.epoch:
            cursor.execute(QUERIES["release_lease"], (number, self._lease.lane))

    def recall(self, cursor: apsw.Cursor) -> bool:
        _number, epoch, holder, _since, _until = present(cursor, self._lease)
        return epoch != self._lease.epoch or holder is None


def present(cursor: apsw.Cursor, lease: Lease) -> tuple[int, int, str | None, int, int]:
    """The session's number, and the present epoch, holder, since and until of the lane."""
    row: tuple[Any, ...] | None = cursor.execute(QUERIES["lease"], (lease.session, lease.lane)).fetchone()
    if row is None:
        raise not_found(lease.session)
    return row[0], row[2] or 0, row[3], row[4] or 0, row[5] or 0
