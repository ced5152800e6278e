"""Laws of the codec: decoding returns what was encoded, one value has one form, and what cannot be stored is refused."""

import json
import math
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum, IntEnum
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from onrecord.errors import DamagedLog, InvalidInput
from onrecord.log import codec
from onrecord.log.events import Draft, Event, Record
from onrecord.log.item_values import ToolCall
from onrecord.log.items import check_item, plain_item
from tests.laws import values
from tests.laws.play import Play

SESSION = "01J0000000000000000000TEST"


def sealed(data: Any, kind: str = "weather.changed") -> Draft:
    return codec.seal(kind, data, id="e1", at=1, by="main", run=1, salt=bytes(16))


def kept(data: Any, kind: str = "weather.changed", v: int = 1) -> Record:
    """A record of this payload, placed and chained as the first of a log."""
    salt, payload = bytes(16), codec.encode_payload(data)
    digest = codec.commit_to(salt, payload)
    head = (SESSION, 1, "e1", kind, v, 1, "main", 1, None)
    return Record(*head, salt, payload, digest, codec.link(codec.GENESIS, head, digest))


def same(one: Any, other: Any) -> bool:
    """Equal in value and in type: 1, 1.0 and True are three values."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other) and (not isinstance(one, float) or math.copysign(1, one) == math.copysign(1, other))


@given(values.json_values)
@example({"big": 10**40, "neg": -0.0, "tiny": 5e-324, "text": "\u2028\x00\U0001f600", "": {"": []}})
def test_every_json_value_survives(value):
    """Encoding and decoding gives back every JSON value with its types: big integers, floats, any text, any nesting (B07)."""
    assert same(codec.decode_payload(codec.encode_payload(value).decode()), value)


@given(values.json_values)
def test_an_event_says_what_was_sealed(value):
    """An event has exactly the content of its draft, for the process that appended it and for every reader (B07)."""
    draft = sealed({"value": value})
    record = Record(SESSION, 1, *draft[:7], *draft[7:10], bytes(32))
    assert same(codec.open_record(record).data, {"value": value})
    assert same(codec.event_of(draft, SESSION, 1, 1, bytes(32)).data, {"value": value})


@given(st.dictionaries(values.texts, values.json_values, max_size=6), st.randoms(use_true_random=False))
def test_the_canonical_form_knows_no_order(value, shuffle):
    """A canonical form is a contract: the order in which keys were set leaves no trace in the bytes."""

    def shuffled(inner: Any) -> Any:
        if isinstance(inner, dict):
            pairs = [(key, shuffled(part)) for key, part in inner.items()]
            shuffle.shuffle(pairs)
            return dict(pairs)
        return [shuffled(part) for part in inner] if isinstance(inner, list) else inner

    assert codec.encode_payload(shuffled(value)) == codec.encode_payload(value)


@given(values.json_values)
def test_the_canonical_form_is_stable(value):
    """Encoding a decoded value gives the same bytes, so a commitment can be computed again from what the store returns."""
    once = codec.encode_payload(value)
    assert codec.encode_payload(json.loads(once)) == once


near_items = st.one_of(
    values.items,
    st.dictionaries(
        st.sampled_from(["role", "content", "call", "tool_calls", "name"]),
        st.one_of(
            st.sampled_from(["user", "assistant", "tool", "nobody"]),
            values.json_values,
            st.lists(
                st.dictionaries(st.sampled_from(["id", "name", "arguments", "x"]), values.json_values, max_size=4),
                max_size=2,
            ),
        ),
        max_size=4,
    ),
)


@given(near_items)
@example(
    {"role": "assistant", "content": "", "tool_calls": [{"name": "n", "id": "c", "arguments": {"b": (1,), "a": {}}}]}
)
@example({"role": "assistant", "content": "", "tool_calls": [{"name": "n", "id": "c", "arguments": {1: 2}}]})
@example({"role": "assistant", "content": "", "tool_calls": [{"name": "n", "id": "c", "arguments": 1}] * 2})
def test_a_plain_item_is_in_canonical_form(item):
    """The fast path for plain items gives the result of the general path, in the same order and in a copy of its own (B07, B12)."""
    made = plain_item(item)
    if made is None:
        return
    assert check_item(item) is item
    assert json.dumps(made) == json.dumps(codec.as_read(item))
    assert same(made, codec.as_read(item))
    fresh = codec.seal("item.added", {"item": made}, "e1", 1, "main", 1, bytes(16), None, plain=True)
    assert fresh == codec.seal("item.added", {"item": item}, "e1", 1, "main", 1, bytes(16))
    mutable = [item, *item.get("tool_calls", []), *map(arguments_of, item.get("tool_calls", []))]
    copies = [made, *made.get("tool_calls", []), *map(arguments_of, made.get("tool_calls", []))]
    assert not {id(part) for part in mutable if isinstance(part, dict | list)} & {id(part) for part in copies}


def arguments_of(call: ToolCall) -> Any:
    return call["arguments"]


@pytest.mark.parametrize("format", ["openai", "anthropic", "unknown"])
def test_a_message_in_a_partners_words_is_not_plain(format):
    """A partner's words are kept verbatim next to their neutral form: the fast path does not apply to them."""
    assert plain_item({"role": "user", "content": "hi"}, format) is None


def test_arguments_may_be_nested_as_deep_as_anything():
    """The fast path refuses nothing: what it does not accept takes the general path, up to the same limit."""
    for depth in range(codec.NESTING_LIMIT - 8, codec.NESTING_LIMIT + 2):
        call = {"id": "c1", "name": "bash", "arguments": nested(depth)}
        turn = [{"role": "assistant", "content": "", "tool_calls": [call]}]
        play = Play()
        if depth <= codec.NESTING_LIMIT - 5:
            play.session.record_turn(turn)
            assert play.session.transcript().items == turn
        else:
            with pytest.raises(InvalidInput, match="nested"):
                play.session.record_turn(turn)


class Colour(str, Enum):  # noqa: UP042 - the older form, whose str() is not its value
    RED = "red"


class Level(IntEnum):
    HIGH = 3


@pytest.mark.parametrize(
    ("given_as", "read_as"),
    [((1, "a"), [1, "a"]), (Colour.RED, "red"), (Level.HIGH, 3), (float.__new__(type("Ratio", (float,), {}), 0.5), 0.5),
     ({"b": (), "a": {Colour.RED: Level.HIGH}}, {"a": {"red": 3}, "b": []})],
)  # fmt: skip
def test_near_json_becomes_json_at_once(given_as, read_as):
    """Tuples and enums are recorded as their JSON values, and every handle sees those from the start."""
    play = Play()
    said = play.session.log.record("weather.changed", {"value": given_as})
    assert same(said.data, {"value": read_as})
    assert same(play.session.log.event(said.position).data, {"value": read_as})


def test_what_was_recorded_cannot_be_changed_through_the_callers_objects():
    """A caller that later changes the objects it recorded changes neither log nor views (B12)."""
    play = Play()
    value: dict[str, Any] = {"list": [1]}
    event = play.session.facts.set_scratch("key", value)
    item: dict[str, Any] = {"role": "user", "content": [{"type": "text", "text": "hi"}]}
    turn = play.session.record_turn([item])
    value["list"].append(2)
    item["content"][0]["text"] = "changed"
    assert event.data["value"] == play.session.views.facts.scratch["key"] == {"list": [1]}
    assert (
        turn.data["items"][0]["content"]
        == play.session.transcript().items[0]["content"]
        == [{"type": "text", "text": "hi"}]
    )


UNRECORDABLE = [
    math.nan, math.inf, -math.inf, "\ud800", "a\udfffb", {"\ud83d": 1}, b"bytes", {1, 2}, object(), 1j, Decimal(1),
    datetime(2026, 1, 1, tzinfo=UTC), {1: "a"}, {None: 1}, {True: 1}, {1.5: 2}, {(1, 2): 3}, {"a": 1, 2: 3}, 10**5000,
]  # fmt: skip


def nested(depth: int) -> Any:
    value: Any = "deep"
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize("value", [*UNRECORDABLE, nested(5_000)], ids=lambda value: repr(type(value).__name__))
@pytest.mark.parametrize("wrap", [lambda v: v, lambda v: {"a": [1, {"b": v}]}], ids=["bare", "inside"])
def test_what_is_no_json_is_refused(value, wrap):
    """What cannot be written as JSON is refused as InvalidInput, however deep it is, and nothing is changed."""
    play = Play()
    before = play.store.head(play.session.id)
    with pytest.raises(InvalidInput):
        play.session.log.record("weather.changed", {"value": wrap(value)})
    with pytest.raises(InvalidInput):
        play.session.facts.set_scratch("key", wrap(value))
    with pytest.raises(InvalidInput):
        codec.encode_payload(wrap(value))
    assert play.store.head(play.session.id) == before


@given(st.integers(1, 3_000))
@example(900)
@example(990)
def test_what_was_acknowledged_can_be_read_from_any_depth(depth):
    """A payload is refused when it is too deep, or it can be read again at any stack depth (B08)."""
    play = Play()
    try:
        event = play.session.log.record("weather.changed", {"value": nested(depth)})
    except InvalidInput:
        assert play.store.head(play.session.id).position == 1
        return

    def read_below(frames: int) -> Event:
        return read_below(frames - 1) if frames else play.session.log.event(event.position)

    assert read_below(300).data == {"value": nested(depth)}


FIELDS: dict[str, Any] = {
    "session": "01J0000000000000000000ELSE", "position": 2, "id": "e2", "kind": "weather.turned", "v": 2, "at": 2,
    "by": "tester", "run": 2, "because": 1, "payload_hash": bytes(32),
}  # fmt: skip


@pytest.mark.parametrize("field", FIELDS)
def test_the_link_covers_every_field(field):
    """Changing any single field of a header, or its commitment, changes the hash of the event."""
    record = kept({"a": 1})
    assert codec.link_record(codec.GENESIS, record) == record.hash
    assert codec.link_record(codec.GENESIS, record._replace(**{field: FIELDS[field]})) != record.hash
    assert codec.link_record(bytes(31) + b"\1", record) != record.hash


@given(st.binary(min_size=16, max_size=16), st.binary(max_size=40), st.binary(max_size=40))
def test_a_commitment_binds_salt_and_payload(salt, one, other):
    """Two payloads, or two salts, never share a commitment; the same two always do."""
    assert (codec.commit_to(salt, one) == codec.commit_to(salt, other)) == (one == other)
    assert codec.commit_to(salt, one) != codec.commit_to(bytes(byte ^ 1 for byte in salt), one)


@given(st.lists(values.texts, min_size=2, max_size=2), st.integers(0, 5))
def test_no_two_headers_read_alike(names, cut):
    """Moving a character from one field of the header to the next one is noticed."""
    text = "".join(names) + "xyz"
    cut = min(cut, len(text) - 1)
    heads = [(SESSION, 1, text[:at], text[at:], 1, 1, "main", 1, None) for at in (cut, cut + 1)]
    assert codec.link(codec.GENESIS, heads[0], bytes(32)) != codec.link(codec.GENESIS, heads[1], bytes(32))


@given(st.integers(1, 4), values.json_objects)
def test_upcasters_chain(version, data):
    """Reading lifts an old payload step by step to the current version; the stored payload stays as it is (B15)."""
    lifts = {
        ("weather.changed", step): lambda old, step=step: {**old, "path": [*old.get("path", []), step]}
        for step in (1, 2, 3)
    }
    data.pop("path", None)
    record = kept(data, v=version)
    codec.UPCASTERS.update(lifts)
    try:
        event = codec.open_record(record)
    finally:
        for key in lifts:
            del codec.UPCASTERS[key]
    steps = list(range(version, 4))
    assert (event.v, event.data) == (max(version, 4), data | ({"path": steps} if steps else {}))
    assert record == kept(data, v=version)


@given(values.json_values, st.integers(2, 10**6))
def test_what_is_newer_passes_untouched(data, version):
    """Kinds and versions that this code does not know are read with the very payload that was written (B15)."""
    for kind in ("weather.changed", "decision.made"):
        event = codec.open_record(kept(data, kind, v=version))
        assert (event.kind, event.v) == (kind, version)
        assert same(event.data, data)


@given(st.binary(max_size=30).filter(lambda garbage: b"}" not in garbage))
def test_bytes_that_are_no_payload_are_damage(garbage):
    """A payload that cannot be decoded is reported as a damaged log with its position, not as a Python error."""
    record = kept({"a": 1})._replace(payload=b"{" + garbage)
    with pytest.raises(DamagedLog, match="position 1"):
        codec.open_record(record)


@pytest.mark.parametrize(
    ("field", "value"),
    [("id", ""), ("id", "x" * 201), ("id", "a\nb"), ("id", "\ud800"), ("id", "a\u202eb"), ("id", 7),
     ("kind", ""), ("kind", "a\nb"), ("kind", "\ud800"), ("kind", "x" * 300), ("kind", 7)],
)  # fmt: skip
def test_ids_and_kinds_are_short_and_printable(field, value):
    """Ids and kinds are short and printable; anything else is InvalidInput before anything happens."""
    play = Play()
    arguments: dict[str, Any] = {"kind": "weather.changed", "id": "w1"} | {field: value}
    with pytest.raises(InvalidInput):
        play.session.log.record(data={}, **arguments)
    assert play.store.head(play.session.id).position == 1


@given(values.json_objects.map(json.dumps) | st.text(' {}[]",:1aeNn\\\n', max_size=12) | st.text(max_size=8))
def test_a_payload_is_decoded_as_json_decodes_it(text):
    """Whatever the text, decoding a payload returns what `json.loads` returns, or refuses what it refuses."""
    try:
        expected = repr(json.loads(text))
    except ValueError:
        with pytest.raises(ValueError):  # noqa: PT011  # the same kinds of error, whatever they say
            codec.decode_payload(text)
    else:
        assert repr(codec.decode_payload(text)) == expected
