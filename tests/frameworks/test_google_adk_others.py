"""Google ADK and other writers of the same session: what they said is read, and counted once. ADK's own file is one."""

from collections.abc import AsyncGenerator
from typing import Any

import pytest
from google.adk.agents import LlmAgent
from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.models import BaseLlm, LlmResponse
from google.adk.runners import Runner
from google.adk.sessions.base_session_service import GetSessionConfig
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.genai import types

from onrecord.errors import Conflict
from onrecord.frameworks.google_adk import OnrecordSessionService
from onrecord.frameworks.importing import take_in
from onrecord.session.session_store import SessionStore
from tests.frameworks.test_google_adk import ONE, WHO, event, run, service, store, texts

__all__ = ["service", "store"]  # fixtures


class Reading(BaseLlm):  # type: ignore[misc]  # checked without ADK
    """A model that answers with what it was given."""

    async def generate_content_async(self, request: Any, stream: bool = False) -> AsyncGenerator[LlmResponse, None]:
        given = [part.text for content in request.contents for part in content.parts]
        yield LlmResponse(content=types.Content(role="model", parts=[types.Part(text=" | ".join(given))]))


def loop_says(store: SessionStore, name: str, asked: str, answered: str) -> None:
    """A turn of a plain loop, with a tool call and an image."""
    with store.open(name, agent="main") as plain, plain.turn() as turn:
        url = {"url": "data:image/png;base64,AAAA"}
        turn.user([{"type": "text", "text": asked}, {"type": "image_url", "image_url": url}])
        turn.assistant("", tool_calls=[{"id": "c", "name": "look", "arguments": {"at": 1}}])
        turn.tool("c", "seen")
        turn.assistant(answered)


def test_a_session_that_others_began_is_continued(service, store):
    """It is kept there on record, listed, and the model reads what was said, as a report of another agent."""
    loop_says(store, "order-42", "where is the zebra?", "in the zoo")

    async def story() -> list[Any]:
        await service.keep_in(**ONE, name="order-42")
        again: Any = OnrecordSessionService(store)
        assert [one.id for one in (await again.list_sessions(**WHO)).sessions] == ["s"]
        assert (await again.list_sessions(app_name="app", user_id="bob")).sessions == []
        with pytest.raises(AlreadyExistsError):
            await again.create_session(**ONE)
        store.create("another")
        with pytest.raises(ValueError, match=r"is kept in session 'order-42' already \[conflict\]"):
            await again.keep_in(**ONE, name="another")
        runner = Runner(app_name="app", agent=LlmAgent(name="guide", model=Reading(model="x")), session_service=again)
        asked = types.Content(role="user", parts=[types.Part(text="and now?")])
        return [one async for one in runner.run_async(user_id="ada", session_id="s", new_message=asked)]

    told = run(story())[-1].content.parts[0].text
    texts_in_order = (
        "where is the zebra?\n[image] | For context", "another_agent] called tool `look`", "{'at': 1}",
        "[another_agent] `look` tool returned", "{'result': 'seen'}", "[another_agent] said", "in the zoo", "and now?",
    )  # fmt: skip
    where = [told.index(text) for text in texts_in_order]
    assert where == sorted(where)
    session = store.get("order-42", agent="main")
    assert [item["content"] for item in session.transcript().items][2:] == ["seen", "in the zoo", "and now?", told]
    assert {head.name for head in store.sessions()} == {"order-42", "another"}
    assert len(run(OnrecordSessionService(store).get_session(**ONE)).events) == 4 + 2


def test_turns_of_others_are_events_where_they_were_said(service, store):
    """They come in the order of the log, equal each time, are counted in parts of a session, and are not appended."""

    async def story() -> None:
        mine = await service.create_session(**ONE)
        await service.append_event(mine, event("one", at=5.0))
        (head,) = store.sessions()
        loop_says(store, head.name, "two", "three")
        await service.append_event(mine, event("four", at=7.0))  # the session object is not stale
        loop_says(store, head.name, "five", "six")
        again: Any = await OnrecordSessionService(store).get_session(**ONE)
        said = ["one", "two\n[image]", None, None, "three", "four", "five\n[image]", None, None, "six"]
        assert texts(again) == said
        assert [one.timestamp for one in again.events] == [5.0] * 5 + [7.0] * 5
        assert again.events == (await service.get_session(**ONE)).events
        latest: Any = await service.get_session(**ONE, config=GetSessionConfig(num_recent_events=2))
        assert texts(latest) == [None, "six"]
        since: Any = await service.get_session(**ONE, config=GetSessionConfig(after_timestamp=6.0))
        assert texts(since) == said[5:]
        await service.append_event(again, event("seven", at=8.0))
        assert texts(await service.get_session(**ONE)) == [*said, "seven"]

    run(story())


def test_shared_state_that_was_set_here_stays_when_another_key_changed_in_the_file(service, store, tmp_path):
    """A repeated import records the keys of an app and a user that changed in the file, and no other ones."""
    path = str(tmp_path / "own.db")

    async def theirs(**state: Any) -> None:
        own = SqliteSessionService(path)
        mine = await own.get_session(**ONE) or await own.create_session(**ONE, state={"user:u": 1, "app:a": 1})
        await own.append_event(mine, event("theirs", at=mine.last_update_time + 1, **state))

    async def ours(service: OnrecordSessionService) -> None:
        mine = await service.get_session(**ONE)
        assert mine is not None
        state: Any = {"user:u": "ours", "app:a": "ours"}
        await service.append_event(mine, event("ours", **state))

    run(theirs(k=1))
    list(take_in(store, "google-adk", path))
    run(ours(service))
    for number in (2, 1, 2):  # also a value that the file had before
        run(theirs(**{"user:v": number, "app:b": number}))
        assert [one.new for one in take_in(store, "google-adk", path)] == [1]
        state = run(service.get_session(**ONE)).state
        assert state == {"k": 1, "user:u": "ours", "app:a": "ours", "user:v": number, "app:b": number}
    positions = [head.position for head in store.sessions()]
    assert [one.new for one in take_in(store, "google-adk", path)] == [0]
    assert [head.position for head in store.sessions()] == positions


def test_a_second_file_of_adk_with_the_same_ids_is_not_mixed_in(store, tmp_path):
    """No event of it is on record: it is another session, and refused."""

    async def fill(name: str) -> str:
        path = str(tmp_path / f"{name}.db")
        theirs = SqliteSessionService(path)
        made = await theirs.create_session(**ONE, state={"who": name})
        await theirs.append_event(made, event(name))
        return path

    first, second = run(fill("monday")), run(fill("tuesday"))
    assert [(one.new, one.there) for one in take_in(store, "google-adk", first)] == [(1, 0)]
    with pytest.raises(Conflict, match="has another conversation with the id 's'"):
        list(take_in(store, "google-adk", second))
    assert [(one.new, one.there) for one in take_in(store, "google-adk", first)] == [(0, 1)]
    found: Any = run(OnrecordSessionService(store).get_session(**ONE))
    assert texts(found) == ["monday"]
    assert found.state == {"who": "monday"}
