"""The Claude Agent SDK on our log: its own contracts, and what they do not ask for."""

import asyncio
import itertools
from typing import Any

import pytest
from claude_agent_sdk import fold_session_summary
from claude_agent_sdk.testing import run_session_store_conformance

import onrecord
from onrecord.frameworks.claude_agent_sdk import OnrecordSessionStore
from tests.stores import url_of

KEY = {"project_key": "p", "session_id": "5a7c492e-0d78-48c2-a966-9e95f0cee71a"}


@pytest.fixture
def store(tmp_path):
    with onrecord.connect(str(tmp_path / "x.db"), project="p") as found:
        yield found


def said(uuid: str, text: str, role: str = "user") -> Any:
    return {"type": role, "uuid": uuid, "timestamp": "2026-11-16T10:00:00Z", "message": {"role": role, "content": text}}


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_the_fourteen_contracts_hold(kind, request, tmp_path):
    """The SDK's own conformance function accepts the store, with no optional method left out."""
    numbers, opened = itertools.count(), []

    def fresh() -> OnrecordSessionStore:
        opened.append(onrecord.connect(url_of(kind, request, tmp_path, f"x{next(numbers)}"), project="p"))
        return OnrecordSessionStore(opened[-1])

    asyncio.run(run_session_store_conformance(fresh))
    assert len(opened) >= 14
    for one in opened:
        one.close()


def test_a_retried_batch_is_kept_and_summed_up_once(store):
    """A batch that is sent again changes nothing: entries, entries without uuid and summary are as before."""
    batch = [said("a", "hello"), {"type": "summary", "summary": "greeting"}, said("b", "hi", "assistant")]

    async def story() -> None:
        ours: Any = OnrecordSessionStore(store)
        await ours.append(KEY, batch)
        before = await ours.list_session_summaries("p")
        await ours.append(KEY, batch)
        await OnrecordSessionStore(store).append(KEY, batch)
        assert await ours.load(KEY) == batch
        assert await OnrecordSessionStore(store).list_session_summaries("p") == before
        assert before[0]["data"] == fold_session_summary(None, KEY, batch)["data"]
        await ours.append(KEY, [batch[2], said("c", "more")])
        assert [one.get("uuid") for one in await ours.load(KEY)] == ["a", None, "b", "c"]

    asyncio.run(story())


def test_what_a_caller_changes_afterwards_does_not_change_the_record(store):
    """`load` returns copies, and keys that look alike when they are joined are kept apart."""

    async def story() -> None:
        ours: Any = OnrecordSessionStore(store)
        await ours.append({"project_key": "a/b", "session_id": "c"}, [said("1", "one")])
        await ours.append({"project_key": "a", "session_id": "b/c"}, [said("1", "two")])
        first = await ours.load({"project_key": "a/b", "session_id": "c"})
        first[0]["message"]["content"] = "changed"
        assert (await ours.load({"project_key": "a/b", "session_id": "c"}))[0]["message"]["content"] == "one"
        assert [one["session_id"] for one in await ours.list_sessions("a")] == ["b/c"]

    asyncio.run(story())


def test_two_processes_appending_at_once_lose_nothing(store):
    """Two stores that append to one session at the same time: every entry is there once, in one order for both."""

    async def story() -> None:
        stores: Any = [OnrecordSessionStore(store), OnrecordSessionStore(store)]
        await asyncio.gather(*(stores[n % 2].append(KEY, [said(f"u{n}", f"text {n}")]) for n in range(40)))
        loaded = [await one.load(KEY) for one in stores]
        assert loaded[0] == loaded[1]
        assert sorted(one["uuid"] for one in loaded[0]) == sorted(f"u{n}" for n in range(40))

    asyncio.run(story())


def test_the_conversation_is_in_the_transcript_and_its_subagents_are_lanes(store):
    """Tool calls, results and texts are read as such; bookkeeping entries are not shown."""
    call = {"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": "ls"}}
    result = {"type": "tool_result", "tool_use_id": "t1", "content": "x.py"}
    entries = [
        said("1", "list the files"), said("2", [call], "assistant"), said("3", [result]),  # type: ignore[arg-type]  # content in parts, not text
        {"type": "mode", "mode": "plan"}, said("4", "one file", "assistant"),
    ]  # fmt: skip

    async def story() -> None:
        ours: Any = OnrecordSessionStore(store)
        await ours.append(KEY, entries)
        await ours.append({**KEY, "subpath": "subagents/agent-7"}, [said("s", "look deeper")])

    asyncio.run(story())
    (head,) = store.sessions()
    session = store.get(head.session)
    assert [item["role"] for item in session.transcript("main").items] == ["user", "assistant", "tool", "assistant"]
    assert [turn.agent for turn in session.transcript().provisional] == ["main/agent-7"]
    assert session.verify().ok
