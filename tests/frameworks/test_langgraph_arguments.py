"""LangGraph's checkpointer, called by programs that are no graph, and by graphs after a failure."""

import asyncio
from functools import partial
from typing import Any

import pytest
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.errors import InvalidUpdateError

import onrecord
from onrecord.frameworks.langgraph import OnrecordSaver
from tests.frameworks.refusing import check_refused
from tests.frameworks.test_langgraph import at, talk


@pytest.fixture
def store(tmp_path):
    with onrecord.connect(str(tmp_path / "x.db"), project="p") as found:
        yield found


def test_a_run_does_not_fail_with_the_error_of_the_one_before(store):
    """A closed session is opened as the hint says: writes that arrive before their checkpoint are kept, as ever."""
    saver = OnrecordSaver(store)
    graph = talk(saver)
    graph.invoke({"messages": [HumanMessage("one")]}, at())
    store.get("t").close()
    with pytest.raises(InvalidUpdateError, match=r"session_closed"):
        graph.invoke({"messages": [HumanMessage("two")]}, at())
    store.get("t").resume(reopen=True)
    known = saver.get_tuple(at())
    assert known is not None
    early: Any = {"configurable": known.config["configurable"] | {"checkpoint_id": "next", "__pregel_runtime": 1}}
    saver.put_writes(early, [("messages", [])], "task")
    for number in range(5):
        graph.invoke({"messages": [HumanMessage(f"again {number}")]}, at())


@pytest.mark.parametrize("thread", ["t", "empty"])
def test_a_run_from_an_unknown_checkpoint_is_refused_as_that(store, thread):
    """The error names the checkpoint and how to list those that there are; nothing is kept, and reading is empty."""
    saver = OnrecordSaver(store)
    graph = talk(saver)
    graph.invoke({"messages": [HumanMessage("one")]}, at())
    unknown: Any = {"configurable": {"thread_id": thread, "checkpoint_id": "nope"}}
    before = store.get("t").head.position
    words = rf"thread '{thread}' has no checkpoint 'nope' \[invalid_input\].*get_state_history\(config\)` lists them"
    with pytest.raises(InvalidUpdateError, match=words):
        graph.invoke({"messages": [HumanMessage("two")]}, unknown)
    with pytest.raises(InvalidUpdateError, match=words):
        asyncio.run(graph.ainvoke({"messages": [HumanMessage("two")]}, unknown))
    assert graph.get_state(unknown).values == {}
    assert store.get("t").head.position == before
    assert store.named("empty") is None
    graph.invoke({"messages": [HumanMessage("two")]}, at())


def test_what_is_no_checkpoint_and_no_write_is_refused_and_the_thread_stays_readable(store):
    """Names that are no text, parts that are no dict, one id in place of a list: LangGraph's error, nothing is kept."""
    saver = OnrecordSaver(store)
    wrong: Any = saver
    talk(saver).invoke({"messages": [HumanMessage("one")]}, at())
    known = saver.get_tuple(at())
    assert known is not None
    before, config, whole = store.get("t").head.position, known.config, known.checkpoint
    names: list[Any] = [("a",), [], 5]
    pairs: list[Any] = [None, 5, [5], "ab", [("c",)], [(("c",), 1)]]
    calls: list[Any] = [
        *(partial(wrong.put, at(checkpoint_ns=bad), whole, {}, {}) for bad in names),
        *(partial(wrong.put, config, whole | {"channel_values": bad}, {}, {}) for bad in (5, "x", [1])),
        *(partial(wrong.put, config, whole, bad, {}) for bad in (None, 5, "x")),
        partial(wrong.put, config, whole, {}, 5),
        *(partial(wrong.put_writes, config, bad, "task") for bad in pairs),
        *(partial(wrong.put_writes, config, [("c", 1)], bad) for bad in names),
        *(partial(wrong.list, {"configurable": bad}) for bad in (None, "t")),
        *(partial(wrong.list, at(), **bad) for bad in ({"filter": 5}, {"limit": "x"})),
        *(partial(call, bad) for call in (wrong.prune, wrong.delete_for_runs) for bad in ("t", None, 5)),
    ]
    asyncio.run(check_refused(InvalidUpdateError, "invalid_input", *calls))
    with pytest.raises(InvalidUpdateError, match=r"not str \[invalid_input\]; pass \['t'\]"):
        saver.prune("t", strategy="delete")
    assert store.get("t").head.position == before
    for one in (saver, OnrecordSaver(store)):
        assert next(found.checkpoint["id"] for found in one.list(at())) == whole["id"]


def test_a_bad_config_is_the_same_error_when_the_call_is_awaited(store):
    """What `get_tuple`, `put` and `put_writes` refuse, their awaited forms refuse as LangGraph's error, too."""
    wrong: Any = OnrecordSaver(store)
    bad: list[Any] = [at(checkpoint_ns=5), {"configurable": {}}, None]
    calls: list[Any] = [
        *(partial(wrong.aget_tuple, one) for one in bad),
        *(partial(wrong.aget, one) for one in bad),
        *(partial(wrong.aput, one, empty_checkpoint(), {}, {}) for one in bad),
        *(partial(wrong.aput_writes, one, [], "task") for one in bad),
    ]
    asyncio.run(check_refused(InvalidUpdateError, "invalid_input", *calls))
