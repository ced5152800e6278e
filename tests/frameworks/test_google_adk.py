"""Google ADK on our log: the contract of its session services, order and stale writers included."""

import asyncio
import subprocess
import sys
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import pytest
from google.adk.errors._stale_session_error import StaleSessionError
from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.errors.session_not_found_error import SessionNotFoundError
from google.adk.events.event import Event
from google.adk.events.event_actions import EventActions
from google.adk.sessions.base_session_service import GetSessionConfig
from google.genai import types

import onrecord
from onrecord.frameworks.google_adk import OnrecordSessionService
from tests.stores import url_of

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "frameworks" / "google_adk_refund.py"
WHO: Any = {"app_name": "app", "user_id": "ada"}
ONE: Any = {**WHO, "session_id": "s"}


def run(awaitable: Awaitable[Any]) -> Any:
    async def main() -> Any:
        return await awaitable

    return asyncio.run(main())


@pytest.fixture(params=["sqlite", "postgres"])
def store(request, tmp_path):
    with onrecord.connect(url_of(request.param, request, tmp_path), project="p") as found:
        yield found


@pytest.fixture
def service(store):
    return OnrecordSessionService(store)


def event(text: str = "hi", at: float = 1.0, author: str = "user", **delta: Any) -> Event:
    content = types.Content(role="user", parts=[types.Part(text=text)])
    return Event(author=author, content=content, timestamp=at, actions=EventActions(state_delta=delta))


def texts(session: Any) -> list[str]:
    return [one.content.parts[0].text for one in session.events]


def test_sessions_are_created_found_listed_and_deleted(service, store):
    """Checks 1 to 10: ids given and made, no duplicate, unknown is None, lists without events in order, deletion."""

    async def story() -> None:
        made = await service.create_session(**ONE, state={"k": 1})
        assert (made.id, made.app_name, made.user_id, made.state, made.events) == ("s", "app", "ada", {"k": 1}, [])
        other = await service.create_session(**WHO)
        assert other.id not in ("", "s")
        with pytest.raises(AlreadyExistsError, match="already exists"):
            await service.create_session(**ONE)
        assert await service.get_session(**WHO, session_id="nope") is None
        await service.create_session(app_name="app", user_id="bob", session_id="s", state={"of": "bob"})
        await service.append_event(made, event(at=2e9))
        again: Any = OnrecordSessionService(store)
        mine = (await again.list_sessions(**WHO)).sessions
        assert [one.id for one in mine] == [other.id, "s"]
        assert all(one.events == [] for one in mine)
        assert len((await again.list_sessions(app_name="app")).sessions) == 3
        assert (await again.list_sessions(app_name="elsewhere")).sessions == []
        assert (await again.get_session(app_name="app", user_id="bob", session_id="s")).state == {"of": "bob"}
        await again.delete_session(**ONE)
        await again.delete_session(**WHO, session_id="never there")
        assert await service.get_session(**ONE) is None
        assert [one.id for one in (await service.list_sessions(**WHO)).sessions] == [other.id]
        with pytest.raises(SessionNotFoundError, match="not found"):
            await service.append_event(made, event())
        assert (await service.create_session(**ONE)).events == []

    run(story())


def test_a_padded_id_is_the_same_session(service):
    """Check 11: ids are stripped of white space when a session is made, found and deleted."""

    async def story() -> None:
        assert (await service.create_session(**WHO, session_id="  s ")).id == "s"
        assert (await service.get_session(**WHO, session_id=" s")).id == "s"
        with pytest.raises(AlreadyExistsError):
            await service.create_session(**WHO, session_id="s ")
        await service.delete_session(**WHO, session_id=" s ")
        assert await service.get_session(**ONE) is None

    run(story())


def test_state_is_shared_as_its_prefix_says(service, store):
    """Checks 12 to 17: app and user state are shared, temporary state is not kept, None is kept, dicts replace."""

    async def story() -> None:
        mine = await service.create_session(**ONE, state={"app:a": 1, "user:u": 2, "own": 3, "temp:t": 4})
        assert {name: one for name, one in mine.state.items() if not name.startswith("temp:")} == {
            "app:a": 1, "user:u": 2, "own": 3,
        }  # fmt: skip
        changes: Any = {"app:a": 5, "user:v": {"x": 1}, "own": None, "d": {"old": 1}, "temp:t": "now"}
        await service.append_event(mine, event(**changes))
        assert mine.state["temp:t"] == "now"
        await service.append_event(mine, event(at=2.0, d={"new": 2}))
        again: Any = OnrecordSessionService(store)
        kept = await again.get_session(**ONE)
        assert kept.state == {"app:a": 5, "user:u": 2, "user:v": {"x": 1}, "own": None, "d": {"new": 2}}
        assert all("temp:t" not in one.actions.state_delta for one in kept.events)
        assert (await again.create_session(**WHO)).state == {"app:a": 5, "user:u": 2, "user:v": {"x": 1}}
        assert (await again.create_session(app_name="app", user_id="bob")).state == {"app:a": 5}
        assert await again.get_user_state(**WHO) == {"u": 2, "v": {"x": 1}}
        assert await again.get_user_state(app_name="app", user_id="nobody") == {}

    run(story())


def test_events_are_kept_and_read_in_parts(service, store):
    """Checks 18 to 22: partial events are not kept, the update time is the event's, the latest and later ones."""

    async def story() -> None:
        mine = await service.create_session(**ONE)
        partial = event("partial")
        partial.partial = True
        await service.append_event(mine, partial)
        for number in range(5):
            await service.append_event(mine, event(str(number), at=10.0 + number))
        assert mine.last_update_time == 14.0
        again: Any = OnrecordSessionService(store)
        found = await again.get_session(**ONE)
        assert (texts(found), found.last_update_time) == (["0", "1", "2", "3", "4"], 14.0)
        assert [one.id for one in found.events] == [one.id for one in mine.events]
        for config, wanted in (
            (GetSessionConfig(num_recent_events=2), ["3", "4"]),
            (GetSessionConfig(num_recent_events=0), []),
            (GetSessionConfig(after_timestamp=13.0), ["3", "4"]),
        ):
            assert texts(await again.get_session(**ONE, config=config)) == wanted

    run(story())


def test_equal_and_backward_clocks_do_not_change_the_order(service, store):
    """Checks 23 and 24: events with one timestamp, or with earlier ones, come back as they were appended."""

    async def story() -> None:
        mine = await service.create_session(**ONE)
        for number in range(12):
            await service.append_event(mine, event(str(number), at=5.0 if number < 6 else 5.0 - number))
        found = await OnrecordSessionService(store).get_session(**ONE)
        assert texts(found) == [str(number) for number in range(12)]

    run(story())


def test_a_stale_writer_is_refused_also_with_an_equal_timestamp(service, store):
    """Check 25: of two writers that have read the same session, one is stale; nothing of it is kept."""

    async def story() -> None:
        await service.create_session(**ONE)
        other = OnrecordSessionService(store)
        for round_ in range(5):
            one, two = await service.get_session(**ONE), await other.get_session(**ONE)
            outcomes = await asyncio.gather(
                service.append_event(one, event(f"a{round_}", at=7.0)),
                other.append_event(two, event(f"b{round_}", at=7.0)),
                return_exceptions=True,
            )
            refused = [one for one in outcomes if isinstance(one, Exception)]
            assert len(refused) == 1
            assert isinstance(refused[0], StaleSessionError)
            assert isinstance(refused[0], ValueError)
            assert "[log_moved]" in str(refused[0])
        assert len((await service.get_session(**ONE)).events) == 5

    run(story())


def test_a_killed_tool_is_not_run_again_when_the_invocation_is_resumed(tmp_path):
    """Killed inside the tool: ADK repeats the step, the tool does not run, and the model reads why."""
    command = [sys.executable, "-W", "ignore", str(EXAMPLE), str(tmp_path)]
    killed = subprocess.run([*command, "--kill"], capture_output=True, text=True, check=False, timeout=100)
    assert killed.returncode == -9, killed.stderr
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)
    assert done.returncode == 0, done.stderr
    assert "The bank said: started, outcome unknown: the process ended before pay answered" in done.stdout
    assert (tmp_path / "payments.txt").read_text() == "order 42\n"


def test_what_was_said_is_in_the_transcript(tmp_path):
    """Texts of user and model are read without ADK, and are found by search."""
    with onrecord.connect(str(tmp_path / "x.db"), project="p") as store:
        service = OnrecordSessionService(store)

        async def story() -> None:
            mine = await service.create_session(**ONE)
            await service.append_event(mine, event("where is the zebra"))
            await service.append_event(mine, event("in the zoo", author="guide"))

        run(story())
        (found,) = store.search("zebra")
        items = store.get(found.session.session).transcript().items
        assert [(item["role"], item["content"]) for item in items] == [
            ("user", "where is the zebra"), ("assistant", "in the zoo"),
        ]  # fmt: skip
