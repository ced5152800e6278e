"""The keys of sessions: one file for each, outside of the store, so that no copy of the store has them.

A session key is 32 random bytes. Its file has it encrypted ("wrapped") with the store key, which the person configures.
Destroying a key erases every copy of what it encrypts. A file is either there or not: a key is written under
another name and renamed, and its destruction begins with a rename, so a crash leaves a whole key or none.
"""

from __future__ import annotations

import json
import os
import re
import time
from hashlib import blake2b
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from onrecord.errors import InvalidInput, SessionLocked, StoreLocked
from onrecord.machine.files import sync_directory, write_file
from onrecord.shell.splitting import quote

if TYPE_CHECKING:
    from collections.abc import Callable

KEY_BYTES = 32
NONCE_BYTES = 12
ALGORITHM = "AES-256-GCM"
PRESENT, DESTROYING, DESTROYED, MISSING = "present", "destroying", "destroyed", "missing"
FILE_LIMIT = 4096
"""How much of a key's file is read."""

_ID = re.compile(r"[0-9A-HJKMNP-TV-Z]{26}", re.ASCII)
_WRAPPING = b"onrecord/session-key/1\0"
_SUFFIXES = {".key": PRESENT, ".key-being-destroyed": DESTROYING, ".destroyed": DESTROYED}


class SessionKey(NamedTuple):
    """The key of one session."""

    id: str
    """Names the key in the store, in erasures and in statements; it says nothing about the key."""
    key: bytes


class SessionKeys:
    """The key files of a store. `wrapping` returns the store key; it is asked when a key is made or read."""

    def __init__(self, directory: str | None, wrapping: Callable[[], bytes | None]) -> None:
        self._directory = directory
        self._wrapping = wrapping

    @property
    def directory(self) -> str:
        """Where the files are."""
        if self._directory is None:
            raise SessionLocked(
                "the settings do not say where the keys of the sessions are",
                hint="name a directory of your own: directory = ... under [session_keys] in the settings",
            )
        return self._directory

    def check(self) -> None:
        """Refuse where no key could be made: no library, no store key, or no directory of one's own."""
        self._wrapper()
        self._make_directory()

    def make(self, session: str) -> SessionKey:
        """A new key for a new session; the one that is there, if an earlier try to make the session failed."""
        path = self._path(session, ".key")
        self._make_directory()
        if path.exists():
            return self.read(session)
        key, nonce = os.urandom(KEY_BYTES), os.urandom(NONCE_BYTES)
        found = SessionKey(id_of(key), key)
        content = {
            "session": session, "key_id": found.id, "made_at": int(time.time() * 1e6),
            "wrapped": (nonce + self._wrapper().encrypt(nonce, key, _WRAPPING + session.encode())).hex(),
        }  # fmt: skip
        write_file(path, [json.dumps(content).encode() + b"\n"], exact_mode=0o600, replace=False)
        return found

    def read(self, session: str) -> SessionKey:
        """The key of a session, or `SessionLocked`; `StoreLocked` if the store key is missing or wrong."""
        state = self.state(session)
        if state != PRESENT:
            raise self._locked(session, state)
        content = self._content(self._path(session, ".key"))
        try:
            wrapped = bytes.fromhex(content["wrapped"])
        except (KeyError, TypeError, ValueError):
            raise self._unreadable(self._path(session, ".key")) from None
        wrapper, problem = self._wrapper(), _invalid_tag()
        try:
            key = wrapper.decrypt(wrapped[:NONCE_BYTES], wrapped[NONCE_BYTES:], _WRAPPING + session.encode())
        except (problem, ValueError):
            raise StoreLocked(
                f"the store key does not open the key of session {session}: it is another key, or the file was changed",
                hint="name the store key that was configured when the session was made",
            ) from None
        return SessionKey(id_of(key), key)

    def state(self, session: str) -> str:
        """Whether the key of a session is present, being destroyed, destroyed or missing."""
        if self._directory is None:
            return MISSING
        names = {state: self._path(session, suffix) for suffix, state in _SUFFIXES.items()}
        return next((state for state, path in names.items() if path.exists()), MISSING)

    def destroy(self, session: str) -> int:
        """Destroy the key of a session for good; returns when that was, in microseconds since 1970.

        The rename takes the key away from every reader. What is left of the file is overwritten, and a note of the
        destruction remains. After a crash the next call does what is left to do.
        """
        kept, leaving, note = (self._path(session, suffix) for suffix in _SUFFIXES)
        if not kept.exists() and not leaving.exists():
            if not note.exists():
                raise self._locked(session, MISSING)
            return int(self._content(note).get("destroyed_at", 0))
        if kept.exists():
            kept.replace(leaving)
            sync_directory(kept.parent)
        at = int(time.time() * 1e6)
        content = self._content(leaving) if not note.exists() else {}
        if content:
            said = {"session": session, "key_id": content.get("key_id"), "made_at": content.get("made_at")}
            write_file(note, [json.dumps(said | {"destroyed_at": at}).encode() + b"\n"], exact_mode=0o600)
        _overwrite(leaving)
        leaving.unlink()
        sync_directory(leaving.parent)
        return int(self._content(note).get("destroyed_at", at))

    def ids(self) -> dict[str, str]:
        """The keys that are here, whole or being destroyed: session by key id."""
        found: dict[str, str] = {}
        if self._directory is None:
            return found
        for path in Path(self.directory).glob("*.key*"):
            if path.suffix in (".key", ".key-being-destroyed"):
                content = self._content(path)
                found[str(content.get("key_id"))] = path.name.partition(".")[0]
        return found

    def forget(self, session: str) -> None:
        """Remove the key of a session that could not be made."""
        self._path(session, ".key").unlink(missing_ok=True)

    def _path(self, session: str, suffix: str) -> Path:
        """The file of a session; an id from elsewhere never becomes another path."""
        if not _ID.fullmatch(session):
            raise InvalidInput(f"{session!r:.80} is not the id of a session")
        return Path(self.directory) / f"{session}{suffix}"

    def _content(self, path: Path) -> dict[str, Any]:
        try:
            with path.open("rb") as file:
                found = json.loads(file.read(FILE_LIMIT))
        except ValueError:
            found = None
        except OSError as problem:
            raise SessionLocked(f"the key file {path} cannot be read: {problem.strerror}") from None
        if not isinstance(found, dict):
            return {} if path.suffix != ".key" else self._damaged(path)
        return found

    def _damaged(self, path: Path) -> dict[str, Any]:
        raise self._unreadable(path)

    @staticmethod
    def _unreadable(path: Path) -> SessionLocked:
        return SessionLocked(f"the key file {path} is damaged", hint="put back a copy of it, if there is one")

    def _locked(self, session: str, state: str) -> SessionLocked:
        if state == DESTROYED:
            at = int(self._content(self._path(session, ".destroyed")).get("destroyed_at", 0))
            day = time.strftime("%Y-%m-%d", time.gmtime(at / 1e6))
            return SessionLocked(
                f"the key of session {session} was destroyed on {day}: its content is erased in every copy",
                hint="nothing can read it any more, and nothing can be added to it",
                destroyed=True,
            )
        if state == DESTROYING:
            return SessionLocked(
                f"the key of session {session} is being destroyed; that was interrupted",
                hint="erase the session again to finish it",
                destroyed=False,
            )
        where = f"is not in {self._directory}" if self._directory else "cannot be found"
        return SessionLocked(f"the key of session {session} {where}", destroyed=False)

    def _make_directory(self) -> None:
        place = Path(self.directory)
        try:
            place.mkdir(mode=0o700, parents=True, exist_ok=True)
            facts = place.stat()
        except OSError as problem:
            raise SessionLocked(f"the directory for keys {place} cannot be used: {problem.strerror}") from None
        if facts.st_uid != os.geteuid() or facts.st_mode & 0o077:
            raise SessionLocked(
                f"other users may use the directory for keys {place}",
                hint=f"close it to them: chmod 700 {quote(str(place))}; name a directory of your own",
            )

    def _wrapper(self) -> Any:
        key = self._wrapping()
        if key is None:
            raise StoreLocked(
                "the keys of sessions are kept under a store key, and none is configured",
                hint="name the key in ONRECORD_KEY, or under [session_keys] in the settings",
                step="name_session_key",
            )
        return cipher(blake2b(b"session keys", key=key, digest_size=KEY_BYTES, person=b"onrecord/wrap").digest())


def id_of(key: bytes) -> str:
    """The name of a key."""
    return blake2b(b"id", key=key, digest_size=8, person=b"onrecord/key-id").hexdigest()


def cipher(key: bytes) -> Any:
    """Authenticated encryption with a key."""
    try:
        found: Any = import_module("cryptography.hazmat.primitives.ciphers.aead")
    except ImportError:
        raise StoreLocked(
            "sessions with keys of their own need a library that is not installed",
            hint='pip install "onrecord[session-keys]"',
        ) from None
    return found.AESGCM(key)


def _invalid_tag() -> type[Exception]:
    found: type[Exception] = import_module("cryptography.exceptions").InvalidTag
    return found


def _overwrite(path: Path) -> None:
    """Write random bytes over a file, and wait for the disk."""
    file = os.open(path, os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        os.write(file, os.urandom(max(os.fstat(file).st_size, 1)))
        os.fsync(file)
    finally:
        os.close(file)
