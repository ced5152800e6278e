"""JSON text that is written quickly is what Python's `json` writes."""

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from onrecord.errors import InvalidInput, TooLarge
from onrecord.frameworks import writing
from onrecord.frameworks.writing import as_line, payload_of
from onrecord.log import codec
from onrecord.log.codec import as_read, encode_plain

texts = st.text(st.characters(exclude_categories=()))  # lone surrogates too
atoms = texts | st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
values = st.recursive(atoms, lambda inner: st.lists(inner) | st.dictionaries(texts, inner), max_leaves=20)


def by_python(value):
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(value, separators=(",", ":"))
    return text


@given(values)
@example({"content": 'é\u2028\x7f\x00"\\/', "n": 2**70, "f": 1e16, "deep": [[[[]]]], "none": None, "yes": True})
@example({"half": "\ud800"})
def test_an_entry_is_written_as_python_writes_it(value):
    """The quick writer and Python make the same text of an entry."""
    assert as_line(value) == by_python(value)


@given(st.dictionaries(texts, values | st.lists(texts)))
@example({"lines": ["é", ""], "keys": ["a"], "reading": [[0, "user", "a"], {"f": 1e16}], "vendor": "x"})
@example({"lines": []})
def test_a_payload_has_its_canonical_bytes(data):
    """The quick encoder makes the canonical bytes of a payload, or the same error."""
    try:
        plain = as_read(data)
        wanted = encode_plain(plain)
    except InvalidInput:
        with pytest.raises(InvalidInput, match="lone surrogate"):
            payload_of(as_read(data))
    else:
        assert payload_of(plain) == wanted


@pytest.mark.parametrize(
    "value", [float("nan"), float("inf"), b"bytes", {1, 2}, {"a": object()}, {(1, 2): 3}, [float("-inf")]]
)
def test_what_is_no_json_is_refused(value):
    """The quick writer refuses what Python refuses."""
    with pytest.raises(InvalidInput, match="cannot be recorded as JSON"):
        as_line(value)


def test_without_the_quick_writer_python_writes(monkeypatch):
    """A framework that does not bring pydantic changes nothing but the time."""
    monkeypatch.setattr(writing, "to_json", None)
    assert as_line({"a": "é"}) == '{"a":"é"}'
    assert payload_of({"a": "é", "lines": ["x"]}) == '{"a":"é","lines":["x"]}'.encode()


def test_a_payload_has_the_limit_of_every_payload(monkeypatch):
    """A payload that is too large is refused by the quick encoder, too."""
    monkeypatch.setattr(codec, "PAYLOAD_LIMIT", 100)
    with pytest.raises(TooLarge):
        payload_of({"lines": ["x" * 100]})
