"""`session.log`: the log itself, for code that reads single events or works below the views."""

from __future__ import annotations

from onrecord.errors import EventNotFound, InvalidInput
from onrecord.lean_typing import TYPE_CHECKING
from onrecord.log.codec import encode_plain, open_record, open_records, parse_record
from onrecord.log.events import RESERVED_KINDS
from onrecord.session.chapter import Chapter

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from onrecord.log.events import Draft, Event
    from onrecord.log.head import Head
    from onrecord.log.store import Lease
    from onrecord.views.values import Checkpoint, Json

NEWEST_PAGE = 50
"""How many events a read from the end fetches at a time."""
HEADERS_PAGE = 500
"""How many headers one read fetches."""
DECODED_PAGE = 200
"""How many events one read fetches that are decoded by a parser of the caller: a page of many takes longer, because its
memory is new to the processor."""


class LogVerbs(Chapter):
    """Find single events, read from the end, append several at once, hold and erase, list the leases."""

    __slots__ = ()

    @property
    def url(self) -> str:
        """The address of the store that keeps the log, as `connect` takes it."""
        return self._session.store.url

    def head(self) -> Head:
        """The newest position, hash and status in the store, without folding anything."""
        return self._session.store.head(self._session.id)

    def checkpoint(self) -> Checkpoint:
        """Position and hash to keep outside the store: with it, `verify` finds a truncated or rolled back store."""
        head = self.head()
        return {"session": self._session.id, "position": head.position, "hash": head.hash.hex()}

    def arrived(self) -> int:
        """Up to which position the log came from elsewhere: an import, a copy or a restored backup; 0: nothing did.

        A fork of such a session has the same origin, as far as it inherits. What the log says up to there is data: what
        would run, write or send on its word asks first and shows it.
        """
        store = self._session.store
        head = store.head(self._session.id)
        found, upto = store.arrived(head.session), head.position
        while head.parent:
            upto = min(upto, head.forked_at)
            found = max(found, min(store.arrived(head.parent), upto))
            head = store.head(head.parent)
        return found

    def event(self, position: int) -> Event:
        """The event at one position."""
        session = self._session
        found = session.store.read(session.id, after=position - 1, upto=position) if position > 0 else []
        if not found:
            raise EventNotFound(f"session {session.name!r} has no event at position {position}", name=session.name)
        return open_record(found[0])

    def find(self, id: str) -> Event | None:
        """The event with this id, if there is one."""
        found = self._session.store.find(self._session.id, id)
        return None if found is None else open_record(found)

    def newest(
        self,
        kinds: Collection[str] | None = None,
        *,
        upto: int | None = None,
        headers: bool = False,
        page: int = NEWEST_PAGE,
    ) -> Iterator[Event]:
        """Events from the end of the log backwards, fetched in pages; with `headers`, without their payload."""
        session, bodies = self._session, () if headers else None
        while found := session.store.read(
            session.id, upto=upto, kinds=kinds, bodies=bodies, limit=page, backwards=True
        ):
            yield from open_records(found)
            upto = found[-1].position - 1

    def headers(
        self, kinds: Collection[str] | None = None, *, after: int = 0, page: int = HEADERS_PAGE
    ) -> Iterator[Event]:
        """Events in order without their payload (`data` is None), to search a large log with."""
        session = self._session
        while found := session.store.read(session.id, after=after, kinds=kinds, bodies=(), limit=page):
            yield from open_records(found)
            after = found[-1].position

    def decoded(
        self,
        parse: Callable[[bytes], Json],
        kinds: Collection[str] | None = None,
        *,
        after: int = 0,
        upto: int | None = None,
    ) -> Iterator[Event]:
        """Events in order, decoded by the caller's parser: it returns what `json.loads` does, or the part it needs.

        They may come without their hashes: for a reader of a whole log that verifies nothing.
        """
        from onrecord.log.scanning import Scanning

        session = self._session
        if isinstance(session.store, Scanning):
            yield from session.store.scan(session.id, parse, after=after, upto=upto, kinds=kinds)
            return
        while found := session.store.read(session.id, after=after, upto=upto, kinds=kinds, limit=DECODED_PAGE):
            yield from [parse_record(record, parse) for record in found]
            if len(found) < DECODED_PAGE:
                return
            after = found[-1].position

    def record(self, kind: str, data: Json, *, id: str | None = None, because: int | None = None) -> Event:
        """Append one event of a kind that has no verb of its own."""
        if kind in RESERVED_KINDS:
            raise InvalidInput(
                f"{kind} cannot be recorded directly",
                hint="use the method that records it: turn(), once(), close() ...",
            )
        return self._session._record(kind, data, id=id, because=because)

    def draft(
        self,
        kind: str,
        data: Json,
        *,
        id: str | None = None,
        because: int | None = None,
        encode: Callable[[Json], bytes] = encode_plain,
    ) -> Draft:
        """Seal an event of this handle's agent and run, to append together with others.

        `encode` makes the bytes of the payload: those that `codec.encode_plain` makes, perhaps in less time.
        """
        return self._session._draft(kind, data, id=id, because=because, encode=encode)

    def append(self, *drafts: Draft, expect: int | None = None, fenced: bool = False) -> list[Event]:
        """Append drafts in one durable step. `fenced` ones need the lease on this agent's lane."""
        return self._session._append_drafts(*drafts, expect=expect, fenced=fenced)

    def join(self, *first: Draft, takeover: bool, seconds: float, **about: object) -> list[Event]:
        """Take the lease on this agent's lane, and record that and the first events of the run in one durable step.

        This handle has no lease, and has read the whole log: if there is more by now, nothing is recorded (`LogMoved`).
        """
        from onrecord.session.joining import join

        session = self._session
        return join(session, session.head, first, takeover=takeover, seconds=seconds, about=about)

    def hold(self, reason: str) -> Event:
        """Protect the whole log against erasure, for instance until an incident is understood."""
        return self._session._record("session.held", {"reason": reason})

    def release(self, reason: str) -> Event:
        """Lift the hold."""
        return self._session._record("session.released", {"reason": reason})

    def key(self) -> tuple[str, str] | None:
        """The id of the session's own key, and whether it is present, destroying, destroyed or missing; None: no key.

        Erasing the whole session destroys it, and with it the content in every copy of the store.
        """
        from onrecord.log.keyed import Keyed

        store = self._session.store
        id_ = store.key_id(self._session.id) if isinstance(store, Keyed) else None
        return (id_, store.key_state(self._session.id)) if id_ is not None and isinstance(store, Keyed) else None

    def certificate(self) -> Json:
        """A statement of the erasure of this session with its key; `erasure.check` compares it with any copy."""
        from onrecord.session.erasure import statement

        return statement(self._session, self._session.clock())

    def erase(self, reason: str, *, positions: Collection[int] | None = None) -> Event:
        """Erase payloads for good: those at `positions`, or all of the session."""
        from onrecord.session import retention

        return retention.erase(self._session, reason, positions)

    def leases(self) -> list[Lease]:
        """The leases on the lanes of this session, expired ones of silent holders included."""
        return self._session.store.leases(self._session.id)

    def catch_up(self) -> None:
        """Fold new events if this handle knows that there are some; unlike `refresh`, it does not ask the store."""
        if self._session._behind:
            self._session.refresh()

    def read_on(self) -> list[Event]:
        """Fold new events, like `session.refresh`, and return them."""
        return self._session._read_on(None)

    def disconnect(self) -> None:
        """Close the files and connections of the store; for a process that used this one session."""
        self._session.store.close()
