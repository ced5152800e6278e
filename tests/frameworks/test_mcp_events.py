"""The MCP SDK's EventStore on our log. Upstream's own tests are run by `./dev frameworks mcp`."""

import asyncio
import subprocess
import sys
import traceback
from pathlib import Path
from typing import Any

import pytest
from mcp.shared.exceptions import MCPError
from mcp_types import JSONRPCNotification

import onrecord
from onrecord.errors import SessionClosed
from onrecord.frameworks.mcp_events import OnrecordEventStore
from tests.frameworks.disks import full_disk
from tests.frameworks.looping import never_blocked
from tests.stores import url_of

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "frameworks" / "mcp_events_refund.py"


def told(number: int) -> JSONRPCNotification:
    return JSONRPCNotification(jsonrpc="2.0", method="notifications/message", params={"n": number})


async def missed(events: OnrecordEventStore, after: str) -> tuple[Any, list[Any]]:
    sent: list[Any] = []

    async def send(event: Any) -> None:
        sent.append((event.event_id, event.message.params["n"]))

    return await events.replay_events_after(after, send), sent


@pytest.mark.parametrize("kind", ["memory", "sqlite", "postgres"])
def test_a_reconnected_client_gets_what_it_missed_of_its_stream(kind, request, tmp_path):
    """After a restart, the events of the same stream after the last one come in order; a priming event is not sent."""

    async def story(store: Any) -> None:
        events = OnrecordEventStore("server", store)
        ids = [await events.store_event("a", None)]
        ids += [await events.store_event("ab"[number % 2], told(number)) for number in range(6)]
        assert ids == ["1", "2", "3", "4", "5", "6", "7"]
        again = OnrecordEventStore("server", store)
        assert await missed(again, "1") == ("a", [("2", 0), ("4", 2), ("6", 4)])
        assert await missed(again, "3") == ("b", [("5", 3), ("7", 5)])
        assert await missed(again, "8") == (None, [])
        assert await missed(again, "nonsense") == (None, [])

    with onrecord.connect(url_of(kind, request, tmp_path), project="p") as store:
        asyncio.run(story(store))


def test_an_erased_event_is_left_out_and_its_number_is_not_given_again(tmp_path):
    """Events after an erased one keep their numbers, and all are sent; also by a server that ran all the time."""

    async def story(url: str) -> None:
        with onrecord.connect(url, project="p") as store, onrecord.connect(url, project="p") as other:
            running = OnrecordEventStore("server", store)
            for number in range(5):
                await running.store_event("a", told(number))
            session = store.get("server")
            kept = [event.position for event in session.events() if event.kind == "payload.kept"]
            session.log.erase("a secret", positions=[kept[1], kept[4]])
            restarted = OnrecordEventStore("server", other)
            for events in (running, restarted):
                assert await missed(events, "1") == ("a", [("3", 2), ("4", 3)])
                assert await missed(events, "3") == ("a", [("4", 3)])
            assert [await restarted.store_event("a", told(5)), await running.store_event("a", told(6))] == ["6", "7"]
            for events in (running, restarted):
                assert await missed(events, "1") == ("a", [("3", 2), ("4", 3), ("6", 5), ("7", 6)])

    asyncio.run(story(str(tmp_path / "x.db")))


def test_events_of_many_streams_at_once_have_an_id_each(tmp_path):
    """Fifty events stored at once by two servers get fifty ids, without a gap, and all of them are on record."""

    async def story(store: Any) -> list[str]:
        servers = [OnrecordEventStore("server", store), OnrecordEventStore("server", store)]
        return await asyncio.gather(*(servers[n % 2].store_event(f"s{n % 5}", told(n)) for n in range(50)))

    with onrecord.connect(str(tmp_path / "x.db"), project="p") as store:
        assert sorted(map(int, asyncio.run(story(store)))) == list(range(1, 51))
        assert store.get("server").verify().ok


def test_the_event_loop_is_never_blocked(tmp_path):
    """Events kept and sent again, and a lease: the loop's thread never waits."""

    async def story(store: Any) -> None:
        events = OnrecordEventStore("server", store)
        async with events.alone():
            for number in range(3):
                await events.store_event("a", told(number))
        assert await missed(events, "1") == ("a", [("2", 1), ("3", 2)])

    with onrecord.connect(str(tmp_path / "x.db"), project="p") as store, never_blocked(store):
        asyncio.run(story(store))


def test_bad_input_is_an_error_of_mcp_and_writes_nothing(tmp_path):
    """A wrong type, too much, a full disk, a closed session: MCPError with our code and hint; the events as before."""

    async def story(store: Any) -> None:
        events = OnrecordEventStore("server", store)
        await events.store_event("a", told(0))
        wrong: Any = {"jsonrpc": "2.0"}
        with pytest.raises(MCPError, match=r"takes a store, not dict \[invalid_input\]; pass onrecord.connect"):
            OnrecordEventStore("x", wrong)
        with pytest.raises(MCPError, match=r"not str and dict \[invalid_input\]"):
            await events.store_event("a", wrong)
        long = JSONRPCNotification(jsonrpc="2.0", method="x", params={"text": "x" * 70_000_000})
        with pytest.raises(MCPError, match=r"\[too_large\]"):
            await events.store_event("a", long)
        with full_disk(), pytest.raises(MCPError, match=r"\[store_error\]"):
            await events.store_event("a", JSONRPCNotification(jsonrpc="2.0", method="x", params={"n": "x" * 9_000}))
        await events.store_event("a", told(1))
        store.get("server").close("done")
        with pytest.raises(MCPError, match=r"\[session_closed\]") as found:
            await events.store_event("a", told(2))
        hint = SessionClosed.hint.replace("session.", 'store.get("server").')
        assert found.value.error.data == {"code": "session_closed", "hint": hint}
        assert "".join(traceback.format_exception_only(found.value)).count(hint) == 1
        assert await missed(OnrecordEventStore("server", store), "1") == ("a", [("2", 1)])

    with onrecord.connect(str(tmp_path / "x.db"), project="p") as store:
        asyncio.run(story(store))


def test_a_server_that_lost_its_lease_is_refused(tmp_path):
    """Inside `alone` no other process adds events; a server whose lease was taken over meanwhile cannot write."""

    async def story(store: Any) -> None:
        events = OnrecordEventStore("server", store)
        async with events.alone():
            await events.store_event("a", told(0))
            with pytest.raises(MCPError, match=r"\[lease_held\]"):
                async with OnrecordEventStore("server", store).alone():
                    pass
            store.get("server", agent="main").acquire(takeover=True)
            with pytest.raises(MCPError, match=r"\[lease_lost\]"):
                await events.store_event("a", told(1))
        assert await missed(OnrecordEventStore("server", store), "1") == ("a", [])

    with onrecord.connect(str(tmp_path / "x.db"), project="p") as store:
        asyncio.run(story(store))


def test_a_client_gets_what_it_missed_after_the_server_was_killed_in_a_tool(tmp_path):
    """A real server over HTTP, killed inside its tool and started again: the events come from the record; one payment."""
    command = [sys.executable, "-W", "ignore", str(EXAMPLE), str(tmp_path)]
    killed = subprocess.run([*command, "--kill"], capture_output=True, text=True, check=False, timeout=100)
    assert killed.returncode == -9, killed.stderr
    again = subprocess.run(command, capture_output=True, text=True, check=True, timeout=100).stdout
    assert again.splitlines() == ["event: checking order 42", "event: order 42 is paid", "nothing more was missed"]
    assert (tmp_path / "payments.txt").read_text() == "order 42\n"
