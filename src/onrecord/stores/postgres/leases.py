"""Leases: acquired, extended and released in one statement each, on the database's clock.

Whether a lane is free is decided here, since only this machine knows whether a process of its own is gone; the
statement that acquires it takes effect only if the lane has not changed since it was read.
"""

from __future__ import annotations

from json import dumps, loads
from typing import TYPE_CHECKING, Any

from onrecord import machine
from onrecord.log.store import Lease
from onrecord.stores.refusals import held_by, lease_lost, not_found

if TYPE_CHECKING:
    from collections.abc import Callable

    from onrecord.stores.postgres.connections import Connection, Connections, Row


class Leases:
    """The lanes of a store's sessions."""

    def __init__(self, connections: Connections, now: Callable[[], int | None]) -> None:
        self._connections = connections
        self._now = now

    def acquire(self, session: str, lane: str, holder: dict[str, Any], seconds: float, *, takeover: bool) -> Lease:
        """Acquire the lease of a lane; a refusal says who has it."""
        where = {"session": session, "lane": lane, "now": self._now()}
        written = dumps(holder, sort_keys=True)
        tried: list[int] = []

        def work(connection: Connection) -> Lease:
            while True:
                row = self._present(connection, where)
                name, epoch, held, since, until, now = row
                if held is not None and not takeover and until > now:
                    present = Lease(session, lane, epoch, loads(held), since, until)
                    if not machine.is_gone(present.holder):
                        raise held_by(name, present)
                tried.append((epoch or 0) + 1)
                wanted = {"epoch": tried[-1], "holder": written, "span": int(seconds * 1e6)}
                seen = {"seen": epoch or 0, "seen_until": until or 0}
                rows = self._connections.fetch(connection, "take_lease", {**where, **wanted, **seen})
                if rows:
                    return _lease(session, lane, rows[0])

        def recall(connection: Connection) -> Lease | None:
            _name, epoch, held, _since, _until, _now = self._present(connection, where)
            if epoch not in tried or held != written:
                return None
            # Acquired, but certain only after a commit: a failover can lose what only one server has.
            again = {**where, "epoch": epoch, "span": int(seconds * 1e6)}
            rows = self._connections.fetch(connection, "extend_lease", again)
            return _lease(session, lane, rows[0]) if rows else None

        return self._connections.run(work, recall)

    def renew(self, lease: Lease, seconds: float) -> Lease:
        """Extend a lease that is still current."""
        rows = self._connections.ask(
            "extend_lease", session=lease.session, lane=lease.lane, epoch=lease.epoch, now=self._now(),
            span=int(seconds * 1e6),
        )  # fmt: skip
        if not rows:
            raise lease_lost(lease.lane)
        return _lease(lease.session, lease.lane, rows[0])

    def release(self, lease: Lease) -> None:
        """Release the lease, unless another process has it by now."""
        self._connections.ask("release_lease", session=lease.session, lane=lease.lane, epoch=lease.epoch)

    def held(self, session: str) -> list[Lease]:
        """The leases of a session."""
        rows = self._connections.ask("leases", session=session)
        return [_lease(session, lane, rest) for lane, *rest in rows]

    def _present(self, connection: Connection, where: dict[str, Any]) -> Row:
        rows = self._connections.fetch(connection, "lease", where)
        if not rows:
            raise not_found(where["session"])
        return rows[0]


def _lease(session: str, lane: str, row: Any) -> Lease:
    epoch, holder, since, until = row
    return Lease(session, lane, epoch, loads(holder), since, until)
