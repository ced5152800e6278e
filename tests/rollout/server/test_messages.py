"""Anthropic's protocol: the same turns, the same record, another form."""

import json
from typing import Any

import pytest

from onrecord.rollout.server.messages import arguments_of, to_chat
from tests.rollout.server.places import USER, completes, says

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


ODD = ['{"x": NaN}', '{"x": 1e999}', '{"x": "\\ud800"}', '{"x":' * 3000 + "1" + "}" * 3000]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("arguments", ODD, ids=lambda text: text[:14])
def test_arguments_that_are_no_standard_json_are_text(proxy, engine, arguments, stream):
    """A call whose arguments a client could not read comes as text under one name, and continues the same ids."""
    session = proxy.new()
    call = {"id": "toolu_1", "type": "function", "function": {"name": "f", "arguments": arguments}}
    engine.script.append(says("", calls=[call], finish="tool_calls"))
    for _again in range(2):
        response = post(proxy, session, [USER], stream=stream)
        assert response.status_code == 200
        if stream:
            events = [json.loads(line[6:]) for line in response.text.splitlines() if line.startswith("data: ")]
            (delta,) = [event["delta"] for event in events if event["type"] == "content_block_delta"]
            given = json.loads(delta["partial_json"])
        else:
            (block,) = response.json()["content"]
            given = block["input"]
        assert given == {"arguments": arguments}
    used = {"type": "tool_use", "id": "toolu_1", "name": "f", "input": given}
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "no"}
    asked = [USER, {"role": "assistant", "content": [used]}, {"role": "user", "content": [result]}]
    assert post(proxy, session, asked).status_code == 200
    assert proxy.record(session)["head"]["num_assistant"] == 2


def test_calls_of_every_turn_have_ids_of_their_own(start, engine):
    """Calls that the proxy finds itself never share an id; a client that spells 1.0 as 1 still continues the turns."""
    proxy = start(dialect="vllm-completions")
    session, ids = proxy.new(), []
    messages: list[dict[str, Any]] = [USER]
    for arguments in ('{"b": 1.0}', '{"b": 5}', '{"b": 1.0}'):
        engine.script.append(completes(f'<tool_call>{{"name": "add", "arguments": {arguments}}}</tool_call>'))
        answered = post(proxy, session, messages, tools=TOOLS)
        assert post(proxy, session, messages, tools=TOOLS).content == answered.content
        (block,) = answered.json()["content"]
        block["input"] = {name: int(value) for name, value in block["input"].items()}
        ids.append(block["id"])
        result = {"type": "tool_result", "tool_use_id": block["id"], "content": "3"}
        messages += [{"role": "assistant", "content": [block]}, {"role": "user", "content": [result]}]
    assert len(set(ids)) == 3
    assert proxy.record(session)["head"]["num_assistant"] == 3


def test_a_record_whose_calls_share_an_id_is_continued():
    """Records of older versions have `call_0` in every turn: each use gets the text that was recorded for it."""
    texts = ['{"b":1.0}', '{"b": 5}', '{"b": 1.0}']
    calls = [{"id": "call_0", "type": "function", "function": {"name": "f", "arguments": text}} for text in texts]
    record = [{"role": "assistant", "content": None, "tool_calls": [call]} for call in calls]
    blocks = [{"type": "tool_use", "id": "call_0", "name": "f", "input": {"b": value}} for value in (1, 5, 1)]
    messages = [{"role": "assistant", "content": [block]} for block in blocks]
    assert to_chat({"messages": messages}, arguments_of(record))["messages"] == record


def test_refusals_outside_a_turn_have_its_own_form(start):
    """A missing token and a wrong method are errors of the protocol's form as well."""
    proxy = start(token="secret")
    path = f"/sessions/{'0' * 26}/v1/messages"
    refused = proxy.http.post(path, json={})
    assert (refused.status_code, refused.json()["type"]) == (401, "error")
    assert refused.json()["error"]["type"] == "authentication_error"
    assert refused.headers["www-authenticate"] == "Bearer"
    refused = proxy.http.get(path, headers={"authorization": "Bearer secret"})
    assert (refused.status_code, refused.json()["error"]["code"]) == (405, "no_such_route")
    assert refused.json()["type"] == "error"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("dialect", ["vllm-completions", "sglang"])
def test_a_stop_sequence_is_named(start, engine, dialect, stream):
    """If the engine names the stop word that ended a turn, the client gets it; the end of a turn has none."""
    proxy = start(dialect=dialect, whole_streams=True)

    def stopped(engine, asked):
        if dialect == "vllm-completions":
            return completes("Let me", stop_reason="END")(engine, asked)
        status, headers, body = says("Let me")(engine, asked)
        body["choices"][0]["meta_info"]["finish_reason"]["matched"] = "END"
        return status, headers, body

    for does, expected in ((stopped, ("stop_sequence", "END")), (None, ("end_turn", None))):
        engine.script.append(does or (completes("Let me") if dialect == "vllm-completions" else says("Let me")))
        response = post(proxy, proxy.new(), [USER], stop_sequences=["END"], stream=stream)
        if stream:
            events = [json.loads(line[6:]) for line in response.text.splitlines() if line.startswith("data: ")]
            said = next(event["delta"] for event in events if event["type"] == "message_delta")
        else:
            said = response.json()
        assert (said["stop_reason"], said["stop_sequence"]) == expected
