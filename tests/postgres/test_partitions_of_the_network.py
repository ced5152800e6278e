"""Network partitions: clients on the wrong side get no acknowledgement, so no acknowledged events diverge."""

import os
import signal
import time
from collections.abc import Iterator
from typing import Self
from urllib.parse import urlsplit, urlunsplit

import pytest

from tests.crash.ledger import Ack, acks_in, complaints
from tests.crash.nursery import Nursery
from tests.postgres.proxy import WIRE, Proxy
from tests.postgres.replicas import Pair
from tests.postgres.servers import OWNER, Site, Stores

HELD_UP_SECONDS = 1.0
"""Long enough for a hundred acknowledged appends that wait for no standby."""


class Split:
    """A primary with one link to its standby and another to some of the clients."""

    def __init__(self, *, synchronous: bool) -> None:
        self.site = Site()
        self.pair = Pair(self.site, synchronous=synchronous)
        self.beside = ""
        """The primary itself: the URL of a client on its own side."""
        self.link = Proxy(self.pair.primary)
        self.wire = Proxy(self.pair.primary)

    def __enter__(self) -> Self:
        self.pair.primary.start()
        self.link.__enter__()
        self.wire.__enter__()
        wire = " ".join(f"{name}={value}" for name, value in WIRE.items())
        self.pair.attach(f"host=127.0.0.1 port={self.link.port} user={OWNER} {wire}")
        self.beside = Stores(self.pair.primary).fresh_database()
        return self

    def __exit__(self, *_problem: object) -> None:
        self.wire.__exit__()
        self.link.__exit__()
        self.pair.stop()
        self.site.close()

    def away(self) -> str:
        """The primary over the link, or the standby: the URL of a client on the other side."""
        standby, wired = self.pair.standby, urlsplit(self.wire.instead_of(self.beside))
        hosts = f"host=127.0.0.1,{standby.folder}&port={self.wire.port},{standby.port}"
        return urlunsplit(wired._replace(netloc=f"{wired.username}@", query=f"{wired.query}&{hosts}"))

    def now(self) -> str:
        """The store on the present primary."""
        parts = urlsplit(self.beside)
        return self.pair.primary.url(parts.path[1:], str(parts.username))


@pytest.fixture(params=[True, False], ids=["synchronous", "asynchronous"])
def split(request: pytest.FixtureRequest) -> Iterator[Split]:
    with Split(synchronous=request.param) as found:
        yield found


@pytest.mark.timeout(300)
def test_a_partition_leaves_no_divergent_acknowledged_tail(split: Split, nursery: Nursery):
    """The primary is cut off from its standby and most clients, the standby takes over: no acknowledged event is only on the old one.

    Control: with an asynchronous standby, clients beside the old primary get acknowledgements for events that are lost (P25).
    """
    stranded = nursery.start("write_through_failovers", path=split.beside, session="shared", agent="stranded")
    moving = nursery.start("write_through_failovers", path=split.away(), session="shared", agent="moving")
    acks = acks_in([stranded.line(), moving.line(), stranded.line(), moving.line()])
    split.link.cut()
    split.wire.cut()
    acks += acks_in(stranded.lines())
    before = len(acks)
    acks += acks_in(stranded.lines(HELD_UP_SECONDS)) + acks_in(moving.lines())
    split.pair.promote()
    acks += acks_in([moving.line() for _ in range(5)])
    acks += acks_in(stranded.lines(HELD_UP_SECONDS)) + acks_in(stranded.kill()) + acks_in(moving.kill())
    assert len(acks) > before
    found = complaints(split.now(), acks)
    if split.pair.synchronous:
        assert found == []
    else:
        assert any("is lost" in line for line in found)


@pytest.mark.timeout(300)
def test_a_commit_that_gave_up_waiting_is_not_acknowledged(nursery: Nursery):
    """An administrator cancels commits that wait for a dead standby: they are visible but not safe, and not acknowledged (P20)."""
    with Split(synchronous=True) as split:
        writer = nursery.start("write_through_failovers", path=split.beside, session="waiting", agent="main")
        acks = acks_in([writer.line(), writer.line()])
        split.link.cut()
        acks += acks_in(writer.lines(HELD_UP_SECONDS / 2))
        told: list[Ack] = []
        cancelled = 0
        deadline = time.monotonic() + HELD_UP_SECONDS * 2
        while time.monotonic() < deadline:
            rows = split.pair.primary.execute(
                "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
            )
            cancelled += len(rows)
            told += acks_in(writer.lines(0.05))
        assert cancelled
        assert told == []
        writer.kill()
        split.pair.kill_primary()
        split.pair.promote()
        assert complaints(split.now(), acks) == []


def test_a_stopped_standby_delays_and_loses_nothing(nursery: Nursery):
    """A suspended standby delays commits; when it continues, they finish, and every turn is there once."""
    with Split(synchronous=True) as split:
        writer = nursery.start("write_through_failovers", path=split.beside, session="waiting", agent="main")
        acks = acks_in([writer.line(), writer.line()])
        ((receiver,),) = split.pair.standby.execute("SELECT pid FROM pg_stat_wal_receiver")
        os.kill(int(str(receiver)), signal.SIGSTOP)
        while late := acks_in(writer.lines(HELD_UP_SECONDS / 4)):  # commits in progress when it was suspended
            acks += late
        assert acks_in(writer.lines(HELD_UP_SECONDS / 2)) == []
        os.kill(int(str(receiver)), signal.SIGCONT)
        acks += acks_in([writer.line() for _ in range(3)])
        acks += acks_in(writer.kill())
        assert complaints(split.beside, acks) == []
