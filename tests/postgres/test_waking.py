"""Followers on PostgreSQL: woken if the URL says so, correct in any case, and no tenant learns about another."""

import contextlib
import threading
import time

import psycopg
import pytest

import onrecord
from onrecord.errors import InvalidInput
from onrecord.session import following
from onrecord.stores.postgres.address import address_of
from tests.postgres.servers import Stores

LONG_SECONDS = 600.0
"""How long a follower waits if it is not woken: in a test that ends earlier, it was woken."""


def notified(url: str) -> str:
    return f"{url}&notify=on"


def test_a_follower_is_woken(postgres: Stores, monkeypatch: pytest.MonkeyPatch):
    """With notify=on, a follower that would wait for ten minutes sees an event at once."""
    monkeypatch.setattr(following, "POLL_SECONDS", LONG_SECONDS)
    url = postgres.empty_store()
    with onrecord.connect(url) as records, onrecord.connect(notified(url)) as writers:
        session = records.create("followed")
        writer = writers.get("followed")
        seen: list[int] = []
        thread = threading.Thread(target=lambda: seen.extend(e.position for e in session.follow(1, 4)), daemon=True)
        thread.start()
        deadline = time.monotonic() + 90
        number = 0
        while thread.is_alive() and time.monotonic() < deadline:
            writer.decide(f"decision {number}")
            number += 1
            thread.join(0.2)
        assert not thread.is_alive()
        assert seen == [2, 3, 4]


def test_without_it_nobody_is_told(postgres: Stores):
    """An ordinary append sends no notification: commits that notify wait for one another."""
    url = postgres.empty_store()
    with listening(url) as listener, onrecord.connect(url) as records:
        records.create("quiet").decide("nothing to hear")
        assert list(listener.notifies(timeout=0.2)) == []


def test_who_listens_learns_nothing(postgres: Stores):
    """A notification that another tenant could receive names no session."""
    url = postgres.empty_store()
    with listening(url) as listener, onrecord.connect(notified(url)) as records:
        session = records.create("secret-name")
        session.decide("secret-word")
        (told,) = listener.notifies(timeout=60, stop_after=1)
        assert told.channel == "onrecord"
        assert len(told.payload) == 64
        for hidden in (session.id, "secret-name", "secret-word", records.store.url):
            assert hidden not in told.payload


def test_a_follower_whose_wire_breaks_goes_on(postgres: Stores, monkeypatch: pytest.MonkeyPatch):
    """If the listening connection ends, the follower polls as if it had none."""
    monkeypatch.setattr(following, "POLL_SECONDS", 0.01)
    url = postgres.empty_store()
    with onrecord.connect(url) as records:
        session = records.create("followed")
        events = session.follow(0, 3)
        assert next(events).position == 1
        session.decide("before")
        assert next(events).position == 2
        postgres.server.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query = 'LISTEN onrecord'"
        )
        session.decide("after")
        assert [event.position for event in events] == [3]


def test_the_url_says_on_or_off():
    """Anything else is refused, and libpq never sees the word."""
    assert address_of("postgresql://u@h/d?notify=on").notify
    assert not address_of("postgresql://u@h/d").notify
    assert "notify" not in address_of("postgresql://u@h/d?notify=on").conninfo
    with pytest.raises(InvalidInput):
        address_of("postgresql://u@h/d?notify=maybe")


@contextlib.contextmanager
def listening(url: str):
    """Another role that may connect, and listens to every notification."""
    with psycopg.connect(address_of(url).conninfo, autocommit=True) as connection:
        connection.execute("LISTEN onrecord")
        yield connection
