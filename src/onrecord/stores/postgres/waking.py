"""Waking followers with LISTEN and NOTIFY. It only speeds up polling: it may wake without new events, or miss some.

Writers notify after their commit, not inside it: PostgreSQL makes all notifying commits of a database wait for one
another. NOTIFY is off unless the URL says `notify=on`, and then a session sends at most twenty a second. A notification
is a keyed hash: a listener learns nothing about the sessions of other tenants.
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
    """Both ends: writers notify, followers wait."""

    def __init__(self, connections: Connections, address: Address, secret: bytes) -> None:
        self._connections = connections
        self._address = address
        self._secret = secret
        self._last: dict[str, float] = {}

    def wake(self, session: str) -> None:
        """Notify the followers of a session that it has new events; a failure is ignored."""
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
        """A wait that ends early when a writer notifies."""
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
