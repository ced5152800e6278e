"""What the history of openai-agents shows and retracts, with the hooks in use and with other writers in the session."""

import asyncio
from collections.abc import Awaitable
from typing import Any

import pytest
from agents import Agent, Runner, function_tool
from agents.exceptions import AgentsException
from agents.testing import ScriptedModel, assistant_message, function_call

import onrecord
from onrecord.frameworks.openai_agents import OnrecordSession


def run(awaitable: Awaitable[Any]) -> Any:
    async def main() -> Any:
        return await awaitable

    return asyncio.run(main())


@pytest.fixture
def store(tmp_path):
    with onrecord.connect(str(tmp_path / "x.db"), project="p") as found:
        yield found


@function_tool
def pay(order: int) -> str:
    """Pay."""
    return f"paid {order}"


@function_tool(failure_error_function=None)
def fail() -> str:
    """Fail."""
    raise ValueError("closed")


def ask(store: Any, *steps: Any, prompt: str = "pay") -> OnrecordSession:
    """A run with hooks."""
    session = OnrecordSession("talk", store)
    agent = Agent(name="a", model=ScriptedModel(steps), tools=[pay, fail])
    run(Runner.run(agent, prompt, session=session, hooks=session.hooks()))
    return session


def paid(store: Any, order: int = 1) -> OnrecordSession:
    return ask(store, [function_call("pay", {"order": order}, call_id="call_0")], [assistant_message("done")])


def shown(store: Any) -> list[str]:
    """The history as another process reads it."""
    return [
        str(item.get("output") or item.get("name") or _text(item.get("content")))
        for item in run(OnrecordSession("talk", store).get_items())
    ]


def _text(content: Any) -> str:
    return content if isinstance(content, str) else content[0]["text"]


def loop_says(store: Any, asked: str, answered: str) -> None:
    with store.open("talk", agent="main") as loop, loop.turn() as turn:
        turn.user(asked)
        turn.assistant(answered)


def test_what_was_popped_with_hooks_stays_away(store):
    """Each pop returns the last item that is shown, the tool calls of the ledger included, until nothing is left."""
    session = paid(store)
    assert shown(store) == ["pay", "pay", "paid 1", "done"]
    for number in (3, 2, 1, 0):
        last = run(session.get_items())[-1]
        assert run(session.pop_item()) == last
        assert len(shown(store)) == len(run(session.get_items())) == number
    assert run(session.pop_item()) is None


def test_what_was_cleared_with_hooks_stays_away(store):
    """After a clear nothing from before is shown; what is said later is, in this process and in another one."""
    session = paid(store)
    run(session.clear_session())
    assert run(session.get_items()) == shown(store) == []
    assert run(session.pop_item()) is None
    paid(store, order=2)
    assert shown(store) == ["pay", "pay", "paid 2", "done"]


def test_what_was_compacted_with_hooks_stays_away(store):
    """Compaction replaces all that is shown by a summary, also the tool calls and the turns of others."""
    session = paid(store)
    loop_says(store, "from the loop", "yes")
    snapshot = run(session._get_compaction_snapshot(4))
    assert not snapshot.complete
    assert snapshot.items == run(session.get_items())[-4:]
    assert run(snapshot.replace_suffix(1, [{"role": "assistant", "content": "short"}])) is True
    assert shown(store) == ["pay", "pay", "paid 1", "short"]
    assert run(snapshot.replace_suffix(0, [])) is False
    whole = run(session._get_compaction_snapshot(100))
    assert whole.complete
    assert run(whole.replace_suffix(0, [{"role": "assistant", "content": "summary"}])) is True
    assert run(session.get_items()) == [{"role": "assistant", "content": "summary"}]
    assert shown(store) == ["summary"]
    assert store.get("talk").verify().ok


def test_turns_of_other_writers_are_popped_and_cleared_like_own_items(store):
    """They leave the history item by item, or all at once, and stay in the record of the session."""
    session = OnrecordSession("talk", store)
    run(session.add_items([{"role": "user", "content": "mine"}]))
    loop_says(store, "asked", "answered")
    loop_says(store, "more", "said")
    for left in (["mine", "asked", "answered", "more"], ["mine", "asked", "answered"], ["mine", "asked"]):
        last = run(session.get_items())[-1]
        assert run(session.pop_item()) == last
        assert shown(store) == left
    run(session.add_items([{"role": "user", "content": "again"}]))
    assert shown(store) == ["mine", "asked", "again"]
    run(session.clear_session())
    assert run(session.get_items()) == shown(store) == []
    loop_says(store, "later", "still here")
    assert shown(store) == ["later", "still here"]
    said = [item["content"] for item in store.get("talk").transcript().items]
    assert said == ["asked", "answered", "more", "said", "later", "still here"]


def test_a_log_that_was_cleared_before_others_could_be_is_read_as_it_was(store):
    """A clear that does not say that it means others too hides own items only."""
    session = OnrecordSession("talk", store)
    run(session.add_items([{"role": "user", "content": "mine"}]))
    loop_says(store, "asked", "answered")
    data = {"vendor": "openai-agents", "vendor_id": "talk", "keys": [], "all": True}
    store.get("talk", agent="main").log.record("payload.retracted", data)
    assert run(session.get_items()) == run(OnrecordSession("talk", store).get_items())
    assert shown(store) == ["asked", "answered"]


def test_a_tool_that_raised_is_not_said_to_have_lost_its_process(store):
    """The run ended with the tool: the next one reads that it did not answer. It can be popped and cleared as well."""
    with pytest.raises(AgentsException, match="closed"):
        ask(store, [function_call("fail", {}, call_id="c")])
    said = "started, outcome unknown: the run ended before fail answered; check before you repeat it"
    assert shown(store) == ["pay", "fail", said]
    session = OnrecordSession("talk", store)
    popped = [run(session.pop_item()) for _time in range(2)]
    assert [item["type"] for item in popped] == ["function_call_output", "function_call"]
    assert shown(store) == ["pay"]
    with pytest.raises(AgentsException, match="closed"):
        ask(store, [function_call("fail", {}, call_id="c")], prompt="again")
    assert shown(store) == ["pay", "again", "fail", said]
    run(session.clear_session())
    assert shown(store) == []


def test_a_server_that_gives_every_call_the_same_id(store):
    """Each call has its own result in the ledger and in the history; one that was never saved is shown beside them."""
    with pytest.raises(AgentsException, match="closed"):
        ask(store, [function_call("fail", {}, call_id="call_0")], prompt="try")
    for order in (1, 2, 3):
        paid(store, order)
    with pytest.raises(AgentsException, match="closed"):
        ask(store, [function_call("fail", {}, call_id="call_0")], prompt="try")
    unknown = "started, outcome unknown: the run ended before fail answered; check before you repeat it"
    turns = [said for order in (1, 2, 3) for said in ("pay", "pay", f"paid {order}", "done")]
    assert shown(store) == ["try", "fail", unknown, *turns, "try", "fail", unknown]
    assert list(store.get("talk").effects.unknown()) == ["openai-agents/call_0", "openai-agents/call_0#5"]


def test_the_result_of_a_call_that_was_saved_alone_is_shown_behind_it(store):
    """A run that saves the call before the tool runs, for instance to have it approved: the call is shown once."""
    session = OnrecordSession("talk", store)
    call: Any = {"type": "function_call", "call_id": "c", "name": "pay", "arguments": "{}", "id": "fc"}
    run(session.add_items([{"role": "user", "content": "pay"}, call]))
    hooks, tool = session.hooks(), type("Tool", (), {"name": "pay"})
    context: Any = type("Context", (), {"tool_call_id": "c", "tool_arguments": "{}"})
    run(hooks.on_tool_start(context, None, tool))  # type: ignore[arg-type]  # what the hook reads of them
    run(hooks.on_tool_end(context, None, tool, "paid"))  # type: ignore[arg-type]  # as above
    assert [item.get("type") for item in run(session.get_items())] == [None, "function_call", "function_call_output"]
    assert shown(store) == ["pay", "pay", "paid"]
