"""pydantic-ai on our log: conversations, conflicts, scopes, forks, tool calls."""

import asyncio
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import Agent
from pydantic_ai.conversation import Conversation, ConversationTypeAdapter
from pydantic_ai.conversation_store import ConversationConflict, ConversationRecord
from pydantic_ai.exceptions import UserError
from pydantic_ai.messages import ModelRequest, ModelResponse, TextPart, ToolCallPart, ToolReturnPart, UserPromptPart
from pydantic_ai.models.function import FunctionModel

import onrecord
from onrecord.frameworks.pydantic_ai import OnrecordCapability, OnrecordConversationStore
from tests.frameworks.disks import full_disk
from tests.frameworks.looping import never_blocked
from tests.frameworks.refusing import check_refused
from tests.frameworks.sharing import check_shared
from tests.stores import url_of

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "frameworks" / "pydantic_ai_refund.py"
KINDS = ["sqlite", "postgres"]


@pytest.fixture(params=KINDS)
def store(request, tmp_path):
    with onrecord.connect(url_of(request.param, request, tmp_path), project="p") as found:
        yield found


def asked(text: str) -> Any:
    return ModelRequest(parts=[UserPromptPart(text)])


def answered(text: str) -> Any:
    return ModelResponse(parts=[TextPart(text)])


def exchange(number: int) -> list[Any]:
    return [asked(f"question {number}"), answered(f"answer {number}")]


def texts(conversation: Any) -> list[str]:
    return [part.content for message in conversation.messages for part in message.parts]


def shown(store: Any, name: str) -> list[str]:
    return [item["content"] for item in store.get(name).transcript().items]


def fresh(store: Any) -> Any:
    return OnrecordConversationStore(store)


def test_the_rest_of_a_conversation_can_be_read_after_an_event_was_erased(store):
    """Each save is erased in turn: the messages of the others are there, and the conversation can be continued."""

    async def story() -> None:
        for erased in range(3):
            name, running = f"c{erased}", fresh(store)
            for number in range(3):
                loaded = await running.load(name) or Conversation(conversation_id=name)
                loaded.messages.extend(exchange(number))
                await running.save(loaded)
            session = store.get(name)
            word = f"question {erased}"
            session.log.erase("x", positions=[one.position for one in session.events() if word in str(one.data)])
            left = [f"{one} {number}" for number in range(3) if number != erased for one in ("question", "answer")]
            for number, conversations in enumerate((running, fresh(store), fresh(store)), 3):
                loaded = await conversations.load(name)
                assert texts(loaded) == left
                loaded.messages.extend(exchange(number))
                await conversations.save(loaded)
                left += [f"question {number}", f"answer {number}"]
            record = await running.read_record(name)
            assert len(await running.read_history(record.head_id)) == len(left)

    asyncio.run(story())


def test_a_save_that_was_overtaken_is_a_conflict_and_keeps_nothing(store):
    """Of two writers that loaded the same revision, the second gets ConversationConflict, in a race with our code."""

    async def story() -> None:
        one, two = fresh(store), fresh(store)
        await one.save(Conversation(conversation_id="c", messages=exchange(1)))
        first, second = await one.load("c"), await two.load("c")
        first.messages += exchange(2)
        second.messages += exchange(3)
        await one.save(first)
        with pytest.raises(ConversationConflict, match="was saved or deleted since it was loaded"):
            await two.save(second)
        stale = ConversationRecord(conversation_id="c", head_id=None)
        with pytest.raises(ConversationConflict, match=r"exists already \[conflict\]; load it again") as found:
            await two.write_record(stale, expected_revision=second.revision)
        assert found.value.conversation_id == "c"
        with pytest.raises(ConversationConflict):
            await two.save(Conversation(conversation_id="c", messages=exchange(4)))
        assert texts(await two.load("c")) == ["question 1", "answer 1", "question 2", "answer 2"]

    asyncio.run(story())
    assert shown(store, "c") == ["question 1", "answer 1", "question 2", "answer 2"]
    assert store.get("c").verify().ok


def test_a_save_whose_reply_was_lost_may_be_repeated(store):
    """The result of a run that is saved again, also by another process, is there once; the next run continues."""
    agent = Agent(FunctionModel(lambda messages, _info: answered(f"read {len(messages)}")))

    async def story() -> None:
        ours = fresh(store)
        result = await agent.run("one", conversation=Conversation(conversation_id="c"))
        first = await ours.save(result.conversation)  # this reply never arrives
        again = await ours.save(result)
        assert [one.id for one in again] == [one.id for one in first]
        copied = ConversationTypeAdapter.validate_json(ConversationTypeAdapter.dump_json(result.conversation))
        assert len(await fresh(store).save(copied)) == 2
        await ours.save(await agent.run("two", conversation=result.conversation))
        loaded = await fresh(store).load("c")
        loaded.messages += result.new_messages()  # a process that does not know it
        assert len(await fresh(store).save(loaded)) == 2
        assert texts(loaded) == texts(await fresh(store).load("c")) == ["one", "read 1", "two", "read 3"]
        loaded.messages += exchange(1)
        await fresh(store).save(loaded)

    asyncio.run(story())
    assert shown(store, "c") == ["one", "read 1", "two", "read 3", "question 1", "answer 1"]


@pytest.mark.parametrize("policy", ["queue", "fork"])
def test_a_run_that_was_overtaken_is_queued_or_forked(store, policy):
    """With `queue` its messages come behind the others; with `fork` they are in a fork of what it has read."""
    agent = Agent(FunctionModel(lambda messages, _info: answered(f"read {len(messages)}")))

    async def story() -> None:
        mine = OnrecordConversationStore(store, on_conflict=policy)
        begun = Conversation(conversation_id="c")
        await mine.save(await agent.run("begin", conversation=begun))
        loaded = await mine.load("c")
        await fresh(store).save(await agent.run("yours", conversation=await fresh(store).load("c")))
        result = await agent.run("mine", conversation=loaded)
        saved = result.conversation
        await mine.save(saved)
        found = await fresh(store).load("c")
        if policy == "queue":
            assert texts(found) == texts(saved) == ["begin", "read 1", "yours", "read 3", "mine", "read 3"]
            assert found.usage.requests == 3
            await mine.save(result)  # the same again
        else:
            assert mine.forks == [saved.conversation_id] == ["c-fork-1"]
            assert texts(found) == ["begin", "read 1", "yours", "read 3"]
            forked = await fresh(store).load("c-fork-1")
            assert texts(forked) == ["begin", "read 1", "mine", "read 3"]
            assert forked.usage.requests == 2
        saved.messages += exchange(5)
        await mine.save(saved)
        assert texts(await fresh(store).load(saved.conversation_id))[-2:] == ["question 5", "answer 5"]
        await fresh(store).delete("c")
        with pytest.raises(ConversationConflict):
            await mine.save(loaded)

    asyncio.run(story())


def test_inside_alone_others_are_refused_wait_or_work_in_a_fork(store):
    """The lease of a conversation by each policy; a process that lost it meanwhile cannot save."""

    async def story() -> None:
        mine, queued = fresh(store), OnrecordConversationStore(store, on_conflict="queue")
        async with mine.alone("c") as id_:
            saved = Conversation(conversation_id=id_, messages=exchange(1))
            await mine.save(saved)
            with pytest.raises(UserError, match=r"\[lease_held\]"):
                async with fresh(store).alone("c"):
                    pass
            async with OnrecordConversationStore(store, on_conflict="fork").alone("c") as fork:
                assert (fork, texts(await fresh(store).load(fork))) == ("c-fork-1", ["question 1", "answer 1"])
            waiting = asyncio.ensure_future(queued.alone("c").__aenter__())
            await asyncio.sleep(0.1)
            assert not waiting.done()
            store.open("c", agent="main", takeover=True).leave()
            saved.messages += exchange(2)
            with pytest.raises(UserError, match=r"\[lease_lost\]"):
                await mine.save(saved)
        assert await waiting == "c"
        assert len((await fresh(store).load("c")).messages) == 2

    asyncio.run(story())


def test_of_many_writers_at_once_exactly_one_saves(store):
    """Eight saves of one revision at the same time: one is kept, seven conflict, nothing of them is there."""

    async def story() -> None:
        ours = fresh(store)
        await ours.save(Conversation(conversation_id="c", messages=exchange(0)))
        loaded = [await fresh(store).load("c") for _ in range(8)]
        for number, one in enumerate(loaded):
            one.messages += exchange(number + 1)
        done = await asyncio.gather(*(fresh(store).save(one) for one in loaded), return_exceptions=True)
        assert sum(isinstance(one, ConversationConflict) for one in done) == 7
        assert len((await ours.load("c")).messages) == 4

    asyncio.run(story())


def test_a_scope_sees_only_its_own_conversations(store):
    """Another scope cannot load, list, save or delete a conversation; the newest is listed first."""

    async def story() -> None:
        ours = fresh(store)
        for number, scope in enumerate(["anna", "ben", "anna"]):
            await ours.save(Conversation(conversation_id=f"c{number}", messages=exchange(number)), scope=scope)
        again = fresh(store)
        assert await again.load("c1", scope="anna") is None
        assert [one.conversation_id for one in await again.list_conversations(scope="anna")] == ["c2", "c0"]
        assert [one.conversation_id for one in await again.list_conversations(limit=2)] == ["c2", "c1"]
        await again.delete("c1", scope="anna")
        assert await again.load("c1", scope="ben") is not None
        mine = await again.load("c1", scope="ben")
        with pytest.raises(ConversationConflict):
            await again.save(mine, scope="anna")

    asyncio.run(story())


def test_a_fork_shares_the_log_and_copies_no_message(store):
    """A fork of 200 messages adds one small event; parent and fork continue without seeing each other."""

    async def story() -> None:
        ours = fresh(store)
        messages = [one for number in range(100) for one in exchange(number)]
        await ours.save(Conversation(conversation_id="c", messages=messages))
        forked = await ours.fork("c", new_conversation_id="f", scope="s")
        earlier = await ours.fork("c", at=2, new_conversation_id="e")
        forked.messages += exchange(500)
        await ours.save(forked)
        parent = await fresh(store).load("c")
        parent.messages += exchange(600)
        await fresh(store).save(parent)
        again = fresh(store)
        assert texts(await again.load("f"))[-4:] == ["question 99", "answer 99", "question 500", "answer 500"]
        assert texts(await again.load("e")) == texts(earlier) == ["question 0", "answer 0"]
        record = await again.read_record("f")
        assert (record.forked_from, record.scope) == ("c", "s")
        await again.delete("c")
        assert await again.load("c") is None
        assert len((await fresh(store).load("f")).messages) == 202
        with pytest.raises(UserError, match="not in the store"):
            await again.fork("c")

    asyncio.run(story())
    own = [event for event in store.get("f").events(1) if event.kind == "payload.kept" and event.position > 2]
    assert sum(len(event.data["lines"]) for event in own) == 2
    assert shown(store, "e") == ["question 0", "answer 0"]
    assert shown(store, "f")[-2:] == ["question 500", "answer 500"]


def test_a_branch_hides_what_it_left_and_can_go_back(store):
    """After a branch, readers and the transcript have the new history only; the old one can be branched back to."""

    async def story() -> None:
        ours = fresh(store)
        first = Conversation(conversation_id="c", messages=exchange(1) + exchange(2))
        old = await ours.save(first)
        branched = await ours.branch("c", at=2, expected_revision=first.revision)
        branched.messages += exchange(3)
        await ours.save(branched)
        assert texts(await fresh(store).load("c")) == ["question 1", "answer 1", "question 3", "answer 3"]
        assert shown(store, "c") == ["question 1", "answer 1", "question 3", "answer 3"]
        again = fresh(store)
        back = await again.branch("c", from_entry=old[-1].id, expected_revision=branched.revision)
        assert texts(back) == ["question 1", "answer 1", "question 2", "answer 2"]
        other = await fresh(store).fork("c", from_entry=(await again.read_record("c")).branches[0])
        assert texts(other)[-1] == "answer 3"

    asyncio.run(story())
    assert sorted(shown(store, "c")) == ["answer 1", "answer 2", "question 1", "question 2"]


def test_the_event_loop_is_never_blocked(store):
    """Conversations saved, read, listed, forked, queued, held and deleted, a tool: the loop's thread never waits."""
    ours = fresh(store)
    late: Any = OnrecordConversationStore(store, on_conflict="queue")

    def model(messages: Any, _info: Any) -> Any:
        return answered("paid") if len(messages) > 1 else ModelResponse(parts=[ToolCallPart("pay", {}, "c")])

    agent = Agent(FunctionModel(model), capabilities=[OnrecordCapability(ours)], tools=[pay])

    async def story() -> None:
        async with ours.alone("c") as id_:
            await ours.save(await agent.run("pay", conversation=Conversation(conversation_id=id_)))
        first, second = await ours.load("c"), await late.load("c")
        first.messages += exchange(1)
        second.messages += exchange(2)
        await ours.save(first)
        await late.save(second)
        await ours.fork("c", new_conversation_id="d")
        assert len(await ours.list_conversations()) == 2
        await ours.delete("d")

    with never_blocked(store):
        asyncio.run(story())


def pay() -> str:
    """Pay."""
    return "paid"


def test_bad_input_is_an_error_of_pydantic_ai_and_writes_nothing(store):
    """A missing entry, a dangling head, a stale delete, a closed session: their error types, our codes."""

    async def story() -> None:
        ours = fresh(store)
        with pytest.raises(LookupError, match=r"there is no entry 'nope' \[not_found\]"):
            await ours.read_entry("nope")
        with pytest.raises(ConversationConflict):
            await ours.write_record(ConversationRecord(conversation_id="d", head_id="nope"), expected_revision=None)
        with pytest.raises(ConversationConflict):
            await ours.write_record(ConversationRecord(conversation_id="d", head_id=None), expected_revision="old")
        assert store.named("d") is None
        saved = Conversation(conversation_id="c", messages=exchange(1))
        await ours.save(saved)
        with pytest.raises(ConversationConflict):
            await ours.delete_record("c", expected_revision="old")
        wrong: Any = ours
        calls = [partial(wrong.alone, 7), partial(wrong.alone, ""), partial(wrong.load, "")]
        calls += [partial(wrong.write_record, None, expected_revision=None)]
        calls += [partial(wrong.save, Conversation(conversation_id="e", messages=["text"]))]
        await check_refused(UserError, "invalid_input", *calls)
        assert store.named("e") is None
        store.get("c").close("done")
        saved.messages += exchange(2)
        with pytest.raises(UserError, match=r"\[session_closed\]"):
            await ours.save(saved)
        assert len((await fresh(store).load("c")).messages) == 2

    asyncio.run(story())


def test_what_other_writers_said_is_read_once_and_saved_with_the_next_run(store):
    """A turn of a plain loop is at the end of the loaded conversation, and not doubled after the save."""

    async def story() -> None:
        ours = fresh(store)
        await ours.save(Conversation(conversation_id="c", messages=exchange(1)))
        with store.open("c", agent="main") as plain, plain.turn() as turn:
            turn.user("from the loop")
            turn.assistant("yes")
        agent = Agent(FunctionModel(lambda messages, _info: answered(f"read {len(messages)}")))
        result = await agent.run("go on", conversation=await fresh(store).load("c"))
        assert result.output == "read 5"
        await fresh(store).save(result)
        assert texts(await fresh(store).load("c"))[2:] == ["from the loop", "yes", "go on", "read 5"]

    asyncio.run(story())
    wanted = ["question 1", "answer 1", "from the loop", "yes", "go on", "read 5"]
    assert shown(store, "c") == wanted
    assert [one["content"] for one in store.get("c", agent="main").messages("openai")][-6:] == wanted
    check_shared(store, "c", wanted)
    again = asyncio.run(fresh(store).load("c"))
    assert texts(again)[-2:] == ["a question of a plain loop", "its answer"]


def test_the_ledger_has_both_ends_of_a_tool_call_and_errors(store):
    """A tool that raises is on record as failed; one that answers with its result; the saved run is shown once."""
    calls: list[int] = []

    def model(messages: list[Any], _info: Any) -> Any:
        results = [part for message in messages for part in message.parts if isinstance(part, ToolReturnPart)]
        return answered("done") if results else ModelResponse(parts=[ToolCallPart("pay", {"order": 1}, "c1")])

    async def story() -> None:
        ours = fresh(store)
        agent: Any = Agent(FunctionModel(model), capabilities=[OnrecordCapability(ours)])

        @agent.tool_plain
        def pay(order: int) -> str:
            calls.append(order)
            if len(calls) == 1:
                raise OSError("the bank is closed")
            return "paid"

        with pytest.raises(OSError, match="closed"):
            await agent.run("pay", conversation=Conversation(conversation_id="c"))
        told = await fresh(store).load("c")
        assert [part.content for part in told.messages[-1].parts] == ["failed: OSError: the bank is closed"]
        await ours.save(await agent.run("pay", conversation=Conversation(conversation_id="d")))

    asyncio.run(story())
    assert calls == [1, 1]
    assert list(store.get("d").effects.unknown()) == []
    assert [item["role"] for item in store.get("d").transcript().items] == ["user", "assistant", "tool", "assistant"]


def test_a_killed_tool_is_read_by_the_next_run_and_does_not_run_again(tmp_path):
    """Killed inside the tool: the next run reads prompt, call and "outcome unknown"; one payment."""
    command = [sys.executable, "-W", "ignore", str(EXAMPLE), str(tmp_path)]
    killed = subprocess.run([*command, "--kill"], capture_output=True, text=True, check=False, timeout=100)
    assert killed.returncode == -9, killed.stderr
    again = subprocess.run(command, capture_output=True, text=True, check=True, timeout=100).stdout
    assert "on record: 3 messages" in again
    assert "started, outcome unknown: the run ended before pay answered" in again
    assert (tmp_path / "payments.txt").read_text() == "order 42\n"


def test_a_full_disk_and_too_much_are_errors_of_pydantic_ai_and_leave_nothing(tmp_path):
    """A save that finds no room, or is too large, is a UserError with our code; the conversation is as before."""

    async def story(store: Any) -> None:
        ours = fresh(store)
        saved = Conversation(conversation_id="c", messages=exchange(1))
        await ours.save(saved)
        saved.messages += [asked("x" * 9_000)]
        with full_disk(), pytest.raises(UserError, match=r"\[store_error\]"):
            await ours.save(saved)
        assert len((await fresh(store).load("c")).messages) == 2
        await ours.save(saved)
        saved.messages += [asked("x" * 70_000_000)]
        with pytest.raises(UserError, match=r"\[too_large\]"):
            await ours.save(saved)
        assert len((await fresh(store).load("c")).messages) == 3

    with onrecord.connect(str(tmp_path / "x.db"), project="p") as store:
        asyncio.run(story(store))


def test_what_pydantic_ai_would_not_pass_is_refused(store):
    """A store that is none, and a save of something else: one sentence each."""
    wrong: Any = OnrecordConversationStore
    with pytest.raises(UserError, match=r"an adapter takes a store, not str \[invalid_input\]; pass onrecord.connect"):
        wrong("x.db")
    ours: Any = OnrecordConversationStore(store)
    with pytest.raises(UserError, match="this takes a Conversation or the result of a run, not NoneType"):
        asyncio.run(ours.save(None))


def test_an_image_of_others_is_a_word(store):
    """It is shown as what it is, with the text beside it; a prompt that is only an image is not empty."""
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    for asked in ([{"type": "text", "text": "what is this?"}, image], [image]):
        with store.open("talk", agent="main") as plain, plain.turn() as turn:
            turn.user(asked)
            turn.assistant("a dot")
    loaded: Any = asyncio.run(OnrecordConversationStore(store).load("talk"))
    said = [part.content for message in loaded.messages for part in message.parts]
    assert said == ["what is this?\n[image]", "a dot", "[image]", "a dot"]


def test_a_server_that_gives_every_call_the_same_id(store):
    """Each call of a run has its own result; a run that dies in a later call says of that one what is known."""
    ran: list[int] = []

    def model(messages: list[Any], _info: Any) -> Any:
        results = [part.content for message in messages for part in message.parts if isinstance(part, ToolReturnPart)]
        wanted = [1, 1, 2, 3][len(results)]
        return ModelResponse(parts=[ToolCallPart("look", {"n": wanted}, "call_0")])

    async def story() -> Any:
        agent: Any = Agent(FunctionModel(model), capabilities=[OnrecordCapability(fresh(store))])

        @agent.tool_plain
        def look(n: int) -> str:
            if n == 3:
                raise OSError("too dark")
            ran.append(n)
            return f"saw {n}, look {len(ran)}"

        with pytest.raises(OSError, match="dark"):
            await agent.run("look", conversation=Conversation(conversation_id="c"))
        return await fresh(store).load("c")

    told = asyncio.run(story())
    assert ran == [1, 1, 2]
    assert [part.content for message in told.messages for part in message.parts if part.part_kind == "tool-return"] == [
        "saw 1, look 1", "saw 1, look 2", "saw 2, look 3", "failed: OSError: too dark",
    ]  # fmt: skip
