"""Google ADK where a reply was lost, or where something cannot be written: nothing is lost, doubled or refused."""

from typing import Any

import pytest

import onrecord
from onrecord.errors import StoreReadOnly
from onrecord.frameworks.google_adk import OnrecordSessionService
from onrecord.stores.sqlite import SQLiteStore
from tests.frameworks.test_google_adk import ONE, WHO, event, run, service, store, texts

__all__ = ["service", "store"]  # fixtures


def test_an_event_with_a_secret_that_is_appended_again_is_kept_once(store, service):
    """A retry after a lost reply is recognised although the recorded text is without the secret."""

    async def story() -> None:
        read = await service.create_session(**ONE)
        made = event("use ghp_" + "a1B2c3" * 6)
        await service.append_event(read, made)
        other = OnrecordSessionService(store)
        await other.append_event(await other.get_session(**ONE), made)
        assert len((await service.get_session(**ONE)).events) == 1
        changed = event("use ghp_" + "d4E5f6" * 6)
        changed.id = made.id
        with pytest.raises(ValueError, match="on record with another content"):
            await other.append_event(await other.get_session(**ONE), changed)

    run(story())


def test_shared_state_that_cannot_be_written_is_shown_and_written_later(tmp_path):
    """While the session of an app is closed, events that change its state are kept, and their session shows it."""

    async def story() -> None:
        with onrecord.connect(str(tmp_path / "x.db"), project="p") as store:
            read = await OnrecordSessionService(store).create_session(**ONE, state={"app:x": 1})
            (head,) = [one for one in store.sessions() if one.name.startswith("adk-app")]
            store.get(head.name).close()
            service = OnrecordSessionService(store)
            await service.append_event(read, event("one", 1.0, "user", **{"app:x": 2}))
            await service.append_event(read, event("two", 2.0, "user", **{"app:y": 3, "own": 4}))
            for again in (service, OnrecordSessionService(store)):
                found: Any = await again.get_session(**ONE)
                assert (texts(found), found.state) == (["one", "two"], {"own": 4, "app:x": 2, "app:y": 3})
            store.get(head.name).resume(reopen=True)
            await OnrecordSessionService(store).get_session(**ONE)
            other = await OnrecordSessionService(store).create_session(**WHO)
            assert other.state == {"app:x": 2, "app:y": 3}

    run(story())


def test_a_session_can_be_read_where_nothing_can_be_written(tmp_path, monkeypatch):
    """Shared state that is on record is not written again, and what a crash left unshared is shown."""

    def refuse(*_arguments: Any, **_more: Any) -> Any:
        raise StoreReadOnly("this file can only be read")

    async def story() -> None:
        with onrecord.connect(str(tmp_path / "x.db"), project="p") as store:
            service = OnrecordSessionService(store)
            read = await service.create_session(**ONE, state={"app:x": 1, "user:y": 2})
            monkeypatch.setattr(service, "_share_one", refuse)  # as a crash before it
            await service.append_event(read, event("hi", 1.0, "user", **{"app:x": 5}))
            monkeypatch.setattr(SQLiteStore, "append", refuse)
            found: Any = await OnrecordSessionService(store).get_session(**ONE)
            assert found.state == {"app:x": 5, "user:y": 2}

    run(story())
