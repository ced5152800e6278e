"""Google ADK on our log: the contract of its session services, order and stale writers included."""

import asyncio
import random
import subprocess
import sys
from collections.abc import Awaitable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from google.adk.agents import LlmAgent
from google.adk.apps.app import App
from google.adk.errors._stale_session_error import StaleSessionError
from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.errors.session_not_found_error import SessionNotFoundError
from google.adk.events.event import Event
from google.adk.events.event_actions import EventActions
from google.adk.models import BaseLlm, LlmResponse
from google.adk.runners import Runner
from google.adk.sessions.base_session_service import GetSessionConfig
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.genai import types

import onrecord
from onrecord.frameworks.google_adk import OnrecordPlugin, OnrecordSessionService
from onrecord.frameworks.importing import take_in
from onrecord.session.session_store import SessionStore
from onrecord.stores.sqlite import SQLiteStore
from tests.crash.disks import Disk
from tests.crash.test_full_and_read_only_disk import Space
from tests.frameworks.looping import never_blocked
from tests.frameworks.refusing import check_refused
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


def test_an_event_that_is_made_and_saved_again_is_kept_once(service, store):
    """A caller that does not know whether its event was saved makes it again: same id and content, a later timestamp."""

    async def story() -> None:
        mine = await service.create_session(**ONE)
        for moment, said in ((1.0, "one"), (2.0, "two"), (3.0, "one"), (4.0, "two"), (5.0, "three")):
            made = event(said, at=moment)
            made.id = said
            await service.append_event(mine, made)
        found = await OnrecordSessionService(store).get_session(**ONE)
        assert texts(found) == ["one", "two", "three"]
        other = event("something else", at=6.0)
        other.id = "one"
        with pytest.raises(
            ValueError, match=r"is on record with another content \[invalid_input\]; give it its own id"
        ):
            await service.append_event(found, other)

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
    assert "The bank said: started, outcome unknown: the run ended before pay answered" in done.stdout
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


def test_the_event_loop_is_never_blocked(service, store):
    """Sessions made, read, listed, appended to, held and deleted: the loop's thread never waits."""

    async def story() -> None:
        mine = await service.create_session(**ONE, state={"user:k": 1})
        async with service.alone(**ONE):
            await service.append_event(mine, event("one", k=1))
        late = OnrecordSessionService(store, on_conflict="fork")
        other = await late.get_session(**ONE)
        await service.append_event(mine, event("two", at=2.0))
        await late.append_event(other, event("aside", at=3.0))
        assert texts(await service.get_session(**ONE)) == ["one", "two"]
        await service.list_sessions(app_name="app")
        await service.delete_session(**ONE)

    with never_blocked(store):
        run(story())


def test_an_overtaken_writer_is_queued_or_moved_to_a_fork(tmp_path):
    """With `queue` its event comes behind the others; with `fork` it is in a session of its own; nothing is lost."""
    with onrecord.connect(str(tmp_path / "x.db"), project="p") as store:

        async def story() -> None:
            queued, forking = (OnrecordSessionService(store, on_conflict=policy) for policy in ("queue", "fork"))
            mine = await queued.create_session(**ONE)
            other: Any = await forking.get_session(**ONE)
            await queued.append_event(mine, event("first"))
            late = await queued.get_session(**ONE)
            await queued.append_event(mine, event("second", at=2.0))
            await queued.append_event(late, event("third", at=3.0, k=1))
            assert texts(await queued.get_session(**ONE)) == ["first", "second", "third"]
            await forking.append_event(other, event("elsewhere", at=4.0))
            await forking.append_event(other, event("still there", at=5.0))
            assert (other.id, forking.forks) == ("s-fork-1", ["s-fork-1"])
            again = OnrecordSessionService(store)
            fork: Any = await again.get_session(**WHO, session_id="s-fork-1")
            assert (fork.id, texts(fork)) == ("s-fork-1", ["elsewhere", "still there"])
            assert texts(await again.get_session(**ONE)) == ["first", "second", "third"]
            assert {one.id for one in (await again.list_sessions(**WHO)).sessions} == {"s", "s-fork-1"}

        run(story())
        with pytest.raises(ValueError, match=r"refuse, queue, fork, not 'drop' \[invalid_input\]"):
            OnrecordSessionService(store, on_conflict="drop")


OTHER = """
import asyncio, sys, onrecord
from onrecord.frameworks.google_adk import OnrecordSessionService
async def main():
    with onrecord.connect(sys.argv[1], project="p") as store:
        service = OnrecordSessionService(store, on_conflict=sys.argv[2])
        print("ready", flush=True)
        try:
            async with service.alone(app_name="app", user_id="ada", session_id="s"):
                found = await service.get_session(app_name="app", user_id="ada", session_id="s")
                print("has", len(found.events), flush=True)
        except ValueError as problem:
            print("refused", problem.code, flush=True)
asyncio.run(main())
"""


def test_two_processes_wait_for_one_another_or_are_refused(tmp_path):
    """While one process has the lease, another is refused, or waits until it can read what the first one wrote."""
    path = str(tmp_path / "x.db")
    with onrecord.connect(path, project="p") as store:
        service = OnrecordSessionService(store)

        async def story() -> None:
            mine = await service.create_session(**ONE)
            async with service.alone(**ONE):
                command = [sys.executable, "-W", "ignore", "-c", OTHER, path]
                done = await asyncio.to_thread(
                    subprocess.run, [*command, "refuse"], capture_output=True, text=True, check=False
                )
                assert done.stdout == "ready\nrefused lease_held\n", done.stderr
                forking = OnrecordSessionService(store, on_conflict="fork")
                async with forking.alone(**ONE) as fork:
                    assert await forking.get_session(**WHO, session_id=fork) is not None
                assert forking.forks == [fork] == ["s-fork-1"]
                start = partial(subprocess.Popen, [*command, "queue"], stdout=subprocess.PIPE, text=True)
                waiting = await asyncio.to_thread(start)
                assert waiting.stdout is not None
                assert await asyncio.to_thread(waiting.stdout.readline) == "ready\n"
                await service.append_event(mine, event("first"))
            assert await asyncio.to_thread(waiting.stdout.read) == "has 1\n"
            waiting.stdout.close()
            assert waiting.wait() == 0

        run(story())


def test_wrong_input_is_an_error_of_adk(tmp_path, monkeypatch):
    """Wrong types, too large, closed, a lost lease: ADK's own errors with our code and hint, nothing half-written."""
    with onrecord.connect(str(tmp_path / "x.db"), project="p") as store:
        service: Any = OnrecordSessionService(store)

        async def fails(awaitable: Any, error: type[Exception], words: str) -> None:
            with pytest.raises(error, match=words):
                await awaitable

        async def story() -> None:
            mine = await service.create_session(**ONE)
            name = store.sessions()[0].name
            before = store.get(name).head.position
            await fails(service.append_event(mine, "text"), ValueError, r"not Session, str \[invalid_input\]")
            await fails(service.get_session(**WHO, session_id=7), ValueError, r"must be text \[invalid_input\]")
            who = {"app_name": None, "user_id": None}
            calls = [lambda: service.alone(**who, session_id="s"), lambda: service.list_sessions(app_name=None)]
            calls += [lambda: service.alone(**WHO, session_id="")]
            calls += [lambda: service.list_sessions(app_name=WHO["app_name"], user_id=7)]
            await check_refused(ValueError, "invalid_input", *calls)
            await fails(service.create_session(**WHO, state=[1]), ValueError, r"a state that is a dict \[invalid_input")
            with monkeypatch.context() as patched:
                patched.setattr("onrecord.log.codec.PAYLOAD_LIMIT", 20_000)
                await fails(service.append_event(mine, event("x" * 30_000)), ValueError, r"\[too_large\]; split it")
            unknown = mine.model_copy(update={"id": "unknown"})
            await fails(service.append_event(unknown, event()), SessionNotFoundError, r"\[session_not_found\]")
            assert store.get(name).head.position == before
            async with service.alone(**ONE):
                other = store.get(name, agent="main").acquire(takeover=True)
                position = other.head.position
                await fails(service.append_event(mine, event()), ValueError, r"\[lease_lost\]; open the session again")
                assert store.get(name).head.position == position
                other.leave()
            store.get(name).close()
            again = await OnrecordSessionService(store).get_session(**ONE)
            await fails(service.append_event(again, event()), ValueError, r"\[session_closed\]; .*reopen")

        run(story())


def test_a_full_disk_is_an_error_of_adk_and_loses_nothing(tmp_path):
    """When the disk is full the append fails with our code; what was saved is readable, and later appends work."""
    space = Space(1 << 40)
    with Disk(space):
        ours = SQLiteStore(str(tmp_path / "full.db"))
        service = OnrecordSessionService(SessionStore(ours))

        async def story() -> None:
            mine = await service.create_session(**ONE)
            await service.append_event(mine, event("one"))
            space.room = 0
            with pytest.raises(ValueError, match=r"\[store_full\]; free some space"):
                await service.append_event(mine, event(random.Random(1).randbytes(4_000_000).hex()))
            space.room = 1 << 40
            await service.append_event(mine, event("two"))
            assert texts(await service.get_session(**ONE)) == ["one", "two"]

        run(story())
        ours.close()


def test_sessions_of_adks_own_file_are_imported_once(tmp_path):
    """Events and state of its SQLite file arrive in their order; a second import adds only what is new."""
    path = str(tmp_path / "own.db")

    async def theirs(*said: str) -> None:
        own = SqliteSessionService(path)
        mine = await own.get_session(**ONE) or await own.create_session(**ONE, state={"k": 1, "user:u": 2, "app:a": 3})
        for number, text in enumerate(said):
            await own.append_event(mine, event(text, at=mine.last_update_time + 1 + number))

    run(theirs("one", "two"))
    with onrecord.connect(str(tmp_path / "x.db"), project="p") as store:
        assert [(one.new, one.there) for one in take_in(store, "google-adk", f"sqlite:///{path}")] == [(2, 0)]
        run(theirs("three"))
        assert [(one.new, one.there) for one in take_in(store, "google-adk", path)] == [(1, 2)]
        found = run(OnrecordSessionService(store).get_session(**ONE))
        assert texts(found) == ["one", "two", "three"]
        assert found.state == {"k": 1, "user:u": 2, "app:a": 3}


def test_adk_that_is_missing_is_one_sentence(monkeypatch):
    """Without ADK, the import of the adapter says what to install."""
    monkeypatch.setitem(sys.modules, "google.adk.events.event", None)
    monkeypatch.delitem(sys.modules, "onrecord.frameworks.google_adk")
    with pytest.raises(ImportError, match=r"needs google-adk 2\.13 or newer: pip install 'onrecord\[google-adk\]'"):
        __import__("onrecord.frameworks.google_adk")


def test_state_that_is_no_json_is_refused(service, store):
    """A value that JSON does not have is not turned into text silently: nothing of the session or event is kept."""
    with pytest.raises(
        ValueError, match=r"cannot be kept as JSON: Unable to serialize .*\[invalid_input\]; use strings"
    ):
        run(service.create_session(app_name="a", user_id="u", session_id="bad", state={"x": object()}))
    assert run(service.get_session(app_name="a", user_id="u", session_id="bad")) is None
    session = run(service.create_session(app_name="a", user_id="u", session_id="s"))
    with pytest.raises(ValueError, match="cannot be kept as JSON"):
        run(service.append_event(session, event(x=object())))
    assert run(service.get_session(app_name="a", user_id="u", session_id="s")).events == []


class OneId(BaseLlm):  # type: ignore[misc]  # checked without ADK
    """Calls the tool with what it is asked, always under the same id; says what the tool answered."""

    async def generate_content_async(self, request: Any, stream: bool = False) -> Any:  # the signature of ADK
        last = request.contents[-1].parts[-1]
        if last.function_response:
            part = types.Part(text=last.function_response.response["result"])
        else:
            part = types.Part(function_call=types.FunctionCall(id="call_0", name="look", args={"n": int(last.text)}))
        yield LlmResponse(content=types.Content(role="model", parts=[part]))


@pytest.mark.filterwarnings("ignore")  # those of ADK about its own experiments
def test_a_server_that_gives_every_call_the_same_id(tmp_path):
    """Each call runs, once, and the model reads its own result: in one process and in the next."""
    ran: list[int] = []

    def look(n: int) -> str:
        """Look."""
        ran.append(n)
        return f"saw {n}, look {len(ran)}"

    async def ask(store: SessionStore, *prompts: int) -> list[str]:
        service = OnrecordSessionService(store)
        if await service.get_session(**ONE) is None:
            await service.create_session(**ONE)
        agent = LlmAgent(name="looker", model=OneId(model="scripted"), tools=[look])
        runner = Runner(
            app=App(name="app", root_agent=agent, plugins=[OnrecordPlugin(service)]), session_service=service
        )
        said = []
        for one in prompts:
            message = types.Content(role="user", parts=[types.Part(text=str(one))])
            async for event in runner.run_async(user_id="ada", session_id="s", new_message=message):
                said += [part.text for part in (event.content.parts if event.content else None) or () if part.text]
        return said

    with onrecord.connect(str(tmp_path / "x.db"), project="p") as store:
        assert run(ask(store, 1, 1, 2)) == ["saw 1, look 1", "saw 1, look 2", "saw 2, look 3"]
        assert run(ask(store, 2, 3)) == ["saw 2, look 4", "saw 3, look 5"]
        (head,) = [head for head in store.sessions() if head.name.endswith("-s")]
        assert list(store.get(head.name).effects.unknown()) == []
