"""What the stores share about sessions that have a key of their own; `session_cipher` has how they are encrypted.

Whether a session has a key is decided when it is made and never changes, so it is asked once. Most stores have no such
session: the ciphers are imported when the first one is met.
"""

from __future__ import annotations

from onrecord.errors import Conflict, InvalidInput, SessionLocked
from onrecord.log.head import refuse_erased
from onrecord.stores.payloads import SNAPSHOT_MARK, Payloads, pack_snapshot

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from onrecord.log.events import Draft, Record
    from onrecord.log.head import Head
    from onrecord.log.store import Snapshot
    from onrecord.machine.session_keys import SessionKeys
    from onrecord.stores.payloads import Packed
    from onrecord.stores.session_cipher import Ciphers, SessionCipher


class _Making:
    """Calls `undo` if a conflict ends the block. (A hook does not load contextlib for this.)"""

    __slots__ = ("_undo",)

    def __init__(self, undo: Callable[[], None]) -> None:
        self._undo = undo

    def __enter__(self) -> None:
        """Nothing to do."""

    def __exit__(self, _kind: object, problem: BaseException | None, _trace: object) -> None:
        """The problem is raised on."""
        if isinstance(problem, Conflict):
            self._undo()


class KeyedSessions:
    """A part of a store. The store says what its database has; see the methods at the end."""

    def _start_keyed(self, secret: Callable[[], bytes], keys: Callable[[], SessionKeys]) -> Payloads:
        """Begin without knowing any session; returns what packs and unpacks payloads."""
        self._make_keys = keys
        self._ciphers: Ciphers | None = None
        self._keyless: set[str] = set()
        """Sessions that are known to have no key of their own."""
        return self._new_payloads(secret)

    def _new_payloads(self, secret: Callable[[], bytes]) -> Payloads:
        payloads = Payloads(secret)
        payloads.ciphers = self._all_ciphers
        return payloads

    def _all_ciphers(self) -> Ciphers:
        if self._ciphers is None:
            from onrecord.stores.session_cipher import Ciphers

            self._ciphers = Ciphers(self._make_keys(), self.key_id, self._owner_of, self._pack_unencrypted)
        return self._ciphers

    @property
    def session_keys(self) -> SessionKeys:
        """Where the keys of sessions are."""
        return self._all_ciphers().keys

    def key_state(self, session: str) -> str:
        """Whether the key of a session is `present`, `destroying`, `destroyed` or `missing`."""
        state = self.session_keys.state(session)
        if state == "destroyed":  # by another process, perhaps: this one may have used the key before
            self._all_ciphers().forget(session)
        return state

    def has_key(self, key_id: str) -> bool:
        """Whether a key with this id is among the keys of the store, whole or not destroyed to the end."""
        return key_id in self.session_keys.ids()

    def destroy_key(self, session: str) -> int:
        """Destroy the key of a session for good; returns when that was, in microseconds since 1970."""
        if self.key_id(session) is None:
            raise InvalidInput(f"session {session} has no key of its own")
        ciphers = self._all_ciphers()
        ciphers.forget(session)
        return ciphers.keys.destroy(session)

    def _cipher(self, session: str) -> SessionCipher | None:
        """The cipher of a session that is here; None if it has no key of its own."""
        if session in self._keyless:
            return None
        if self._ciphers is not None and (known := self._ciphers.known(session)) is not None:
            return known
        if self.key_id(session) is None:
            self._keyless.add(session)
            return None
        return self._all_ciphers().of(session)

    def _cipher_for_append(self, session: str) -> SessionCipher | None:
        """The same, to add events; `SessionErased` if its key is destroyed because the session was erased."""
        try:
            return self._cipher(session)
        except SessionLocked as problem:
            if problem.destroyed:
                refuse_erased(self.head(session))
            raise

    def _new_cipher(self, session: str) -> SessionCipher | None:
        """The cipher of a session that is being made; None if new sessions get no key of their own."""
        if self.uses_session_keys():
            return self._all_ciphers().new(session)
        self._keyless.add(session)
        return None

    def _copied(
        self, head: Head, records: list[Record], *, extend: bool
    ) -> tuple[Head, list[Record], SessionCipher | None]:
        """A log that is copied here, as it is written. Behind an erased session there may be erasures only."""
        try:
            cipher = self._cipher(head.session) if extend else self._new_cipher(head.session)
        except SessionLocked as problem:
            if not problem.destroyed or any(record.kind != "payload.erased" for record in records):
                raise
            return head._replace(title=""), records, None
        return head, records if cipher is None else self._all_ciphers().records(cipher, records), cipher

    def _making(self, cipher: SessionCipher | None) -> _Making:
        """Leave no key behind if the session cannot be made."""
        return _Making(lambda: self._unmake(cipher))

    def _unmake(self, cipher: SessionCipher | None) -> None:
        if cipher is not None and self.key_id(cipher.session) is None:
            self.session_keys.forget(cipher.session)
            self._all_ciphers().forget(cipher.session)

    def _shown(self, head: Head) -> Head:
        """A head with its title as people read it."""
        return self._all_ciphers().shown(head) if head.title[:1] == "\0" else head

    def _bodies(self, snapshots: Mapping[str, Snapshot]) -> dict[str, bytes]:
        """Snapshots of many sessions as they are kept."""
        bodies = {}
        for session, one in snapshots.items():
            body, cipher = pack_snapshot(one.body), self._cipher(session)
            bodies[session] = body if cipher is None else cipher.snapshot(one.view, body)
        return bodies

    def _body(self, session: str, view: str, kept: Any, payloads: Payloads) -> bytes | None:
        """A snapshot from what is kept; None if it cannot be read."""
        if kept[:1] == SNAPSHOT_MARK:
            kept = self._all_ciphers().packed_snapshot(session, view, bytes(kept))
        return None if kept is None else payloads.unpack_snapshot(kept)

    def head(self, session: str) -> Head:
        """What the store knows about a log without reading it."""
        raise NotImplementedError

    def key_id(self, session: str) -> str | None:
        """The id of a session's own key; None if it has none."""
        raise NotImplementedError

    def uses_session_keys(self) -> bool:
        """Whether every new session gets a key of its own."""
        raise NotImplementedError

    def _owner_of(self, session: str, position: int) -> str:
        """Which session the event at a position of a session's history belongs to."""
        raise NotImplementedError

    def _pack_unencrypted(self, event: Draft | Record) -> Packed:
        """The packed payload of an event, before it is encrypted."""
        raise NotImplementedError


def packed_of(event: Draft | Record) -> Packed | None:
    """The packed payload that an encrypted event carries; None for any other."""
    found: Packed | None = getattr(event, "packed", None)
    return found
