"""The queue before each log: threads of one process take turns at a session, and whoever comes first writes for all.

While one append is on its way to the server, those that arrive wait; the next one takes them all along in one statement
and one commit. What cannot go together (another lane, another expected position, a refusal) goes by itself, in order.
"""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock, RLock, get_ident
from typing import TYPE_CHECKING

from onrecord.errors import Conflict
from onrecord.log.codec import BATCH_LIMIT
from onrecord.stores.postgres.append import Attempt, Request, Standing
from onrecord.stores.refusals import not_found, reentered

if TYPE_CHECKING:
    from collections.abc import Callable

    from onrecord.log.store import Receipt
    from onrecord.stores.payloads import Payloads
    from onrecord.stores.postgres.connections import Connections

SESSIONS_REMEMBERED = 1_000
"""Of so many sessions a store object remembers where their logs stood last."""
TOGETHER_BYTES = 4 * 1024 * 1024
"""Appends with more bytes of payload than this do not go together."""


class Ticket:
    """One append that waits its turn, and what came of it."""

    __slots__ = ("problem", "receipts", "request")

    def __init__(self, request: Request) -> None:
        self.request = request
        self.receipts: list[Receipt] | None = None
        self.problem: BaseException | None = None

    def answer(self) -> list[Receipt]:
        """The receipts, or the refusal."""
        if self.problem is not None:
            raise self.problem
        return self.receipts or []


class Line:
    """The queue of one session. Its lock lets one thread at a time append to it."""

    __slots__ = ("lock", "standing", "thread", "waiting")

    def __init__(self) -> None:
        self.lock = Lock()
        self.thread = 0
        """Which one that is."""
        self.standing = Standing()
        self.waiting: list[Ticket] = []


class Appender:
    """Brings events into logs."""

    def __init__(self, connections: Connections, payloads: Payloads, now: Callable[[], int | None]) -> None:
        self._connections = connections
        self._payloads = payloads
        self._now = now
        self._lines: OrderedDict[str, Line] = OrderedDict()
        self._lock = RLock()

    def append(self, request: Request) -> list[Receipt]:
        """Append all drafts or none."""
        if not request.drafts:
            if not self._connections.ask("head", session=request.session):
                raise not_found(request.session)
            return []
        line, ticket, me = self._line(request.session), Ticket(request), get_ident()
        if line.thread == me:
            raise reentered()
        line.waiting.append(ticket)
        with line.lock:
            line.thread = me
            try:
                if ticket.receipts is None and ticket.problem is None:
                    waiting, line.waiting = line.waiting, []
                    # Not in line any more: somebody took it along and was interrupted before it was served.
                    self._serve(line.standing, waiting if ticket in waiting else [ticket, *waiting])
            finally:
                line.thread = 0
        return ticket.answer()

    def forget(self, session: str) -> None:
        """A log was changed otherwise."""
        with self._lock:
            self._lines.pop(session, None)

    def remembered(self, session: str) -> Standing:
        """What is known of a session without asking."""
        return self._line(session).standing

    def _line(self, session: str) -> Line:
        with self._lock:
            line = self._lines.get(session)
            if line is None:
                line = self._lines[session] = Line()
                if len(self._lines) > SESSIONS_REMEMBERED:
                    self._lines.popitem(last=False)
            else:
                self._lines.move_to_end(session)
            return line

    def _serve(self, standing: Standing, tickets: list[Ticket]) -> None:
        while tickets:
            group, tickets = _first_group(tickets)
            if len(group) == 1 or not self._serve_together(standing, group):
                for ticket in group:
                    self._serve_alone(standing, ticket)

    def _serve_alone(self, standing: Standing, ticket: Ticket) -> None:
        try:
            ticket.receipts = self._attempt(standing, ticket.request)
        except Exception as problem:  # noqa: BLE001  # raised again by the thread whose append it is
            ticket.problem = problem

    def _serve_together(self, standing: Standing, group: list[Ticket]) -> bool:
        """All of them in one append; False if one is refused, and then each has to hear its own answer."""
        first = group[0].request
        drafts = [draft for ticket in group for draft in ticket.request.drafts]
        try:
            receipts = self._attempt(standing, first._replace(drafts=drafts))
        except Conflict:
            return False
        except Exception as problem:  # noqa: BLE001  # raised again by the threads whose appends these are
            for ticket in group:
                ticket.problem = problem
            return True
        start = 0
        for ticket in group:
            end = start + len(ticket.request.drafts)
            ticket.receipts = receipts[start:end]
            start = end
        return True

    def _attempt(self, standing: Standing, request: Request) -> list[Receipt]:
        attempt = Attempt(self._connections, self._payloads, self._now(), request, standing)
        return self._connections.run(attempt.work, attempt.recall)


def _first_group(tickets: list[Ticket]) -> tuple[list[Ticket], list[Ticket]]:
    """Those at the front that can go together, and the rest."""
    first = tickets[0].request
    events, size = len(first.drafts), _size(first)
    end = 1
    for ticket in tickets[1:]:
        request = ticket.request
        events, size = events + len(request.drafts), size + _size(request)
        if request.expect is not None or request.lease != first.lease or events > BATCH_LIMIT or size > TOGETHER_BYTES:
            break
        end += 1
    return tickets[:end], tickets[end:]


def _size(request: Request) -> int:
    return sum(len(draft.payload) for draft in request.drafts)
