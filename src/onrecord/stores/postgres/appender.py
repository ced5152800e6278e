"""Appends of the threads of one process: those to the same session share one statement and one commit.

While one append is on its way to the server, those that arrive wait; the next batch leader adds them all to its batch
(`stores/group_commit.py`, one queue per session). An append that cannot share a statement (another lane, an expected
position of its own) leads a batch of its own, in order. If a batch is refused, each of its appends is sent alone.
"""

from __future__ import annotations

from collections import OrderedDict
from threading import RLock
from typing import TYPE_CHECKING

from onrecord.errors import Conflict
from onrecord.stores.group_commit import GroupCommit
from onrecord.stores.postgres.append import Delivery, Joining, PendingAppend, PendingJoin, Remembered
from onrecord.stores.refusals import not_found

if TYPE_CHECKING:
    from collections.abc import Callable

    from onrecord.log.store import Receipt
    from onrecord.stores.payloads import Payloads
    from onrecord.stores.postgres.connections import Connections

SESSIONS_REMEMBERED = 1_000
"""For how many sessions a store object remembers the last known head."""


class Queue:
    """The appends to one session, and what is remembered of it."""

    __slots__ = ("group", "remembered")

    def __init__(self, send: Callable[[Remembered, list[PendingAppend]], None]) -> None:
        remembered = self.remembered = Remembered()
        self.group: GroupCommit[PendingAppend] = GroupCommit(lambda batch: send(remembered, batch))


class Appender:
    """Sends appends, one batch per session at a time."""

    def __init__(self, connections: Connections, payloads: Payloads, now: Callable[[], int | None]) -> None:
        self._connections = connections
        self._payloads = payloads
        self._now = now
        self._queues: OrderedDict[str, Queue] = OrderedDict()
        self._lock = RLock()

    def append(self, pending: PendingAppend) -> list[Receipt]:
        """Append all drafts or none."""
        if not pending.drafts and not isinstance(pending, PendingJoin):
            if not self._connections.ask("head", session=pending.session):
                raise not_found(pending.session)
            return []
        receipts: list[Receipt] = self._queue(pending.session).group.run(pending)
        return receipts

    def forget(self, session: str) -> None:
        """Forget a session that was changed by something other than an append."""
        with self._lock:
            self._queues.pop(session, None)

    def remembered(self, session: str) -> Remembered:
        """What is known of a session without a query."""
        return self._queue(session).remembered

    def _queue(self, session: str) -> Queue:
        with self._lock:
            queue = self._queues.get(session)
            if queue is None:
                queue = self._queues[session] = Queue(self._send)
                if len(self._queues) > SESSIONS_REMEMBERED:
                    self._queues.popitem(last=False)
            else:
                self._queues.move_to_end(session)
            return queue

    def _send(self, remembered: Remembered, batch: list[PendingAppend]) -> None:
        if len(batch) == 1 or not self._send_together(remembered, batch):
            for pending in batch:
                self._send_alone(remembered, pending)

    def _send_alone(self, remembered: Remembered, pending: PendingAppend) -> None:
        try:
            pending.answer = self._deliver(remembered, pending)
        except Exception as problem:  # noqa: BLE001  # raised again by the thread that waits for this append
            pending.problem = problem

    def _send_together(self, remembered: Remembered, batch: list[PendingAppend]) -> bool:
        """Send all of them as one append; False if one is refused: then each needs its own answer."""
        first = batch[0]
        drafts = [draft for pending in batch for draft in pending.drafts]
        try:
            together = PendingAppend(first.session, drafts, first.expect, first.lease, first.cipher)
            receipts = self._deliver(remembered, together)
        except Conflict:
            return False
        except Exception as problem:  # noqa: BLE001  # raised again by the threads that wait for these appends
            for pending in batch:
                pending.problem = problem
            return True
        start = 0
        for pending in batch:
            end = start + len(pending.drafts)
            pending.answer = receipts[start:end]
            start = end
        return True

    def _deliver(self, remembered: Remembered, pending: PendingAppend) -> list[Receipt]:
        if isinstance(pending, PendingJoin):
            delivery: Delivery = Joining(self._connections, self._payloads, pending, remembered)
        else:
            delivery = Delivery(self._connections, self._payloads, self._now(), pending, remembered)
        return self._connections.run(delivery.work, delivery.recall)
