"""What LangGraph deletes: gone for every reader, and what is said again is there again."""

from typing import Any

import pytest
from langchain_core.messages import HumanMessage

import onrecord
from onrecord.frameworks.langgraph import OnrecordSaver
from tests.frameworks.test_langgraph import at, talk


@pytest.fixture
def store(tmp_path):
    with onrecord.connect(str(tmp_path / "x.db"), project="p") as found:
        yield found


def test_what_only_a_deleted_run_said_leaves_the_transcript(store):
    """Messages that a later run has in its state stay; one that is said again with the same id is there again."""

    def run(name: str, text: str) -> None:
        message = HumanMessage(text, id=f"id of {text}")
        talk(OnrecordSaver(store)).invoke({"messages": [message]}, {**at(), "metadata": {"run_id": name}})

    def transcript() -> list[Any]:
        return [item["content"] for item in store.get("t").transcript().items]

    run("r1", "one")
    run("r2", "two")
    run("r3", "three")
    OnrecordSaver(store).delete_for_runs(["r1", "r3"])
    assert transcript() == ["one", "answer 1", "two", "answer 3"]
    run("r3", "three")
    assert transcript() == ["one", "answer 1", "two", "answer 3", "three", "answer 5"]
    saver = OnrecordSaver(store)
    found = [message.content for message in talk(saver).get_state(at()).values["messages"]]
    assert found == transcript()
    saver.delete_for_runs(["r2", "r3"])
    assert transcript() == []
    saver.delete_thread("t")
    run("r1", "one")
    assert transcript() == ["one", "answer 1"]


def test_a_deleted_copy_is_gone_for_every_reader(store):
    """What a copy inherited leaves its transcript with the rest, as it leaves that of a thread; the original has it."""
    graph = talk(saver := OnrecordSaver(store))
    graph.invoke({"messages": [HumanMessage("one")]}, at())
    saver.copy_thread("t", "copy")
    graph.invoke({"messages": [HumanMessage("two")]}, at("copy"))
    saver.delete_thread("copy")
    assert graph.get_state(at("copy")).values == {}
    assert store.get("copy").transcript().items == []
    assert [item["content"] for item in store.get("t").transcript().items] == ["one", "answer 1"]
