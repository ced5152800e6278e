"""Strands Agents: tools that wait for a person's answer."""

import asyncio
import json
from typing import Any

import pytest
from strands import Agent, ToolContext, tool
from strands.hooks import BeforeToolCallEvent, HookProvider
from strands.models import Model
from strands.session.repository_session_manager import RepositorySessionManager
from strands.session.snapshot_session_manager import SnapshotSessionManager
from strands.tools.executors import SequentialToolExecutor

import onrecord
from onrecord.frameworks.strands import OnrecordHooks, OnrecordRepository
from onrecord.frameworks.strands_storage import OnrecordStorage
from tests.frameworks.looping import never_blocked

KEYS = {"repository": "strands/call-1", "snapshots": "strands-storage/call-1"}


class Crash(BaseException):
    """What ends a run in the middle of a tool."""


class Caller(Model):  # type: ignore[misc]  # checked without Strands
    """Calls the tool that it is asked for, and says what it answered."""

    def update_config(self, **_config: Any) -> None:
        """There is nothing to configure."""

    def get_config(self) -> dict[str, Any]:
        return {}

    def structured_output(self, *_arguments: Any, **_more: Any) -> Any:
        raise NotImplementedError

    async def stream(self, messages: Any, *_arguments: Any, **_more: Any) -> Any:
        last = messages[-1]["content"]
        asked = [part["text"] for part in last if "text" in part]
        yield {"messageStart": {"role": "assistant"}}
        for number, name in enumerate(asked[0].split(), 1) if asked else ():
            yield {"contentBlockStart": {"start": {"toolUse": {"name": name, "toolUseId": f"call-{number}"}}}}
            yield {"contentBlockDelta": {"delta": {"toolUse": {"input": json.dumps({"order": 42})}}}}
            yield {"contentBlockStop": {}}
        if not asked:
            said = ", ".join(part["toolResult"]["content"][0]["text"] for part in last)
            yield {"contentBlockStart": {"start": {}}}
            yield {"contentBlockDelta": {"delta": {"text": said}}}
            yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": "tool_use" if asked else "end_turn"}}


class Ask(HookProvider):  # type: ignore[misc]  # as above
    """Asks before one of the tools runs."""

    def register_hooks(self, registry: Any, **_more: Any) -> None:
        registry.add_callback(BeforeToolCallEvent, self.ask)

    def ask(self, event: Any) -> None:
        if event.tool_use["name"] == "hooked" and event.interrupt("approve") != "yes":
            event.cancel_tool = "denied"


class Bench:
    """Agents on one store, and what their tools did."""

    def __init__(self, store: Any, keeper: str, order: str) -> None:
        self.store, self.keeper, self.order = store, keeper, order
        self.ran: list[str] = []
        self.crashes = False
        self.dies_in = 0

    def agent(self, *, managed: bool = True, **more: Any) -> Any:
        """An agent as a new process makes it; one that is not managed keeps its messages in memory."""

        @tool(context=True)
        def asking(order: int, tool_context: ToolContext) -> str:
            """Pay, if a person approves it."""
            return self.pay("asking", order) if tool_context.interrupt("approve") == "yes" else "denied"

        @tool
        def hooked(order: int) -> str:
            """Pay, if the hook lets it."""
            return self.pay("hooked", order)

        @tool
        def plain(order: int) -> str:
            """Pay."""
            return self.pay("plain", order)

        kept: Any
        if self.keeper == "repository":
            kept = OnrecordRepository(self.store)
            manager = RepositorySessionManager(session_id="s", session_repository=kept)
        else:
            kept = OnrecordStorage(self.store)
            manager = SnapshotSessionManager("s", storage=kept, save_latest_on="message")
        hooks = [OnrecordHooks(kept, "s"), Ask()]
        return Agent(
            model=Caller(), tools=[asking, hooked, plain], callback_handler=None,
            session_manager=manager if managed else None, hooks=hooks if self.order == "ours first" else hooks[::-1], **more,
        )  # fmt: skip

    def pay(self, name: str, order: int) -> str:
        self.ran.append(name)
        if self.crashes or len(self.ran) == self.dies_in:
            raise Crash
        return f"{name} paid {order}"


def answer(result: Any, said: str = "yes") -> Any:
    return [{"interruptResponse": {"interruptId": one.id, "response": said}} for one in result.interrupts]


@pytest.fixture(params=["repository", "snapshots"])
def keeper(request):
    return request.param


@pytest.fixture(params=["ours first", "ours last"])
def bench(tmp_path, keeper, request):
    with onrecord.connect(str(tmp_path / "x.db"), project="p") as store:
        yield Bench(store, keeper, request.param)


@pytest.mark.parametrize("process", ["the same", "the next"])
@pytest.mark.parametrize("name", ["asking", "hooked"])
def test_a_tool_that_was_approved_runs_once_and_is_on_record(bench, name, process):
    """Asked by the tool or by another hook, in any order of hooks, by this process or the next: it runs."""
    agent = bench.agent()
    asked = agent(name)
    assert asked.stop_reason == "interrupt"
    assert bench.ran == []
    assert bench.store.get("s").effects.unknown() == {}
    again = agent if process == "the same" else bench.agent()
    assert str(again(answer(asked))).strip() == f"{name} paid 42"
    assert bench.ran == [name]
    finished = [one.data for one in bench.store.get("s").events() if one.kind == "effect.finished"]
    assert finished[-1]["ok"]
    assert finished[-1]["result"]["content"] == [{"text": f"{name} paid 42"}]
    waited = [one["error"] for one in finished[:-1]]
    assert waited in ([], ["interrupted: it waits for an answer, and runs again when it has one"])


@pytest.mark.parametrize("name", ["asking", "hooked"])
def test_a_tool_that_was_denied_leaves_nothing_unknown(bench, name):
    """The model reads that it was denied; no effect has an unknown outcome."""
    agent = bench.agent()
    assert str(agent(answer(agent(name), "no"))).strip() == "denied"
    assert bench.ran == []
    assert bench.store.get("s").effects.unknown() == {}


@pytest.mark.parametrize("name", ["asking", "hooked"])
def test_a_tool_that_was_approved_and_crashed_does_not_run_again(bench, name):
    """The answer is given again after the crash: the outcome is unknown, and the tool does not run."""
    agent = bench.agent(tool_executor=SequentialToolExecutor())  # the other one swallows a crash
    asked = agent(name)
    bench.crashes = True
    with pytest.raises(Crash):
        agent(answer(asked))
    bench.crashes = False
    assert "started, outcome unknown" in str(bench.agent()(answer(asked)))
    assert bench.ran == [name]
    assert list(bench.store.get("s").views.effects.unfinished) == [KEYS[bench.keeper]]


def test_other_calls_of_the_turn_run_once(bench):
    """One call waits, another one does not: the other one ran when the answer comes, and does not run again."""
    agent = bench.agent()
    asked = agent("asking plain hooked")
    assert bench.ran == ["plain"]
    said = str(bench.agent()(answer(asked)))
    assert {one.strip() for one in said.split(",")} == {"asking paid 42", "plain paid 42", "hooked paid 42"}
    assert sorted(bench.ran) == ["asking", "hooked", "plain"]
    assert bench.store.get("s").effects.unknown() == {}


def test_a_tool_that_was_cut_off_beside_one_that_waits_does_not_run_again(bench):
    """Of two calls of a turn one asks and the other ends without a result: the other's outcome stays unknown."""
    bench.crashes = True
    asked = bench.agent()("asking plain")
    assert asked.stop_reason == "interrupt"
    bench.crashes = False
    assert "started, outcome unknown" in str(bench.agent()(answer(asked)))
    assert bench.ran == ["plain", "asking"]


@pytest.mark.parametrize("prompts", [1, 2])
def test_the_model_reads_what_is_on_record_of_the_calls_of_a_killed_run(bench, prompts):
    """Not that they were interrupted, which it would take for not done: the result of one, and that one is unknown."""
    bench.dies_in = 2
    with pytest.raises(Crash):
        bench.agent(tool_executor=SequentialToolExecutor())("plain plain")
    for _number in range(prompts):
        agent = bench.agent()
        agent("plain")
    first, second = (block["toolResult"] for block in agent.messages[2]["content"])
    assert (first["status"], first["content"]) == ("success", [{"text": "plain paid 42"}])
    assert second["status"] == "error"
    assert second["content"][0]["text"].startswith("started, outcome unknown")
    said = [str(one["content"]) for one in bench.store.get("s").messages("neutral") if one["role"] == "tool"]
    assert "plain paid 42" in said[0]
    assert "outcome unknown" in said[1]


def test_the_hooks_never_block_the_event_loop(tmp_path, keeper):
    """Both ends of a call, and that it waits for a person, are recorded on a thread. Strands' own manager is not."""
    with onrecord.connect(str(tmp_path / "x.db"), project="p") as store:
        bench = Bench(store, keeper, "ours first")
        agent = bench.agent(managed=False)
        with never_blocked(store):
            asked = asyncio.run(agent.invoke_async("plain asking"))
            done = asyncio.run(agent.invoke_async(answer(asked)))
        assert "asking paid 42" in str(done)
        assert bench.ran == ["plain", "asking"]
        assert list(store.get("s").effects.unknown()) == []
