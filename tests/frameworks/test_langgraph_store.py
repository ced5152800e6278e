"""LangGraph's long-term memory on our log."""

import asyncio

import pytest
from langgraph.errors import InvalidUpdateError
from langgraph.store.base import PutOp

import onrecord
from onrecord.frameworks.langgraph_store import OnrecordStore
from tests.stores import url_of


@pytest.fixture(params=["sqlite", "postgres"])
def store(request, tmp_path):
    with onrecord.connect(url_of(request.param, request, tmp_path), project="p") as found:
        yield found


def test_the_long_term_memory_is_a_fold_of_facts(store):
    """Values, namespaces, filters and batches; another store reads them; an overwritten value keeps its creation."""
    memory = OnrecordStore(store)
    memory.put(("users", "ada"), "food", {"likes": "pizza", "n": 1})
    memory.batch([
        PutOp(("users", "ada"), "city", {"name": "Bergen", "at": {"lat": 60}}),
        PutOp(("users", "bob"), "food", {"likes": "soup and bread", "n": 3}),
    ])  # fmt: skip
    first = memory.get(("users", "ada"), "food")
    memory.put(("users", "ada"), "food", {"likes": "salad", "n": 2})
    again = OnrecordStore(store)
    found = again.get(("users", "ada"), "food")
    assert first is not None
    assert found is not None
    assert found.value == {"likes": "salad", "n": 2}
    assert found.created_at == first.created_at < found.updated_at
    assert [one.key for one in again.search(("users",), filter={"n": {"$gte": 2}})] == ["food", "food"]
    assert [one.key for one in again.search(("users",), filter={"at.lat": 60})] == ["city"]
    best = again.search(("users",), query="who likes bread?")[0]
    assert (best.namespace, best.score) == (("users", "bob"), 2 / 3)
    assert again.list_namespaces(prefix=("users", "*")) == [("users", "ada"), ("users", "bob")]
    again.delete(("users", "bob"), "food")
    assert asyncio.run(memory.aget(("users", "bob"), "food")) is None
    facts = [event for event in store.get("langgraph-store").events() if event.kind == "scratch.set"]
    assert len(facts) == 5
    with pytest.raises(InvalidUpdateError, match=r"a filter cannot use '\$in'.*\$eq"):
        memory.search(("users",), filter={"n": {"$in": [1]}})


def test_values_of_the_memory_expire(store):
    """A value with a time to live is gone when it is over, and `sweep_ttl` retracts it; a read prolongs it if asked."""
    memory = OnrecordStore(store, ttl={"refresh_on_read": True})
    memory.put(("n",), "short", {"v": 1}, ttl=1e-6)
    memory.put(("n",), "long", {"v": 2}, ttl=60)
    before = memory._memory.facts[("n",), "long"].expires
    assert memory.get(("n",), "short") is None
    assert memory.get(("n",), "long") is not None
    after = memory._memory.facts[("n",), "long"].expires
    assert before is not None
    assert after is not None
    assert after > before
    assert memory.sweep_ttl() == 1
    assert memory.sweep_ttl() == 0
    assert memory.list_namespaces() == [("n",)]
