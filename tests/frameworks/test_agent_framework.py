"""agent-framework on our log: histories, conflicts, tool calls, checkpoints without pickle."""

import asyncio
import subprocess
import sys
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any

import pytest
from agent_framework import (
    Agent,
    BaseChatClient,
    ChatResponse,
    Content,
    Executor,
    FunctionInvocationLayer,
    Message,
    WorkflowBuilder,
    WorkflowCheckpoint,
    WorkflowContext,
    WorkflowMessage,
    handler,
    tool,
)
from agent_framework.exceptions import AgentException, WorkflowCheckpointException

import onrecord
from onrecord.frameworks.agent_framework import OnrecordCheckpointStorage, OnrecordHistoryProvider, OnrecordMiddleware
from tests.frameworks.disks import full_disk
from tests.frameworks.looping import never_blocked
from tests.frameworks.refusing import check_refused
from tests.frameworks.sharing import check_shared
from tests.stores import url_of

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "frameworks" / "agent_framework_refund.py"


class Colour(Enum):
    RED = 1


@dataclass
class Order:
    number: int
    colour: Colour
    when: datetime


class Scripted(BaseChatClient):  # type: ignore[misc]  # checked without agent-framework
    """Answers with the number of messages that it was given."""

    def _inner_get_response(self, *, messages: Any, stream: bool, options: Any, **_more: Any) -> Any:
        async def answer() -> Any:
            return ChatResponse(messages=[Message("assistant", [f"read {len(messages)}"])])

        return answer()


@pytest.fixture(params=["sqlite", "postgres"])
def store(request, tmp_path):
    with onrecord.connect(url_of(request.param, request, tmp_path), project="p") as found:
        yield found


def user(text: str) -> Any:
    return Message("user", [text])


def said(messages: Any) -> list[str]:
    return [message.text for message in messages]


def test_a_run_reads_what_earlier_runs_said_and_equal_texts_are_kept(store):
    """Three runs with the same prompt are three turns, read by another process in order."""

    async def story() -> None:
        for expected in ("read 1", "read 3", "read 5"):
            agent: Any = Agent(Scripted(), context_providers=[OnrecordHistoryProvider(store)])
            answer = await agent.run("hello", session=agent.create_session(session_id="s"))
            assert answer.text == expected

    asyncio.run(story())
    wanted = ["hello", "read 1", "hello", "read 3", "hello", "read 5"]
    check_shared(store, "s", wanted)
    assert said(asyncio.run(OnrecordHistoryProvider(store).get_messages("s")))[-2:] == [
        "a question of a plain loop",
        "its answer",
    ]


def test_a_transcript_that_is_handed_over_again_is_kept_once(store):
    """A caller that saves the whole transcript each time adds only what is new; a retried save adds nothing."""

    async def story() -> None:
        ours = OnrecordHistoryProvider(store)
        whole = [user("one"), Message("assistant", ["1"])]
        await ours.save_messages("s", whole)
        await OnrecordHistoryProvider(store).save_messages("s", whole)
        whole += [user("two"), Message("assistant", ["2"])]
        await OnrecordHistoryProvider(store).save_messages("s", whole)
        assert said(await ours.get_messages("s")) == ["one", "1", "two", "2"]
        image = Message("user", [Content.from_data(b"\x00\xff", "image/png")])
        await ours.save_messages("s", [image])
        assert (await OnrecordHistoryProvider(store).get_messages("s"))[-1].to_dict() == image.to_dict()
        assert await ours.get_messages("nothing") == []
        assert store.named("nothing") is None

    asyncio.run(story())


@pytest.mark.parametrize("policy", ["refuse", "queue", "fork"])
def test_a_run_that_was_overtaken_is_refused_queued_or_forked(store, policy):
    """Two runs of one session at once: nothing is interleaved, and what happens to the second is what was chosen."""

    async def story() -> None:
        inside, gate = asyncio.Event(), asyncio.Event()

        class Slow(Scripted):
            def _inner_get_response(self, *, messages: Any, stream: bool, options: Any, **_more: Any) -> Any:
                async def answer() -> Any:
                    inside.set()
                    await gate.wait()
                    return ChatResponse(messages=[Message("assistant", ["slow"])])

                return answer()

        ours = OnrecordHistoryProvider(store, on_conflict=policy)
        slow: Any = Agent(Slow(), context_providers=[ours])
        quick: Any = Agent(Scripted(), context_providers=[OnrecordHistoryProvider(store)])
        await quick.run("begin", session=quick.create_session(session_id="s"))
        running = asyncio.create_task(slow.run("mine", session=slow.create_session(session_id="s")))
        await inside.wait()
        await quick.run("yours", session=quick.create_session(session_id="s"))
        gate.set()
        if policy == "refuse":
            with pytest.raises(AgentException, match=r"another run added.*\[log_moved\]; run again") as found:
                await running
            assert found.value.code == "log_moved"
        else:
            await running
        first = ["begin", "read 1", "yours", "read 3"]
        here = said(await OnrecordHistoryProvider(store).get_messages("s"))
        assert here == first + (["mine", "slow"] if policy == "queue" else [])
        if policy == "fork":
            (name,) = ours.forks
            forked = [item["content"] for item in store.get(name).transcript().items]
            assert forked == ["begin", "read 1", "mine", "slow"]

    asyncio.run(story())


def test_inside_alone_others_are_refused_wait_or_work_in_a_fork(store):
    """The lease of a session by each policy; a run that lost it meanwhile cannot save."""

    def agent_on(history: Any) -> Any:
        return Agent(Scripted(), context_providers=[history])

    async def run(history: Any, session: str, text: str) -> None:
        agent = agent_on(history)
        await agent.run(text, session=agent.create_session(session_id=session))

    async def story() -> None:
        mine = OnrecordHistoryProvider(store)
        queued, forking = (OnrecordHistoryProvider(store, on_conflict=policy) for policy in ("queue", "fork"))
        async with mine.alone("s") as id_:
            await run(mine, id_, "one")
            with pytest.raises(AgentException, match=r"\[lease_held\]"):
                async with OnrecordHistoryProvider(store).alone("s"):
                    pass
            async with forking.alone("s") as fork:
                await run(forking, fork, "aside")
            assert forking.forks == [fork] == ["s-fork-1"]
            assert said(await mine.get_messages(fork)) == ["one", "read 1", "aside", "read 3"]
            waiting = asyncio.ensure_future(queued.alone("s").__aenter__())
            await asyncio.sleep(0.1)
            assert not waiting.done()
            store.open("s", agent="main", takeover=True).leave()
            with pytest.raises(AgentException, match=r"\[lease_lost\]"):
                await run(mine, id_, "too late")
        assert await waiting == "s"
        await run(queued, "s", "two")
        assert said(await mine.get_messages("s")) == ["one", "read 1", "two", "read 3"]

    asyncio.run(story())


def test_what_other_writers_said_is_read(store):
    """A turn of a plain loop, with its tool call, is in the history."""

    async def story() -> None:
        ours = OnrecordHistoryProvider(store)
        await ours.save_messages("s", [user("one"), Message("assistant", ["1"])])
        with store.open("s", agent="main") as plain, plain.turn() as turn:
            turn.user("two")
            turn.assistant("", tool_calls=[{"id": "c", "name": "look", "arguments": {"at": 1}}])
            turn.tool("c", "seen")
        read = await ours.get_messages("s")
        assert [one.role for one in read] == ["user", "assistant", "user", "assistant", "tool"]
        assert read[3].contents[0].name == "look"
        assert read[4].contents[0].result == "seen"

    asyncio.run(story())


def checkpoint(**given: Any) -> Any:
    return WorkflowCheckpoint(workflow_name="w", graph_signature_hash="h", **given)


def test_a_checkpoint_comes_back_as_it_was(store):
    """Types of Python, of the framework and of the caller; other classes are refused when they are written."""
    order = Order(7, Colour.RED, datetime(2026, 1, 2, 3, tzinfo=UTC))
    state = {
        "order": order, "many": {1: "a", "1": "b"}, "t": (1, 2.5, None), "s": {"x"}, "b": b"\x00", "d": Decimal("1.10"),
        "big": 2**80, "nan": float("inf"), "@": "tag", "chat": [user("hello")], "odd": "\ud800",
    }  # fmt: skip
    sent = {"e": [WorkflowMessage(data=order, source_id="a", target_id="b")]}
    one = checkpoint(state=state, messages=sent, iteration_count=3, metadata={"k": [1]})

    async def story() -> None:
        ours = OnrecordCheckpointStorage(store, types=[Order, Colour])
        assert await ours.save(one) == one.checkpoint_id
        assert await ours.save(one) == one.checkpoint_id
        again = await OnrecordCheckpointStorage(store, types=[Order, Colour]).load(one.checkpoint_id)
        assert again.state["chat"][0].to_dict() == state["chat"][0].to_dict()  # type: ignore[index]  # the value is a list
        assert replace(again, state={**again.state, "chat": 0}) == replace(one, state={**state, "chat": 0})
        with pytest.raises(WorkflowCheckpointException, match=r"not among the types of this storage \[invalid_input\]"):
            await OnrecordCheckpointStorage(store).load(one.checkpoint_id)
        with pytest.raises(
            WorkflowCheckpointException, match=r"cannot be kept in a checkpoint.*types=\[Path\]|PosixPath"
        ):
            await ours.save(checkpoint(state={"p": Path("x")}))
        assert await ours.list_checkpoint_ids(workflow_name="w") == [one.checkpoint_id]

    asyncio.run(story())
    assert len(list(store.get("w").events())) == 2


def test_the_latest_checkpoint_is_the_one_that_was_saved_last(store):
    """Equal and backward timestamps decide nothing; deleting falls back to the one before."""

    async def story() -> None:
        ours = OnrecordCheckpointStorage(store)
        made = [checkpoint(timestamp=f"2026-01-0{9 - number}T00:00:00+00:00") for number in range(4)]
        for one in made:
            await ours.save(one)
        await ours.save(WorkflowCheckpoint(workflow_name="other", graph_signature_hash="h"))
        again = OnrecordCheckpointStorage(store)
        latest = await again.get_latest(workflow_name="w")
        assert latest is not None
        assert latest.checkpoint_id == made[-1].checkpoint_id
        assert [one.checkpoint_id for one in await again.list_checkpoints(workflow_name="w")] == [
            one.checkpoint_id for one in made
        ]
        assert await again.delete(made[-1].checkpoint_id)
        assert not await again.delete(made[-1].checkpoint_id)
        assert (await ours.get_latest(workflow_name="w")).checkpoint_id == made[2].checkpoint_id  # type: ignore[union-attr]  # there are three
        assert await again.get_latest(workflow_name="nothing") is None
        with pytest.raises(WorkflowCheckpointException, match=r"there is no checkpoint.*\[not_found\]"):
            await ours.load(made[-1].checkpoint_id)
        for wrong in ("", None):
            with pytest.raises(WorkflowCheckpointException, match=r"\[invalid_input\]"):
                await ours.load(wrong)  # type: ignore[arg-type]  # that is the point
        with pytest.raises(WorkflowCheckpointException, match=r"is a WorkflowCheckpoint, not dict"):
            await ours.save({})

    asyncio.run(story())


def test_stored_bytes_cannot_name_a_class(store):
    """A tag that is not in the tables is refused: nothing is imported or called."""

    async def story() -> None:
        ours = OnrecordCheckpointStorage(store)
        kept = ours.workflow("w")
        bomb = '{"workflow_name":"w","graph_signature_hash":"h","state":{"@":"own:os:system","v":"touch /tmp/x"}}'
        await ours.save(checkpoint(checkpoint_id="good"))
        kept.entries["good"] = kept.entries["good"]._replace(line=bomb)
        with pytest.raises(WorkflowCheckpointException, match=r"'os:system', which is not among the types"):
            await ours.load("good")

    asyncio.run(story())


def test_messages_in_checkpoints_are_stored_once(store):
    """Two hundred checkpoints of a growing conversation take linear room, and are in the transcript."""

    async def story() -> None:
        ours = OnrecordCheckpointStorage(store)
        chat: list[Any] = []
        for number in range(60):
            chat += [user(f"question {number} {'x' * 500}"), Message("assistant", [f"answer {number} {'y' * 500}"])]
            await ours.save(checkpoint(state={"chat": list(chat)}))

    asyncio.run(story())
    events = list(store.get("w").events())
    lines = [len(event.data["lines"]) for event in events if event.kind == "payload.kept"]
    assert lines == [3] * 60
    assert len(store.get("w").transcript().items) == 120


class Count(Executor):  # type: ignore[misc]  # as above
    """Counts and passes on."""

    @handler
    async def count(self, number: int, ctx: WorkflowContext[int, int]) -> None:
        await (ctx.yield_output(number) if number >= 3 else ctx.send_message(number + 1))


def test_a_workflow_resumes_from_our_storage(store):
    """A real workflow is checkpointed at each step and resumed by another one from the middle."""

    def workflow() -> Any:
        one, two = Count(id="one"), Count(id="two")
        return WorkflowBuilder(start_executor=one, name="counting").add_edge(one, two).add_edge(two, one).build()

    async def story() -> None:
        ours = OnrecordCheckpointStorage(store)
        done = await workflow().run(0, checkpoint_storage=ours)
        assert done.get_outputs() == [3]
        ids = await ours.list_checkpoint_ids(workflow_name="counting")
        assert len(ids) >= 3
        again = await workflow().run(checkpoint_id=ids[1], checkpoint_storage=OnrecordCheckpointStorage(store))
        assert again.get_outputs() == [3]

    asyncio.run(story())


def test_the_event_loop_is_never_blocked(store):
    """Runs, a lease, and checkpoints saved, read, listed and deleted: the loop's thread never waits."""

    async def story() -> None:
        history = OnrecordHistoryProvider(store)
        agent: Any = Agent(Scripted(), context_providers=[history])
        async with history.alone("s") as id_:
            await agent.run("hello", session=agent.create_session(session_id=id_))
        assert said(await history.get_messages("s")) == ["hello", "read 1"]
        checkpoints = OnrecordCheckpointStorage(store)
        saved = checkpoint()
        await checkpoints.save(saved)
        await checkpoints.load(saved.checkpoint_id)
        await checkpoints.get_latest(workflow_name=saved.workflow_name)
        await checkpoints.list_checkpoints(workflow_name=saved.workflow_name)
        assert await checkpoints.delete(saved.checkpoint_id)

    with never_blocked(store):
        asyncio.run(story())


def test_bad_input_is_an_error_of_the_framework_and_writes_nothing(store):
    """A closed session, an unknown policy: their error type with our code, and the history as before."""

    async def story() -> None:
        ours = OnrecordHistoryProvider(store)
        await ours.save_messages("s", [user("one")])
        store.get("s").close("done")
        with pytest.raises(AgentException, match=r"\[session_closed\]"):
            await ours.save_messages("s", [user("two"), user("three")])
        assert said(await OnrecordHistoryProvider(store).get_messages("s")) == ["one"]
        await check_refused(AgentException, "invalid_input", lambda: ours.alone(7))  # type: ignore[arg-type]  # on purpose
        with pytest.raises(WorkflowCheckpointException, match=r"types as a list of classes, not int \[invalid_input\]"):
            OnrecordCheckpointStorage(store, types=7)  # type: ignore[arg-type]  # as above
        with pytest.raises(AgentException, match=r"must be one of refuse, queue, fork, not 'never' \[invalid_input\]"):
            OnrecordHistoryProvider(store, on_conflict="never")

    asyncio.run(story())


def test_a_killed_tool_is_read_by_the_next_run_and_does_not_run_again(tmp_path):
    """Killed inside the tool: the next run reads prompt, call and "outcome unknown"; one payment."""
    command = [sys.executable, "-W", "ignore", str(EXAMPLE), str(tmp_path)]
    killed = subprocess.run([*command, "--kill"], capture_output=True, text=True, check=False, timeout=100)
    assert killed.returncode == -9, killed.stderr
    again = subprocess.run(command, capture_output=True, text=True, check=True, timeout=100).stdout
    assert "on record: 3 messages" in again
    assert "started, outcome unknown: the run ended before pay answered" in again
    assert (tmp_path / "payments.txt").read_text() == "order 42\n"


def test_a_full_disk_and_too_much_are_errors_of_the_framework_and_leave_nothing(tmp_path):
    """A save that finds no room, or is too large, has their error type and our code; the history is as before."""

    async def story(store: Any) -> None:
        ours, checkpoints = OnrecordHistoryProvider(store), OnrecordCheckpointStorage(store)
        await ours.save_messages("s", [user("one")])
        with full_disk(), pytest.raises(AgentException, match=r"\[store_error\]"):
            await ours.save_messages("s", [user("x" * 9_000), user("three")])
        with pytest.raises(AgentException, match=r"\[too_large\]"):
            await ours.save_messages("s", [user("x" * 70_000_000)])
        assert said(await OnrecordHistoryProvider(store).get_messages("s")) == ["one"]
        await checkpoints.save(checkpoint())
        with full_disk(), pytest.raises(WorkflowCheckpointException, match=r"\[store_error\]"):
            await checkpoints.save(checkpoint(state={"x": "y" * 9_000}))
        assert len(await OnrecordCheckpointStorage(store).list_checkpoint_ids(workflow_name="w")) == 1

    with onrecord.connect(str(tmp_path / "x.db"), project="p") as store:
        asyncio.run(story(store))


def test_what_the_framework_would_not_pass_is_refused(store):
    """A store that is none, and messages of another class: one sentence each, and nothing is written."""
    kinds: tuple[Any, ...] = (OnrecordHistoryProvider, OnrecordCheckpointStorage)
    for kind, error in zip(kinds, (AgentException, WorkflowCheckpointException), strict=True):
        with pytest.raises(error, match=r"an adapter takes a store, not str \[invalid_input\]; pass onrecord.connect"):
            kind("x.db")
    ours: Any = OnrecordHistoryProvider(store)
    for given, words in ((["hello"], "messages of the class Message, not str"), (5, "a list of messages, not int")):
        with pytest.raises(AgentException, match=f"this takes {words}"):
            asyncio.run(ours.save_messages("s", given))
    assert store.named("s") is None


def test_an_image_of_others_is_a_word(store):
    """It is shown as what it is, with the text beside it, and never as base64."""
    with store.open("talk", agent="main") as plain, plain.turn() as turn:
        url = {"url": "data:image/png;base64,AAAA"}
        turn.user([{"type": "text", "text": "what is this?"}, {"type": "image_url", "image_url": url}])
        turn.assistant("a dot")
    given = asyncio.run(OnrecordHistoryProvider(store).get_messages("talk"))
    assert [one.text for one in given] == ["what is this?\n[image]", "a dot"]


class OneId(FunctionInvocationLayer, BaseChatClient):  # type: ignore[misc]  # checked without agent-framework
    """Calls the tool for each number of the prompt, always under the same id; says what the tool answered last."""

    def _inner_get_response(self, *, messages: Any, stream: bool, options: Any, **_more: Any) -> Any:
        async def answer() -> Any:
            asked = max(number for number, one in enumerate(messages) if one.role == "user")
            results = [
                part.result for one in messages[asked:] for part in one.contents if part.type == "function_result"
            ]
            wanted = messages[asked].text.split()[len(results) :]
            said = (
                Content.from_function_call("call_0", "look", arguments={"n": int(wanted[0])})
                if wanted
                else Content.from_text(str(results[-1]))
            )
            return ChatResponse(messages=[Message("assistant", [said])])

        return answer()


def test_a_server_that_gives_every_call_the_same_id(tmp_path):
    """Each call runs, once, and the model reads its own result: in one run, in the next, and in another process."""
    ran: list[int] = []

    @tool(approval_mode="never_require")
    def look(n: int) -> str:
        """Look."""
        ran.append(n)
        return f"saw {n}, look {len(ran)}"

    async def ask(store: Any, *prompts: str) -> list[str]:
        ours = OnrecordHistoryProvider(store)
        agent: Any = Agent(OneId(), tools=[look], context_providers=[ours], middleware=[OnrecordMiddleware(ours)])
        return [(await agent.run(one, session=agent.create_session(session_id="s"))).text for one in prompts]

    with onrecord.connect(str(tmp_path / "x.db"), project="p") as store:
        assert asyncio.run(ask(store, "1 1 2", "2")) == ["saw 2, look 3", "saw 2, look 4"]
        assert asyncio.run(ask(store, "2", "3")) == ["saw 2, look 5", "saw 3, look 6"]
        assert list(store.get("s").effects.unknown()) == []
        kept: Any = asyncio.run(OnrecordHistoryProvider(store).get_messages("s"))
        results = [part.result for one in kept for part in one.contents if part.type == "function_result"]
        assert results == [f"saw {n}, look {look}" for look, n in enumerate((1, 1, 2, 2, 2, 3), 1)]


def test_messages_and_checkpoints_with_a_secret_that_are_saved_again_are_kept_once(store):
    """They are compared in the form in which they are recorded, so only what is new is added."""
    token = "ghp_" + "a1B2c3" * 6

    async def story() -> None:
        whole = [Message("user", [f"use {token}"]), Message("assistant", [f"used {token}"])]
        for _time in range(2):
            await OnrecordHistoryProvider(store).save_messages("s", whole)
        whole += [user("again"), Message("assistant", ["done"])]
        await OnrecordHistoryProvider(store).save_messages("s", whole)
        assert len(await OnrecordHistoryProvider(store).get_messages("s")) == 4
        one = WorkflowCheckpoint(workflow_name="w", graph_signature_hash="h", state={"note": f"use {token}"})
        for _time in range(2):
            await OnrecordCheckpointStorage(store).save(one)
        assert len([event for event in store.get("w").events() if event.kind == "payload.kept"]) == 1

    asyncio.run(story())
