"""Logs in memory: the specification of a store in code. Read this before any other store.

Everything happens under one lock, so each method is one transaction. Nothing survives the process.
"""

from __future__ import annotations

import time
from threading import RLock
from typing import TYPE_CHECKING, Any

from onrecord import machine
from onrecord.errors import Conflict, LogMoved
from onrecord.log.events import Draft, Record
from onrecord.log.head import Head
from onrecord.log.store import LEASE_SECONDS, LINK_PREFIX, Hit, Lease, Receipt, Snapshot, Weight
from onrecord.log.text import fits, words_in, words_of
from onrecord.log.tip import Tip
from onrecord.stores.payloads import key_for
from onrecord.stores.placing import new_among, place
from onrecord.stores.refusals import (
    held_by,
    id_taken,
    lease_lost,
    log_moved,
    name_taken,
    not_found,
    nothing_at,
    refuse_erasure,
    unlike_parent,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence


class MemoryStore:
    """A store that forgets everything when the process ends."""

    url = "memory:"

    def __init__(self, *, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._lock = RLock()
        self._heads: dict[str, Head] = {}
        self._own: dict[str, list[Record]] = {}
        self._leases: dict[tuple[str, str], Lease] = {}
        self._epochs: dict[tuple[str, str], int] = {}
        self._spans: dict[tuple[str, str], float] = {}
        """How many seconds each lease lasts: an append under a lease renews it for as long."""
        self._snapshots: dict[tuple[str, str], Snapshot] = {}
        self._scrubbed: dict[str, int] = {}
        self._arrived: dict[str, int] = {}
        self._secret = machine.entropy(32)

    def create(self, head: Head, drafts: Sequence[Draft]) -> list[Receipt]:
        with self._lock:
            if head.session in self._heads:
                raise id_taken(head.session)
            if head.parent is not None and self._at(head.parent, head.forked_at).hash != head.hash:
                raise unlike_parent()
            self._refuse_taken(head)
            self._heads[head.session], self._own[head.session] = head, []
            try:
                return self.append(head.session, drafts)
            except BaseException:
                del self._heads[head.session], self._own[head.session]
                raise

    def append(
        self, session: str, drafts: Sequence[Draft], *, expect: int | None = None, lease: Lease | None = None
    ) -> list[Receipt]:
        drafts = tuple(drafts)
        with self._lock:
            head = self.head(session)
            known = {draft.id: found for draft in drafts if (found := self.find(session, draft.id))}
            fresh = new_among(drafts, known)
            if fresh:
                if lease is not None:
                    self._present(lease)
                if expect is not None and expect != head.position:
                    raise log_moved(expect, head.position)
            placed = place(Tip.of(head), drafts, known, fresh)
            records, now = placed.records, placed.tip.head
            self._refuse_taken(now)
            if self._heads[session] is not head:  # a signal handler appended meanwhile, in this same thread
                return self.append(session, drafts, expect=expect, lease=lease)
            # No call between here and the last of these steps: a handler runs only where a function is called.
            self._own[session] += records
            self._heads[session] = now
            if fresh and lease is not None:
                self.renew(lease, self._spans[session, lease.lane])
            return placed.receipts

    def read(
        self, session: str, *, after: int = 0, upto: int | None = None, limit: int | None = None,
        kinds: Collection[str] | None = None, backwards: bool = False, bodies: Collection[str] | None = None,
    ) -> list[Record]:  # fmt: skip
        with self._lock:
            found = [
                record if bodies is None or record.kind in bodies else record._replace(payload=None)
                for record in self._history(session)
                if record.position > after
                and (upto is None or record.position <= upto)
                and (kinds is None or record.kind in kinds)
            ]
        if backwards:
            found.reverse()
        return found[:limit]

    def find(self, session: str, id: str) -> Record | None:
        with self._lock:
            return next((record for record in self._history(session) if record.id == id), None)

    def linked(self, id: str) -> list[str]:
        with self._lock:
            found = [
                (record.at, session)
                for session, log in self._own.items()
                for record in log
                if record.id == id and id.startswith(LINK_PREFIX)
            ]
        return [session for _at, session in sorted(found, reverse=True)]

    def head(self, session: str) -> Head:
        with self._lock:
            if session not in self._heads:
                raise not_found(session)
            return self._heads[session]

    def heads(
        self, *, project: str | None = None, statuses: Collection[str] | None = None, name: str | None = None,
        prefix: str | None = None, limit: int = 50, before: tuple[int, str] | None = None,
    ) -> list[Head]:  # fmt: skip
        with self._lock:
            found = [
                head
                for head in self._heads.values()
                if (project is None or head.project == project)
                and (statuses is None or head.status in statuses)
                and (name is None or head.name == name)
                and (prefix is None or head.name.startswith(prefix) or head.session.startswith(prefix.upper()))
                and (before is None or (head.at, head.session) < before)
            ]
        return sorted(found, key=lambda head: (head.at, head.session), reverse=True)[:limit]

    def children(self, session: str) -> list[Head]:
        with self._lock:
            return [head for head in self._heads.values() if head.parent == session]

    def acquire(
        self, session: str, lane: str, holder: dict[str, Any], *, seconds: float = LEASE_SECONDS, takeover: bool = False
    ) -> Lease:
        with self._lock:
            head, now = self.head(session), int(self._clock() * 1e6)
            present = self._leases.get((session, lane))
            if present and not takeover and present.until > now and not machine.is_gone(present.holder):
                raise held_by(head.name, present)
            epoch = self._epochs[session, lane] = self._epochs.get((session, lane), 0) + 1
            lease = Lease(session, lane, epoch, holder, now, now + int(seconds * 1e6))
            self._leases[session, lane], self._spans[session, lane] = lease, seconds
            return lease

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
        with self._lock:
            where = session, lane
            before = self._leases.get(where), self._epochs.get(where, 0), self._spans.get(where, 0.0)
            lease = self.acquire(session, lane, holder, seconds=seconds, takeover=takeover)
            try:
                return lease, self.append(session, drafts, expect=expect, lease=lease)
            except Conflict:
                held, self._epochs[where], self._spans[where] = before
                if held is None:
                    del self._leases[where]
                else:
                    self._leases[where] = held
                raise

    def renew(self, lease: Lease, seconds: float = LEASE_SECONDS) -> Lease:
        with self._lock:
            present, where = self._present(lease), (lease.session, lease.lane)
            renewed = present._replace(until=max(present.until, int((self._clock() + seconds) * 1e6)))
            self._leases[where], self._spans[where] = renewed, seconds
            return renewed

    def _present(self, lease: Lease) -> Lease:
        """The present lease; `LeaseLost` if another process has the lane."""
        present = self._leases.get((lease.session, lease.lane))
        if present is None or present.epoch != lease.epoch:
            raise lease_lost(lease.lane)
        return present

    def release(self, lease: Lease) -> None:
        with self._lock:
            present = self._leases.get((lease.session, lease.lane))
            if present and present.epoch == lease.epoch:
                del self._leases[lease.session, lease.lane]

    def leases(self, session: str) -> list[Lease]:
        with self._lock:
            return [lease for (of, _lane), lease in self._leases.items() if of == session]

    def save(self, session: str, snapshot: Snapshot) -> None:
        with self._lock:
            if snapshot.position >= self._scrubbed.get(session, 0):
                self._snapshots[session, snapshot.view] = snapshot

    def snapshot(self, session: str, view: str) -> Snapshot | None:
        return self._snapshots.get((session, view))

    def save_all(self, snapshots: Mapping[str, Snapshot]) -> None:
        for session, snapshot in snapshots.items():
            self.save(session, snapshot)

    def snapshots(self, view: str, sessions: Collection[str]) -> dict[str, Snapshot]:
        found = {session: self.snapshot(session, view) for session in sessions}
        return {session: snapshot for session, snapshot in found.items() if snapshot is not None}

    def search(
        self, query: str, *, project: str | None = None, session: str | None = None, limit: int = 20
    ) -> list[Hit]:
        wanted = words_of(query)
        if not wanted:
            return []
        with self._lock:
            return [
                Hit(of, record.position)
                for of, records in self._own.items()
                if (session is None or of == session) and (project is None or self._heads[of].project == project)
                for record in records
                if fits(words_in(record.payload), wanted)
            ][:limit]

    def weigh(self, session: str, kinds: Collection[str] | None = None) -> list[Weight]:
        with self._lock:
            return [
                Weight(record.position, record.kind, len(record.payload))
                for record in self._own[self.head(session).session]
                if (kinds is None or record.kind in kinds) and record.payload is not None
            ]

    def erase(self, session: str, positions: Collection[int], draft: Draft) -> Receipt:
        with self._lock:
            head = self.head(session)
            refuse_erasure(head, positions)
            (receipt,) = self.append(session, [draft])
            own = self._own[session]
            for position in positions:
                index = position - head.forked_at - 1
                own[index] = own[index]._replace(salt=None, payload=None)
            # Older snapshots, here and in every fork, may contain what is erased now.
            self._snapshots.clear()
            self._scrubbed[session] = receipt.position
            return receipt

    def install(self, head: Head, records: Iterator[Record], *, extend: bool = False) -> None:
        with self._lock:
            kept = self._own.get(head.session, []) if extend else []
            if not extend and head.session in self._heads:
                raise id_taken(head.session)
            taken = [*kept, *records]
            if extend and taken[len(kept)].position != self._heads[head.session].position + 1:
                raise LogMoved("the log grew while it was being extended", expected=0, actual=head.position)
            self._refuse_taken(head)
            self._heads[head.session], self._own[head.session] = head, taken
            self._arrived[head.session] = head.position

    def arrived(self, session: str) -> int:
        return self._arrived.get(session, 0)

    def key(self, purpose: str) -> bytes:
        return key_for(self._secret, purpose)

    def close(self) -> None:
        """Nothing to close."""

    def _history(self, session: str) -> list[Record]:
        head = self.head(session)
        inherited = self._history(head.parent)[: head.forked_at] if head.parent else []
        return inherited + self._own[session]

    def _at(self, session: str, position: int) -> Record:
        history = self._history(session)
        if not 1 <= position <= len(history):
            raise nothing_at(position)
        return history[position - 1]

    def _refuse_taken(self, head: Head) -> None:
        for other in self._heads.values():
            if (other.project, other.name) == (head.project, head.name) and other.session != head.session:
                raise name_taken(head.name, other.status)
