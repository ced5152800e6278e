"""Connections to PostgreSQL: a few that are borrowed for one transaction each, and what happens when one is lost.

A transaction is sent as one packet (a pipeline), so that it costs one round trip: first whose it is, then what it does.
A connection that fails is never used again. Whether its last transaction landed is unknown then; it is asked for on
another connection before the work is done once more.
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
"""How long work is tried again while a server is away: a failover takes seconds."""
FIRST_SECONDS = 2.0
"""The same when a store is opened: a wrong address should not take a minute to be told."""
PAUSE_SECONDS = 0.02
"""The first pause before trying again; each is twice the one before, up to the longest."""
LONGEST_PAUSE_SECONDS = 1.0

QUERIES = {name: text.encode() for name, text in queries("postgres").items()}
_PLANNED_ANEW = frozenset({"heads_by_name"})
"""Which index serves best depends on the values: a short prefix fits nearly all sessions, a long one nearly none."""
_PLANNED_ONCE = frozenset({"events", "events_backwards", "heads_newest", "heads_of_project"})
"""Pages in the order of an index. PostgreSQL cannot know that a page is short, so it would plan each of them anew."""
_STATEMENTS = {name: statement_of(text, anew=name in _PLANNED_ANEW) for name, text in QUERIES.items()}

# The driver tells its log of every connection that is lost, and without a handler that is the user's terminal. What a
# lost connection means is said here, by an error or by going on.
logging.getLogger("psycopg").addHandler(logging.NullHandler())

Row = tuple[Any, ...]
Answer = TypeVar("Answer")
_GAVE_UP_WAITING = "SyncRepWaitForLSN"

# Always the same types, whatever the values: else a statement would be prepared anew for every size of a number.
_ADAPTERS = AdaptersMap(psycopg.adapters)
_ADAPTERS.register_dumper(int, Int8BinaryDumper)
_ADAPTERS.register_dumper(bytes, BytesBinaryDumper)
_ADAPTERS.register_dumper(list, ListBinaryDumper)


class Connection(psycopg.Connection[Row]):
    """A connection that remembers what the server said beside its answers."""

    unsure = False
    prepared: Prepared

    def notice(self, diagnostic: psycopg.errors.Diagnostic) -> None:
        """Note when a commit went on without its standby: it counts as done for nobody but this server."""
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
    """What psycopg wants in order to take adapters from us."""

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
        """Do a piece of work, again if need be. `recall` tells from the store what came of an attempt that was lost."""
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
            # Many clients come back at once after a failover: not all in the same moment.
            time.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311  # a pause, not a secret
            pause = min(2 * pause, LONGEST_PAUSE_SECONDS)

    def ask(self, name: str, /, **values: Any) -> list[Row]:
        """Every row of a named query's answer, in a transaction of its own."""
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
        """Several statements with thought between them; sure on leaving that they are committed."""
        connection.unsure = False
        with connection.transaction():
            self.begin(connection)
            yield
        connection.sure()

    def close(self) -> None:
        """Close what is idle; what is lent is closed when it comes back."""
        self._closed = True
        self._drop_idle()

    def forget(self) -> list[object]:
        """In a forked child: what was inherited, which must neither be used nor closed."""
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
    """Whether a connection can be used after an error: it is there, and in no transaction."""
    return not connection.closed and connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
