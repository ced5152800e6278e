"""How many bytes a thread of LangGraph takes: they grow with what is said, and are not much more than that."""

import random
from copy import deepcopy
from itertools import pairwise
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph

import onrecord
from bench import workload
from bench.frameworks import size_of
from onrecord.frameworks.langgraph import OnrecordSaver
from tests.frameworks.test_langgraph import at, talk


@pytest.fixture
def store(tmp_path):
    with onrecord.connect(str(tmp_path / "x.db"), project="p") as found:
        yield found


class Calls(InMemorySaver):
    """Notes what a graph asks its saver to keep."""

    def __init__(self) -> None:
        super().__init__()
        self.checkpoints_asked: list[tuple[Any, ...]] = []
        self.writes_asked: list[tuple[Any, ...]] = []

    def put(self, *asked: Any) -> Any:
        self.checkpoints_asked.append(deepcopy(asked))
        return super().put(*asked)

    def put_writes(self, *asked: Any) -> None:
        self.writes_asked.append(deepcopy(asked))
        super().put_writes(*asked)


def replay(calls: Calls, saver: OnrecordSaver) -> None:
    """The same calls in one thread: each checkpoint, then the writes that follow it."""
    for put in sorted(calls.checkpoints_asked, key=lambda asked: asked[1]["id"]):
        saver.put(*put)
        after = [asked for asked in calls.writes_asked if asked[0]["configurable"]["checkpoint_id"] == put[1]["id"]]
        for asked in sorted(after, key=lambda asked: asked[2:]):
            saver.put_writes(*asked)


def test_bytes_grow_with_what_is_said(store):
    """The second twenty turns take as many bytes as the first: O(n), not O(n²).

    LangGraph saves writes and checkpoints on threads of their own, and bytes depend on which is first. So its calls are
    noted here, and made again in one order.
    """
    sizes = []
    for turns in (20, 40):
        calls = Calls()
        graph = talk(calls)
        for number in range(turns):
            graph.invoke({"messages": [HumanMessage(f"turn {number} " + "word " * 40)]}, at())
        for asked in (*calls.checkpoints_asked, *calls.writes_asked):
            asked[0]["configurable"]["thread_id"] = str(turns)
        replay(calls, OnrecordSaver(store))
        sizes.append(sum(len(str(event.data)) for event in store.get(str(turns)).events()))
    first, both = sizes
    assert both - first < 1.15 * first


def test_a_thread_takes_at_most_half_again_as_many_bytes_as_its_text(tmp_path, count):
    """Turns of 2 KB of `bench/workload`'s words: 1.5 bytes of file for each byte, the empty store included; linear.

    Which text it is matters, and `docs/frameworks.md` says how much: other texts compress less.
    """
    source, parts, said = random.Random(4), 4, 0
    sizes = []
    for _part in range(parts):
        with onrecord.connect(str(tmp_path / "x.db"), project="p") as store:
            answer = ""
            builder = StateGraph(MessagesState)
            builder.add_node("model", lambda _state: {"messages": [AIMessage(answer)]})  # noqa: B023  # of this turn
            builder.add_edge(START, "model")
            graph = builder.compile(checkpointer=OnrecordSaver(store))
            for _turn in range(count(200, 400) // parts):
                asked, answer = workload.text(source, 1_000), workload.text(source, 1_000)
                graph.invoke({"messages": [HumanMessage(asked)]}, at())
                said += len(asked) + len(answer)
        sizes.append(size_of(tmp_path))
    assert sizes[-1] < 1.5 * said
    grown = [after - before for before, after in pairwise(sizes)]
    # Linear: what a save of the whole state takes would grow 1, 3, 5 times. Whether the writes of a task share an event
    # with a checkpoint depends on the moment, so parts differ by a fifth on a busy machine.
    assert max(grown) < 1.5 * min(grown)
