"""The Claude Agent SDK on our log: its own contracts, and what they do not ask for."""

import asyncio
import itertools
import os
import socket
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from claude_agent_sdk import ClaudeSDKError, fold_session_summary
from claude_agent_sdk.testing import run_session_store_conformance

import onrecord
from onrecord.frameworks.claude_agent_sdk import OnrecordSessionStore
from onrecord.frameworks.claude_entries import neutral, reading
from onrecord.log.readings import resolve
from tests.e2e.clis import Claude
from tests.e2e.modelserver import ModelServer
from tests.frameworks.disks import full_disk
from tests.frameworks.looping import never_blocked
from tests.frameworks.refusing import check_refused
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
        with pytest.raises(ClaudeSDKError, match=rf'\[session_closed\]; store.get\("{head.name}"\).resume\('):
            await ours.append(KEY, [said("b", "y"), said("c", "z")])
        assert len(await OnrecordSessionStore(store).load(KEY) or []) == 1

    asyncio.run(story())


def test_the_event_loop_is_never_blocked(store):
    """Batches kept, read, listed, summed up, held and deleted, and the hooks: the loop's thread never waits."""

    async def story() -> None:
        ours: Any = OnrecordSessionStore(store)
        async with ours.alone(KEY["project_key"], KEY["session_id"]):
            await ours.append(KEY, [said("a", "one"), said("b", "two", "assistant")])
        await ours.append({**KEY, "subpath": "subagents/x"}, [said("c", "three")])
        hooks = ours.hooks("/")
        given = {"session_id": "other", "tool_name": "pay", "tool_input": {}, "hook_event_name": "PostToolUse"}
        ours._flushes = False  # as learnt from an earlier call: no wait for the entry
        assert await hooks["PreToolUse"][0].hooks[0](given, "call", None) == {}
        await hooks["PostToolUse"][0].hooks[0]({**given, "tool_response": "paid"}, "call", None)
        assert len(await ours.load(KEY)) == 2
        assert await ours.list_subkeys(KEY) == ["subagents/x"]
        assert len(await ours.list_sessions("p")) == len(await ours.list_session_summaries("p")) == 1
        await ours.delete(KEY)

    with never_blocked(store):
        asyncio.run(story())


def test_where_a_session_of_the_sdk_is_kept_is_on_record(store):
    """One that is kept in a session which exists is found there, listed, continued and deleted by every process."""
    with store.open("order-42", agent="main") as plain, plain.turn() as turn:
        turn.user("one")
        turn.assistant("two")

    async def story() -> None:
        OnrecordSessionStore(store).keep_in("p", KEY["session_id"], "order-42")
        ours: Any = OnrecordSessionStore(store)
        assert [one["message"]["role"] for one in await ours.load(KEY)] == ["user", "assistant"]
        assert [one["session_id"] for one in await ours.list_sessions("p")] == [KEY["session_id"]]
        assert await ours.list_sessions("q") == []
        await ours.append(KEY, [said("a", "three")])
        other: Any = OnrecordSessionStore(store)
        assert len(await other.load(KEY)) == 3
        assert (await other.list_session_summaries("p"))[0]["data"]["first_prompt"] == "three"
        await other.append(KEY, [said("b", "four", "assistant")])
        other.keep_in("p", KEY["session_id"], "order-42")  # again: it changes nothing
        assert [head.name for head in store.sessions()] == ["order-42"]
        await other.delete(KEY)
        assert await OnrecordSessionStore(store).load(KEY) is None
        assert await OnrecordSessionStore(store).list_sessions("p") == []
        other.keep_in("p", KEY["session_id"], "order-42")
        assert len(await OnrecordSessionStore(store).load(KEY) or []) == 2

    asyncio.run(story())
    session = store.get("order-42")
    assert [item["content"] for item in session.transcript().items] == ["one", "two"]
    assert session.verify().ok


def test_a_session_of_the_sdk_is_kept_in_one_place(store):
    """It is not moved, no session keeps two of them, and the session must exist: nothing is written then."""
    for name in ("here", "there"):
        store.create(name)
    ours = OnrecordSessionStore(store)
    ours.keep_in("p", KEY["session_id"], "here")
    size = store.find("here").position
    for session, name, problem in (
        (KEY["session_id"], "there", "is kept in session 'here' already .conflict.; continue it there"),
        ("another", "here", "session 'here' keeps another conversation .* already .conflict.; keep this one in"),
        ("another", "nowhere", "there is no session 'nowhere' .session_not_found."),
    ):
        with pytest.raises(ClaudeSDKError, match=problem):
            OnrecordSessionStore(store).keep_in("p", session, name)
    assert (store.find("here").position, store.find("there").position) == (size, 1)


def test_turns_of_others_are_entries_of_the_chain(store):
    """Each turn of another writer comes before the first entry that continues it; own entries stay word for word."""
    asyncio.run(OnrecordSessionStore(store).append(KEY, [said("a", "one") | {"parentUuid": None}]))
    (head,) = store.sessions()

    def others_say(asked: str, answered: str) -> None:
        with store.open(head.name, agent="main") as plain, plain.turn() as turn:
            turn.system("a system prompt of another framework")
            turn.user(asked)
            turn.assistant("", tool_calls=[{"id": "c", "name": "look", "arguments": {"at": 1}}])
            turn.tool("c", "seen")
            turn.assistant(answered)

    async def story() -> list[Any]:
        loaded: Any = await OnrecordSessionStore(store).load(KEY)
        for before, after in itertools.pairwise(loaded):
            assert after["parentUuid"] == before["uuid"]
        return [one["message"]["content"] for one in loaded]

    others_say("two", "three")
    turn = [
        "two", [{"type": "tool_use", "id": "c", "name": "look", "input": {"at": 1}}],
        [{"type": "tool_result", "tool_use_id": "c", "content": "seen"}], [{"type": "text", "text": "three"}],
    ]  # fmt: skip
    assert asyncio.run(story()) == ["one", *turn]
    others_say("a turn that Claude has not read yet", "yes")
    loaded: Any = asyncio.run(OnrecordSessionStore(store).load(KEY))
    entry = said("b", "four") | {"parentUuid": loaded[4]["uuid"]}
    asyncio.run(OnrecordSessionStore(store).append(KEY, [entry]))
    assert asyncio.run(story())[:6] == ["one", *turn, "four"]
    assert asyncio.run(story())[6] == "a turn that Claude has not read yet"


def test_an_entry_that_continues_a_retracted_turn_continues_what_is_before_it(store):
    """If another framework retracts what Claude continued, the chain is whole: nothing before it is lost."""
    asyncio.run(OnrecordSessionStore(store).append(KEY, [said("a", "one") | {"parentUuid": None}]))
    (head,) = store.sessions()
    with store.open(head.name, agent="main") as plain, plain.turn() as turn:
        turn.user("two")
        turn.assistant("three")
    loaded: Any = asyncio.run(OnrecordSessionStore(store).load(KEY))
    entry = said("b", "four") | {"parentUuid": loaded[-1]["uuid"]}
    asyncio.run(OnrecordSessionStore(store).append(KEY, [entry]))
    with store.open(head.name, agent="main") as plain, plain.turn(base=0, rollback=1) as turn:
        turn.user("another two")
        turn.assistant("another three")
    again: Any = asyncio.run(OnrecordSessionStore(store).load(KEY))
    assert [one["message"]["content"] for one in again[:3]] == ["one", "four", "another two"]
    assert [one["parentUuid"] for one in again] == [None, *[one["uuid"] for one in again[:-1]]]


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
    calls = [partial(ours.alone, None, None), partial(ours.alone, "p", ""), partial(ours.list_sessions, None)]
    calls += [partial(ours.list_session_summaries, 7), partial(ours.keep_in, None, "s", "s")]
    asyncio.run(check_refused(ClaudeSDKError, "invalid_input", *calls))
    asyncio.run(check_refused(ClaudeSDKError, "session_not_found", partial(ours.keep_in, "p", "s", "unknown")))
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


def test_a_fork_that_alone_makes_is_named(store):
    """A store that finds another one inside continues in a fork, and `forks` has its name."""

    async def story() -> None:
        mine, yours = OnrecordSessionStore(store), OnrecordSessionStore(store, on_conflict="fork")
        await mine.append(KEY, [said("a", "begin")])
        async with mine.alone("p", KEY["session_id"]), yours.alone("p", KEY["session_id"]):
            await yours.append(KEY, [said("b", "yours", "assistant")])
        (name,) = yours.forks
        assert name == yours.session("p", KEY["session_id"]).name
        assert len(await mine.load(KEY) or []) == 1

    asyncio.run(story())
