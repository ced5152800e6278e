"""Strands' `Storage` on our log. Its own storage and snapshot tests are run by `./dev frameworks strands-storage`."""

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from strands import Agent
from strands.models import Model
from strands.session.repository_session_manager import RepositorySessionManager
from strands.session.snapshot_session_manager import SnapshotSessionManager
from strands.types.exceptions import StorageError

import onrecord
from onrecord.frameworks.strands import OnrecordHooks, OnrecordRepository
from onrecord.frameworks.strands_storage import OnrecordStorage
from tests.frameworks.disks import full_disk
from tests.frameworks.looping import never_blocked
from tests.frameworks.refusing import check_refused
from tests.frameworks.sharing import check_shared
from tests.stores import url_of

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "frameworks" / "strands_snapshot_refund.py"
KEY = "session/s/scopes/agent/default/snapshots/snapshot_latest.json"


@pytest.fixture(params=["sqlite", "postgres"])
def store(request, tmp_path):
    with onrecord.connect(url_of(request.param, request, tmp_path), project="p") as found:
        yield found


class Echo(Model):  # type: ignore[misc]  # checked without Strands
    """Says how many messages it was given."""

    def update_config(self, **_config: Any) -> None:
        """There is nothing to configure."""

    def get_config(self) -> dict[str, Any]:
        """There is nothing configured."""
        return {}

    def structured_output(self, *_arguments: Any, **_more: Any) -> Any:
        """Not used here."""
        raise NotImplementedError

    async def stream(self, messages: Any, *_arguments: Any, **_more: Any) -> AsyncIterator[Any]:
        """One answer."""
        yield {"messageStart": {"role": "assistant"}}
        yield {"contentBlockStart": {"start": {}}}
        yield {"contentBlockDelta": {"delta": {"text": f"read {len(messages)}"}}}
        yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": "end_turn"}}


def agent_on(storage: Any, **options: Any) -> Any:
    manager = SnapshotSessionManager("s", storage=storage, **options)
    return Agent(model=Echo(), session_manager=manager, callback_handler=None)


def test_values_come_back_byte_for_byte_under_every_key(store):
    """Text, bytes, JSON in any spacing and empty values; deleted ones are gone, and keys are listed in order."""
    values = {"a": b"", "b/c": b"\x00\xff", "m.json": b'{"data":{"messages":[]}}', "é": "für".encode(), KEY: b"{ }"}

    async def story() -> None:
        ours = OnrecordStorage(store)
        for key, value in values.items():
            await ours.write(key, value)
            await ours.write(key, value)
        again = OnrecordStorage(store)
        assert {key: await again.read(key) for key in values} == values
        assert await again.list("") == sorted(values)
        assert await again.list("session/") == [KEY]
        await again.delete("b/c")
        await again.delete("nothing")
        assert await OnrecordStorage(store).read("b/c") is None
        assert await ours.list("b") == []

    asyncio.run(story())
    assert store.get("s").verify().ok


def test_an_agent_resumes_and_each_message_is_kept_once(store):
    """Twenty turns with a snapshot after each message: another agent reads them all; the log has each message once."""
    agent = agent_on(OnrecordStorage(store), save_latest_on="message")
    for number in range(20):
        agent(f"question {number}")
    again = agent_on(OnrecordStorage(store))
    assert str(again("and?")).strip() == "read 41"
    kept = [event for event in store.get("s").events() if event.kind == "payload.kept"]
    assert sum(len(event.data["lines"]) - 1 for event in kept) == 42
    said = [text for number in range(20) for text in (f"question {number}", f"read {number * 2 + 1}")]
    check_shared(store, "s", [*said, "and?", "read 41"])


class Listener(Echo):
    """Notes what it is given: texts, tools that were called and what they answered."""

    def __init__(self) -> None:
        self.heard: list[str] = []

    async def stream(self, messages: Any, *_arguments: Any, **_more: Any) -> AsyncIterator[Any]:
        """One answer."""
        parts = [part for message in messages for part in message["content"]]
        self.heard = [
            part["text"] if "text" in part else part["toolUse"]["name"] if "toolUse" in part
            else part["toolResult"]["content"][0]["text"]
            for part in parts
        ]  # fmt: skip
        async for one in super().stream(messages):
            yield one


def heard(store: Any, kind: str, asked: str) -> list[str]:
    """What the model of an agent in a new process is given."""
    if kind == "repository":
        sessions: Any = OnrecordRepository(store)
        manager: Any = RepositorySessionManager(session_id="s", session_repository=sessions)
    else:
        sessions = OnrecordStorage(store)
        manager = SnapshotSessionManager("s", storage=sessions, save_latest_on="message")
    model = Listener()
    Agent(model=model, session_manager=manager, callback_handler=None, hooks=[OnrecordHooks(sessions, "s")])(asked)
    return model.heard


def loop_says(store: Any, asked: str, answered: str) -> None:
    """A turn of a plain loop, with a tool call and an image."""
    with store.open("s", agent="main") as plain, plain.turn() as turn:
        url = {"url": "data:image/png;base64,AAAA"}
        turn.system("a system prompt of another framework")
        turn.user([{"type": "text", "text": asked}, {"type": "image_url", "image_url": url}])
        turn.assistant("", tool_calls=[{"id": "c", "name": "look", "arguments": {"at": 1}}])
        turn.tool("c", "seen")
        turn.assistant(answered)


@pytest.mark.parametrize("kind", ["repository", "snapshots"])
def test_an_agent_reads_what_others_said_and_it_is_said_once(store, kind):
    """A session that a loop began and continues later: the model of each new agent has every turn, the transcript too."""
    loop_says(store, "one", "two")
    first = ["one", "[image]", "look", "seen", "two", "three"]
    assert heard(store, kind, "three") == first
    loop_says(store, "four", "five")
    again = [*first, "read 5", "four", "[image]", "look", "seen", "five", "six"]
    assert heard(store, kind, "six") == again
    assert heard(store, kind, "seven") == [*again, "read 11", "seven"]
    session = store.get("s", agent="main")
    said = [item["content"] for item in session.transcript().items if isinstance(item["content"], str)]
    assert [text for text in said if text and "system prompt" not in text] == [
        "seen", "two", "three", "read 5", "seen", "five", "six", "read 11", "seven", "read 13",
    ]  # fmt: skip
    assert session.verify().ok


def test_equal_messages_are_all_shown_and_a_redacted_one_is_not(store):
    """The same words twice are two messages of the transcript, also after a trim; what a snapshot replaced is hidden."""

    def snapshot(*texts: str) -> bytes:
        said = [{"role": "user", "content": [{"text": text}]} for text in texts]
        return json.dumps({"data": {"messages": said}}).encode()

    def shown() -> list[str]:
        transcript = store.get("s").transcript()
        return [item["content"] for turn in (*transcript.committed, *transcript.provisional) for item in turn.items]

    async def story() -> None:
        ours = OnrecordStorage(store)
        for texts in (["yes"], ["yes", "no"], ["yes", "no", "yes"], ["no", "yes"], ["no", "yes", "555"]):
            await ours.write(KEY, snapshot(*texts))
            assert await OnrecordStorage(store).read(KEY) == snapshot(*texts)
        assert shown() == ["yes", "no", "yes", "555"]
        await ours.write(KEY, snapshot("no", "yes", "[redacted]"))
        assert await OnrecordStorage(store).read(KEY) == snapshot("no", "yes", "[redacted]")

    asyncio.run(story())
    assert shown() == ["yes", "no", "yes", "[redacted]"]


@pytest.mark.parametrize("policy", ["refuse", "queue", "fork"])
def test_a_worker_that_was_overtaken_is_refused_or_forked(store, policy):
    """Two workers restored the same snapshot: the second write never replaces the first; a snapshot cannot be queued."""
    agent_on(OnrecordStorage(store))("begin")
    mine = OnrecordStorage(store, on_conflict=policy)
    one, two = agent_on(mine), agent_on(OnrecordStorage(store))
    two("yours")
    hints = {"refuse": "load the session again, or choose", "queue": "a snapshot cannot be placed behind another one"}
    if policy == "fork":
        one("mine")
    else:
        with pytest.raises(StorageError, match=rf"another worker wrote.*\[log_moved\]; {hints[policy]}"):
            one("mine")
    here = [message["content"][0]["text"] for message in agent_on(OnrecordStorage(store)).messages]
    assert here[2] == "yours"
    assert [item["content"] for item in store.get("s").transcript().items][2] == "yours"
    if policy == "fork":
        (name,) = mine.forks
        assert [item["content"] for item in store.get(name).transcript().items][2] == "mine"


def test_inside_alone_others_are_refused_wait_or_work_in_a_fork(store):
    """The lease of a session by each policy; a worker that lost it meanwhile cannot write."""

    async def story() -> None:
        mine = OnrecordStorage(store)
        queued, forking = (OnrecordStorage(store, on_conflict=policy) for policy in ("queue", "fork"))
        async with mine.alone("s"):
            await mine.write(KEY, b"one")
            with pytest.raises(StorageError, match=r"\[lease_held\]"):
                async with OnrecordStorage(store).alone("s"):
                    pass
            async with forking.alone("s"):
                assert await forking.read(KEY) == b"one"
                await forking.write(KEY, b"aside")
            assert (forking.forks, await mine.read(KEY)) == (["s-fork-1"], b"one")
            waiting = asyncio.ensure_future(queued.alone("s").__aenter__())
            await asyncio.sleep(0.1)
            assert not waiting.done()
            store.open("s", agent="main", takeover=True).leave()
            with pytest.raises(StorageError, match=r"\[lease_lost\]"):
                await mine.write(KEY, b"too late")
        await waiting
        await queued.write(KEY, b"two")
        assert await OnrecordStorage(store).read(KEY) == b"two"
        assert await forking.read(KEY) == b"aside"

    asyncio.run(story())


def test_the_event_loop_is_never_blocked(store):
    """Values kept, read, listed, forked, held and deleted: the loop's thread never waits."""

    async def story() -> None:
        mine, late = OnrecordStorage(store), OnrecordStorage(store, on_conflict="fork")
        async with mine.alone("s"):
            await mine.write(KEY, b"one")
        assert await late.read(KEY) == b"one"
        await mine.write(KEY, b"two")
        await late.write(KEY, b"aside")
        assert late.forks
        await mine.write("elsewhere", b"x")
        assert await mine.list() == ["elsewhere", KEY]
        await mine.delete(KEY)

    with never_blocked(store):
        asyncio.run(story())


def test_bad_input_is_an_error_of_strands_and_writes_nothing(store):
    """Wrong keys, wrong types, a closed session: StorageError with our code; the value is as before."""

    async def story() -> None:
        ours: Any = OnrecordStorage(store)
        for key in ("", "../x", "a\\b"):
            with pytest.raises(StorageError):
                await ours.write(key, b"x")
        with pytest.raises(StorageError, match=r"a value is bytes, not str \[invalid_input\]"):
            await ours.write(KEY, "text")
        calls = [partial(of, bad) for of in (ours.read, ours.delete, ours.list, ours.alone) for bad in (7, None)]
        await check_refused(StorageError, "invalid_input", *calls, partial(ours.write, 7, b"x"))
        assert store.named("s") is None
        await ours.write(KEY, b"one")
        store.get("s").close("done")
        with pytest.raises(StorageError, match=r"\[session_closed\]"):
            await ours.write(KEY, b"two")
        assert await OnrecordStorage(store).read(KEY) == b"one"

    asyncio.run(story())


def test_a_killed_tool_is_on_record_and_does_not_run_again(tmp_path):
    """Killed inside the tool: the snapshot has the call, the ledger its unknown outcome; one payment."""
    command = [sys.executable, "-W", "ignore", str(EXAMPLE), str(tmp_path)]
    killed = subprocess.run([*command, "--kill"], capture_output=True, text=True, check=False, timeout=100)
    assert killed.returncode == -9, killed.stderr
    again = subprocess.run(command, capture_output=True, text=True, check=True, timeout=100).stdout
    assert "on record: 2 messages" in again
    assert "outcome unknown: ['strands-storage/call-1']" in again
    assert (tmp_path / "payments.txt").read_text() == "order 42\n"


def test_a_full_disk_is_an_error_of_strands_and_leaves_nothing(tmp_path):
    """A write that finds no room is a StorageError with our code; the value before it is still there."""

    async def story(store: Any) -> None:
        ours = OnrecordStorage(store)
        await ours.write(KEY, b"one")
        with full_disk(), pytest.raises(StorageError, match=r"\[store_error\]"):
            await ours.write(KEY, b"two" * 9_000)
        assert await OnrecordStorage(store).read(KEY) == b"one"
        await ours.write(KEY, b"three")
        with pytest.raises(StorageError, match=r"\[too_large\]"):
            await ours.write(KEY, b"x" * 70_000_000)
        assert await OnrecordStorage(store).read(KEY) == b"three"

    with onrecord.connect(str(tmp_path / "x.db"), project="p") as store:
        asyncio.run(story(store))


def test_a_value_with_a_secret_that_is_written_again_is_kept_once(store):
    """A worker whose first reply was lost is neither refused nor recorded twice, for snapshots and other values."""
    token = "ghp_" + "a1B2c3" * 6
    messages = [{"role": "user", "content": [{"text": f"use {token}"}]}]
    values = {KEY: json.dumps({"data": {"messages": messages}}).encode(), "note": f'say "{token}"'.encode()}

    async def story() -> None:
        ours, other = OnrecordStorage(store), OnrecordStorage(store)
        for key, value in values.items():
            await other.read(key)
            await ours.write(key, value)
            for one in (ours, other):
                await one.write(key, value)
            assert token.encode() not in (await ours.read(key) or b"")
            with pytest.raises(StorageError, match="another worker wrote"):
                await other.write(key, value.replace(b"use", b"take").replace(b"say", b"tell"))

    asyncio.run(story())
    assert len([one for one in store.get("s").events() if one.kind == "payload.kept"]) == 1
