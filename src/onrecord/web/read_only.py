"""A store that cannot change the record: what the page reads with, whatever its code does.

Snapshots may be saved: they are caches, and no one's word. Everything else that writes is refused.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, NoReturn

from onrecord.errors import StoreReadOnly
from onrecord.log.keyed import Keyed

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from onrecord.log.events import Record
    from onrecord.log.head import Head
    from onrecord.log.store import Hit, Lease, Snapshot, Store, Weight


class ReadOnly:
    """The reading half of a store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.url = store.url

    def _refuse(self, *_arguments: Any, **_options: Any) -> NoReturn:
        raise StoreReadOnly("this page only reads", hint="start it with writes allowed")

    create = append = acquire = join = renew = release = erase = install = destroy_key = _refuse

    def read(self, session: str, **which: Any) -> list[Record]:
        """As the port says."""
        return self._store.read(session, **which)

    def find(self, session: str, id: str) -> Record | None:
        """As the port says."""
        return self._store.find(session, id)

    def linked(self, id: str) -> list[str]:
        """As the port says."""
        return self._store.linked(id)

    def head(self, session: str) -> Head:
        """As the port says."""
        return self._store.head(session)

    def heads(self, **which: Any) -> list[Head]:
        """As the port says."""
        return self._store.heads(**which)

    def children(self, session: str) -> list[Head]:
        """As the port says."""
        return self._store.children(session)

    def leases(self, session: str) -> list[Lease]:
        """As the port says."""
        return self._store.leases(session)

    def save(self, session: str, snapshot: Snapshot) -> None:
        """As the port says: a cache. A login that may only read keeps none."""
        with suppress(StoreReadOnly):
            self._store.save(session, snapshot)

    def save_all(self, snapshots: Mapping[str, Snapshot]) -> None:
        """As the port says: caches, as above."""
        with suppress(StoreReadOnly):
            self._store.save_all(snapshots)

    def snapshot(self, session: str, view: str) -> Snapshot | None:
        """As the port says."""
        return self._store.snapshot(session, view)

    def snapshots(self, view: str, sessions: Collection[str]) -> dict[str, Snapshot]:
        """As the port says."""
        return self._store.snapshots(view, sessions)

    def search(self, query: str, **which: Any) -> list[Hit]:
        """As the port says."""
        return self._store.search(query, **which)

    def weigh(self, session: str, kinds: Collection[str] | None = None) -> list[Weight]:
        """As the port says."""
        return self._store.weigh(session, kinds)

    def uses_session_keys(self) -> bool:
        """As the port says."""
        return isinstance(self._store, Keyed) and self._store.uses_session_keys()

    def key_id(self, session: str) -> str | None:
        """As the port says."""
        return self._store.key_id(session) if isinstance(self._store, Keyed) else None

    def key_state(self, session: str) -> str:
        """As the port says."""
        return self._store.key_state(session) if isinstance(self._store, Keyed) else "missing"

    def has_key(self, key_id: str) -> bool:
        """As the port says."""
        return isinstance(self._store, Keyed) and self._store.has_key(key_id)

    def arrived(self, session: str) -> int:
        """As the port says."""
        return self._store.arrived(session)

    def key(self, purpose: str) -> bytes:
        """As the port says."""
        return self._store.key(purpose)

    def close(self) -> None:
        """As the port says."""
        self._store.close()
