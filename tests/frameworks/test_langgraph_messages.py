"""Messages in a state of LangGraph: every field of one is kept, whatever its name, and every change of one."""

import pytest
from langchain_core.messages import HumanMessage

import onrecord
from onrecord.frameworks.langgraph import OnrecordSaver
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
