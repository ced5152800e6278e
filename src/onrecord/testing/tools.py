"""Tools of the contract classes: a clock set by hand, quick events, expected errors, re-derived chains."""

from __future__ import annotations

from contextlib import contextmanager
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NamedTuple

from onrecord.log import codec
from onrecord.log import head as heads
from onrecord.log.events import NEW_RUN
from onrecord.log.names import make_ulid

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from onrecord.log.events import Draft, Record
    from onrecord.log.head import Head
    from onrecord.log.store import Store


class FakeClock:
    """A clock that stops until `advance` is called. Call it for the seconds since 1970."""

    def __init__(self, now: float = 1_700_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        """The present moment."""
        return self.now

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self.now += seconds


class Raised:
    """Keeps the error that a `raises` block ended with."""

    error: Any = None


@contextmanager
def raises(expected: type[BaseException]) -> Iterator[Raised]:
    """Expect a block to end with an error of this kind; the yielded object has the error afterwards."""
    raised = Raised()
    try:
        yield raised
    except expected as error:
        raised.error = error
    else:
        raise AssertionError(f"{expected.__name__} was expected, and nothing was raised")


def derived(records: Iterable[Record]) -> bytes:
    """The hash a log must end with, re-derived from its events; a payload that is not erased must match its hash."""
    digest = codec.GENESIS
    for position, record in enumerate(records, 1):
        assert record.position == position, f"position {record.position} is where {position} is expected"
        digest = codec.link_record(digest, record)
        assert record.hash == digest, f"the hash at {position} does not follow from the event before it"
        if record.payload is not None and record.salt is not None:
            assert codec.commit_to(record.salt, record.payload) == record.payload_hash
    return digest


class Opened(NamedTuple):
    """A session that a test opened."""

    id: str
    head: Head


class Workbench:
    """The base of every group of contract tests: a store, a clock, and quick ways to make events.

    A subclass says how its store is made; `setup_method` and `teardown_method` are called around every test.
    """

    clock: FakeClock
    store: Store

    def make_store(self) -> Store:
        """A new, empty store on `self.clock`."""
        raise NotImplementedError

    def setup_method(self) -> None:
        """Make the store."""
        self._made = 0
        self.clock = FakeClock()
        self.store = self.make_store()

    def teardown_method(self) -> None:
        """Close the store."""
        self.store.close()

    def new_id(self) -> str:
        """An unused id: sorted by time, the same in every run."""
        self._made += 1
        return make_ulid(int(self.clock() * 1000), sha256(str(self._made).encode()).digest()[:10])

    def draft(self, kind: str = "item.added", data: Any = None, *, id: str | None = None, run: int = 1) -> Draft:
        """A sealed event."""
        data = {"text": f"event {self._made}"} if data is None else data
        made = id or self.new_id()
        at = int(self.clock() * 1e6)
        salt = sha256(f"salt {made}".encode()).digest()[: codec.SALT_BYTES]
        return codec.seal(kind, data, id=made, at=at, by="main", run=run, salt=salt)

    def open(self, name: str = "work", *, project: str = "/home/ada/engine", id: str | None = None) -> str:
        """A new session; its id."""
        session = id or self.new_id()
        opening = self.draft("session.opened", {"name": name, "project": project, "objective": name}, run=NEW_RUN)
        self.store.create(heads.fresh(session, opening), [opening])
        return session

    def add(self, session: str, *kinds: str) -> None:
        """One event of each kind, one append each."""
        for kind in kinds:
            self.store.append(session, [self.draft(kind, {"text": f"{kind} of {session}"})])

    def fork(self, parent: str, position: int, name: str = "fork") -> str:
        """A fork of a session at a position; its id."""
        session = self.new_id()
        (record,) = self.store.read(parent, after=position - 1, upto=position)
        past = self.store.head(parent)._replace(position=position, hash=record.hash)
        origin = {"session": parent, "position": position}
        beginning = self.draft("session.forked", {"name": name, "parent": origin}, run=NEW_RUN)
        self.store.create(heads.forked(past, session, name), [beginning])
        return session

    def positions(self, session: str, **filters: Any) -> list[int]:
        """The positions a read returns."""
        return [record.position for record in self.store.read(session, **filters)]
