"""Two runs of one thread of LangGraph in one process: what befalls one of them is no concern of the other."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.errors import InvalidUpdateError

import onrecord
from onrecord.frameworks.langgraph import OnrecordSaver
from tests.waiting import until

THREAD: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}


def checkpoint(id_: str, value: int) -> Any:
    return {**empty_checkpoint(), "id": id_, "channel_values": {"n": value}, "channel_versions": {"n": value}}


def at(config: Any, id_: str) -> Any:
    """What a graph passes when it saves in the background: the config that its run has read, and a checkpoint."""
    return {"configurable": {**config["configurable"], "checkpoint_id": id_, "__pregel_runtime": 1}}


def put(saver: OnrecordSaver, config: Any, parent: str, id_: str, value: int) -> Any:
    return saver.put(at(config, parent), checkpoint(id_, value), {"step": value}, {"n": value})


@pytest.fixture
def store(monkeypatch):
    monkeypatch.setattr("onrecord.frameworks.langgraph.PUT_SECONDS", 30.0)  # a busy machine may need more than usual
    with onrecord.connect("memory:") as found:
        yield found


def two_runs(saver: OnrecordSaver) -> tuple[Any, Any]:
    saver.put(THREAD, checkpoint("0", 0), {"step": 0}, {"n": 0})
    first, second = saver.get_tuple(THREAD), saver.get_tuple(THREAD)
    assert first is not None
    assert second is not None
    return first.config, second.config


def waits(saver: OnrecordSaver) -> bool:
    return bool(saver.thread("t")._waiters)


def test_writes_of_the_run_that_won_do_not_fail_with_the_other_one(store):
    """Writes that wait for a checkpoint of their run are kept, although another run is refused meanwhile."""
    saver = OnrecordSaver(store)
    one, other = two_runs(saver)
    put(saver, one, "0", "a1", 1)
    with ThreadPoolExecutor(1) as beside:
        saver.thread("t").riding._off = 1  # they do not ride with the checkpoint, so they wait for it
        writes = beside.submit(saver.put_writes, at(one, "a2"), [("n", 5)], "task")
        until(lambda: waits(saver))
        with pytest.raises(InvalidUpdateError, match="another run continued"):
            put(saver, other, "0", "b1", 1)
        put(saver, one, "a1", "a2", 2)
        writes.result()
    found = saver.get_tuple(THREAD)
    assert found is not None
    assert found.pending_writes == [("task", "n", 5)]


def test_writes_for_a_checkpoint_that_was_refused_are_refused(store):
    """Also after the run that won has continued; nothing of the refused run is on record."""
    saver = OnrecordSaver(store)
    one, other = two_runs(saver)
    put(saver, one, "0", "a1", 1)
    with pytest.raises(InvalidUpdateError, match="another run continued"):
        put(saver, other, "0", "b1", 9)
    put(saver, one, "a1", "a2", 2)
    saver.thread("t").riding._off = 1
    with pytest.raises(InvalidUpdateError, match="another run continued"):
        saver.put_writes(at(other, "b1"), [("n", 5)], "task")
    assert [kept.checkpoint["id"] for kept in saver.list(THREAD)] == ["a2", "a1", "0"]


def test_writes_of_a_run_that_is_moved_go_to_its_fork(store):
    """With the policy `fork`, writes that wait for a checkpoint are kept where the checkpoint is put in the end."""
    saver = OnrecordSaver(store, on_conflict="fork")
    one, other = two_runs(saver)
    put(saver, one, "0", "a1", 1)
    with ThreadPoolExecutor(1) as beside:
        saver.thread("t").riding._off = 1
        writes = beside.submit(saver.put_writes, at(other, "b1"), [("n", 5)], "task")
        until(lambda: waits(saver))
        put(saver, other, "0", "b1", 9)
        writes.result()
    (fork,) = saver.forks
    found = saver.get_tuple({"configurable": {"thread_id": fork, "checkpoint_ns": ""}})
    assert found is not None
    assert (found.checkpoint["id"], found.pending_writes) == ("b1", [("task", "n", 5)])
