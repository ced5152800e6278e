"""Anthropic's protocol: the same turns, the same record, another form."""

import json

import pytest

from tests.rollout.server.places import USER, says

CALL = {"id": "call_1", "type": "function", "function": {"name": "add", "arguments": '{"a":17,  "b": 25}'}}
TOOLS = [{"name": "add", "description": "Adds.", "input_schema": {"type": "object"}}]


def post(proxy, session, messages, **options):
    body = {"model": "policy", "max_tokens": 64, "messages": messages, **options}
    return proxy.http.post(f"/sessions/{session}/v1/messages", json=body)


def thinking(engine, asked):
    status, headers, body = says("Let me add these.", calls=[CALL], finish="tool_calls")(engine, asked)
    body["choices"][0]["message"]["reasoning_content"] = "I add."
    return status, headers, body


def test_a_conversation_in_anthropics_protocol(proxy, engine):
    """Text, thinking, calls and results go both ways; a call comes back as JSON and still continues the same ids."""
    session = proxy.new()
    engine.script.extend([thinking, says("The result is 42.")])
    first = post(proxy, session, [USER], tools=TOOLS, system="Be brief.").json()
    assert (first["type"], first["role"], first["stop_reason"]) == ("message", "assistant", "tool_use")
    assert [block["type"] for block in first["content"]] == ["thinking", "text", "tool_use"]
    assert first["content"][2]["input"] == {"a": 17, "b": 25}
    result = {"type": "tool_result", "tool_use_id": "call_1", "content": [{"type": "text", "text": "42"}]}
    asked = [USER, {"role": "assistant", "content": first["content"]}, {"role": "user", "content": [result]}]
    second = post(proxy, session, asked, tools=TOOLS, system=[{"type": "text", "text": "Be brief."}])
    assert second.json()["content"] == [{"type": "text", "text": "The result is 42."}]
    assert second.json()["stop_reason"] == "end_turn"
    assert post(proxy, session, asked, tools=TOOLS, system="Be brief.").content == second.content
    one, two = engine.prompts()
    record = proxy.record(session)
    assert two[: len(one)] == one
    assert [message["role"] for message in record["messages"]] == ["system", "user", "assistant", "tool", "assistant"]
    assert record["messages"][2]["tool_calls"] == [CALL]
    assert engine.requests[0]["tools"][0]["function"]["parameters"] == {"type": "object"}


def test_a_stream_adds_up_to_the_message(proxy, engine):
    """The events of a stream have every block, and the usage."""
    session = proxy.new()
    engine.script.append(thinking)
    response = post(proxy, session, [USER], stream=True)
    events = [json.loads(line[6:]) for line in response.text.splitlines() if line.startswith("data: ")]
    assert [event["type"] for event in (events[0], events[-1])] == ["message_start", "message_stop"]
    deltas = [event["delta"] for event in events if event["type"] == "content_block_delta"]
    assert [delta["type"] for delta in deltas] == ["thinking_delta", "text_delta", "input_json_delta"]
    assert json.loads(deltas[2]["partial_json"]) == {"a": 17, "b": 25}
    whole = post(proxy, session, [USER]).json()
    assert events[-2]["usage"]["output_tokens"] == whole["usage"]["output_tokens"] > 0


@pytest.mark.parametrize(
    "messages",
    [
        None,
        ["x"],
        [{"role": "system", "content": "x"}],
        [{"role": "user", "content": [{"type": "image", "source": {}}]}],
        [{"role": "user", "content": 7}],
    ],
)
def test_what_cannot_be_recorded_is_refused_in_its_own_form(proxy, messages):
    """A wrong request is an error of the protocol's form, with code and hint; nothing is recorded."""
    session = proxy.new()
    refused = post(proxy, session, messages)
    assert refused.status_code == 400
    assert refused.json()["error"]["type"] == "invalid_request_error"
    assert proxy.record(session)["head"]["version"] == 0
