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

    Ask = Callable[[str, dict[str, Any]], list[Row]]


class Leases:
    """The lanes of a store's sessions."""

    def __init__(self, connections: Connections, now: Callable[[], int | None]) -> None:
        self._connections = connections
        self._now = now

    def acquire(self, session: str, lane: str, holder: dict[str, Any], seconds: float, *, takeover: bool) -> Lease:
        """Acquire the lease of a lane; a refusal says who has it."""
        taking = self.taking(session, lane, holder, seconds, takeover=takeover)
        fetch = self._connections.fetch

        def work(connection: Connection) -> Lease:
            while (lease := taking.once(lambda name, values: fetch(connection, name, values))) is None:
                pass
            return lease

        def recall(connection: Connection) -> Lease | None:
            # Acquired, but certain only after a commit: a failover can lose what only one server has.
            epoch = taking.granted(fetch(connection, "lease", taking.where))
            again = {**taking.where, "epoch": epoch, "span": taking.span}
            rows = fetch(connection, "extend_lease", again) if epoch else []
            return _lease(session, lane, rows[0]) if rows else None

        return self._connections.run(work, recall)

    def taking(self, session: str, lane: str, holder: dict[str, Any], seconds: float, *, takeover: bool) -> Taking:
        """What acquires the lease of a lane."""
        return Taking(session, lane, holder, seconds, self._now(), takeover=takeover)

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


class Taking:
    """One holder that acquires the lease of a lane, which may take several tries. `ask` runs a statement."""

    def __init__(
        self, session: str, lane: str, holder: dict[str, Any], seconds: float, now: int | None, *, takeover: bool
    ) -> None:
        self.where: dict[str, Any] = {"session": session, "lane": lane, "now": now}
        self.span = int(seconds * 1e6)
        self._holder = dumps(holder, sort_keys=True)
        self._takeover = takeover
        self._tried: list[int] = []

    def once(self, ask: Ask) -> Lease | None:
        """One try: the lease, a refusal, or None if the lane changed since it was read."""
        session, lane = self.where["session"], self.where["lane"]
        rows = ask("lease", self.where)
        if not rows:
            raise not_found(session)
        name, epoch, held, since, until, now = rows[0]
        if held is not None and not self._takeover and until > now and not self.granted(rows):
            present = Lease(session, lane, epoch, loads(held), since, until)
            if not machine.is_gone(present.holder):
                raise held_by(name, present)
        self._tried.append((epoch or 0) + 1)
        wanted = {"epoch": self._tried[-1], "holder": self._holder, "span": self.span}
        seen = {"seen": epoch or 0, "seen_until": until or 0}
        taken = ask("take_lease", {**self.where, **wanted, **seen})
        return _lease(session, lane, taken[0]) if taken else None

    def granted(self, rows: list[Row]) -> int:
        """The epoch under which an earlier try was granted, if the lane says so; 0 if not."""
        epoch, held = rows[0][1:3] if rows else (0, None)
        return int(epoch) if held == self._holder and epoch in self._tried else 0


def _lease(session: str, lane: str, row: Any) -> Lease:
    epoch, holder, since, until = row
    return Lease(session, lane, epoch, loads(holder), since, until)
