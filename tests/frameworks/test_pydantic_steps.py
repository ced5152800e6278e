"""pydantic-ai-harness on our log: whatever its own SQLite store answers, ours answers too, and more survives."""

import asyncio
import json
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pydantic_ai import Agent
from pydantic_ai.exceptions import UserError
from pydantic_ai.messages import ModelRequest, ModelResponse, TextPart, ToolCallPart, UserPromptPart
from pydantic_ai.models.function import FunctionModel
from pydantic_ai_harness.step_persistence import (
    ContinuableSnapshot,
    RunRecord,
    SqliteStepStore,
    StepEvent,
    StepPersistence,
    StepStore,
    ToolEffectRecord,
    continue_run,
)

import onrecord
from onrecord.frameworks.pydantic_steps import OnrecordStepStore
from onrecord.log.readings import rows_of
from tests.frameworks.disks import full_disk
from tests.frameworks.looping import never_blocked
from tests.frameworks.refusing import check_refused
from tests.frameworks.sharing import check_shared
from tests.stores import url_of

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "frameworks" / "pydantic_steps_refund.py"
WHEN = datetime(2026, 1, 2, tzinfo=UTC)


@pytest.fixture(params=["sqlite", "postgres"])
def store(request, tmp_path):
    with onrecord.connect(url_of(request.param, request, tmp_path), project="p") as found:
        yield found


def said(*texts: str) -> list[Any]:
    return [
        ModelResponse(parts=[TextPart(text)], timestamp=WHEN)
        if number % 2
        else ModelRequest(parts=[UserPromptPart(text, timestamp=WHEN)], timestamp=WHEN)
        for number, text in enumerate(texts)
    ]


def snapshot(run: str, step: int, *texts: str, **more: Any) -> Any:
    return ContinuableSnapshot(run_id=run, step_index=step, messages=said(*texts), timestamp=WHEN, **more)


async def used(steps: Any) -> None:
    """What a program does with a store: two runs of one conversation, one beside it, retries, effects."""
    for number, (run, about) in enumerate([("r1", {}), ("r2", {"parent_run_id": "r1"}), ("r3", {})]):
        talk = "c" if run != "r3" else "d"
        await steps.register_run(
            RunRecord(run_id=run, conversation_id=talk, started_at=WHEN.replace(hour=number), **about)
        )
    for key in (None, "k1", "k1", None, "k2"):
        await steps.append_event(
            StepEvent(run_id="r1", kind="tool_call_started", step_index=1, timestamp=WHEN, idempotency_key=key)
        )
    await steps.save_snapshot(snapshot("r1", 1, "a", "b", idempotency_key="1:a"))
    await steps.save_snapshot(snapshot("r1", 2, "a", "b", "a", "b", state="interrupted", idempotency_key="2:a"))
    await steps.save_snapshot(snapshot("r1", 1, "late", idempotency_key="1:a"))
    await steps.save_snapshot(snapshot("r2", 1, "other"))
    await steps.save_snapshot(snapshot("r1", 3, "a", "x", idempotency_key="3:a"))
    effect = ToolEffectRecord(tool_call_id="t", tool_name="pay", run_id="r1", status="started", started_at=WHEN)
    await steps.record_tool_effect(effect)
    await steps.record_tool_effect(effect)
    await steps.record_tool_effect(replace(effect, idempotency_key="order-42"))
    await steps.record_tool_effect(replace(effect, tool_call_id="u"))
    await steps.record_tool_effect(replace(effect, tool_call_id="u", status="completed", ended_at=WHEN))


async def answers(steps: Any) -> list[Any]:
    """Everything that can be read."""
    found: list[Any] = [await steps.get_run(run_id=run) for run in ("r1", "r2", "nope")]
    found.append(await steps.list_runs())
    found.append(await steps.list_runs(conversation_id="c"))
    found.append(await steps.list_runs(parent_run_id="r1"))
    found.append(await steps.list_runs(parent_run_id="r1", conversation_id="d"))
    for run in ("r1", "r2", "nope"):
        found.append(await steps.list_events(run_id=run))
        found.append(await steps.list_unresolved_tool_effects(run_id=run))
        for interrupted in (False, True):
            found.append(await steps.latest_snapshot(run_id=run, include_interrupted=interrupted))
            found.append(await steps.list_snapshots(run_id=run, include_interrupted=interrupted))
        found += [await steps.get_tool_effect(run_id=run, tool_call_id=call) for call in ("t", "u", "v")]
    return found


def test_the_rest_of_a_run_can_be_read_after_an_event_was_erased(store):
    """An erased snapshot is gone, and its messages are left out of others; no step is taken for an erased one."""

    async def story() -> None:
        running = OnrecordStepStore(store)
        await running.register_run(RunRecord(run_id="r", conversation_id="c", started_at=WHEN))
        step = StepEvent(run_id="r", kind="tool_call_started", step_index=1, timestamp=WHEN)
        for kind in ("run_started", "tool_call_started", "run_completed"):
            await running.append_event(replace(step, kind=kind))
        for words in ("a", "a b", "a b c d", "a b e"):
            await running.save_snapshot(snapshot("r", 1, *words.split()))
        session = store.get("c")
        kept = [one for one in session.events() if one.kind == "payload.kept"]
        steps_of, snapshots = ([one.position for one in kept if one.data["step"] == of] for of in ("event", "snapshot"))
        session.log.erase("x", positions=[steps_of[0], snapshots[1]])
        for steps in (running, OnrecordStepStore(store)):
            read = [[one.parts[0].content for one in each.messages] for each in await steps.list_snapshots(run_id="r")]
            assert read[:3] == [["a"], ["a", "c", "d"], ["a", "e"]]
            await steps.append_event(replace(step, kind="run_failed"))
            await steps.save_snapshot(snapshot("r", 2, "a", "c", "d", "f"))
        kinds = ["tool_call_started", "run_completed", "run_failed", "run_failed"]
        assert [one.kind for one in await OnrecordStepStore(store).list_events(run_id="r")] == kinds

    asyncio.run(story())


def test_ours_answers_as_their_own_store_does(store, tmp_path):
    """The same calls on both stores have the same answers, also from a process that starts afterwards."""

    async def story() -> None:
        theirs, ours = SqliteStepStore(database=tmp_path / "theirs.db"), OnrecordStepStore(store)
        assert isinstance(ours, StepStore)
        await used(theirs)
        await used(ours)
        expected = await answers(theirs)
        assert await answers(ours) == expected
        assert await answers(OnrecordStepStore(store)) == expected

    asyncio.run(story())
    assert list(store.get("c").effects.unknown()) == ["pydantic-ai-steps/r1:t"]
    assert store.get("c").verify().ok


def test_a_message_is_kept_once_and_shown(store):
    """Forty steps of one run: each message once in the log, in the transcript, and found by search."""

    async def story() -> None:
        steps = OnrecordStepStore(store)
        await steps.register_run(RunRecord(run_id="r", conversation_id="c"))
        texts: list[str] = []
        for number in range(40):
            texts += [f"question {number}", f"answer {number}"]
            await steps.save_snapshot(snapshot("r", number, *texts))
        latest = await OnrecordStepStore(store).latest_snapshot(run_id="r")
        assert latest is not None
        assert latest.messages == said(*texts)

    asyncio.run(story())
    kept = [
        event for event in store.get("c").events() if event.kind == "payload.kept" and event.data["step"] == "snapshot"
    ]
    assert [len(event.data["lines"]) for event in kept] == [3] * 40
    check_shared(store, "c", [text for number in range(40) for text in (f"question {number}", f"answer {number}")])


def test_a_process_that_continues_writes_what_one_that_begins_anew_writes(store):
    """What a process remembers of its last snapshot changes no message, no name of one and no snapshot."""
    source = Random(7)
    words = ["a", "b", "longer " * 20, "c"]
    texts: list[str] = []
    saved: list[tuple[str, list[str]]] = []
    for _save in range(40):
        kept = source.choice([0, len(texts) // 2, *[len(texts)] * 4])
        texts = texts[:kept] + source.choices(words, k=source.randrange(4))
        saved.append((source.choice(["r1", "r1", "r2"]), texts))

    async def story() -> None:
        going = OnrecordStepStore(store)
        for number, (run, said_here) in enumerate(saved):
            await going.save_snapshot(snapshot(run, number, *said_here, conversation_id="going"))
        for number, (run, said_here) in enumerate(saved):
            anew = OnrecordStepStore(store)
            await anew.save_snapshot(snapshot(f"anew-{run}", number, *said_here, conversation_id="anew"))
        for run in ("r1", "r2"):
            found = await OnrecordStepStore(store).list_snapshots(run_id=run)
            assert [one.messages for one in found] == [said(*texts) for of, texts in saved if of == run]

    asyncio.run(story())
    going, anew = (
        [
            (event.data["keys"][1:], event.data["lines"][1:], event.data["keep"], event.data["add"])
            for event in store.get(name).log.decoded(json.loads, ["payload.kept"])
            if event.data["step"] == "snapshot"
        ]
        for name in ("going", "anew")
    )
    assert going == anew


def test_an_agent_continues_from_our_store(store):
    """A real agent with step persistence: another process continues its last complete snapshot."""

    def model(messages: list[Any], _info: Any) -> Any:
        if len(messages) == 1:
            return ModelResponse(parts=[ToolCallPart("look", {}, "c1")])
        return ModelResponse(parts=[TextPart(f"read {len(messages)}")])

    async def story() -> None:
        agent: Any = Agent(FunctionModel(model), capabilities=[StepPersistence(store=OnrecordStepStore(store))])

        @agent.tool_plain
        def look() -> str:
            return "seen"

        await agent.run("begin", conversation_id="c")
        again = OnrecordStepStore(store)
        (run,) = await again.list_runs(conversation_id="c")
        history = await continue_run(again, run_id=run.run_id)
        assert (await agent.run("go on", message_history=history, conversation_id="c")).output == "read 5"
        assert len(await again.list_runs(conversation_id="c")) == 2

    asyncio.run(story())
    assert [item["role"] for item in store.get("c").transcript().items][:4] == [
        "user",
        "assistant",
        "tool",
        "assistant",
    ]


def test_a_closed_session_is_an_error_of_pydantic_ai(store):
    """Nothing is written to a session that has ended; the error is a UserError with our code."""

    async def story() -> None:
        steps = OnrecordStepStore(store)
        await steps.register_run(RunRecord(run_id="r", conversation_id="c"))
        store.get("c").close("done")
        with pytest.raises(UserError, match=r"\[session_closed\]"):
            await steps.save_snapshot(snapshot("r", 1, "a"))
        with pytest.raises(UserError, match=r"\[session_closed\]"):
            await steps.record_tool_effect(
                ToolEffectRecord(tool_call_id="t", tool_name="p", run_id="r", status="started")
            )
        assert await OnrecordStepStore(store).latest_snapshot(run_id="r") is None

    asyncio.run(story())


def test_the_event_loop_is_never_blocked(store):
    """Everything that the harness asks of a store, and a lease: the loop's thread never waits."""

    async def story() -> None:
        steps = OnrecordStepStore(store)
        async with steps.alone("c"):
            await used(steps)
        await answers(OnrecordStepStore(store))

    with never_blocked(store):
        asyncio.run(story())


def test_wrong_arguments_are_errors_of_pydantic_ai(store):
    """Ids that are no text, records of another class: UserError with our code, and nothing is written."""
    steps: Any = OnrecordStepStore(store)
    reads = (steps.get_run, steps.list_events, steps.latest_snapshot, steps.list_snapshots)
    calls = [partial(of, run_id=bad) for of in reads for bad in (7, None)]
    writes = (steps.register_run, steps.append_event, steps.save_snapshot, steps.record_tool_effect)
    calls += [partial(of, None) for of in writes]
    calls += [partial(steps.alone, bad) for bad in (7, "")]
    asyncio.run(check_refused(UserError, "invalid_input", *calls))
    assert store.sessions() == []


def test_no_room_too_much_and_a_lost_lease_leave_the_run_as_it_was(tmp_path):
    """A full disk, a snapshot that is too large, a lease that was taken over: UserError with our code, nothing kept."""

    async def story(store: Any) -> None:
        steps = OnrecordStepStore(store)
        await steps.register_run(RunRecord(run_id="r", conversation_id="c"))
        await steps.save_snapshot(snapshot("r", 1, "a"))
        with full_disk(), pytest.raises(UserError, match=r"\[store_error\]"):
            await steps.save_snapshot(snapshot("r", 2, "a", "b" * 9_000))
        with pytest.raises(UserError, match=r"\[too_large\]"):
            await steps.save_snapshot(snapshot("r", 2, "a", "b" * 70_000_000))
        async with steps.alone("c"):
            store.get("c", agent="main").acquire(takeover=True)
            with pytest.raises(UserError, match=r"\[lease_lost\]"):
                await steps.save_snapshot(snapshot("r", 2, "a", "b"))
        found = await OnrecordStepStore(store).list_snapshots(run_id="r")
        assert [len(one.messages) for one in found] == [1]
        await OnrecordStepStore(store).save_snapshot(snapshot("r", 2, "a", "b"))

    with onrecord.connect(str(tmp_path / "x.db"), project="p") as store:
        asyncio.run(story(store))
        assert store.get("c").verify().ok


def test_a_killed_tool_is_unresolved_and_does_not_run_again(tmp_path):
    """Killed inside the tool: the next run asks the ledger, which knows the call; one payment."""
    command = [sys.executable, "-W", "ignore", str(EXAMPLE), str(tmp_path)]
    killed = subprocess.run([*command, "--kill"], capture_output=True, text=True, check=False, timeout=100)
    assert killed.returncode == -9, killed.stderr
    again = subprocess.run(command, capture_output=True, text=True, check=True, timeout=100).stdout
    assert "runs on record: 1 outcome unknown: ['pay']" in again
    assert (tmp_path / "payments.txt").read_text() == "order 42\n"


def test_a_run_gets_what_others_said_and_it_is_said_once(store):
    """Its program passes it on; snapshots have it then, and the transcript has each text once, an image as a word."""
    given: list[list[str]] = []

    async def answer(messages: list[Any], _info: Any) -> ModelResponse:
        given.append([str(part.content) for message in messages for part in message.parts])
        return ModelResponse(parts=[TextPart(f"read {len(messages)}")])

    def loop_says(asked: str, answered: str) -> None:
        with store.open("talk", agent="main") as plain, plain.turn() as turn:
            url = {"url": "data:image/png;base64,AAAA"}
            turn.user([{"type": "text", "text": asked}, {"type": "image_url", "image_url": url}])
            turn.assistant(answered)

    async def run(asked: str, *before: Any) -> None:
        steps = OnrecordStepStore(store)
        agent = Agent(FunctionModel(answer), capabilities=[StepPersistence(store=steps)])
        history = [*before, *await steps.messages_of_others("talk")]
        await agent.run(asked, conversation_id="talk", message_history=history)
        assert await steps.messages_of_others("talk") == []

    async def latest() -> list[Any]:
        steps = OnrecordStepStore(store)
        runs = await steps.list_runs(conversation_id="talk")
        found: list[Any] = await continue_run(steps, run_id=runs[-1].run_id)
        return found

    loop_says("one", "two")
    asyncio.run(run("three"))
    loop_says("four", "five")
    asyncio.run(run("six", *asyncio.run(latest())))
    first = ["one\n[image]", "two", "three"]
    assert given == [first, [*first, "read 3", "four\n[image]", "five", "six"]]
    said = [item["content"] for item in store.get("talk").transcript().items if isinstance(item["content"], str)]
    assert said == ["two", "three", "read 3", "five", "six", "read 7"]


def test_results_of_others_are_in_the_transcript_once(store):
    """pydantic-ai merges the results of parallel calls with the next question; snapshots do not record them again."""
    with store.open("talk", agent="main") as plain, plain.turn() as turn:
        turn.user("pay all")
        turn.assistant("", tool_calls=[{"id": f"k{n}", "name": "pay", "arguments": {"n": n}} for n in (1, 2)])
        for number in (1, 2):
            turn.tool(f"k{number}", f"paid {number}")
    with store.open("talk", agent="main") as plain, plain.turn() as turn:
        turn.user("and now")
        turn.assistant("done")

    async def story() -> None:
        steps = OnrecordStepStore(store)
        model = FunctionModel(lambda _messages, _info: ModelResponse(parts=[TextPart("hello")]))
        agent = Agent(model, capabilities=[StepPersistence(store=steps)])
        history = await steps.messages_of_others("talk")
        await agent.run("next", conversation_id="talk", message_history=history)

    asyncio.run(story())
    said = [item["content"] for item in store.get("talk").transcript().items]
    assert said == ["pay all", "", "paid 1", "paid 2", "and now", "done", "next", "hello"]
    kept = [event.data for event in store.get("talk").events() if event.kind == "payload.kept"]
    rows = [row for data in kept if isinstance(data, dict) for row in rows_of(data)]
    assert [item["content"] for row in rows for item in row.items] == ["next", "hello"]
