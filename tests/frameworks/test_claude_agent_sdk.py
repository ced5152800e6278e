"""The Claude Agent SDK on our log: its own contracts, and what they do not ask for."""

import asyncio
import itertools
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from claude_agent_sdk import ClaudeSDKError, fold_session_summary
from claude_agent_sdk.testing import run_session_store_conformance

import onrecord
from onrecord.frameworks.claude_agent_sdk import OnrecordSessionStore, neutral, reading
from onrecord.log.readings import resolve
from tests.e2e.clis import Claude
from tests.e2e.modelserver import ModelServer
from tests.frameworks.disks import full_disk
from tests.stores import url_of

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "frameworks" / "claude_agent_sdk_refund.py"
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


@pytest.mark.parametrize("policy", ["refuse", "queue", "fork"])
def test_a_session_that_another_process_continued_is_refused_queued_or_forked(store, policy):
    """Entries of a process that was overtaken are handled as was chosen; the error is the SDK's, with our code."""

    async def story() -> None:
        mine, yours = OnrecordSessionStore(store, on_conflict=policy), OnrecordSessionStore(store)
        await yours.append(KEY, [said("a", "begin")])
        await mine.load(KEY)
        await yours.append(KEY, [said("b", "yours", "assistant")])
        if policy == "refuse":
            with pytest.raises(ClaudeSDKError, match=r"another process continued.*\[log_moved\]; resume the session"):
                await mine.append(KEY, [said("c", "mine", "assistant")])
        else:
            await mine.append(KEY, [said("c", "mine", "assistant")])
            await mine.append(KEY, [said("d", "more")])
        here: Any = await OnrecordSessionStore(store).load(KEY)
        assert [one["uuid"] for one in here] == ["a", "b"] + (["c", "d"] if policy == "queue" else [])
        if policy == "fork":
            (name,) = mine.forks
            own: Any = await mine.load(KEY)
            assert [one["uuid"] for one in own] == ["a", "c", "d"]
            assert store.get(name).verify().ok

    asyncio.run(story())


def test_a_store_that_lost_its_lease_is_refused(store):
    """Inside `alone` no other process adds to the session; one that lost the lease meanwhile is refused by the log."""

    async def story() -> None:
        mine, yours = (
            OnrecordSessionStore(store, on_conflict="refuse"),
            OnrecordSessionStore(store, on_conflict="refuse"),
        )
        async with mine.alone("p", KEY["session_id"]):
            await mine.append(KEY, [said("a", "begin")])
            with pytest.raises(ClaudeSDKError, match=r"\[lease_held\]"):
                async with yours.alone("p", KEY["session_id"]):
                    pass
            (head,) = store.sessions()
            store.open(head.name, agent="main", takeover=True)
            with pytest.raises(ClaudeSDKError, match=r"\[lease_lost\]"):
                await mine.append(KEY, [said("b", "too late")])
        loaded: Any = await yours.load(KEY)
        assert [one["uuid"] for one in loaded] == ["a"]

    asyncio.run(story())


def test_bad_input_is_an_error_of_the_sdk_and_writes_nothing(store):
    """Wrong keys, entries that are no JSON, too much of it, a closed session: ClaudeSDKError with our code."""

    async def story() -> None:
        ours: Any = OnrecordSessionStore(store)
        for key, entries, code in (
            ({}, [said("a", "x")], "invalid_input"),
            (KEY, [{"type": "user", "uuid": "a", "x": object()}], "invalid_input"),
            (KEY, [said("a", "x" * 70_000_000)], "too_large"),
        ):
            with pytest.raises(ClaudeSDKError, match=rf"\[{code}\]"):
                await ours.append(key, entries)
        assert await ours.load(KEY) is None
        assert await ours.list_sessions("p") == []
        await ours.append(KEY, [said("a", "x")])
        (head,) = store.sessions()
        store.get(head.session).close("done")
        with pytest.raises(ClaudeSDKError, match=r"\[session_closed\]"):
            await ours.append(KEY, [said("b", "y"), said("c", "z")])
        assert len(await OnrecordSessionStore(store).load(KEY) or []) == 1

    asyncio.run(story())


def test_the_real_command_line_resumes_from_our_store_after_a_kill(tmp_path):
    """The SDK's bundled Claude, killed inside a tool: with new files it has the conversation again, and pays once."""
    server = ModelServer(socket.create_server(("127.0.0.1", 0)))
    home = {"HOME": str(tmp_path / "home"), "ENABLE_TOOL_SEARCH": "false"}
    (tmp_path / "home").mkdir()
    command = [sys.executable, "-W", "ignore", str(EXAMPLE), str(tmp_path / "x")]

    def ran(*arguments: str) -> Any:
        return subprocess.run(
            [*command, *arguments], env={**os.environ, **Claude().environment(server.url), **home},
            capture_output=True, text=True, check=False, timeout=170,
        )  # fmt: skip

    try:
        killed = ran("--kill", 'Refund order 42. [[wait]] [[call mcp__refunds__pay {"order": 42}]]')
        assert killed.returncode == -9, killed.stderr
        again = ran("What happened? [[say I will check.]]")
        request = server.conversation()[-1].text
    finally:
        server.close()
    assert again.returncode == 0, again.stderr
    assert "the agent says: I will check." in again.stdout
    assert "outcome unknown: ['claude-agent-sdk/toolu_2']" in again.stdout
    assert "Refund order 42." in request
    assert "its outcome is unknown" in request
    assert (tmp_path / "x" / "payments.txt").read_text() == "order 42\n"


def test_a_full_disk_is_an_error_of_the_sdk_and_leaves_nothing(store):
    """A batch that finds no room is refused with our code, so the SDK sends it again; then it is there once."""

    async def story() -> None:
        ours = OnrecordSessionStore(store)
        await ours.append(KEY, [said("a", "x")])
        batch = [said("b", "y" * 9_000), said("c", "z")]
        with full_disk(), pytest.raises(ClaudeSDKError, match=r"\[store_error\]"):
            await ours.append(KEY, batch)
        assert len(await OnrecordSessionStore(store).load(KEY) or []) == 1
        await ours.append(KEY, batch)
        assert len(await OnrecordSessionStore(store).load(KEY) or []) == 3

    asyncio.run(story())


def test_what_the_sdk_would_not_pass_is_refused(store):
    """A store that is none, and entries that are no dicts: one sentence each, and nothing is written."""
    wrong: Any = OnrecordSessionStore
    with pytest.raises(
        ClaudeSDKError, match=r"an adapter takes a store, not str \[invalid_input\]; pass onrecord.connect"
    ):
        wrong("x.db")
    ours: Any = OnrecordSessionStore(store)
    with pytest.raises(ClaudeSDKError, match="this takes entries that are dicts, not str"):
        asyncio.run(ours.append({"project_key": "p", "session_id": "s"}, ["text"]))
    assert asyncio.run(ours.load({"project_key": "p", "session_id": "s"})) is None


SAID = [
    ("user", "hi"),
    ("user", "a prompt that is longer than a reference"),
    (
        "assistant",
        [{"type": "text", "text": "one text that is long enough"}, {"type": "text", "text": "and another one"}],
    ),
    (
        "assistant",
        [{"type": "text", "text": "short"}, {"type": "tool_use", "id": "c", "name": "pay", "input": {"x": 1}}],
    ),
    ("user", [{"type": "tool_result", "tool_use_id": "c", "content": "the answer of a tool"}]),
    ("user", [{"type": "tool_result", "tool_use_id": "c", "content": "ok"}, {"type": "text", "text": "and a remark"}]),
]
OTHERS = [
    ("user", ""),
    ("user", []),
    ("user", [{"type": "image", "source": {"data": "x"}}]),
    ("user", [{"type": "tool_result", "tool_use_id": "c", "content": [{"type": "text", "text": "in parts"}]}]),
    ("user", [{"type": "tool_result", "tool_use_id": "c", "content": "failed", "is_error": True}]),
    ("assistant", [{"type": "text", "text": "with more", "citations": []}]),
    ("assistant", [{"type": "tool_use", "id": "c", "name": "pay", "input": {}} for _twice in range(2)]),
    ("system", "not a speaker"),
]


@pytest.mark.parametrize(("role", "content"), [*SAID, *OTHERS])
def test_the_quick_reading_says_the_same(role, content):
    """What is read of usual entries without a search is what the whole translator says; others have no quick reading."""
    entry = {"type": "user" if role == "system" else role, "uuid": "u", "message": {"role": role, "content": content}}
    quick = reading(entry)
    assert (quick is None) == ((role, content) in OTHERS)
    if quick is not None:
        assert resolve(entry, quick) == neutral(entry)


def test_a_call_id_that_comes_again_is_another_call(store, tmp_path):
    """A call that the hooks saw answered may come again; after a restart, one without a mirrored result may not."""

    def hooks() -> tuple[Any, Any]:
        made = OnrecordSessionStore(store).hooks(str(tmp_path))
        return made["PreToolUse"][0].hooks[0], made["PostToolUse"][0].hooks[0]

    async def asked(before: Any, order: int) -> str:
        given = {"session_id": KEY["session_id"], "tool_name": "pay", "tool_input": {"order": order}}
        found = await before({**given, "tool_use_id": "call_0"}, "call_0", None)
        return str(found.get("hookSpecificOutput", {}).get("permissionDecisionReason", "runs"))

    async def answered(after: Any, order: int) -> None:
        given = {"session_id": KEY["session_id"], "tool_name": "pay", "tool_input": {"order": order}}
        told = {"hook_event_name": "PostToolUse", "tool_response": f"paid {order}"}
        await after({**given, **told, "tool_use_id": "call_0"}, "call_0", None)

    async def story() -> None:
        before, after = hooks()
        for order in (1, 1, 2):
            assert await asked(before, order) == "runs"
            await answered(after, order)
        assert await asked(before, 3) == "runs"
        before, after = hooks()
        assert await asked(before, 2) == "paid 2"
        assert (await asked(before, 3)).startswith("started, outcome unknown")
        assert await asked(before, 4) == "runs"

    asyncio.run(story())
