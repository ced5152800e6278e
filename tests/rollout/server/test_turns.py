"""Turns through the proxy: what clients get, what engines see, what is on record."""

import json

import pytest

from tests.rollout.server.places import CALL, USER, answers, message_of, reply, says


def test_a_conversation(proxy, engine, tokenizer):
    """Each prompt begins with the exact ids of the one before and its answer; nothing is tokenized twice."""
    session = proxy.new(metadata={"task": 7})
    engine.script.extend([says("Let me add these.", calls=[CALL], finish="tool_calls"), says("The result is 42.")])
    first = message_of(proxy.chat(session, [USER], tools=[{"type": "function", "function": {"name": "add"}}]))
    assert first["tool_calls"] == [CALL]
    result = {"role": "tool", "tool_call_id": "call_1", "content": "42"}
    tools = [{"type": "function", "function": {"name": "add"}}]
    assert message_of(proxy.chat(session, [USER, first, result], tools=tools))["content"] == "The result is 42."
    one, two = engine.prompts()
    record = proxy.record(session)
    done, then = record["records"]
    assert one == done["prompt_ids"]
    assert two[: len(one) + len(done["output_ids"])] == one + done["output_ids"]
    assert tokenizer.decode(two[len(one) + len(done["output_ids"]) :]) == (
        "\n<|im_start|>tool\n42<|im_end|>\n<|im_start|>assistant\n"
    )
    assert then["logprobs"][0] == -0.5
    assert record["metadata"] == {"task": 7}
    assert record["head"]["num_assistant"] == 2
    assert [one["status"] for one in record["records"]] == ["COMPLETED", "COMPLETED"]


def test_an_engine_is_never_asked_for_a_stream(proxy, engine):
    """A client may ask for a stream; the proxy asks the engine for a whole reply, by ids, with logprobs."""
    session = proxy.new()
    proxy.chat(session, [USER], stream=True, temperature=0.5, max_tokens=9)
    (asked,) = engine.requests
    assert (asked["stream"], asked["logprobs"], asked["return_meta_info"]) == (False, True, True)
    assert (asked["temperature"], asked["max_tokens"]) == (0.5, 9)
    assert asked["input_ids"]


def chunks_of(response):
    assert response.headers["content-type"].startswith("text/event-stream")
    events = response.text.strip().split("\n\n")
    assert events[-1] == "data: [DONE]"
    return [json.loads(event.removeprefix("data: ")) for event in events[:-1]]


def test_a_stream_says_what_the_answer_says(proxy, engine):
    """The chunks of a stream add up to the recorded message, calls and usage included."""
    session = proxy.new()
    engine.script.append(says("Let me add these.", calls=[CALL], finish="tool_calls"))
    chunks = chunks_of(proxy.chat(session, [USER], stream=True, stream_options={"include_usage": True}))
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks if chunk["choices"]]
    assert deltas[0]["role"] == "assistant"
    assert "".join(delta.get("content") or "" for delta in deltas) == "Let me add these."
    assert [call for delta in deltas for call in delta.get("tool_calls", [])] == [{**CALL, "index": 0}]
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks if chunk["choices"]][-1] == "tool_calls"
    usage = chunks[-1]["usage"]
    assert usage["completion_tokens"] == len(proxy.record(session)["records"][0]["output_ids"])
    assert all(chunk["object"] == "chat.completion.chunk" for chunk in chunks)


def test_a_lost_reply_is_given_again(proxy, engine):
    """The same request on the same base gets the committed answer, byte for byte, and no second generation."""
    session = proxy.new()
    first = proxy.chat(session, [USER], temperature=0.5)
    again = proxy.chat(session, [USER], temperature=0.5)
    assert first.content == again.content
    assert len(engine.requests) == 1
    assert proxy.metric("replays_total") == 1
    streamed = chunks_of(proxy.chat(session, [USER], temperature=0.5, stream=True))
    assert streamed[0]["id"] == first.json()["id"]
    assert len(engine.requests) == 1


def test_another_request_on_the_same_base_is_another_turn(proxy, engine):
    """With other sampling parameters it is another request: the turn is generated again and replaces the first."""
    session = proxy.new()
    engine.script.extend([says("One."), says("Two.")])
    proxy.chat(session, [USER], temperature=0.5)
    assert message_of(proxy.chat(session, [USER], temperature=0.6))["content"] == "Two."
    record = proxy.record(session)
    assert [one["message"]["content"] for one in record["records"]] == ["Two."]
    assert engine.prompts()[0] == engine.prompts()[1]


def test_an_answer_that_was_cut_off_goes_on(proxy, engine, tokenizer):
    """After an answer that ran out of tokens, the template's end of a turn is added, and the next turn follows."""
    session = proxy.new()
    engine.script.append(says("Let me add", finish="length"))
    message = message_of(proxy.chat(session, [USER], max_tokens=3))
    proxy.chat(session, [USER, message, {"role": "user", "content": "Go on."}])
    assert tokenizer.decode(engine.prompts()[1]) == (
        "<|im_start|>user\nWhat is 17 plus 25?<|im_end|>\n<|im_start|>assistant\nLet me add<|im_end|>\n"
        "<|im_start|>user\nGo on.<|im_end|>\n<|im_start|>assistant\n"
    )
    assert [one["status"] for one in proxy.record(session)["records"]] == ["TRUNCATED", "COMPLETED"]


def test_logprobs_for_a_client_that_wants_them(proxy):
    """A client that asks for logprobs gets one per sampled token."""
    session = proxy.new()
    choice = proxy.chat(session, [USER], logprobs=True).json()["choices"][0]
    record = proxy.record(session)["records"][0]
    assert [row["token"] for row in choice["logprobs"]["content"]] == [
        f"token_id:{one}" for one in record["output_ids"]
    ]
    assert [row["logprob"] for row in choice["logprobs"]["content"]] == record["logprobs"]


def vllm_says(engine, asked, prompt=None):
    made = reply(engine, "Fine.")
    choice = made["choices"][0]
    rows = choice.pop("meta_info")["output_token_logprobs"]
    choice |= {"token_ids": [row[1] for row in rows], "logprobs": {"content": [{"logprob": row[0]} for row in rows]}}
    return 200, {}, made | {"prompt_token_ids": prompt or asked["prompt_token_ids"]}


def completion_says(engine, asked):
    made = reply(engine, "Fine.")
    rows = made["choices"][0]["meta_info"]["output_token_logprobs"]
    choice = {
        "index": 0, "text": "Fine.", "finish_reason": "stop", "token_ids": [row[1] for row in rows],
        "prompt_token_ids": asked["prompt"], "logprobs": {"token_logprobs": [row[0] for row in rows]},
    }  # fmt: skip
    return 200, {}, {"id": "c", "choices": [choice]}


@pytest.mark.parametrize(("dialect", "does"), [("vllm", vllm_says), ("vllm-completions", completion_says)])
def test_a_conversation_with_vllm(start, engine, dialect, does):
    """Both vLLM endpoints give the same record: prompts that continue the earlier ids."""
    proxy = start(dialect=dialect)
    session = proxy.new()
    engine.script.extend([does, does])
    message = message_of(proxy.chat(session, [USER]))
    proxy.chat(session, [USER, message, USER])
    one, two = engine.prompts()
    done = proxy.record(session)["records"][0]
    assert two[: len(one) + len(done["output_ids"])] == one + done["output_ids"]


def test_an_engine_that_reads_other_ids_is_found_out(start, engine):
    """An engine that ignores the ids and renders history itself is a token mismatch; nothing changes."""
    proxy = start(dialect="vllm")
    session = proxy.new()
    engine.script.extend([vllm_says, lambda engine, asked: vllm_says(engine, asked, prompt=[5, 6, 7])])
    message = message_of(proxy.chat(session, [USER]))
    before = proxy.record(session)
    refused = proxy.chat(session, [USER, message, USER])
    assert (refused.status_code, refused.json()["error"]["code"]) == (500, "token_mismatch")
    after = proxy.record(session)
    assert (after["head"], after["records"]) == (before["head"], before["records"])
    engine.script.append(vllm_says)
    assert proxy.chat(session, [USER, message, USER]).status_code == 200


@pytest.mark.parametrize("status", [400, 401, 404, 429, 500, 503])
def test_other_statuses_pass_through(proxy, engine, status):
    """A refusal of the engine reaches the client unchanged, and leaves no turn."""
    session = proxy.new()
    engine.script.append(answers(status, b'{"error": "no"}', content_type="application/json", retry_after="3"))
    refused = proxy.chat(session, [USER])
    assert (refused.status_code, refused.json(), refused.headers["retry-after"]) == (status, {"error": "no"}, "3")
    record = proxy.record(session)
    assert (record["records"], record["head"]["version"], record["turn_under_way"]) == ([], 0, False)
    assert proxy.http.post(f"/sessions/{session}/samples").status_code == 422
    assert message_of(proxy.chat(session, [USER]))["content"] == "Fine."


def test_samples_are_handed_over_once(proxy):
    """Samples are frozen, read as often as needed with the same bytes, acknowledged, and then retired for good."""
    session = proxy.new()
    message = message_of(proxy.chat(session, [USER]))
    proxy.chat(session, [USER, message, USER])
    first = proxy.http.post(f"/sessions/{session}/samples", json={"merge": True})
    assert proxy.http.post(f"/sessions/{session}/samples").content == first.content
    (sample,) = first.json()["samples"]
    assert sample["status"] == "COMPLETED"
    assert len(sample["tokens"]) == len(sample["loss_mask"]) == len(sample["logprobs"]) == sample["length"]
    assert sum(sample["loss_mask"]) == sum(one["completion_tokens"] for one in proxy.record(session)["records"])
    frozen = proxy.chat(session, [USER])
    assert (frozen.status_code, frozen.json()["error"]["code"]) == (409, "session_frozen")
    wrong = proxy.http.post(f"/sessions/{session}/samples", json={"acknowledge": "x"})
    assert wrong.status_code == 409
    digest = first.json()["digest"]
    assert proxy.http.post(f"/sessions/{session}/samples", json={"acknowledge": digest}).json()["retired"] is True
    for late in (
        proxy.chat(session, [USER]),
        proxy.http.get(f"/sessions/{session}"),
        proxy.http.post(f"/sessions/{session}/samples"),
        proxy.http.delete(f"/sessions/{session}"),
    ):
        assert late.status_code == 410


def test_what_is_measured(proxy, engine):
    """Prometheus gets turns by outcome, tokens by origin, and durations."""
    session = proxy.new()
    proxy.chat(session, [USER])
    page = proxy.http.get("/metrics")
    assert page.headers["content-type"].startswith("text/plain")
    assert 'onrecord_rollout_turns_total{finish="stop"} 1.0' in page.text
    assert 'onrecord_rollout_answers_total{status="200"} 1.0' in page.text
    assert proxy.metric("tokens_total", what="sampled") == len(proxy.record(session)["records"][0]["output_ids"])
    assert proxy.metric("record_seconds_count", step="commit") == 1
    assert proxy.http.get("/health").json() == {"status": "ok", "turns_in_flight": 0, "sessions": 1}
