"""Runs of openai-agents that wait for an approval, and are resumed while others use the conversation."""

import asyncio
from typing import Any

import pytest
from agents import Agent, RunConfig, Runner, RunState, function_tool, set_tracing_disabled
from agents.exceptions import AgentsException
from agents.testing import ScriptedModel, assistant_message, function_call

import onrecord
from onrecord.frameworks.openai_agents import OnrecordSession


@function_tool(needs_approval=True)
def pay(order: int) -> str:
    """Pay."""
    return f"paid {order}"


@function_tool
def look(order: int) -> str:
    """Look."""
    return f"seen {order}"


@pytest.fixture(autouse=True)
def _untraced():
    """Nothing is sent to a server of traces, and no thread waits for one."""
    set_tracing_disabled(disabled=True)


@pytest.fixture
def store(tmp_path):
    with onrecord.connect(str(tmp_path / "x.db"), project="p") as found:
        yield found


def paying(*steps: Any) -> Agent[Any]:
    """An agent that looks, asks whether it may pay, and does more."""
    calls = [function_call("look", {"order": 1}, call_id="l"), function_call("pay", {"order": 1}, call_id="c")]
    return Agent(name="a", model=ScriptedModel([calls, *steps]), tools=[pay, look])


class Story:
    """One run that waits for an approval, and what happens before it gets it."""

    def __init__(self, store: Any, policy: str, *, serialized: bool, streamed: bool = False) -> None:
        self.store, self.policy, self.serialized, self.streamed = store, policy, serialized, streamed
        self.session = OnrecordSession("talk", store, on_conflict=policy)

    async def run(self, agent: Agent[Any], given: Any) -> Any:
        """Run the agent; what comes of it can be resumed."""
        session = self.session
        if not self.streamed:
            return await Runner.run(agent, given, session=session, hooks=session.hooks())
        result = Runner.run_streamed(agent, given, session=session, hooks=session.hooks())
        async for _event in result.stream_events():
            pass
        return result

    async def resume(self, agent: Agent[Any], result: Any) -> Any:
        """Approve the first call that waits, and continue; from the saved state also with a new session object."""
        state = result.to_state()
        if self.serialized:
            state = await RunState.from_string(agent, state.to_string())
            self.session = OnrecordSession("talk", self.store, on_conflict=self.policy)
        state.approve(state.get_interruptions()[0])
        return await self.run(agent, state)

    async def another(self) -> None:
        """Another run adds a turn meanwhile."""
        quick = Agent(name="b", model=ScriptedModel([[assistant_message("quick")]]))
        await Runner.run(quick, "B", session=OnrecordSession("talk", self.store))

    async def shown(self, name: str = "talk") -> list[str]:
        """The history, in words."""
        items: list[Any] = [*await OnrecordSession(name, self.store).get_items()]
        return [
            item.get("name")
            or item.get("output")
            or (said if isinstance(said := item["content"], str) else said[0]["text"])
            for item in items
        ]


BEFORE = ["A", "look", "pay", "seen 1"]
MODES = pytest.mark.parametrize("serialized", [False, True])
STREAMS = pytest.mark.parametrize("streamed", [False, True])


@MODES
@STREAMS
def test_a_resumed_run_that_was_overtaken_is_refused(store, serialized, streamed):
    """Nothing of it is saved behind the turns of the other run; that its tool ran is in the ledger."""

    async def main() -> None:
        story = Story(store, "refuse", serialized=serialized, streamed=streamed)
        agent = paying([assistant_message("done")])
        waiting = await story.run(agent, "A")
        await story.another()
        before = await story.session.get_items()
        with pytest.raises(AgentsException, match=r"another run added to conversation 'talk'.*\[log_moved\]"):
            await story.resume(agent, waiting)
        assert await story.shown() == [*BEFORE, "B", "quick", "paid 1"]
        kept = [event for event in store.get("talk").events() if event.kind == "payload.kept"]
        assert sum(len(event.data["keys"]) for event in kept) == len(before)

    asyncio.run(main())


@MODES
@STREAMS
def test_a_resumed_run_that_was_overtaken_continues_in_a_fork(store, serialized, streamed):
    """The fork has the history up to the calls, and no turn of the other run; the next resume continues the fork."""

    async def main() -> None:
        story = Story(store, "fork", serialized=serialized, streamed=streamed)
        again = function_call("pay", {"order": 2}, call_id="d")
        agent = paying([again], [assistant_message("done")])
        waiting = await story.run(agent, "A")
        await story.another()
        waiting = await story.resume(agent, waiting)
        (fork,) = story.session.forks
        assert await story.shown(fork) == [*BEFORE, "paid 1", "pay"]
        assert "B" in await story.shown()
        story.serialized = False  # a new session object would be that of the fork
        assert (await story.resume(agent, waiting)).final_output == "done"
        assert await story.shown(fork) == [*BEFORE, "paid 1", "pay", "paid 2", "done"]
        assert "done" not in await story.shown()
        assert story.session.forks == [fork]

    asyncio.run(main())


@MODES
def test_a_resumed_run_that_queues_is_placed_behind(store, serialized):
    """With `queue`, what the resumed run says comes behind the turns of the other run."""

    async def main() -> None:
        story = Story(store, "queue", serialized=serialized)
        agent = paying([assistant_message("done")])
        waiting = await story.run(agent, "A")
        await story.another()
        assert (await story.resume(agent, waiting)).final_output == "done"
        assert await story.shown() == [*BEFORE, "B", "quick", "paid 1", "done"]

    asyncio.run(main())


@MODES
@STREAMS
@pytest.mark.parametrize("policy", ["refuse", "fork"])
def test_a_resumed_run_that_was_alone_continues(store, policy, serialized, streamed):
    """Own saves between a call and its answer are no other run: two approvals of one turn, one after the other."""

    async def main() -> None:
        story = Story(store, policy, serialized=serialized, streamed=streamed)
        two = [function_call("pay", {"order": number}, call_id=f"c{number}") for number in (1, 2)]
        third = function_call("pay", {"order": 3}, call_id="c3")
        agent = Agent(name="a", model=ScriptedModel([two, [third], [assistant_message("done")]]), tools=[pay])
        result = await story.run(agent, "A")
        while result.interruptions:
            result = await story.resume(agent, result)
        assert result.final_output == "done"
        assert story.session.forks == []
        said = await story.shown()
        assert (said[0], said[-1], sorted(said[1:-1])) == (
            "A",
            "done",
            ["paid 1", "paid 2", "paid 3", "pay", "pay", "pay"],
        )
        await story.another()
        assert (await story.shown())[-2:] == ["B", "quick"]

    asyncio.run(main())


def test_a_result_that_the_client_brings_later_is_no_resumed_run(store):
    """A tool that runs at the client is answered by a later run, which has read everything: it is not refused."""
    session = OnrecordSession("s", store)

    async def work() -> str:
        await session.add_items([
            {"role": "user", "content": "look"},
            {"type": "function_call", "call_id": "k1", "name": "client", "arguments": "{}", "id": "fc_k"},
        ])  # fmt: skip
        await session.add_items([{"role": "user", "content": "still there?"}])
        await session.add_items([{"role": "assistant", "content": "yes"}])
        joined = RunConfig(session_input_callback=lambda history, new: history + new)
        agent = Agent(name="a", model=ScriptedModel([[assistant_message("seen")]]))
        answer: Any = [{"type": "function_call_output", "call_id": "k1", "output": "x"}]
        return str((await Runner.run(agent, answer, session=session, run_config=joined)).final_output)

    assert asyncio.run(work()) == "seen"
    assert session.forks == []
