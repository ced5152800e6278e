"""Streams: chunks reach the client as the engine makes them, and the record too; the commit comes before the end."""

import json
import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from examples.rollout.running import Server
from onrecord.session.handle import Session
from tests.rollout.server.places import USER, code_of, ids_of, message_of, says, streams
from tests.waiting import until

ROOT = Path(__file__).resolve().parents[3]
DIALECTS = ["vllm", "vllm-completions"]


@pytest.fixture(params=DIALECTS)
def dialect(request):
    return request.param


@contextmanager
def streaming(proxy, session, messages, **options):
    """The lines of a stream, as they come."""
    body = {"model": "policy", "messages": messages, "stream": True, **options}
    with proxy.http.stream("POST", f"/sessions/{session}/v1/chat/completions", json=body) as response:
        assert response.status_code == 200, response.read()
        yield response.iter_lines()


def said(lines):
    """The next chunk with text or an end."""
    for line in lines:
        if line.startswith("data: "):
            chunk = line.removeprefix("data: ")
            if chunk == "[DONE]":
                return chunk
            parsed = json.loads(chunk)
            if (
                "error" in parsed
                or parsed["choices"][0]["delta"].get("content")
                or parsed["choices"][0]["finish_reason"]
            ):
                return parsed
    return None


def text_of(lines):
    """All text, and how the stream ended."""
    text, chunk = "", said(lines)
    while chunk not in (None, "[DONE]"):
        if "error" in chunk:
            return text, chunk["error"]["code"]
        text += chunk["choices"][0]["delta"].get("content") or ""
        finish = chunk["choices"][0]["finish_reason"]
        chunk = said(lines)
    return text, finish


def partials(proxy, session):
    events = Session(proxy.records.store, session).events(kinds=("tokens.recorded",))
    return [event.data for event in events if event.data["part"] == "partial"]


def test_chunks_come_while_the_engine_generates(start, engine, tokenizer, dialect):
    """The first word is at the client, and on record, before the engine has said the second; the end is committed."""
    proxy = start(dialect=dialect)
    session = proxy.new()
    engine.script.append(streams("Let me", " add these.", wait=1))
    with streaming(proxy, session, [USER]) as lines:
        assert said(lines)["choices"][0]["delta"] == {"content": "Let me"}
        record = until(lambda: (r := proxy.record(session))["tokens_so_far"] and r)
        assert (record["tokens_so_far"], record["turn_under_way"]) == (len(ids_of(tokenizer, "Let me")), True)
        assert record["head"]["num_assistant"] == 0
        engine.go_on.set()
        assert text_of(lines) == (" add these.", "stop")
    (turn,) = proxy.record(session)["records"]
    assert turn["output_ids"] == ids_of(tokenizer, "Let me") + ids_of(tokenizer, " add these.<|im_end|>")
    assert turn["logprobs"] == [-0.5 - at / 64 for at in range(len(turn["output_ids"]))]
    assert (turn["status"], turn["provisional"], turn["message"]["content"]) == (
        "COMPLETED",
        False,
        "Let me add these.",
    )
    asked = engine.requests[0]
    assert (asked["stream"], asked["return_token_ids"]) == (True, True)
    message = message_of(proxy.chat(session, [USER]))
    assert message["content"] == "Let me add these."
    assert len(engine.requests) == 1
    engine.script.append(streams("Fine."))
    with streaming(proxy, session, [USER, message, USER]) as lines:
        assert text_of(lines) == ("Fine.", "stop")
    assert (
        engine.prompts()[1][: len(turn["prompt_ids"] + turn["output_ids"])] == turn["prompt_ids"] + turn["output_ids"]
    )


def test_the_last_chunk_comes_after_the_commit(start, engine):
    """A client that sees how an answer ended finds it on record."""
    proxy = start(dialect="vllm")
    session = proxy.new()
    engine.script.append(streams("Fine", "."))
    with streaming(proxy, session, [USER]) as lines:
        while not said(lines)["choices"][0]["finish_reason"]:
            pass
        (turn,) = proxy.record(session)["records"]
        assert turn["status"] == "COMPLETED"


def test_a_client_that_hangs_up_does_not_end_the_turn(start, engine):
    """The turn continues without its client; the repeated request joins it, from the first word, or gets the answer."""
    proxy = start(dialect="vllm")
    session = proxy.new()
    engine.script.append(streams("Let me", " add.", wait=1))
    with streaming(proxy, session, [USER]) as lines:
        said(lines)
    with streaming(proxy, session, [USER]) as lines, ThreadPoolExecutor(1) as threads:
        whole = threads.submit(proxy.chat, session, [USER])
        assert said(lines)["choices"][0]["delta"] == {"content": "Let me"}
        engine.go_on.set()
        assert text_of(lines) == (" add.", "stop")
        assert message_of(whole.result())["content"] == "Let me add."
    assert len(engine.requests) == 1
    assert [one["status"] for one in proxy.record(session)["records"]] == ["COMPLETED"]


@pytest.mark.parametrize(
    "how",
    [{"end": False}, {"end": False, "headers": {"transfer-encoding": "chunked"}}, {"error": "out of memory"}],
    ids=["connection lost", "in the middle of sized chunks", "an error chunk"],
)
def test_an_engine_that_dies_in_the_middle(start, engine, tokenizer, dialect, how):
    """The client gets an error in the stream; what was sampled is the honest tail, and the next commit supersedes it."""
    proxy = start(dialect=dialect)
    session = proxy.new()
    engine.script.append(streams("Let me", " add", **how))
    with streaming(proxy, session, [USER]) as lines:
        assert text_of(lines) == ("Let me add", "upstream_failed")
    (tail,) = proxy.record(session)["records"]
    assert (tail["status"], tail["provisional"]) == ("INFRA", True)
    assert tail["output_ids"] == ids_of(tokenizer, "Let me") + ids_of(tokenizer, " add")
    assert tail["logprobs"] == [-0.5 - at / 64 for at in range(len(tail["output_ids"]))]
    assert proxy.record(session)["head"]["num_assistant"] == 0
    assert proxy.metric("turns_total", finish="error") == 1
    engine.script.append(streams("Fine."))
    with streaming(proxy, session, [USER]) as lines:
        assert text_of(lines) == ("Fine.", "stop")
    assert engine.prompts()[0] == engine.prompts()[1]
    assert [one["status"] for one in proxy.record(session)["records"]] == ["COMPLETED"]


def test_a_tail_is_a_sample(start, engine, tokenizer):
    """Without another turn, the sample ends with the tokens that came before the engine died, each with its logprob."""
    proxy = start(dialect="vllm")
    session = proxy.new()
    engine.script.append(streams("Let me", end=False))
    with streaming(proxy, session, [USER]) as lines:
        text_of(lines)
    (sample,) = proxy.http.post(f"/sessions/{session}/samples").json()["samples"]
    assert sample["status"] == "INFRA"
    assert sample["tokens"] == engine.prompts()[0] + ids_of(tokenizer, "Let me")
    assert sum(sample["loss_mask"]) == len(ids_of(tokenizer, "Let me"))


def test_a_proxy_that_is_killed_in_the_middle(start, tmp_path, engine, tokenizer, tokenizer_place):
    """After kill -9 the tokens that were streamed are on record as INCOMPLETE; the next proxy answers from the same ids."""
    first = start(dialect="vllm")
    session = first.new()
    first.stop()
    engine.script.append(streams("Let me", " add.", wait=1))
    words = (
        "-m", "onrecord", "rollout", "serve", "--store", str(tmp_path / "store.db"), "--project", "rollouts",
        "--upstream", engine.url, "--tokenizer", str(tokenizer_place), "--dialect", "vllm", "--port", "0",
    )  # fmt: skip
    second = start(dialect="vllm")
    with Server(*words, environment={"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])}) as mortal:
        body = {"model": "policy", "messages": [USER], "stream": True}
        url = f"{mortal.url}/sessions/{session}/v1/chat/completions"
        with httpx.stream("POST", url, json=body, timeout=90, trust_env=False) as response:
            lines = response.iter_lines()
            assert said(lines)["choices"][0]["delta"] == {"content": "Let me"}
            until(lambda: partials(second, session))
            mortal.kill()
            with pytest.raises(httpx.TransportError):
                list(lines)
    engine.go_on.set()
    engine.script.append(streams("Fine."))
    with streaming(second, session, [USER]) as lines:
        assert text_of(lines) == ("Fine.", "stop")
    assert engine.prompts()[0] == engine.prompts()[1]
    assert len(partials(second, session)) >= 1
    assert [one["status"] for one in second.record(session)["records"]] == ["COMPLETED"]


def test_what_a_killed_proxy_streamed_is_the_last_turn(start, engine, tokenizer):
    """Without another request, the record ends with an INCOMPLETE turn that has the streamed tokens."""
    proxy = start(dialect="vllm", drain_seconds=0)
    session = proxy.new()
    engine.script.append(streams("Let me", " add.", wait=1))
    with streaming(proxy, session, [USER]) as lines:
        said(lines)
        until(lambda: partials(proxy, session))
    proxy.stop()
    (tail,) = start(dialect="vllm").record(session)["records"]
    assert (tail["status"], tail["provisional"]) == ("INCOMPLETE", True)
    assert tail["output_ids"] == ids_of(tokenizer, "Let me")


@pytest.mark.parametrize(("policy", "ended"), [("retry", "turn_aborted"), ("503", "turn_aborted"), ("pass", "abort")])
def test_an_abort_in_the_middle(start, engine, policy, ended):
    """What a client has received cannot be taken back: the stream ends with an error, or with the abort itself."""
    proxy = start(dialect="vllm", abort_policy=policy)
    session = proxy.new()
    engine.script.append(streams("Let me", finish="abort"))
    with streaming(proxy, session, [USER]) as lines:
        assert text_of(lines) == ("Let me", ended)
    (tail,) = proxy.record(session)["records"]
    assert (tail["status"], tail["provisional"]) == ("ABORTED", True)
    engine.script.append(streams("Fine."))
    with streaming(proxy, session, [USER]) as lines:
        assert text_of(lines) == ("Fine.", "stop")


def test_an_abort_before_the_first_word_is_retried(start, engine):
    """As long as the client has received nothing, an aborted turn is retried as usual."""
    proxy = start(dialect="vllm")
    session = proxy.new()
    engine.script.extend([streams(finish="abort"), streams("Fine.")])
    with streaming(proxy, session, [USER]) as lines:
        assert text_of(lines) == ("Fine.", "stop")
    assert proxy.metric("retries_total") == 1


def test_an_aborted_stream_continues(start, engine, tokenizer, dialect):
    """Policy `continue`: the same stream continues after an abort, and the record has all ids of both parts once."""
    proxy = start(dialect=dialect, abort_policy="continue")
    session = proxy.new()
    engine.script.extend([streams("Let me", finish="abort"), streams(" add", " these.")])
    with streaming(proxy, session, [USER], max_tokens=50) as lines:
        assert text_of(lines) == ("Let me add these.", "stop")
    (turn,) = proxy.record(session)["records"]
    parts = [ids_of(tokenizer, text) for text in ("Let me", " add", " these.", "<|im_end|>")]
    assert turn["output_ids"] == [id for part in parts for id in part]
    assert engine.prompts()[1] == engine.prompts()[0] + parts[0]
    assert turn["message"]["content"] == "Let me add these."


def test_an_aborted_stream_continues_as_it_was_sent(start, engine):
    """The client has received thinking that the engine then took for text: the record has what the client has."""
    proxy = start(dialect="vllm", abort_policy="continue")
    session = proxy.new()

    def thinks(engine, asked):
        status, headers, chunks = streams("I think", finish="abort")(engine, asked)

        def renamed():
            for chunk in chunks:
                for choice in chunk["choices"] if isinstance(chunk, dict) else []:
                    delta = choice.get("delta") or {}
                    if delta.get("content"):
                        delta["reasoning_content"] = delta.pop("content")
                yield chunk

        return status, headers, renamed()

    engine.script.extend([thinks, streams(" so.</think>", "42.")])
    with streaming(proxy, session, [USER]) as lines:
        assert text_of(lines) == (" so.</think>42.", "stop")
    (turn,) = proxy.record(session)["records"]
    assert turn["message"]["content"] == " so.</think>42."
    assert turn["message"]["reasoning_content"] == "I think"


def test_a_cut_off_stream_continues_in_another_proxy(start, engine, tokenizer):
    """Policy `continue`: the next proxy continues the tokens that a stopped one had streamed, and says all of them."""
    first = start(dialect="vllm-completions", abort_policy="continue", drain_seconds=0)
    session = first.new()
    engine.script.append(streams("Let me", " nothing", wait=1))
    with streaming(first, session, [USER]) as lines:
        said(lines)
        until(lambda: partials(first, session))
    first.stop()
    engine.go_on.set()
    second = start(dialect="vllm-completions", abort_policy="continue")
    engine.script.append(streams(" add."))
    with streaming(second, session, [USER]) as lines:
        assert text_of(lines) == ("Let me add.", "stop")
    assert engine.prompts()[1] == engine.prompts()[0] + ids_of(tokenizer, "Let me")
    (turn,) = second.record(session)["records"]
    assert turn["message"]["content"] == "Let me add."
    assert turn["output_ids"][: len(ids_of(tokenizer, "Let me"))] == ids_of(tokenizer, "Let me")


def test_calls_in_text_are_not_sent_as_text(start, engine):
    """With the completions dialect, a call is held until it is whole; then the client gets a call, and the same record."""
    proxy = start(dialect="vllm-completions")
    session = proxy.new()
    call = '_call>{"name": "add", "arguments": {"a": 17, "b": 25}}</tool_call>'
    engine.script.append(streams("\nLet me. ", "<tool", call))
    with streaming(proxy, session, [USER]) as lines:
        chunks = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    assert "".join(delta.get("content") or "" for delta in deltas) == "\nLet me."
    (given,) = [call for delta in deltas for call in delta.get("tool_calls", [])]
    assert given["function"] == {"name": "add", "arguments": '{"a": 17, "b": 25}'}
    message = {"role": "assistant", "content": "\nLet me.", "tool_calls": [given]}
    engine.script.append(streams("Fine."))
    result = {"role": "tool", "content": "42", "tool_call_id": given["id"]}
    with streaming(proxy, session, [USER, message, result]) as lines:
        assert text_of(lines) == ("Fine.", "stop")


def test_calls_of_an_engine_are_passed_on(start, engine):
    """A call that the engine parses comes in parts, which add up to the recorded one."""
    proxy = start(dialect="vllm")
    session = proxy.new()
    call = {"index": 0, "id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
    engine.script.append(streams("Let me.", calls=[call]))
    with streaming(proxy, session, [USER]) as lines:
        list(lines)
    (turn,) = proxy.record(session)["records"]
    assert turn["message"]["tool_calls"] == [{key: call[key] for key in ("id", "type", "function")}]


def test_logprobs_in_a_stream(start, engine):
    """A client that wants logprobs gets one for each sampled token, with the chunk that has it."""
    proxy = start(dialect="vllm")
    session = proxy.new()
    engine.script.append(streams("Let me", " add."))
    with streaming(proxy, session, [USER], logprobs=True) as lines:
        chunks = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
    rows = [row for chunk in chunks for row in ((chunk["choices"][0]["logprobs"] or {}).get("content") or [])]
    (turn,) = proxy.record(session)["records"]
    assert [row["token"] for row in rows] == [f"token_id:{id}" for id in turn["output_ids"]]
    assert [row["logprob"] for row in rows] == turn["logprobs"]


def test_whole_streams(start, engine):
    """With `whole_streams`, a client gets its chunks after the commit, and the engine is not asked for a stream."""
    proxy = start(dialect="vllm-completions", whole_streams=True)
    session = proxy.new()
    engine.script.append(
        lambda engine, asked: (200, {}, {"id": "w", "choices": [{
            "index": 0, "text": "Fine.", "finish_reason": "stop", "token_ids": [5], "prompt_token_ids": asked["prompt"],
            "logprobs": {"tokens": ["5"], "token_logprobs": [-1.0]}}]})
    )  # fmt: skip
    with streaming(proxy, session, [USER]) as lines:
        assert text_of(lines) == ("Fine.", "stop")
    assert engine.requests[0]["stream"] is False


def test_an_engine_that_answers_a_stream_with_one_body(start, engine):
    """It is a reply like any other."""
    proxy = start(dialect="vllm")
    session = proxy.new()
    engine.script.append(
        lambda engine, asked: (200, {"content-type": "application/json"}, {"id": "w", "choices": [{
            "index": 0, "message": {"content": "Fine."}, "finish_reason": "stop", "token_ids": [5],
            "logprobs": {"content": [{"logprob": -1.0}]}}], "prompt_token_ids": asked["prompt_token_ids"]})
    )  # fmt: skip
    with streaming(proxy, session, [USER]) as lines:
        assert text_of(lines) == ("Fine.", "stop")


def test_an_engine_that_refuses_a_stream(start, engine):
    """Before the first word, every error has its own status."""
    proxy = start(dialect="vllm")
    session = proxy.new()
    engine.script.append(lambda _engine, _asked: (429, {"retry-after": "7"}, b"slow down"))
    refused = proxy.chat(session, [USER], stream=True)
    assert (refused.status_code, refused.text, refused.headers["retry-after"]) == (429, "slow down", "7")
    engine.script.append(says("Fine."))  # no ids where vLLM has them
    assert code_of(proxy.chat(session, [USER], stream=True)) == (502, "bad_reply")


def test_a_stream_without_ids_is_not_recorded(start, engine):
    """A reply whose chunks lack ids is refused as a whole, with an error at the end of the stream."""
    proxy = start(dialect="vllm")
    session = proxy.new()

    def chunks(asked):
        head = {"id": "x", "prompt_token_ids": asked["prompt_token_ids"]}
        yield {**head, "choices": [{"index": 0, "delta": {"content": "Fine."}, "finish_reason": "stop"}]}

    engine.script.append(lambda _engine, asked: (200, {}, chunks(asked)))
    with streaming(proxy, session, [USER]) as lines:
        assert text_of(lines) == ("Fine.", "bad_reply")
    assert proxy.record(session)["records"] == []


@pytest.mark.parametrize(
    "choice",
    [
        {"delta": {"content": 7}},
        {"delta": {"reasoning_content": ["I think"]}},
        {"delta": {"tool_calls": [{"index": 0, "function": {"name": "add", "arguments": {"a": 1}}}]}, "token_ids": [5],
         "logprobs": {"content": [{"logprob": -1.0}]}},
        {"text": "Fine.", "logprobs": {"tokens": 7, "token_logprobs": 7}},
        {"delta": {"content": "\ud800"}, "token_ids": [5], "logprobs": {"content": [{"logprob": -1.0}]}},
    ],
    ids=["content", "thinking", "arguments", "logprobs", "half a letter"],
)  # fmt: skip
def test_an_odd_chunk_is_a_bad_reply(start, engine, choice):
    """A chunk that no message can have is refused with its reason, on record too; the turn can be repeated at once."""
    proxy = start(dialect="vllm")
    session = proxy.new()

    def chunks(asked):
        head = {"id": "x", "prompt_token_ids": asked["prompt_token_ids"]}
        yield {**head, "choices": [{"index": 0, "finish_reason": "stop", **choice}]}

    engine.script.append(lambda _engine, asked: (200, {}, chunks(asked)))
    refused = proxy.chat(session, [USER], stream=True)
    assert '"code":"bad_reply"' in refused.text
    record = proxy.record(session)
    assert (record["records"], record["turn_under_way"]) == ([], False)
    engine.script.append(streams("Fine."))
    with streaming(proxy, session, [USER]) as lines:
        assert text_of(lines) == ("Fine.", "stop")
