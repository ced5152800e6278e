"""Payloads under the key of their session: what a row has instead, and how it becomes the payload again.

A store may give each new session a key (`machine/session_keys.py`). Payloads, salts, titles and snapshots of such a
session are encrypted below the log: hashes cover the payload as it was written, so that a log is the same in every
store. The salt is hidden together with the payload: with it, a short payload could be guessed from its hash. Once the
key is destroyed, all that any copy has of an event is its header and its hashes, which is what an erasure leaves.

The column `salt` of an encrypted event has a nonce and the salt, masked with bytes derived from key and nonce; the
column `payload`, or the blob, has the packed payload behind a byte that says how it was packed. Session and event id
are authenticated with it; the position is bound to the id by the chain of hashes.
"""

from __future__ import annotations

import os
from base64 import b85decode, b85encode
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from onrecord.errors import OnrecordError, SessionLocked
from onrecord.log.codec import SALT_BYTES
from onrecord.log.events import Draft, Record
from onrecord.machine.session_keys import KEY_BYTES, NONCE_BYTES, SessionKey, SessionKeys, cipher
from onrecord.stores.payloads import COMPRESSED, OUT_OF_LINE, PLAIN, SNAPSHOT_MARK, Packed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from onrecord.log.head import Head

ENCRYPTED = 3
"""The encoding of a payload that is encrypted in its row. One out of line has the encoding of every such payload."""
PLAIN_KINDS = frozenset({"payload.erased", "session.forked"})
"""The kinds that stay readable: what was erased, and what a fork continues. An erasure keeps both, too."""
SALT_FORM = NONCE_BYTES + SALT_BYTES
"""The length of an encrypted salt; a plain one is shorter."""
TITLE_MARK = "\0encrypted:"
"""What an encrypted title begins with."""

_ENCODING, _SALT, _PAYLOAD, _ID = 11, 8, 12, 1

Row = tuple[Any, ...]


class EncryptedDraft(Draft):
    """A draft with its salt as the row will have it; it carries its packed payload, and can compare itself."""

    packed: Packed
    unmask: Callable[[bytes, int], bytes | None]


class EncryptedRecord(Record):
    """The same for a record that is copied as it is."""

    packed: Packed


class SessionCipher:
    """Encrypts and decrypts what belongs to one session."""

    def __init__(self, session: str, key: SessionKey) -> None:
        self.session = session
        self.key_id = key.id
        self._prefix = session.encode() + b"\0"
        self._cipher = cipher(_derived(key.key, b"payload"))
        self._mask_key = _derived(key.key, b"salt")

    def event(self, event: Draft | Record, packed: Packed) -> tuple[bytes, Packed]:
        """The salt and the payload of an event as its row has them."""
        nonce, (encoding, stored, body) = os.urandom(NONCE_BYTES), packed
        salt = nonce + self._masked(nonce, event.salt or b"")
        content = bytes((COMPRESSED,)) + body if body is not None else bytes((encoding,)) + stored
        hidden = self._cipher.encrypt(nonce, content, self._about(event.id))
        if body is None:
            return salt, Packed(ENCRYPTED, hidden, None)
        # Named after its ciphertext: a name that depends on the content alone could confirm a guess.
        return salt, Packed(OUT_OF_LINE, blake2b(hidden, digest_size=32).digest(), hidden)

    def row(self, row: Row) -> Row:
        """A row of the `events` queries with its payload and salt as they were before; a damaged one as it is."""
        salt, payload = row[_SALT], row[_PAYLOAD]
        if salt is None or payload is None or len(salt) != SALT_FORM:
            return row
        salt = bytes(salt)
        try:
            content = self._cipher.decrypt(salt[:NONCE_BYTES], bytes(payload), self._about(row[_ID]))
        except Exception:  # noqa: BLE001  # the library's error class is not worth its import here
            return (*row[:_ENCODING], PLAIN, payload)
        return (*row[:_SALT], self.salt(salt), *row[_SALT + 1 : _ENCODING], content[0], content[1:])

    def salt(self, salt: bytes) -> bytes:
        """The salt of an event, from its column."""
        return self._masked(salt[:NONCE_BYTES], salt[NONCE_BYTES:])

    def title(self, title: str) -> str:
        """A title as the row of the session has it."""
        if not title or title.startswith(TITLE_MARK):
            return title
        return TITLE_MARK + b85encode(self._sealed(title.encode(errors="surrogatepass"), b"title")).decode()

    def plain_title(self, title: str) -> str:
        """A title from the row of the session."""
        found = self._opened(b85decode(title.removeprefix(TITLE_MARK)), b"title")
        return "" if found is None else found.decode(errors="surrogatepass")

    def head(self, head: Head) -> Head:
        """A head as the row of the session has it."""
        return head._replace(title=self.title(head.title))

    def snapshot(self, view: str, body: bytes) -> bytes:
        """A packed snapshot as it is kept."""
        return SNAPSHOT_MARK + self._sealed(body, b"snapshot/" + view.encode())

    def plain_snapshot(self, view: str, kept: bytes) -> bytes | None:
        """A packed snapshot from what is kept; None if it is damaged."""
        return self._opened(kept[len(SNAPSHOT_MARK) :], b"snapshot/" + view.encode())

    def _sealed(self, content: bytes, purpose: bytes) -> bytes:
        nonce = os.urandom(NONCE_BYTES)
        hidden: bytes = self._cipher.encrypt(nonce, content, self._prefix + b"\0" + purpose)
        return nonce + hidden

    def _opened(self, hidden: bytes, purpose: bytes) -> bytes | None:
        try:
            found: bytes = self._cipher.decrypt(
                hidden[:NONCE_BYTES], hidden[NONCE_BYTES:], self._prefix + b"\0" + purpose
            )
        except Exception:  # noqa: BLE001  # as above
            return None
        return found

    def _about(self, event: str) -> bytes:
        return self._prefix + event.encode()

    def _masked(self, nonce: bytes, salt: bytes) -> bytes:
        mask = blake2b(nonce, key=self._mask_key, digest_size=SALT_BYTES).digest()
        return (int.from_bytes(mask) ^ int.from_bytes(salt)).to_bytes(SALT_BYTES)


class Ciphers:
    """The ciphers of a store's sessions, as far as they were needed."""

    def __init__(
        self,
        keys: SessionKeys,
        key_id: Callable[[str], str | None],
        owner: Callable[[str, int], str],
        pack: Callable[[Draft | Record], Packed],
    ) -> None:
        self.keys = keys
        self._key_id = key_id
        """The id of a session's key, as the store has it; None for a session without one."""
        self._owner = owner
        """Which session the event at a position of another session's history belongs to."""
        self._pack = pack
        self._known: dict[str, SessionCipher | None] = {}

    def of(self, session: str) -> SessionCipher | None:
        """The cipher of a session; None if it has no key of its own; `SessionLocked` if its key is gone."""
        try:
            return self._known[session]
        except KeyError:
            expected = self._key_id(session)
        found = None if expected is None else self._read(session, expected)
        self._known[session] = found
        return found

    def _read(self, session: str, expected: str) -> SessionCipher:
        key = self.keys.read(session)
        if key.id != expected:
            raise SessionLocked(
                f"the key file of session {session} in {self.keys.directory} does not have the key of this session",
                hint="put back the right one, if there is a copy",
            )
        return SessionCipher(session, key)

    def known(self, session: str) -> SessionCipher | None:
        """The cipher of a session, if it was used before."""
        return self._known.get(session)

    def new(self, session: str) -> SessionCipher:
        """The cipher of a session that is being made."""
        found = self._known[session] = SessionCipher(session, self.keys.make(session))
        return found

    def forget(self, session: str) -> None:
        """Forget what is known of a session: it could not be made, or its key was destroyed."""
        self._known.pop(session, None)

    def drafts(self, cipher: SessionCipher, drafts: Iterable[Draft]) -> list[Draft]:
        """Drafts as a store writes them."""
        return [self._draft(cipher, draft) for draft in drafts]

    def _draft(self, cipher: SessionCipher, draft: Draft) -> Draft:
        if draft.kind in PLAIN_KINDS:
            return draft
        salt, packed = cipher.event(draft, self._pack(draft))
        found = EncryptedDraft(*draft[:7], salt, *draft[8:])
        found.packed = packed
        found.unmask = lambda salt, position: self._unmask(cipher, salt, position)
        return found

    def records(self, cipher: SessionCipher, records: Iterable[Record]) -> list[Record]:
        """Records as a store writes them."""
        return [self._record(cipher, record) for record in records]

    def _record(self, cipher: SessionCipher, record: Record) -> Record:
        if record.kind in PLAIN_KINDS or record.payload is None or record.salt is None:
            return record
        salt, packed = cipher.event(record, self._pack(record))
        found = EncryptedRecord(*record[:9], salt, *record[10:])
        found.packed = packed
        return found

    def _unmask(self, cipher: SessionCipher, salt: bytes, position: int) -> bytes | None:
        """The salt of an event on record in this history; None if its key is gone: then it cannot be compared."""
        try:
            owner = self.of(self._owner(cipher.session, position))
        except OnrecordError:
            return None
        return None if owner is None else owner.salt(salt)

    def rows(self, session: str, rows: Sequence[Row]) -> Sequence[Row]:
        """Rows of the `events` queries as they were before; once the key is destroyed, as an erasure leaves them."""
        if not any(row[_PAYLOAD] is not None and len(row[_SALT] or b"") == SALT_FORM for row in rows):
            return rows
        try:
            cipher = self.of(session)
        except SessionLocked as problem:
            if not problem.destroyed:
                raise
            return [_erased(row) for row in rows]
        if cipher is None:
            raise SessionLocked(f"session {session} has encrypted events, and the store names no key of it")
        return [cipher.row(row) for row in rows]

    def shown(self, head: Head) -> Head:
        """A head with its title as it was before; without one if the key is gone."""
        if not head.title.startswith(TITLE_MARK):
            return head
        try:
            cipher = self.of(head.session)
        except OnrecordError:
            cipher = None
        return head._replace(title="" if cipher is None else cipher.plain_title(head.title))

    def packed_snapshot(self, session: str, view: str, kept: bytes) -> bytes | None:
        """A packed snapshot from what is kept; None if it cannot be read. A cache: the log is folded again."""
        if not kept.startswith(SNAPSHOT_MARK):
            return kept
        try:
            cipher = self.of(session)
        except OnrecordError:
            return None
        return None if cipher is None else cipher.plain_snapshot(view, kept)


def _erased(row: Row) -> Row:
    if row[_SALT] is None or len(row[_SALT]) != SALT_FORM:
        return row
    return (*row[:_SALT], None, *row[_SALT + 1 : _ENCODING], PLAIN, None)


def _derived(key: bytes, purpose: bytes) -> bytes:
    return blake2b(purpose, key=key, digest_size=KEY_BYTES, person=b"onrecord/session").digest()
