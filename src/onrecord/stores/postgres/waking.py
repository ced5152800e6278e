"""Waking followers with LISTEN and NOTIFY. Only a convenience over looking again: it may wake for nothing and may miss.

Writers notify after their commit and not in it: PostgreSQL lets commits that notify wait for one another, all of a
database. So it is off unless the URL says `notify=on`, and then at most twenty times a second for a session. What is
sent is a keyed hash: whoever listens learns nothing about the sessions of other tenants.
"""

from __future__ import annotations

import contextlib
import hmac
import time
from typing import TYPE_CHECKING

import psycopg

from onrecord.errors import StoreError
from onrecord.stores.postgres.connections import open_connection
from onrecord.stores.statements import queries

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from onrecord.stores.postgres.address import Address
    from onrecord.stores.postgres.connections import Connections

PAUSE_SECONDS = 0.05
"""A session's followers are woken at most once in this time by one store object."""
SESSIONS_REMEMBERED = 1_000

_QUERIES = {name: text.encode() for name, text in queries("postgres", "waking.sql").items()}


class Waker:
    """Both ends: who has written, and who waits for it."""

    def __init__(self, connections: Connections, address: Address, secret: bytes) -> None:
        self._connections = connections
        self._address = address
        self._secret = secret
        self._last: dict[str, float] = {}

    def wake(self, session: str) -> None:
        """Tell whoever follows a session that it went on; never worth an error."""
        if not self._address.notify:
            return
        now = time.monotonic()
        if now - self._last.get(session, 0.0) < PAUSE_SECONDS:
            return
        if len(self._last) >= SESSIONS_REMEMBERED:
            self._last.clear()
        self._last[session] = now
        values = {"mark": self._mark(session)}
        with contextlib.suppress(StoreError):
            self._connections.run(lambda found: found.execute(_QUERIES["notify"], values), patience=0.0)

    @contextlib.contextmanager
    def waking(self, session: str) -> Iterator[Callable[[float], None]]:
        """A wait that ends early when somebody who notifies has written."""
        mark = self._mark(session)
        with contextlib.ExitStack() as cleanup:
            listener: psycopg.Connection | None = None
            with contextlib.suppress(psycopg.Error):
                listener = cleanup.enter_context(contextlib.closing(open_connection(self._address.conninfo)))
                listener.execute(_QUERIES["listen"])

            def wait(seconds: float) -> None:
                deadline = time.monotonic() + seconds
                if listener is not None:
                    with contextlib.suppress(psycopg.Error):
                        for told in listener.notifies(timeout=seconds):
                            if told.payload == mark:
                                return
                time.sleep(max(0.0, deadline - time.monotonic()))

            yield wait

    def _mark(self, session: str) -> str:
        return hmac.new(self._secret, f"{self._connections.tenant}/{session}".encode(), "sha256").hexdigest()
