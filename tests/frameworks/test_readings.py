"""Readings of frameworks' messages: references lead to what the message says, and long texts are not repeated."""

from __future__ import annotations

import json

import pytest

from onrecord.frameworks import agent_framework_messages, pydantic_messages
from onrecord.log.readings import joined, resolve, value_reference

LONG = "a text that is longer than what a reading repeats"
PYDANTIC = [
    ({"kind": "request", "parts": [{"part_kind": "user-prompt", "content": LONG}]}, [{"role": "user", "content": LONG}]),
    (
        {"kind": "request", "parts": [{"part_kind": "user-prompt", "content": [LONG, {"kind": "image-url", "url": "u"}]}]},
        [{"role": "user", "content": f"{LONG}\n[image-url: u]"}],
    ),
    (
        {"kind": "response", "parts": [{"part_kind": "text", "content": LONG}, {"part_kind": "text", "content": "short"}]},
        [{"role": "assistant", "content": f"{LONG}\nshort"}],
    ),
    (
        {"kind": "response", "parts": [
            {"part_kind": "thinking", "content": LONG},
            {"part_kind": "tool-call", "tool_name": "pay", "tool_call_id": "c", "args": json.dumps({"for": LONG})},
        ]},
        [
            {"role": "assistant", "content": LONG, "thinking": True},
            {"role": "assistant", "content": "",
             "tool_calls": [{"id": "c", "name": "pay", "arguments": {"for": LONG}}]},
        ],
    ),
    (
        {"kind": "request", "parts": [
            {"part_kind": "tool-return", "tool_name": "pay", "tool_call_id": "c", "content": {"paid": LONG}},
            {"part_kind": "retry-prompt", "tool_name": "pay", "tool_call_id": "d", "content": LONG},
        ]},
        [
            {"role": "tool", "call": "c", "content": json.dumps({"paid": LONG})},
            {"role": "tool", "call": "d", "content": LONG, "error": True},
        ],
    ),
]  # fmt: skip
AGENT_FRAMEWORK = [
    ({"role": "user", "contents": [{"type": "text", "text": LONG}]}, [{"role": "user", "content": LONG}]),
    (
        {"role": "assistant", "contents": [
            {"type": "text_reasoning", "text": LONG},
            {"type": "text", "text": "short"},
            {"type": "function_call", "call_id": "c", "name": "pay", "arguments": {"for": LONG}},
        ]},
        [
            {"role": "assistant", "content": LONG, "thinking": True},
            {"role": "assistant", "content": "short",
             "tool_calls": [{"id": "c", "name": "pay", "arguments": {"for": LONG}}]},
        ],
    ),
    (
        {"role": "tool", "contents": [
            {"type": "function_result", "call_id": "c", "result": LONG},
            {"type": "function_result", "call_id": "d", "exception": LONG},
        ]},
        [{"role": "tool", "call": "c", "content": LONG}, {"role": "tool", "call": "d", "content": LONG, "error": True}],
    ),
]  # fmt: skip


@pytest.mark.parametrize(
    ("of", "message", "items"),
    [
        *((pydantic_messages, *one) for one in PYDANTIC),
        *((agent_framework_messages, *one) for one in AGENT_FRAMEWORK),
    ],
)
def test_a_reading_refers_to_its_message(of, message, items):
    """What a message says is read from references into it, and a text of the message is not stored twice."""
    made = of.reading(message)
    assert resolve(message, made) == of.neutral(message) == items
    plain = all(isinstance(part.get("content", ""), str) for part in message.get("parts", ()))
    assert not plain or LONG not in json.dumps(made)


def test_values_and_joined_texts_refer_only_where_that_saves_something():
    """Short and empty values are in the reading itself; a text that is no JSON is referred to as it is."""
    assert value_reference("/a", {}) == {}
    assert value_reference("/a", {"x": 1}) == {"$": "/a"}
    assert value_reference("/a", '{"x": 1}') == {"$": "/a/~j"}
    assert value_reference("/a", "7") == 7
    assert value_reference("/a", f"no JSON: {LONG}") == {"$": "/a"}
    assert value_reference("/a", None) is None
    assert joined([], "\n") == ""
    assert joined(["one", "two"], "\n") == "one\ntwo"
    assert joined([{"$": "/a"}], "\n") == {"$": "/a"}
    assert resolve({"a": LONG}, joined([{"$": "/a"}, "two"], "\n")) == f"{LONG}\ntwo"
