"""PostgresStore: logs in PostgreSQL, for many machines and tenants, durable on return.

The port says what each method must do (`log/store.py`). A store object works for one tenant. Any number of threads may
use it; a forked child leaves all connections to its parent and opens its own.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any
from weakref import WeakSet, finalize

from onrecord.log.store import LEASE_SECONDS, PAGE_LIMIT, Hit, Lease, Receipt, Snapshot, Weight
from onrecord.stores.keyed import KeyedSessions
from onrecord.stores.postgres import schema, writes
from onrecord.stores.postgres.address import address_of
from onrecord.stores.postgres.append import PendingAppend, PendingJoin
from onrecord.stores.postgres.appender import Appender
from onrecord.stores.postgres.connections import FIRST_SECONDS, Connections
from onrecord.stores.postgres.leases import Leases
from onrecord.stores.postgres.membership import EVERY_SESSION, Membership
from onrecord.stores.postgres.rows import MOMENT_BITS, head_of, pack_plain, records_of
from onrecord.stores.postgres.search import Searcher
from onrecord.stores.postgres.upkeep import describe
from onrecord.stores.postgres.waking import Waker
from onrecord.stores.refusals import not_found

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from onrecord.log.events import Draft, Record
    from onrecord.log.head import Head
    from onrecord.machine.session_keys import SessionKeys
    from onrecord.stores.payloads import Packed
    from onrecord.stores.postgres.connections import Row

_LATEST = (1 << 62, "")
_HIGHEST = (1 << 63) - 1


class PostgresStore(KeyedSessions):
    """A store in a PostgreSQL database. Leases run on the database's clock unless a test gives another.

    `session_keys` has the keys of sessions that have their own.
    """

    def __init__(
        self,
        url: str,
        *,
        tenant: str | None = None,
        clock: Callable[[], float] | None = None,
        session_keys: Callable[[], SessionKeys] | None = None,
    ) -> None:
        self.address = address_of(url, tenant)
        self.url = self.address.shown
        self.tenant = self.address.tenant
        self._clock = clock
        self._connections = connections = Connections(self.address)
        # A caller that forgets to close a store, or is refused one, leaves no connection open.
        finalize(self, connections.close)
        facts: dict[str, str] = dict(
            connections.run(lambda connection: connections.fetch(connection, "meta", {}), patience=FIRST_SECONDS)
        )
        schema.check(facts, self.url)
        self._membership = Membership(connections)
        self._secret = bytes.fromhex(facts["secret"])
        self._payloads = self._start_keyed(self._blob_secret, session_keys or _nowhere)
        self._appender = Appender(self._connections, self._payloads, self._now)
        self._leases = Leases(self._connections, self._now)
        self._searcher = Searcher(self._connections, self.read, self._membership.writes)
        self._waker = Waker(self._connections, self.address, self._secret)
        _STORES.add(self)

    def create(self, head: Head, drafts: Sequence[Draft]) -> list[Receipt]:
        self._membership.writes()
        if head.parent is not None:
            self._membership.sign(head.parent)
        cipher = self._new_cipher(head.session)
        if cipher is not None:
            drafts = self._all_ciphers().drafts(cipher, drafts)
        with self._making(cipher):
            receipts = writes.create(self._connections, self._payloads, head, drafts, cipher)
        self._membership.sign(head.session)
        return receipts

    def append(
        self, session: str, drafts: Sequence[Draft], *, expect: int | None = None, lease: Lease | None = None
    ) -> list[Receipt]:
        return self._append(PendingAppend(session, tuple(drafts), expect, lease))

    def _append(self, pending: PendingAppend) -> list[Receipt]:
        session = pending.session
        self._membership.writes()
        self._membership.sign(session)
        pending.cipher = self._cipher_for_append(session)
        if pending.cipher is not None:
            pending.drafts = tuple(self._all_ciphers().drafts(pending.cipher, pending.drafts))
        receipts = self._appender.append(pending)
        self._waker.wake(session)
        return receipts

    def read(
        self,
        session: str,
        *,
        after: int = 0,
        upto: int | None = None,
        limit: int | None = None,
        kinds: Collection[str] | None = None,
        backwards: bool = False,
        bodies: Collection[str] | None = None,
    ) -> list[Record]:
        lines = self._lineage(session)
        if not backwards:
            lines.reverse()
        values = {"kinds": _listed(kinds), "bodies": _listed(bodies)}
        highest = _HIGHEST if upto is None else max(upto, 0)
        rest = limit
        found: list[Record] = []
        for of, low, high in lines:
            first, last = max(low, after), min(high, highest)
            if first >= last or rest == 0:
                continue
            rows = self._connections.ask(
                "events_backwards" if backwards else "events",
                session=of, after=first, upto=last, limit=rest, **values,
            )  # fmt: skip
            found += records_of(of, rows, self._payloads)
            if limit is not None:
                rest = limit - len(found)
        return found

    def find(self, session: str, id: str) -> Record | None:
        self._membership.sign(session)
        for of, *row in self._ask("event_by_id", session=session, id=id):
            return records_of(of, [tuple(row)], self._payloads)[0]
        return None

    def linked(self, id: str) -> list[str]:
        return [session for (session,) in self._ask("linked", id=id)]

    def head(self, session: str) -> Head:
        rows = self._ask("head", session=session)
        if not rows:
            raise not_found(session)
        return self._shown(head_of(rows[0]))

    def heads(
        self,
        *,
        project: str | None = None,
        statuses: Collection[str] | None = None,
        name: str | None = None,
        prefix: str | None = None,
        limit: int = 50,
        before: tuple[int, str] | None = None,
    ) -> list[Head]:
        at, session = before or _LATEST
        values: dict[str, Any] = {
            "project": project, "statuses": _listed(statuses), "limit": max(0, min(limit, PAGE_LIMIT)),
            "moment": at >> MOMENT_BITS, "at": at, "session": session,
        }  # fmt: skip
        if name is None and prefix is None:
            rows = self._ask("heads_newest" if project is None else "heads_of_project", **values)
        else:
            values |= {"name": name} | _bounds("prefix", prefix) | _bounds("id_prefix", prefix and prefix.upper())
            rows = self._ask("heads_by_name", **values)
        return [self._shown(head_of(row)) for row in rows]

    def children(self, session: str) -> list[Head]:
        return [self._shown(head_of(row)) for row in self._ask("children", session=session)]

    def acquire(
        self,
        session: str,
        lane: str,
        holder: dict[str, Any],
        *,
        seconds: float = LEASE_SECONDS,
        takeover: bool = False,
    ) -> Lease:
        self._membership.writes()
        return self._leases.acquire(session, lane, holder, seconds, takeover=takeover)

    def join(
        self,
        session: str,
        lane: str,
        holder: dict[str, Any],
        drafts: Sequence[Draft],
        *,
        expect: int | None = None,
        seconds: float = LEASE_SECONDS,
        takeover: bool = False,
    ) -> tuple[Lease, list[Receipt]]:
        taking = self._leases.taking(session, lane, holder, seconds, takeover=takeover)
        pending = PendingJoin(session, drafts, expect, taking)
        receipts = self._append(pending)
        assert pending.lease is not None  # noqa: S101  # what it appended, it appended under this lease
        return pending.lease, receipts

    def renew(self, lease: Lease, seconds: float = LEASE_SECONDS) -> Lease:
        return self._leases.renew(lease, seconds)

    def release(self, lease: Lease) -> None:
        self._leases.release(lease)

    def leases(self, session: str) -> list[Lease]:
        return self._leases.held(session)

    def save(self, session: str, snapshot: Snapshot) -> None:
        self.save_all({session: snapshot})

    def snapshot(self, session: str, view: str) -> Snapshot | None:
        return self.snapshots(view, (session,)).get(session)

    def save_all(self, snapshots: Mapping[str, Snapshot]) -> None:
        self._membership.writes()
        self._membership.sign(*snapshots)
        every = snapshots.values()
        self._connections.ask(
            "save_snapshots", sessions=list(snapshots), views=[one.view for one in every],
            positions=[one.position for one in every], hashes=[one.hash for one in every],
            bodies=list(self._bodies(snapshots).values()),
        )  # fmt: skip

    def snapshots(self, view: str, sessions: Collection[str]) -> dict[str, Snapshot]:
        found = {}
        known = [one for one in sessions if "\0" not in one]
        self._membership.sign(*known)
        for session, position, digest, packed in self._ask("snapshots", sessions=known, view=view):
            body = self._body(session, view, packed, self._payloads)
            if body is not None:
                found[session] = Snapshot(view, position, digest, body)
        return found

    def search(
        self, query: str, *, project: str | None = None, session: str | None = None, limit: int = 20
    ) -> list[Hit]:
        self._membership.sign(session or EVERY_SESSION)
        return self._searcher.search(query, project, session, limit)

    def weigh(self, session: str, kinds: Collection[str] | None = None) -> list[Weight]:
        self.head(session)
        return [Weight(*row) for row in self._ask("weigh", session=session, kinds=_listed(kinds))]

    def erase(self, session: str, positions: Collection[int], draft: Draft) -> Receipt:
        self._membership.writes()
        self._membership.sign(session)
        try:
            return writes.erase(self._connections, self._payloads, session, positions, draft)
        finally:
            self._appender.forget(session)

    def install(self, head: Head, records: Iterator[Record], *, extend: bool = False) -> None:
        self._membership.writes()
        self._membership.sign(head.session)
        try:
            head, copied, cipher = self._copied(head, list(records), extend=extend)
            with self._making(None if extend else cipher):
                writes.install(self._connections, self._payloads, head, copied, cipher, extend=extend)
        finally:
            self._appender.forget(head.session)

    def arrived(self, session: str) -> int:
        found = self._ask("arrived", session=session)
        return int(found[0][0]) if found else 0

    def describe(self, *, check: bool = False) -> dict[str, Any]:
        """What `onrecord doctor` reports: server, durability, roles, tenants, counts; none of it takes long."""
        facts: dict[str, str] = dict(self._connections.ask("meta"))
        kept = {"schema_version": int(facts["schema"]), "owner": facts["owner"], "app": facts["app"]}
        standing = self._membership.standing
        kept |= {"login": standing.login, "member": standing.role, "every_tenant": standing.every_tenant,
                 "audited": standing.audited_from is not None}  # fmt: skip
        return describe(self._connections) | kept | {"search_behind": self._searcher.behind()}

    def retention(self) -> dict[str, Any]:
        """What the owner of the store decided for the tenant; it takes the place of the user's settings."""
        return self._membership.retention()

    def tidy(self) -> None:
        """Drop the tenant's snapshots: what `onrecord doctor --fix` may do."""
        self._connections.ask("drop_every_snapshot")

    def waking(self, session: str) -> AbstractContextManager[Callable[[float], None]]:
        return self._waker.waking(session)

    def key(self, purpose: str) -> bytes:
        from onrecord.stores.payloads import key_for

        return key_for(self._blob_secret(), purpose)

    def close(self) -> None:
        self._connections.close()
        _STORES.discard(self)

    def start_anew(self) -> list[object]:
        """After a fork, in the child: new locks, new connections; inherited ones must not be touched."""
        inherited = self._connections.forget()
        self._payloads = self._new_payloads(self._blob_secret)
        self._appender = Appender(self._connections, self._payloads, self._now)
        return inherited

    def _now(self) -> int | None:
        """None: the database's clock."""
        return None if self._clock is None else int(self._clock() * 1e6)

    def _blob_secret(self) -> bytes:
        return self._secret

    def _ask(self, name: str, /, **values: Any) -> list[Row]:
        """A query about things that may not exist: a value that PostgreSQL cannot store is not on record."""
        if any(isinstance(value, str) and "\0" in value for value in values.values()):
            return []
        return self._connections.ask(name, **values)

    def uses_session_keys(self) -> bool:
        return bool(self._ask("session_keys"))

    def keyed_sessions(self) -> list[tuple[str, str, str]]:
        """(session, key id, status) of the tenant's sessions that have a key of their own."""
        return [(row[0], row[1], row[2]) for row in self._ask("keyed_sessions")]

    def key_id(self, session: str) -> str | None:
        found = self._ask("key_of", session=session)
        return found[0][0] if found else None

    def _owner_of(self, session: str, position: int) -> str:
        return next(str(of) for of, low, high in self._lineage(session) if low < position <= high)

    def _pack_unencrypted(self, event: Draft | Record) -> Packed:
        return pack_plain(self._payloads, event)

    def _lineage(self, session: str) -> list[Row]:
        """(id, low, high) of the session and its ancestors: each contributes low < position <= high."""
        self._membership.sign(session)
        lines = self._ask("lineage", session=session)
        if not lines:
            raise not_found(session)
        return lines


def _nowhere() -> SessionKeys:
    """Where no directory for keys was named."""
    from onrecord.machine.session_keys import SessionKeys

    return SessionKeys(None, lambda: None)


def _listed(values: Collection[str] | None) -> list[str] | None:
    return None if values is None else list(values)


def _bounds(name: str, prefix: str | None) -> dict[str, str | None]:
    """The range of texts that begin with a prefix."""
    return {name: prefix, f"{name}_end": None if prefix is None else prefix + "\U0010ffff"}


_STORES: WeakSet[PostgresStore] = WeakSet()
_INHERITED: list[object] = []
"""Connections of a parent: to use or close them here would break them in the parent."""


def _after_fork_in_child() -> None:
    for store in list(_STORES):
        _INHERITED.extend(store.start_anew())


os.register_at_fork(after_in_child=_after_fork_in_child)
