"""What finds calls that block the event loop finds them; the adapters' own tests use it."""

import asyncio

import onrecord
from onrecord.aio import settled
from tests.frameworks.looping import never_blocked


def test_a_call_of_the_store_on_the_loop_is_noticed_and_one_on_a_thread_is_not(tmp_path):
    """The same call, made by a coroutine itself and through a thread: the first one is named."""

    async def story(store: onrecord.SessionStore) -> None:
        with never_blocked(store) as found:
            await settled(store.sessions)
            assert found == []
            store.sessions()
            assert set(found) == {"SQLiteStore.heads"}
            found.clear()

    with onrecord.connect(str(tmp_path / "x.db"), project="p") as store:
        asyncio.run(story(store))
