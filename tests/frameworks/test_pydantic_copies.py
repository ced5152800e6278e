"""pydantic-ai: what is saved again, or repeats what others have on record, is recorded once."""

import asyncio
import copy
from typing import Any

import pytest
from pydantic_ai import Agent
from pydantic_ai.conversation import Conversation
from pydantic_ai.messages import ModelResponse, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import FunctionModel

from onrecord.frameworks.pydantic_ai import OnrecordConversationStore
from onrecord.log.readings import rows_of
from tests.frameworks.test_pydantic_ai import answered, fresh, shown, store

__all__ = ["store"]  # a fixture


@pytest.mark.parametrize("policy", ["refuse", "queue", "fork"])
def test_a_save_with_a_secret_that_is_repeated_is_recognised(store, policy):
    """The recorded text is without the secret; a repeated save neither conflicts nor adds anything."""
    token = "ghp_" + "a1B2c3" * 6

    async def story() -> None:
        agent = Agent(FunctionModel(lambda _messages, _info: answered(f"so: {token}")))
        ours = OnrecordConversationStore(store, on_conflict=policy)
        done = await agent.run(f"use {token}", conversation=Conversation(conversation_id="c"))
        again = copy.deepcopy(done.conversation)
        await ours.save(done)
        await ours.save(copy.deepcopy(again))
        await OnrecordConversationStore(store, on_conflict=policy).save(again)
        found = await fresh(store).load("c")
        assert len(found.messages) == 2
        next_one = await agent.run(f"again {token}", conversation=found)
        repeated = copy.deepcopy(next_one.conversation)
        await ours.save(next_one)
        await ours.save(repeated)
        assert len((await fresh(store).load("c")).messages) == 4
        assert ours.forks == []

    asyncio.run(story())


@pytest.mark.parametrize("then", [[], ["done"], ["", "more", "done"]])
def test_copies_of_parallel_results_and_of_prompts_are_not_recorded_again(store, then):
    """pydantic-ai merges neighbouring requests: what a loop recorded is in the transcript once, however its turn ends."""
    with store.open("c") as plain, plain.turn() as turn:
        turn.user("pay all")
        turn.assistant("", tool_calls=[{"id": f"k{n}", "name": "pay", "arguments": {"n": n}} for n in (1, 2)])
        for number in (1, 2):
            turn.tool(f"k{number}", f"paid {number}")
        if then and then[0]:
            turn.assistant(then[0])
    for question in then[1:2]:
        with store.open("c") as plain, plain.turn() as turn:
            turn.user(question)
            turn.assistant(then[2])

    async def story() -> None:
        agent = Agent(FunctionModel(lambda _messages, _info: answered("hello")))
        for question in ("next", "again"):
            conversations = fresh(store)
            await conversations.save(await agent.run(question, conversation=await conversations.load("c")))

    asyncio.run(story())
    own = ["next", "hello", "again", "hello"]
    assert shown(store, "c") == ["pay all", "", "paid 1", "paid 2", *filter(None, then), *own]
    kept = [event.data for event in store.get("c").events() if event.kind == "payload.kept"]
    rows = [row for data in kept if isinstance(data, dict) for row in rows_of(data)]
    assert [item["content"] for row in rows for item in row.items] == own


def test_a_result_under_an_id_that_a_loop_has_used_is_recorded(store):
    """Model servers use ids of calls again: what our run answers under such an id is its own."""
    with store.open("c").turn() as turn:
        turn.user("pay")
        turn.assistant("", tool_calls=[{"id": "call_0", "name": "pay", "arguments": {}}])
        turn.tool("call_0", "paid")
        turn.assistant("done")

    def model(messages: list[Any], _info: Any) -> Any:
        is_answered = any(isinstance(part, ToolReturnPart) for part in messages[-1].parts)
        return answered("paid twice") if is_answered else ModelResponse(parts=[ToolCallPart("pay", {}, "call_0")])

    async def story() -> None:
        agent = Agent(FunctionModel(model))
        agent.tool_plain(lambda: "paid", name="pay")
        conversations = fresh(store)
        await conversations.save(await agent.run("again", conversation=await conversations.load("c")))

    asyncio.run(story())
    assert shown(store, "c") == ["pay", "", "paid", "done", "again", "", "paid", "paid twice"]
