"""Values of named classes in a state of LangGraph: what was put is there again, also if its class would refuse it now."""

from collections import Counter, OrderedDict, defaultdict, deque
from dataclasses import InitVar, dataclass, field
from enum import Enum
from functools import cached_property
from pathlib import Path, PurePosixPath, PureWindowsPath
from threading import Lock
from typing import Any, NamedTuple, TypedDict

import pytest
from langgraph.errors import InvalidUpdateError
from langgraph.graph import START, StateGraph
from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, RootModel, SecretStr, create_model

import onrecord
from onrecord.errors import InvalidInput
from onrecord.frameworks.langgraph import OnrecordSaver
from onrecord.frameworks.langgraph_values import Pool, Values
from tests.frameworks.test_langgraph import at


def kept(value: Any, *types: type, again: tuple[type, ...] | None = None) -> Any:
    """The value as another saver finds it in the state of a graph."""

    class State(TypedDict):
        v: Any

    store = onrecord.connect("memory:")
    builder = StateGraph(State)
    builder.add_node("n", lambda _state: {"v": value})
    builder.add_edge(START, "n")
    builder.compile(checkpointer=OnrecordSaver(store, types=types)).invoke({"v": 0}, at())
    graph = builder.compile(checkpointer=OnrecordSaver(store, types=types if again is None else again))
    return graph.get_state(at()).values["v"]


class Alias(BaseModel):
    order_id: int = Field(alias="orderId")


class Positive(BaseModel):
    n: int = Field(gt=0)


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")
    a: int = 1


class Root(RootModel[dict[str, Any]]):
    pass


class RootNoted(RootModel[list[int]]):
    _seen: int = PrivateAttr(default=5)

    def model_post_init(self, context: Any, /) -> None:
        self.root.append(0)


class Noted(BaseModel):
    items: list[int]
    _seen: int = PrivateAttr(default=0)

    def model_post_init(self, context: Any, /) -> None:
        self.items.append(0)
        self._seen = len(self.items)

    @cached_property
    def total(self) -> object:
        return object()


def test_a_model_comes_back_as_it_was():
    """Aliases, values that its checks refuse, extras, a root, and which fields were set; what it caches is not kept."""
    changed = Positive(n=1)
    changed.n = -1
    partly = Positive.model_construct(_fields_set=set(), n=3)
    for value in (
        Alias(orderId=3), changed, Positive.model_construct(n="x"), partly, Open(a=2, **{"note": "keep", "@": [1]}),
        Root({"a": 1}), Positive.model_construct(),
    ):  # fmt: skip
        found = kept(value, type(value))
        assert found == value
        assert found.model_fields_set == value.model_fields_set
        assert found.model_extra == value.model_extra
    noted = Noted(items=[1])
    assert noted.total is noted.total
    found = kept(noted, Noted)
    assert (found.items, found._seen) == ([1, 0], 3)
    assert "total" not in vars(found)
    found = kept(RootNoted([1]), RootNoted)
    assert found == RootNoted([1])
    assert found._seen == 5


def test_a_class_that_got_a_field_has_the_fields_it_had():
    """A field without a default is unset, one with a default has it; a field that was removed is left out."""
    old_model, new_model = create_model("Order", id=int, gone=int), create_model("Order", id=int, total=float)
    found: Any = kept(old_model(id=1, gone=2), old_model, again=(new_model,))
    assert type(found) is new_model
    assert found.model_dump() == {"id": 1}
    with_default: Any = create_model("Order", id=int, lines=(list[int], Field(default_factory=list)))
    assert kept(found, new_model, again=(with_default,)) == with_default(id=1)

    @dataclass
    class Order:
        id: int

    old = Order

    @dataclass
    class Order:  # type: ignore[no-redef]  # that is the point
        id: int
        total: float
        lines: list[int] = field(default_factory=list)

    found = kept(old(1), old, again=(Order,))
    assert type(found) is Order
    assert vars(found) == {"id": 1, "lines": []}
    assert vars(kept(found, Order)) == {"id": 1, "lines": []}

    class Pair(NamedTuple):
        x: int

    short = Pair

    class Pair(NamedTuple):  # type: ignore[no-redef]  # as above
        x: int
        y: int

    with pytest.raises(InvalidUpdateError, match=r"a Pair that was written before its class had y .*a default"):
        kept(short(1), short, again=(Pair,))


def test_a_member_that_an_enum_lost_is_one_sentence():
    """The record is not called damaged: the error says which value, and what to do."""
    make: Any = Enum
    old, new = make("Color", {"RED": "r", "BLUE": "b"}), make("Color", {"BLUE": "b"})
    assert kept(old["BLUE"], old, again=(new,)) is new["BLUE"]
    with pytest.raises(InvalidUpdateError, match="'r', which is no member of the class 'Color' any more"):
        kept(old["RED"], old, again=(new,))


@dataclass
class Grown:
    a: int
    by: InitVar[int] = 3
    count: int = field(default=0, init=False)
    lock: Any = field(default_factory=Lock, init=False, compare=False)

    def __post_init__(self, by: int) -> None:
        self.a += by
        self.name = f"grown by {by}"


def test_a_dataclass_comes_back_as_it_was():
    """Its own beginning does not change fields again; it makes what is no data, and fields that no caller gives stay."""
    value = Grown(1)
    value.count = 5
    found = kept(value, Grown)
    assert (found.a, found.count, found.name) == (4, 5, "grown by 3")
    assert found.lock.acquire(blocking=False)


def test_records_of_earlier_versions_are_read():
    """They have the fields of an object by name, without what was set and without what no caller gives."""
    values, pool = Values([Alias, Positive, Grown]), Pool()

    def old(name: str, fields: dict[str, Any]) -> Any:
        return values.decode({"@": "type", "name": name, "v": fields}, pool)

    assert old("Alias", {"order_id": 3}) == Alias(orderId=3)
    assert old("Positive", {"n": -1}).n == -1
    assert (old("Grown", {"a": 4}).a, old("Grown", {"a": 4}).count) == (4, 0)
    assert values.decode({"@": "path", "v": "/a"}, pool) == Path("/a")


def test_the_collections_of_python_come_back_as_such():
    """A `deque` with its limit, a `defaultdict` with its factory if that is a builtin; any other is refused in words that help."""
    for value in (
        defaultdict(list, a=[1]), defaultdict(None, {1: 2}), OrderedDict(b=1, a=2), Counter("aab"),
        {"inner": defaultdict(int, {"@": 1})}, deque([1], 3), deque([1]),
    ):  # fmt: skip
        found = kept(value)
        assert repr(found) == repr(value)
        assert type(found) is type(value)
    assert kept(defaultdict(list, a=[1]))["new"] == []
    with pytest.raises(
        InvalidUpdateError, match=r"whose factory is <function .* cannot be kept .* use one of list, dict"
    ):
        kept(defaultdict(lambda: 7))


def test_a_refusal_proposes_only_what_helps():
    """No hint names a class that the saver would refuse; two classes of one name are refused when it is made."""
    for value in (SecretStr("x"), range(3), 1j, int):
        with pytest.raises(InvalidUpdateError, match="cannot be kept as data") as caught:
            kept(value)
        assert "types=" not in str(caught.value)
    first, second = (create_model("Item", a=int) for _ in range(2))
    with pytest.raises(
        ValueError, match=r"two classes are named 'Item': .*Item and .*Item \[invalid_input\]; rename one"
    ):
        OnrecordSaver(onrecord.connect("memory:"), types=[first, second])
    OnrecordSaver(onrecord.connect("memory:"), types=[first, first])
    with pytest.raises(InvalidInput, match=r"the class named 'Item' is .*rename one"):
        Values([first]).encode(second(a=1), None)


def test_a_pure_path_is_not_a_path():
    """A path that no file system is asked about comes back as such."""
    for value in (PurePosixPath("/a"), PureWindowsPath("c:/a"), Path("/a")):
        assert type(kept(value)) is type(value)
        assert kept(value) == value
