"""The port: what a store must do, method by method.

`stores/memory.py` is the shortest honest implementation; `onrecord.testing.StoreContract` is the proof. Sessions,
views and gates know only this. All methods may be called from any thread. Nothing here knows names of concrete
stores.
"""

from __future__ import annotations

from onrecord.lean_typing import TYPE_CHECKING, Any, NamedTuple, Protocol
from onrecord.log import names

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from onrecord.log.events import Draft, Record
    from onrecord.log.head import Head

PAGE_LIMIT = 1_000
"""The most sessions of one page of a list."""
LINK_PREFIX = names.LINK_PREFIX
LEASE_SECONDS = 300.0
"""How long a lease lasts if its holder does not renew it."""


class Receipt(NamedTuple):
    """Where one event of an append is in its log."""

    position: int
    run: int
    hash: bytes
    new: bool
    """False when the id was on record already and nothing was written.

    One exception: two processes send the same sealed draft after the same head, and the network loses the answer to
    one. It finds the event on record, at its position and with its hash, and takes it for its own.
    """


class Lease(NamedTuple):
    """The right to write the turns of one lane (one agent of one session)."""

    session: str
    lane: str
    epoch: int
    """Rises with every acquisition; the store refuses an append under an older one."""
    holder: dict[str, Any]
    """The holder: host, boot, pid, started (of the process) and handle (of the opener within it)."""
    since: int
    until: int


class Snapshot(NamedTuple):
    """A view as it was after a position. A cache: deleting it changes nothing but speed."""

    view: str
    position: int
    hash: bytes
    body: bytes


class Hit(NamedTuple):
    """An event that search found, best first."""

    session: str
    position: int


class Weight(NamedTuple):
    """What the payload of one event occupies."""

    position: int
    kind: str
    size: int


class Store(Protocol):
    """Where logs are kept."""

    url: str

    def create(self, head: Head, drafts: Sequence[Draft]) -> list[Receipt]:
        """Make a new log and append its first events, in one durable step.

        `head` is where the log starts: `head.fresh(...)`, or for a fork the parent's head at that position. No session
        may ever have had the id (`Conflict`), the name must be free in its project (`NameTaken`), and a fork's hash
        must equal the parent's at that position.
        """

    def append(
        self, session: str, drafts: Sequence[Draft], *, expect: int | None = None, lease: Lease | None = None
    ) -> list[Receipt]:
        """Append all drafts or none, durable on return.

        In one transaction: events that are on record (the id is the idempotency key) are skipped and answered with
        their position (`IdReused` if their content differs); if any is new, the lease's fencing epoch must be current
        (`LeaseLost`), the log must be at `expect` (`LogMoved`), and `Tip.extend` must accept each event. Positions are
        dense from 1.
        """

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
        """Events with `after < position <= upto`, in order (or newest first); a fork's inherited history included.

        The result is complete when the call returns: no read transaction outlives it. With `bodies`, only those kinds
        come with their payload (others have payload None but keep their salt; an erased event has neither).
        """

    def find(self, session: str, id: str) -> Record | None:
        """The event with this id, inherited history included."""

    def linked(self, id: str) -> list[str]:
        """The sessions whose own events have this id, the newest event first; for ids under LINK_PREFIX only.

        An agent's hook knows the vendor's id of its conversation, and finds the session by it.
        """

    def head(self, session: str) -> Head:
        """The head of the log, or `SessionNotFound`."""

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
        """Sessions by last activity, newest first; `before` = (at, session) of the last one of the previous page.

        `name` is exact; `prefix` matches the beginning of a name or of an id.
        """

    def children(self, session: str) -> list[Head]:
        """The forks of a session."""

    def acquire(
        self, session: str, lane: str, holder: dict[str, Any], *, seconds: float = LEASE_SECONDS, takeover: bool = False
    ) -> Lease:
        """Acquire the lease of a lane, or `LeaseHeld`: by whom, since when and how to take it over.

        It is free when it has no holder, when the holder's process on this machine is gone, or when its time is up.
        """

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
        """Acquire the lease of a lane and append under it, like `acquire` and `append`, in one durable step.

        A refusal (`LeaseHeld`, `LogMoved`, or of an event) leaves the lease with its holder.
        """

    def renew(self, lease: Lease, seconds: float = LEASE_SECONDS) -> Lease:
        """Extend a lease that is still current, or `LeaseLost`."""

    def release(self, lease: Lease) -> None:
        """Release a lease; does nothing if another process has the lane by now."""

    def leases(self, session: str) -> list[Lease]:
        """The leases of a session; expired ones included, released ones not."""

    def save(self, session: str, snapshot: Snapshot) -> None:
        """Replace the snapshot of a view. Best effort."""

    def snapshot(self, session: str, view: str) -> Snapshot | None:
        """The snapshot of a view, if there is one."""

    def save_all(self, snapshots: Mapping[str, Snapshot]) -> None:
        """Like `save`, for many sessions in one step; the keys are their ids. Best effort."""

    def snapshots(self, view: str, sessions: Collection[str]) -> dict[str, Snapshot]:
        """The snapshots of one view of many sessions, by session; those that have none are left out."""

    def search(
        self, query: str, *, project: str | None = None, session: str | None = None, limit: int = 20
    ) -> list[Hit]:
        """Events that contain all words of the query; the last word may be a prefix. Covers all acknowledged events."""

    def weigh(self, session: str, kinds: Collection[str] | None = None) -> list[Weight]:
        """The sizes of the session's own payloads of these kinds (None: all) that are not erased."""

    def erase(self, session: str, positions: Collection[int], draft: Draft) -> Receipt:
        """Erase payloads and salts and append the event that says so, in one durable step.

        `SessionHeld` under a hold. On return the erased bytes are in no file of the store. Headers and hashes stay.
        """

    def install(self, head: Head, records: Iterator[Record], *, extend: bool = False) -> None:
        """Copy a log as it is (from a bundle or another store), all or nothing; the caller has verified it.

        With `extend`, `records` follow the last event that the session has here.
        """

    def arrived(self, session: str) -> int:
        """Up to which position the session's own log came from elsewhere (`install`, a restore); 0: nothing did.

        What a log says up to there is the word of another store, and nothing runs on it unasked.
        """

    def key(self, purpose: str) -> bytes:
        """A key of this store for one purpose, derived from its secret: the same in every process, in no other store.

        Keys of different purposes are unrelated.
        """

    def close(self) -> None:
        """Close files and connections."""
