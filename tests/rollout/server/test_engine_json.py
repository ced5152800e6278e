"""JSON to and from engines: fast, and the same as the standard library's."""

import json

import pytest

from onrecord.rollout.engines import load_json
from onrecord.rollout.server.engine_json import dump, load


@pytest.mark.parametrize(
    "value",
    [
        {"prompt": [0, 1, 2**31 - 1], "temperature": 0.7, "stop": ["\n", "é", "\u2028"], "seed": None},
        {"seed": 2**63, "negative": -(2**63), "large": 10**30},
        {"text": "half a character \ud83d"},
        {"logit_bias": {"5": -100}, "deep": [[[[]]]], "true": True},
    ],
    ids=["usual", "large integers", "half a character", "nested"],
)
def test_a_request_keeps_every_value(value):
    """What the engine reads is what was sent, also if orjson alone cannot write it."""
    assert json.loads(dump(value)) == value


@pytest.mark.parametrize(
    "text", [b'{"a": [1, 2.5, -0.1e-7], "b": "\\u00e9"}', b'{"a": "\\ud83d"}', b"[1e5, true, null]"]
)
def test_a_reply_is_read_as_before(text):
    """The same values and types as from the standard library."""
    found, expected = load(text), load_json(text)
    assert (found, repr(found)) == (expected, repr(expected))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"", "Expecting value"),
        (b"{", "Expecting property"),
        (b"NaN", "not JSON"),
        (b'{"a": Infinity}', "not JSON"),
        (b"\xff", "decode"),
        (b"[" * 100_000, "nested too deeply"),
    ],
)
def test_a_reply_that_is_no_json(text, why):
    """It is refused, and the error says why."""
    with pytest.raises(ValueError, match=why):
        load(text)
