"""Messages in a state of LangGraph: every field of one is kept, whatever its name, and every change of one."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.graph import START, MessagesState, StateGraph

import onrecord
from onrecord.frameworks.langgraph import OnrecordSaver
from onrecord.frameworks.langgraph_exact import is_same
from onrecord.frameworks.langgraph_values import Pool, Values
from tests.frameworks.test_langgraph import at, talk


@pytest.fixture
def store():
    with onrecord.connect("memory:") as found:
        yield found


@pytest.mark.parametrize(
    "extra",
    [
        {"message": "from a form"}, {"message": ["human", {}], "note": 1}, {"@": "text", "v": 0, "message": None},
        {"@": "x"}, {"note": {"@": 1}, "v": 2}, {"message": {1: (2,)}},
    ],
)  # fmt: skip
def test_an_extra_field_may_have_any_name(store, extra):
    """Also the names that the record uses itself: the thread is read and continued, and all fields are there."""
    talk(OnrecordSaver(store)).invoke({"messages": [HumanMessage("hi", id="1", **extra)]}, at())
    graph = talk(OnrecordSaver(store))
    assert graph.get_state(at()).values["messages"][0] == HumanMessage("hi", id="1", **extra)
    assert len(graph.invoke({"messages": [HumanMessage("next")]}, at())["messages"]) == 4
    assert [item["content"] for item in store.get("t").transcript().items] == ["hi", "answer 1", "next", "answer 3"]
    values = Values()
    assert values.decode(values.encode(HumanMessage("hi", id="1", **extra), None), Pool()).model_extra == extra


def test_an_extra_field_in_a_record_of_an_earlier_version():
    """It is one of the fields of the body."""
    body = '{"message":"human","content":"hi","note":{"@":"tuple","v":[1]}}'
    assert Values().message(body, "1") == HumanMessage("hi", id="1", note=(1,))


class Kind(Enum):
    """An enum whose member equals nothing else."""

    ONE = 1


@dataclass
class Point:
    """A class whose objects may be equal and differ on record."""

    x: Any


def changing(change: Callable[[Any], None], saver: OnrecordSaver) -> Any:
    """A graph that changes the last message of its state in place."""

    def step(state: MessagesState) -> Any:
        change(state["messages"][-1])
        return {"messages": [state["messages"][-1]]}

    builder = StateGraph(MessagesState)
    builder.add_node("step", step)
    builder.add_edge(START, "step")
    return builder.compile(checkpointer=saver)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (1, 2), (True, 2), (1.0, 1.5), ([1], [1, 2]), ({"a": {"b": 1}}, {"a": {"b": 2}}), ((1,), (2,)), ({1: "x"}, {1: "y"}),
        ({1}, {2}), (Decimal("1.0"), Decimal("1.1")), (Point(1), Point(2)), (1, "x"), (b"a", bytearray(b"b")),
    ],
)  # fmt: skip
@pytest.mark.parametrize("where", ["additional_kwargs", "extra"])
@pytest.mark.parametrize("is_read", [False, True])
def test_a_change_in_place_is_kept(store, before, after, where, is_read):
    """A message that a node changes instead of replacing it: in a field or an extra one, in the same run or after it was read."""

    def of(message: Any) -> Any:
        return message.additional_kwargs["n"] if where == "additional_kwargs" else message.n

    def change(message: Any) -> None:
        if where == "additional_kwargs":
            message.additional_kwargs["n"] = after
        else:
            message.n = after

    def saver() -> OnrecordSaver:
        return OnrecordSaver(store, types=[Point])

    said: dict[str, Any] = {"additional_kwargs": {"n": before}} if where == "additional_kwargs" else {"n": before}
    message = AIMessage("said", id="1", **said)
    if is_read:
        here = saver()
        changing(lambda _message: None, here).invoke({"messages": [message]}, at())
        for _ in range(2):  # what a thread reads a second time need not be encoded again
            changing(lambda _message: None, here).get_state(at())
        changing(change, here).invoke({"messages": []}, at())
    else:
        changing(change, saver()).invoke({"messages": [message]}, at())
    found = of(changing(change, saver()).get_state(at()).values["messages"][0])
    assert repr(found) == repr(after)


def test_an_extra_field_that_is_added_in_place_is_kept(store):
    """A message that had none when it was read or put has it from then on."""
    here = OnrecordSaver(store)
    talk(here).invoke({"messages": [HumanMessage("hi")]}, at())
    changing(lambda message: setattr(message, "note", "x"), here).invoke({"messages": []}, at())
    assert talk(OnrecordSaver(store)).get_state(at()).values["messages"][-1].model_extra == {"note": "x"}


def test_metadata_that_becomes_an_equal_value_is_kept(store):
    """Each checkpoint has what its own run said: 1, then True."""
    graph = talk(OnrecordSaver(store))
    for flag in (1, True):
        graph.invoke({"messages": [HumanMessage("hi")]}, {**at(), "metadata": {"flag": flag}})
    found = {repr((one.metadata or {}).get("flag")) for one in talk(OnrecordSaver(store)).get_state_history(at())}
    assert found == {"1", "True"}


def test_what_is_the_same_on_record():
    """Of each class of values: equal ones of another class, or that look different, are not the same."""
    noon = datetime(2024, 1, 1, 12, tzinfo=UTC)
    values = [
        1, True, 1.0, "1", b"1", None, Decimal(1), Decimal("1.0"), 0.0, -0.0, noon, noon.astimezone(timezone(timedelta(hours=1))),
        Kind.ONE, (1,), [1], [True], {"a": 1}, {"a": 1.0}, {1: 2}, {True: 2}, {"a": 1, "b": 2}, Point(1), Point(1.0), [Kind.ONE],
        HumanMessage("x", n=1), HumanMessage("x", n=True),
    ]  # fmt: skip
    for number, one in enumerate(values):
        for at_, other in enumerate(values):
            assert is_same(one, other) is (number == at_)
    assert not is_same({1}, {1})
