"""The MCP SDK's EventStore on our log. Upstream's own tests are run by `./dev frameworks mcp`."""

import asyncio
from typing import Any

import pytest
from mcp_types import JSONRPCNotification

import onrecord
from onrecord.frameworks.mcp_events import OnrecordEventStore
from tests.stores import url_of


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


def test_events_of_many_streams_at_once_have_an_id_each(tmp_path):
    """Fifty events stored at once by two servers get fifty ids, without a gap, and all of them are on record."""

    async def story(store: Any) -> list[str]:
        servers = [OnrecordEventStore("server", store), OnrecordEventStore("server", store)]
        return await asyncio.gather(*(servers[n % 2].store_event(f"s{n % 5}", told(n)) for n in range(50)))

    with onrecord.connect(str(tmp_path / "x.db"), project="p") as store:
        assert sorted(map(int, asyncio.run(story(store)))) == list(range(1, 51))
        assert store.get("server").verify().ok
