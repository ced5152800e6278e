"""SQLiteStore: logs in one file, for all processes of one machine, durable on return.

The port says what each method must do (`log/store.py`). All changes go through the writer, all reads through a pool of
readers. A forked child leaves every connection to its parent and opens its own. What an append does not need is
imported where it is used: a hook is a process that appends one event.
"""

from __future__ import annotations

import atexit
import os
import time

import apsw

from onrecord import machine
from onrecord.errors import InvalidInput
from onrecord.lean_json import loads
from onrecord.lean_typing import TYPE_CHECKING, Any, TypeVar
from onrecord.lean_weak import WeakKeys
from onrecord.log.codec import SealOnRead
from onrecord.log.names import MIRROR_PREFIX
from onrecord.log.store import LEASE_SECONDS, PAGE_LIMIT, Hit, Lease, Receipt, Snapshot, Weight
from onrecord.stores.keyed import KeyedSessions, packed_of
from onrecord.stores.payloads import FACTS_FROM
from onrecord.stores.refusals import not_found
from onrecord.stores.sqlite import safety
from onrecord.stores.sqlite.append import Append, LateAppend, Remembered
from onrecord.stores.sqlite.cipher import key_of
from onrecord.stores.sqlite.connection import (
    DURABILITIES,
    QUERIES,
    prepare,
    refuse_old_library,
    store_error,
)
from onrecord.stores.sqlite.readers import Readers, Row, as_json, records_of
from onrecord.stores.sqlite.rows import MOMENT_BITS, POSITION_BITS, POSITION_MASK, TIERS, head_of
from onrecord.stores.sqlite.write_lock import WriteLock
from onrecord.stores.sqlite.writer import PendingWrite, TooLargeForLeader, Writer

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from onrecord.log.events import Draft, Event, Record
    from onrecord.log.head import Head
    from onrecord.machine.session_keys import SessionKeys
    from onrecord.stores.payloads import Packed
    from onrecord.stores.sqlite.search import Searcher

A = TypeVar("A", bound=Append)
FORK_SECONDS = 1.0
"""How long a fork waits for running reads and writes."""

_EVERYTHING = -1
_LATEST = (1 << 62, "")


class SQLiteStore(KeyedSessions):
    """A store in one file. `durability="fast"` does not wait for the disk: a power cut can lose the last commits.

    `key` returns the key of 32 bytes, or None. It is asked where the file is encrypted, and where there is no file yet:
    a new store is encrypted if there is a key. `session_keys` has the keys of sessions that have their own; without it,
    they are beside the file.
    """

    def __init__(
        self,
        path: str,
        *,
        durability: str = "full",
        clock: Callable[[], float] | None = None,
        key: Callable[[], bytes | None] | None = None,
        session_keys: Callable[[str], SessionKeys] | None = None,
    ) -> None:
        refuse_old_library()
        if durability not in DURABILITIES:
            raise InvalidInput(
                f"durability must be full or fast, not {durability!r}", hint="full waits for the disk; fast does not"
            )
        self._key = key_of(os.path.realpath(os.path.expanduser(path)), key)
        self.path = safety.resolve(path)
        self.url = f"sqlite:///{self.path}"
        self.durability = durability
        self._ahead = int((time.time() - machine.steady()) * 1e6)
        """How far the time of day was ahead of the steady clock; leases run on that one unless a test gives another."""
        self._clock = clock
        safety.check(self.path)
        lock = WriteLock(self.path + ".lock")
        self._readers = Readers(self.path, self._key)
        try:
            self._readers.add(prepare(self.path, lock, durability, self._key))
        except apsw.Error as problem:
            raise store_error(problem, self.path) from problem
        safety.tighten(self.path)
        self._writer = Writer(self.path, lock, durability, self._key)
        self._remembered = Remembered()
        self._secret = b""
        self._keys_at = session_keys
        self._payloads = self._start_keyed(self._blob_secret, self._keys_beside)
        self._searcher: Searcher | None = None
        _STORES[self] = None

    def create(self, head: Head, drafts: Sequence[Draft]) -> list[Receipt]:
        from onrecord.stores.sqlite.writes import Create

        cipher = self._new_cipher(head.session)
        if cipher is not None:
            drafts = self._all_ciphers().drafts(cipher, drafts)
        with self._making(cipher):
            answer: list[Receipt] = self._writer.run(Create(head, drafts, [*map(self._pack_whole, drafts)], cipher))
        return answer

    def append(
        self, session: str, drafts: Sequence[Draft], *, expect: int | None = None, lease: Lease | None = None
    ) -> list[Receipt]:
        answer: list[Receipt]
        now = self._now() if lease is not None else 0
        if type(drafts) is SealOnRead and (session in self._keyless or self._cipher_for_append(session) is None):
            pending = LateAppend(session, drafts, [], self._remembered, expect, lease, now)
            pending.pack = self._pack
            try:
                answer = self._writer.run(pending)
            except TooLargeForLeader:
                pass  # sealed and packed here, like any other
            else:
                return answer
        answer = self._writer.run(self._pending(Append, session, drafts, expect, lease, now))
        return answer

    def _pending(  # noqa: PLR0917  # on the hottest path, where names cost time
        self, kind: type[A], session: str, drafts: Sequence[Draft], expect: int | None, lease: Lease | None, now: int
    ) -> A:  # fmt: skip
        cipher = None if session in self._keyless else self._cipher_for_append(session)
        if cipher is None:
            return kind(session, drafts, list(map(self._pack, drafts)), self._remembered, expect, lease, now)
        drafts = self._all_ciphers().drafts(cipher, drafts)
        packed = [packed_of(draft) or self._pack(draft) for draft in drafts]
        encrypted = kind(session, drafts, packed, self._remembered, expect, lease, now)
        encrypted.cipher = cipher
        return encrypted

    def _pack(self, draft: Draft) -> Packed:
        if TIERS.get(draft.kind, 1):
            return self._payloads.pack(draft.payload, FACTS_FROM)
        return self._payloads.pack(draft.payload, conversation=draft.id.startswith(MIRROR_PREFIX))

    def _pack_whole(self, event: Draft | Record) -> Packed:
        return packed_of(event) or self._payloads.pack(event.payload or b"")

    def read(
        self, session: str, *, after: int = 0, upto: int | None = None, limit: int | None = None,
        kinds: Collection[str] | None = None, backwards: bool = False, bodies: Collection[str] | None = None,
    ) -> list[Record]:  # fmt: skip
        lines = self._history(session)
        name = "events" if kinds is None and bodies is None else "chosen_events"
        name += "_backwards" if backwards else ""
        filters = () if kinds is None and bodies is None else (as_json(kinds), as_json(bodies))
        highest = POSITION_MASK if upto is None else max(upto, 0)
        rest = _EVERYTHING if limit is None else limit
        found: list[Record] = []
        for number, of, low, high in lines if backwards else reversed(lines):
            first, last = max(low, after), min(high, highest)
            if first >= last or rest == 0:
                continue
            base = number << POSITION_BITS
            rows = self._readers.ask(name, (base + first, base + last, rest, *filters))
            found += records_of(of, rows, self._payloads)
            if limit is not None:
                rest = limit - len(found)
        return found

    def scan(
        self, session: str, parse: Callable[[bytes], Any], *, after: int = 0, upto: int | None = None,
        kinds: Collection[str] | None = None,
    ) -> Iterator[Event]:  # fmt: skip
        from onrecord.stores.sqlite.scanning import scan

        lines, bounds = self._history(session)[::-1], (after, POSITION_MASK if upto is None else max(upto, 0))
        return scan(self.read, self._readers, self._payloads, parse, lines=lines, bounds=bounds, kinds=kinds)

    def find(self, session: str, id: str) -> Record | None:
        for number, of, _low, high in self._history(session):
            rows = self._readers.ask("event_by_id", (number, id, (number << POSITION_BITS) + high))
            if rows:
                return records_of(of, rows, self._payloads)[0]
        return None

    def linked(self, id: str) -> list[str]:
        return [session for (session,) in self._readers.ask("linked", (id,))]

    def head(self, session: str) -> Head:
        rows = self._readers.ask("head", (session,))
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
        at, id_ = before or _LATEST
        values: dict[str, Any] = {
            "project": project, "statuses": as_json(statuses), "limit": max(0, min(limit, PAGE_LIMIT)),
            "moment": at >> MOMENT_BITS, "at": at, "id": id_,
        }  # fmt: skip
        if name is None and prefix is None:
            rows = self._readers.ask("heads_newest" if project is None else "heads_of_project", values)
        else:
            values |= {"name": name} | _bounds("prefix", prefix) | _bounds("id_prefix", prefix and prefix.upper())
            rows = self._readers.ask("heads_by_name", values)
        return [self._shown(head_of(row)) for row in rows]

    def children(self, session: str) -> list[Head]:
        return [self._shown(head_of(row)) for row in self._readers.ask("children", (session,))]

    def acquire(
        self, session: str, lane: str, holder: dict[str, Any], *, seconds: float = LEASE_SECONDS, takeover: bool = False
    ) -> Lease:
        from onrecord.stores.sqlite.leases import Acquire

        wanted = self._wanted(session, lane, holder, seconds)
        lease: Lease = self._writer.run(Acquire(wanted, takeover=takeover))
        return lease

    def join(
        self, session: str, lane: str, holder: dict[str, Any], drafts: Sequence[Draft], *, expect: int | None = None,
        seconds: float = LEASE_SECONDS, takeover: bool = False,
    ) -> tuple[Lease, list[Receipt]]:  # fmt: skip
        from onrecord.stores.sqlite.leases import Join

        wanted = self._wanted(session, lane, holder, seconds)
        joining = self._pending(Join, session, drafts, expect, wanted, wanted.since)
        joining.taken, joining.takeover = None, takeover
        receipts: list[Receipt] = self._writer.run(joining)
        return joining.lease, receipts

    def _wanted(self, session: str, lane: str, holder: dict[str, Any], seconds: float) -> Lease:
        now = self._now()
        if self._clock is None:
            holder = holder | {"clock": self._ahead}
        return Lease(session, lane, 0, holder, now, now + int(seconds * 1e6))

    def renew(self, lease: Lease, seconds: float = LEASE_SECONDS) -> Lease:
        from onrecord.stores.sqlite.leases import Renew

        span = int(seconds * 1e6)
        renewed: Lease = self._writer.run(Renew(lease, self._now() + span, span))
        return renewed

    def release(self, lease: Lease) -> None:
        from onrecord.stores.sqlite.leases import Release

        self._writer.run(Release(lease))

    def leases(self, session: str) -> list[Lease]:
        return [
            Lease(session, lane, epoch, loads(holder), since, until)
            for lane, epoch, holder, since, until in self._readers.ask("leases", (session,))
        ]

    def save(self, session: str, snapshot: Snapshot) -> None:
        self.save_all({session: snapshot})

    def snapshot(self, session: str, view: str) -> Snapshot | None:
        return self.snapshots(view, (session,)).get(session)

    def save_all(self, snapshots: Mapping[str, Snapshot]) -> None:
        self._writer.run(_Save(snapshots, self._bodies(snapshots)))

    def snapshots(self, view: str, sessions: Collection[str]) -> dict[str, Snapshot]:
        found = {}
        for session, position, digest, packed in self._readers.ask("snapshots", (as_json(sessions), view)):
            body = self._body(session, view, packed, self._payloads)
            if body is not None:
                found[session] = Snapshot(view, position, digest, body)
        return found

    def search(
        self, query: str, *, project: str | None = None, session: str | None = None, limit: int = 20
    ) -> list[Hit]:
        from onrecord.stores.sqlite.search import Searcher

        searcher = self._searcher or Searcher(self._readers, self._writer, self._payloads)
        self._searcher = searcher
        return searcher.search(query, project, session, limit)

    def weigh(self, session: str, kinds: Collection[str] | None = None) -> list[Weight]:
        number, _of, low, high = self._history(session)[0]
        base = number << POSITION_BITS
        return [Weight(*row) for row in self._readers.ask("weigh", (base + low, base + high, as_json(kinds)))]

    def erase(self, session: str, positions: Collection[int], draft: Draft) -> Receipt:
        from onrecord.stores.sqlite.scrub import scrub
        from onrecord.stores.sqlite.writes import Erase

        receipts: list[Receipt] = self._writer.run(
            Erase(session, positions, draft, [self._payloads.pack(draft.payload)])
        )
        scrub(self._writer)
        return receipts[0]

    def install(self, head: Head, records: Iterator[Record], *, extend: bool = False) -> None:
        from onrecord.stores.sqlite.writes import Install

        head, copied, cipher = self._copied(head, list(records), extend=extend)
        with self._making(None if extend else cipher):
            self._writer.run(Install(head, copied, self._pack_whole, cipher, extend=extend))

    def arrived(self, session: str) -> int:
        found = self._readers.ask("arrived", (session,))
        return int(found[0][0] or 0) if found else 0

    def backup(self, path: str) -> str:
        """Copy the store, while it is in use, to a new file that only its owner may read; return its path."""
        from onrecord.stores.sqlite.upkeep import back_up

        return back_up(self.path, path, self._key)

    @property
    def encrypted(self) -> bool:
        """Whether the file is encrypted."""
        return self._key is not None

    def reencrypt(self, key: bytes | None, check: Callable[[SQLiteStore], None]) -> None:
        """Replace the file by a copy under another key, or without one; `check` gets the copy first.

        No other process may have the store open. This store is closed then.
        """
        from onrecord.stores.sqlite.cipher import file_key
        from onrecord.stores.sqlite.reencrypt import reencrypt

        def checked(copy: str) -> None:
            opened = SQLiteStore(copy, key=lambda: key, session_keys=lambda _beside: self.session_keys)
            try:
                check(opened)
            finally:
                opened.close()

        self.close()
        reencrypt(self.path, self._key, None if key is None else file_key(key), checked)

    def describe(self, *, check: bool = False) -> dict[str, Any]:
        """What `onrecord doctor` reports: versions, settings in force, files, counts, and on demand integrity."""
        from onrecord.stores.sqlite.upkeep import describe

        return describe(self.path, self.durability, self._readers, self._key, check=check)

    def tidy(self) -> None:
        """Drop snapshots and truncate the write-ahead log: what `onrecord doctor --fix` may do."""
        from onrecord.stores.sqlite.tidy import tidy

        tidy(self._writer)

    def key(self, purpose: str) -> bytes:
        from onrecord.stores.payloads import key_for

        return key_for(self._blob_secret(), purpose)

    def close(self) -> None:
        self._writer.close()
        self._readers.close()
        _STORES.discard(self)

    def pause(self) -> None:
        """Before a fork: no thread may be inside SQLite, or the child inherits its locks; close every connection."""
        self._paused = self._writer.group.pause(FORK_SECONDS)
        if self._paused:
            self._writer.let_go()
        self._readers.pause(FORK_SECONDS)

    def go_on(self) -> None:
        """After a fork, in the parent."""
        self._readers.go_on()
        if self._paused:
            self._writer.group.resume()

    def start_anew(self) -> list[object]:
        """After a fork, in the child: new locks and connections; returns inherited ones, which must not be used."""
        inherited = self._writer.forget() + self._readers.forget()
        self._payloads = self._new_payloads(self._blob_secret)
        self._searcher = None
        return inherited

    def _now(self) -> int:
        return int(machine.steady() * 1e6) + self._ahead if self._clock is None else int(self._clock() * 1e6)

    def _blob_secret(self) -> bytes:
        if not self._secret:
            self._secret = self._readers.ask("secret")[0][0]
        return self._secret

    def use_session_keys(self) -> bool:
        """From now on, give every new session a key of its own; False if that is so already."""
        from onrecord.stores.sqlite.writes import UseSessionKeys

        self.session_keys.check()
        return bool(self._writer.run(UseSessionKeys()))

    def uses_session_keys(self) -> bool:
        return bool(self._readers.ask("session_keys"))

    def keyed_sessions(self) -> list[tuple[str, str, str]]:
        """(session, key id, status) of the sessions that have a key of their own."""
        return [(row[0], row[1], row[2]) for row in self._readers.ask("keyed_sessions")]

    def key_id(self, session: str) -> str | None:
        found = self._readers.ask("key_of", (session,))
        return found[0][0] if found else None

    def _keys_beside(self) -> SessionKeys:
        from onrecord.machine.session_keys import SessionKeys

        beside = f"{self.path}.keys"
        return self._keys_at(beside) if self._keys_at else SessionKeys(beside, lambda: None)

    def _owner_of(self, session: str, position: int) -> str:
        return next(str(of) for _number, of, low, high in self._history(session) if low < position <= high)

    def _pack_unencrypted(self, event: Draft | Record) -> Packed:
        payload = event.payload or b""
        if TIERS.get(event.kind, 1):
            return self._payloads.pack(payload, FACTS_FROM)
        return self._payloads.pack(payload, conversation=event.id.startswith(MIRROR_PREFIX))

    def _history(self, session: str) -> list[Row]:
        lines = self._readers.history(session)
        if not lines:
            raise not_found(session)
        return lines


class _Save(PendingWrite):
    """Save snapshots, each of another session."""

    __slots__ = ("_values",)

    def __init__(self, snapshots: Mapping[str, Snapshot], bodies: Mapping[str, bytes]) -> None:
        super().__init__()
        self._values = [
            (session, one.view, one.position, one.hash, bodies[session]) for session, one in snapshots.items()
        ]

    def work(self, cursor: apsw.Cursor) -> None:
        cursor.executemany(QUERIES["save_snapshot"], self._values)

    def recall(self, cursor: apsw.Cursor) -> bool:
        """A snapshot is only for speed: a lost one is folded again."""
        return False


def _bounds(name: str, prefix: str | None) -> dict[str, str | None]:
    """The range of texts that begin with a prefix."""
    return {name: prefix, f"{name}_end": None if prefix is None else prefix + "\U0010ffff"}


_STORES: WeakKeys[SQLiteStore, None] = WeakKeys()
_PAUSED: list[SQLiteStore] = []
_INHERITED: list[object] = []
"""Connections that a parent could not close in time: SQLite allows neither using nor closing them here."""


def _before_fork() -> None:
    _PAUSED.extend(_STORES)
    for store in _PAUSED:
        store.pause()


def _after_fork_in_parent() -> None:
    while _PAUSED:
        _PAUSED.pop().go_on()


def _after_fork_in_child() -> None:
    _PAUSED.clear()
    for store in _STORES:
        _INHERITED.extend(store.start_anew())


def _leave_inherited_open() -> None:
    """At exit the interpreter would close them: a reference that is never released prevents that."""
    if _INHERITED:
        import ctypes

        for thing in _INHERITED:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)
atexit.register(_leave_inherited_open)
