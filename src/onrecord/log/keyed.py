"""An optional ability of a store: sessions with a key of their own."""

from __future__ import annotations

from typing import Protocol, runtime_checkable


@runtime_checkable
class Keyed(Protocol):
    """A store with sessions that have a key of their own, which is kept outside of the store.

    A reader with a copy of the store and without the key sees headers and hashes, and no payload. Payloads, salts,
    title and snapshots of such a session are encrypted, and it is not in the search index. Once its key is destroyed,
    every copy reads as if it was erased.
    """

    def uses_session_keys(self) -> bool:
        """Whether every new session gets a key of its own."""

    def key_id(self, session: str) -> str | None:
        """The id of a session's own key; None if it has none."""

    def key_state(self, session: str) -> str:
        """Whether the key of a session is `present`, `destroying`, `destroyed` or `missing`."""

    def has_key(self, key_id: str) -> bool:
        """Whether a key with this id is among the keys of the store, whole or not destroyed to the end."""

    def destroy_key(self, session: str) -> int:
        """Destroy the key of a session for good; returns when that was, in microseconds since 1970."""
