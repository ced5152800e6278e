"""Connections to PostgreSQL: a few that are borrowed for one transaction each, and what happens when one is lost.

A transaction is sent as one packet (a pipeline), so that it costs one round trip: first its tenant, then its
statements. A connection that failed is never used again. It is unknown then whether its last transaction was committed;
another connection checks that before the work is retried.
"""

from __future__ import annotations

import contextlib
import logging
import random
import time
from threading import Condition
from typing import TYPE_CHECKING, Any, TypeVar

import psycopg
from psycopg.adapt import AdaptersMap
from psycopg.types.array import ListBinaryDumper
from psycopg.types.numeric import Int8BinaryDumper
from psycopg.types.string import BytesBinaryDumper

from onrecord.errors import InvalidInput, OutcomeUnknown, StoreBusy
from onrecord.stores.postgres.round_trip import Prepared, exchange, statement_of
from onrecord.stores.postgres.sqlstates import NOT_PREPARED, Unsure, may_pass, state_of, store_error, unreachable
from onrecord.stores.statements import queries

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from onrecord.stores.postgres.address import Address

CONNECTIONS = 16
"""The most connections of one store object."""
PATIENCE_SECONDS = 60.0
"""How long work is retried while a server is unreachable: a failover takes seconds."""
FIRST_SECONDS = 2.0
"""The same when a store is opened: a wrong address should be reported in less than a minute."""
PAUSE_SECONDS = 0.02
"""The first pause before a retry; each is twice the one before, up to the longest."""
LONGEST_PAUSE_SECONDS = 1.0

QUERIES = {name: text.encode() for name, text in queries("postgres").items()}
_PLANNED_ANEW = frozenset({"heads_by_name"})
"""Which index serves best depends on the values: a short prefix matches nearly all sessions, a long one nearly none."""
_PLANNED_ONCE = frozenset({"events", "events_backwards", "heads_newest", "heads_of_project"})
"""Pages in the order of an index. PostgreSQL cannot know that a page is short, so it would plan each of them again."""
_STATEMENTS = {name: statement_of(text, anew=name in _PLANNED_ANEW) for name, text in QUERIES.items()}

# The driver logs every lost connection, and without a handler the message reaches the user's terminal. This module
# handles a lost connection itself: it retries, or raises an error.
logging.getLogger("psycopg").addHandler(logging.NullHandler())

Row = tuple[Any, ...]
Answer = TypeVar("Answer")
_GAVE_UP_WAITING = "SyncRepWaitForLSN"

# Always the same types, whatever the values: if not, a statement would be prepared again for every size of a number.
_ADAPTERS = AdaptersMap(psycopg.adapters)
_ADAPTERS.register_dumper(int, Int8BinaryDumper)
_ADAPTERS.register_dumper(bytes, BytesBinaryDumper)
_ADAPTERS.register_dumper(list, ListBinaryDumper)


class Connection(psycopg.Connection[Row]):
    """A connection that remembers the notices of the server."""

    unsure = False
    prepared: Prepared

    def notice(self, diagnostic: psycopg.errors.Diagnostic) -> None:
        """Note a commit that did not wait for its standby: only this server is known to have it."""
        if diagnostic.source_function == _GAVE_UP_WAITING or diagnostic.sqlstate == "57P01":
            self.unsure = True

    def sure(self) -> None:
        """After a commit: raise if it may be lost in a failover."""
        if self.unsure:
            raise Unsure("the commit did not wait for its standby")


def open_connection(conninfo: str) -> Connection:
    """A connection of its own, outside of any pool."""
    connection = Connection.connect(conninfo, autocommit=True, context=_Context())
    connection.add_notice_handler(connection.notice)
    connection.prepared = Prepared()
    return connection


class _Context:
    """What psycopg needs to use adapters of ours."""

    adapters = _ADAPTERS
    connection = None


class Connections:
    """The pool of one store object and tenant."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._shown = address.shown
        self.tenant = address.tenant
        self._closed = False
        self._start()

    def _start(self) -> None:
        self._idle: list[Connection] = []
        self._lent = 0
        self._changed = Condition()

    def run(
        self,
        work: Callable[[Connection], Answer],
        recall: Callable[[Connection], Answer | None] | None = None,
        patience: float | None = None,
    ) -> Answer:
        """Do a piece of work, with retries if needed. `recall` reads from the store how a lost try ended."""
        deadline = time.monotonic() + (PATIENCE_SECONDS if patience is None else patience)
        pause, sent = PAUSE_SECONDS, False
        while True:
            try:
                with self._borrowed() as connection:
                    if sent and recall is not None and (answer := recall(connection)) is not None:
                        return answer
                    sent = True
                    return work(connection)
            except (psycopg.Error, Unsure) as problem:
                if not may_pass(problem, anywhere=self._address.anywhere):
                    raise store_error(problem, self._shown) from problem  # type: ignore[arg-type]  # Unsure may pass
                self._drop_idle()
                if time.monotonic() > deadline:
                    raise self._given_up(problem, unknown=sent and recall is not None) from problem
            except UnicodeEncodeError:
                raise InvalidInput("the text contains a lone surrogate, which is not valid Unicode") from None
            # After a failover many clients come back at once: this spreads them out.
            time.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311  # a pause, not a secret
            pause = min(2 * pause, LONGEST_PAUSE_SECONDS)

    def ask(self, name: str, /, **values: Any) -> list[Row]:
        """All rows that a named query returns, in a transaction of its own."""
        return self.run(lambda connection: self.fetch(connection, name, values))

    def fetch(self, connection: Connection, name: str, values: dict[str, Any]) -> list[Row]:
        """One statement as one transaction, in one round trip."""
        connection.unsure = False
        tenant = {"tenant": self.tenant}
        first = "begin_planned" if name in _PLANNED_ONCE else "begin"
        steps = ((_STATEMENTS[first], tenant), (_STATEMENTS[name], tenant | values))
        rows = exchange(connection, connection.prepared, steps)
        connection.sure()
        return rows

    def begin(self, connection: Connection) -> None:
        """The first statement of every transaction."""
        connection.execute(QUERIES["begin"], {"tenant": self.tenant}, prepare=True)

    def send(self, connection: Connection, name: str, values: Mapping[str, Any]) -> psycopg.Cursor[Row]:
        """A named statement of ours, inside of a transaction."""
        return connection.execute(QUERIES[name], {"tenant": self.tenant, **values}, prepare=True, binary=True)

    @contextlib.contextmanager
    def transaction(self, connection: Connection) -> Iterator[None]:
        """One transaction of several statements with decisions in between; certainly committed when the block ends."""
        connection.unsure = False
        with connection.transaction():
            self.begin(connection)
            yield
        connection.sure()

    def close(self) -> None:
        """Close idle connections; borrowed ones are closed when they are returned."""
        self._closed = True
        self._drop_idle()

    def forget(self) -> list[object]:
        """In a forked child: the inherited connections, which must be neither used nor closed."""
        inherited: list[object] = list(self._idle)
        self._start()
        return inherited

    @contextlib.contextmanager
    def _borrowed(self) -> Iterator[Connection]:
        with self._changed:
            while not self._idle and self._lent >= CONNECTIONS:
                self._changed.wait()
            self._lent += 1
            connection = self._idle.pop() if self._idle else None
        try:
            if connection is None:
                connection = open_connection(self._address.conninfo)
            yield connection
        except BaseException as problem:
            if connection is not None and (not _is_whole(connection) or state_of(problem) == NOT_PREPARED):
                connection.close()
            raise
        finally:
            with self._changed:
                self._lent -= 1
                if connection is not None and not connection.closed:
                    if self._closed:
                        connection.close()
                    else:
                        self._idle.append(connection)
                self._changed.notify()

    def _drop_idle(self) -> None:
        with self._changed:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _given_up(self, problem: BaseException, *, unknown: bool) -> OutcomeUnknown | StoreBusy:
        if unknown:
            said = str(problem).strip().partition("\n")[0] or state_of(problem)
            return OutcomeUnknown(f"the store {self._shown} became unreachable during a commit: {said}")
        return unreachable(problem, self._shown)


def _is_whole(connection: Connection) -> bool:
    """Whether a connection can be used after an error: it is open, and in no transaction."""
    return not connection.closed and connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
