"""LangGraph's long-term memory on our log."""

import asyncio
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import partial
from typing import Any

import pytest
from langgraph.errors import InvalidUpdateError
from langgraph.store.base import GetOp, PutOp

import onrecord
from onrecord.frameworks.langgraph_store import OnrecordStore
from tests.frameworks.refusing import check_refused
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


DAY = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ({"$gt": "2026-02"}, ["text"]),
        ({"$lte": "2026-03-01"}, ["text"]),
        ({"$gt": "b"}, []),
        ({"$gt": 4}, ["decimal", "int"]),
        ({"$gte": 5, "$lt": 5.25}, ["int"]),
        ({"$gt": "4"}, []),
        ({"$lt": float("inf")}, ["decimal", "int"]),
        ({"$gt": float("nan")}, []),
        ({"$gt": DAY - timedelta(1)}, ["datetime"]),
        ({"$gt": DAY.replace(tzinfo=None)}, []),
        ({"$gte": date(2026, 3, 1)}, ["date"]),
        ({"$eq": DAY}, ["datetime"]),
        (DAY, ["datetime"]),
        ({"$ne": "2026-03-01"}, ["date", "datetime", "decimal", "int", "list", "none", "without"]),
    ],
)
def test_a_filter_compares_what_is_of_one_kind(wanted, found):
    """Texts with texts, numbers with numbers, times with times; a value of another kind is not found, and no error."""
    values = {
        "text": "2026-03-01", "int": 5, "decimal": Decimal("5.5"), "datetime": DAY, "date": DAY.date(), "list": [5],
        "none": None,
    }  # fmt: skip
    with onrecord.connect("memory:") as store:
        memory = OnrecordStore(store)
        for name, value in values.items():
            memory.put(("n",), name, {"v": value})
        memory.put(("n",), "without", {"other": 5})
        assert sorted(one.key for one in memory.search(("n",), filter={"v": wanted})) == found


@pytest.mark.parametrize("name", ["$gt", "$gte", "$lt", "$lte"])
@pytest.mark.parametrize("operand", [[1], {"a": 1}, None, (1,)])
def test_a_filter_that_compares_with_what_has_no_order_is_refused(name, operand):
    """A list, a dict or None is LangGraph's error, also if no value is there, and inside of nested fields."""
    with onrecord.connect("memory:") as store:
        memory = OnrecordStore(store)
        for wanted in ({"v": {name: operand}}, {"v": {"w": {name: operand}}}):
            with pytest.raises(
                InvalidUpdateError, match=rf"cannot compare by \{name} with .*a number, a text or a time"
            ):
                memory.search((), filter=wanted)


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


@pytest.mark.parametrize("act", [lambda memory: memory.get(("n",), "k"), lambda memory: memory.sweep_ttl()])
def test_who_reads_or_sweeps_does_not_undo_the_put_of_another(store, act):
    """A value that is put again after it was read, and before that is on record, stays."""
    memory, other = (OnrecordStore(store, ttl={"refresh_on_read": True}) for _ in range(2))
    expired = act(memory) == 0  # the sweep, which has nothing to do yet
    memory.put(("n",), "k", {"v": "old"}, ttl=1e-6 if expired else 60)
    write = memory._memory.write

    def late(make):
        other.put(("n",), "k", {"v": "new"}, ttl=60)
        return write(make)

    memory._memory.write = late  # type: ignore[method-assign]  # another process is quicker
    assert act(memory) != 1
    assert other.get(("n",), "k").value == {"v": "new"}  # type: ignore[union-attr]  # it is there


def test_what_could_not_be_read_again_is_refused(store):
    """A key, namespace or time of a wrong type is LangGraph's error, and the memory can be used as before."""
    memory: Any = OnrecordStore(store)
    memory.put(("n",), "k", {"v": 1}, ttl=60)
    before = store.get("langgraph-store").head.position
    keys: list[Any] = [("a", 1), (), None, ["a"], {}]
    calls = [
        *(partial(memory.batch, [PutOp(("n",), bad, {"v": 1})]) for bad in keys),
        *(partial(memory.batch, [GetOp(("n",), bad)]) for bad in keys),
        *(partial(memory.put, bad, "k", {"v": 1}) for bad in ("n", ["n"])),
        *(partial(memory.get, bad, "k") for bad in ("n", ["n"])),
        *(partial(memory.put, ("n",), "k", {"v": 1}, ttl=bad) for bad in ("x", [1], {"a": 1}, float("nan"))),
        partial(memory.batch, [PutOp(("n",), "new", {"v": 1}), PutOp(("n",), keys[0], {"v": 1})]),
    ]
    asyncio.run(check_refused(InvalidUpdateError, "invalid_input", *calls))
    with pytest.raises(ValueError, match=r"TTLConfig, a dict, not int \[invalid_input\]"):
        OnrecordStore(store, ttl=5)  # type: ignore[arg-type]  # that is the point
    assert store.get("langgraph-store").head.position == before
    assert [one.key for one in OnrecordStore(store).search(())] == ["k"]


def test_a_memory_that_kept_a_wrong_key_or_time_is_readable(store):
    """Values that were kept before keys and times were checked do not hide the others."""
    memory = OnrecordStore(store)
    memory.put(("n",), "k", {"v": 1})
    log = store.get("langgraph-store").log
    fact = {"vendor": "langgraph-store", "value": {"v": 2}}
    log.record("scratch.set", fact | {"key": '["n", ["a", 1]]'})
    log.record("scratch.set", fact | {"key": '["n", "l"]', "ttl": "x"})
    assert [(one.key, one.value) for one in memory.search(())] == [("k", {"v": 1}), ("l", {"v": 2})]
    memory.put(("n",), "m", {"v": 3})
    assert memory.sweep_ttl() == 0
