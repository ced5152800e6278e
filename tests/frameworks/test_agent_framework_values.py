"""agent-framework: values of checkpoints come back equal, or are refused when they are written."""

import asyncio
import json
from collections import Counter, OrderedDict, defaultdict, deque
from dataclasses import dataclass, replace
from datetime import UTC, datetime, time, timedelta
from enum import Enum, Flag, auto
from pathlib import PurePosixPath
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import pytest
from agent_framework import (
    AgentResponse,
    AgentSession,
    ChatResponse,
    Content,
    Message,
    WorkflowCheckpoint,
    WorkflowCheckpointException,
)
from pydantic import AnyUrl, BaseModel, ConfigDict, Field, PrivateAttr, SecretStr

import onrecord
from onrecord.errors import InvalidInput
from onrecord.frameworks.agent_framework import OnrecordCheckpointStorage
from onrecord.frameworks.agent_framework_values import Codec

WHEN = datetime(2026, 1, 2, tzinfo=UTC)


class Base(BaseModel):
    a: int = 1


class Sub(Base):
    b: int = 2


class Holder(BaseModel):
    items: list[Base]


class Aliased(BaseModel):
    order_id: int = Field(alias="orderId")


class Excluding(BaseModel):
    a: int = 1
    token: str = Field(default="d", exclude=True)


class Anything(BaseModel):
    model_config = ConfigDict(extra="allow")
    value: Any = None
    _seen: list[int] = PrivateAttr(default_factory=list)


class Checked(BaseModel):
    n: int = Field(gt=0)


class Places(BaseModel):
    url: AnyUrl
    path: PurePosixPath


class Secret(BaseModel):
    word: SecretStr


class Mode(Flag):
    READ = auto()
    WRITE = auto()


class Size(NamedTuple):
    x: int
    y: Any = None


@dataclass
class Named:
    colour: str


class Kind(Named, Enum):
    RED = ("red",)


TYPES = [Base, Sub, Holder, Aliased, Excluding, Anything, Checked, Places, Secret, Mode, Size, Kind]


def returned(value: Any, types: Any = TYPES) -> Any:
    """A value, written as a line and read again by another codec."""
    pool: dict[str, str] = {}
    line = json.dumps(Codec(types).encode(value, pool))
    return Codec(types).decode(json.loads(line), pool)


def changed() -> Any:
    checked = Checked(n=1)
    checked.n = -1
    return checked


def with_private() -> Any:
    made = Anything.model_validate({"value": {"t": (1, 2)}, "other": WHEN})
    made._seen.append(7)
    return made


@pytest.mark.parametrize(
    "value",
    [
        Holder(items=[Sub(a=5, b=6), Base()]), Aliased(orderId=1), Excluding(a=1, token="mine"), changed(),
        Anything(value=WHEN), with_private(), Anything(value=b"\xff\x00"), Anything(value=Message),
        Anything(value=Sub(b=3)), Places(url=AnyUrl("https://example.com/a"), path=PurePosixPath("/x")),
        Mode.READ | Mode.WRITE, Mode.READ, Mode(0), Kind.RED, Size(1, WHEN), Counter("aab"), 1j, complex(-0.0, 2),
        defaultdict(list, {"a": [1]}), defaultdict(None, {1: 2}), defaultdict(int), OrderedDict(b=1, a=2),
        timedelta(days=999999, microseconds=1), timedelta(microseconds=-1), deque([1, 2], maxlen=2), deque([1]),
    ],
    ids=repr,
)  # fmt: skip
def test_a_value_comes_back_equal(value):
    """Of the same class, with the same fields and the same ones set, also in a list."""
    again = returned(value)
    assert type(again) is type(value)
    assert again == value
    assert repr(again) == repr(value)
    assert returned([value, {"k": (value,)}]) == [value, {"k": (value,)}]
    if isinstance(value, BaseModel):
        assert again.model_fields_set == value.model_fields_set
        assert type(again).model_validate(again) is again


def test_what_a_collection_does_comes_back():
    """A defaultdict makes values, a bounded deque is bounded, and a model that was read can be changed."""
    made = returned(defaultdict(list))
    made["x"].append(1)
    assert made == {"x": [1]}
    bounded = returned(deque([1, 2], maxlen=2))
    bounded.append(3)
    assert list(bounded) == [2, 3]
    model = returned(Anything(value=1))
    model.more = 2
    assert model.model_dump() == {"value": 1, "more": 2}


def test_a_field_of_a_class_that_was_not_named_comes_back_equal_or_is_refused():
    """Nested models are known by the field; a subclass that the field does not tell is refused, and the hint helps."""
    assert returned(Holder(items=[Base(a=7)]), [Holder]) == Holder(items=[Base(a=7)])
    with pytest.raises(InvalidInput, match="Sub cannot be kept") as refused:
        returned(Holder(items=[Sub()]), [Holder, Base])
    assert "types=[Sub]" in str(refused.value.hint)
    assert returned(Holder(items=[Sub()]), [Holder, Base, Sub]) == Holder(items=[Sub()])


class Unnamed(NamedTuple):
    x: int


@pytest.mark.parametrize(
    ("value", "hint"),
    [
        (Secret(word=SecretStr("hunter2")), "no place for secrets"), (SecretStr("hunter2"), "no place for secrets"),
        (Unnamed(1), "types=[Unnamed]"), (ValueError("x"), "values of Python"), (defaultdict(lambda: 1), "one of list"),
        (time(1, 2, tzinfo=ZoneInfo("Europe/Berlin")), "use a datetime"),
    ],
    ids=repr,
)  # fmt: skip
def test_what_would_be_changed_is_refused_with_a_hint_that_helps(value, hint):
    """A secret, an object of another class, what a defaultdict may not make."""
    with pytest.raises(InvalidInput) as refused:
        returned(value)
    assert hint in str(refused.value.hint)
    assert "hunter2" not in f"{refused.value} {refused.value.hint}"
    if "types=" in hint:
        assert returned(value, [type(value)]) == value


def test_two_types_of_one_name_are_refused():
    """The name on record would mean either of them."""
    classes = []
    for _ in range(2):

        class Same(BaseModel):
            x: int = 1

        classes.append(Same)
    with pytest.raises(InvalidInput, match="two of the types are called"):
        Codec(classes)
    Codec(classes[:1] * 2)  # the same one may be named twice


def test_what_the_json_of_a_message_would_lose_comes_back():
    """Dates, tuples and empty values in additional properties, of messages and of contents, also in a session."""
    odd = {"when": WHEN, "pair": (1, 2), "none": {"n": None}, "plain": "x"}
    content = Content.from_text("hi", additional_properties=dict(odd))
    message = Message("user", [content, "there"], additional_properties=dict(odd))
    session = AgentSession(session_id="s")
    session.state = {"messages": [message]}
    for again in (
        returned(message),
        returned(AgentResponse(messages=[message])).messages[0],
        returned(ChatResponse(messages=[message])).messages[0],
        returned(session).state["messages"][0],
    ):
        assert again.additional_properties == odd
        assert again.contents[0].additional_properties == odd
        assert [one.text for one in again.contents] == ["hi", "there"]
    response = returned(ChatResponse(messages=[message], additional_properties=dict(odd)))
    assert response.additional_properties == odd
    with pytest.raises(InvalidInput, match="ValueError cannot be kept"):
        returned(Message("user", ["hi"], additional_properties={"problem": ValueError("x")}))


def test_messages_that_json_keeps_are_only_in_the_pool():
    """A digest in the checkpoint, whatever else is in its properties; a date costs the properties, not the text."""
    pool: dict[str, str] = {}
    plain, dated = (Message("user", ["x" * 999], additional_properties={"p": p}) for p in ("x", WHEN))
    written = [json.dumps(Codec().encode(one, pool)) for one in (plain, dated)]
    assert [len(one) < 200 for one in written] == [True, True]
    assert len(pool) == 2


def test_what_earlier_versions_wrote_is_read():
    """Models as pydantic wrote them, also with an alias; flags by name; seconds; a defaultdict without its factory."""
    name = f"own:{__name__}:"
    old = [
        ({"@": f"{name}Holder", "v": {"items": [{"a": 5}]}}, Holder(items=[Base(a=5)])),
        ({"@": f"{name}Aliased", "v": {"order_id": 1}}, Aliased(orderId=1)),
        ({"@": f"{name}Mode", "v": "READ"}, Mode.READ),
        ({"@": f"{name}Mode", "v": "READ|WRITE"}, Mode.READ | Mode.WRITE),
        ({"@": f"{name}Mode", "v": None}, Mode(0)),
        ({"@": "seconds", "v": "1.5"}, timedelta(seconds=1.5)),
        ({"@": "defaultdict", "v": [["a", 1]]}, defaultdict(None, {"a": 1})),
        ({"@": "ordered", "v": [["a", 1]]}, OrderedDict(a=1)),
        ({"@": "deque", "v": [1]}, deque([1])),
    ]
    for data, value in old:
        assert Codec(TYPES).decode(data, {}) == value


@pytest.mark.parametrize(
    "data",
    [
        {"@": "model:os:system", "v": {"fields": {}, "set": []}}, {"@": "own:os:system", "v": "x"},
        {"@": "os:system", "v": "x"}, {"@": f"model:{__name__}:Sub", "v": {"fields": {}, "set": []}},
    ],
    ids=repr,
)  # fmt: skip
def test_no_class_comes_from_stored_bytes(data):
    """Only classes among the types are made, whatever the tag says."""
    with pytest.raises(InvalidInput, match="not among the types"):
        Codec([Base]).decode(data, {})


def test_checkpoints_can_be_read_after_one_was_erased(tmp_path):
    """The checkpoint is gone; where others have its message, it says that it was erased. Workflows continue."""

    async def story() -> None:
        running, ids = OnrecordCheckpointStorage(store), []
        messages: list[Any] = []
        for number in range(4):
            messages.append(Message("user", [f"question {number}"]))
            state = {"messages": list(messages)}
            made = WorkflowCheckpoint(workflow_name="w", graph_signature_hash="x", state=state)
            ids.append(await running.save(made))
        session = store.get("w")
        session.log.erase(
            "x", positions=[one.position for one in session.events() if "question 1" in str(one.data)][:1]
        )
        said = ["question 0", "[erased]", "question 2", "question 3"]
        for storage in (running, OnrecordCheckpointStorage(store)):
            assert await storage.list_checkpoint_ids(workflow_name="w") == [ids[0], *ids[2:]]
            latest: Any = await storage.get_latest(workflow_name="w")
            assert [one.text for one in latest.state["messages"]] == said
            assert len(await storage.list_checkpoints(workflow_name="w")) == 3
            with pytest.raises(WorkflowCheckpointException):
                await storage.load(ids[1])
        latest.state["messages"].append(Message("user", ["more"]))
        await storage.save(replace(latest, checkpoint_id="next"))
        found = await OnrecordCheckpointStorage(store).load("next")
        assert [one.text for one in found.state["messages"]] == [*said, "more"]

    with onrecord.connect(str(tmp_path / "x.db"), project="p") as store:
        asyncio.run(story())
