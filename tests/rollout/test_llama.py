"""The dialects of llama.cpp's own server and of SGLang's completions: replies are read into the same form, or refused."""

from typing import Any

import pytest

from onrecord.errors import BadReply
from onrecord.rollout.engines import LLAMA, SGLANG_COMPLETIONS, endpoint, read_reply, upstream_request

SENT = [1, 2, 3]


def llama_reply(**changed):
    """A reply of the completion endpoint, as the server gives it."""
    rows = [
        {"id": 11, "token": "Hi!", "bytes": [72], "logprob": -0.5, "top_logprobs": []},
        {"id": 7, "token": "", "bytes": [], "logprob": -0.25, "top_logprobs": []},
    ]
    return {
        "index": 0, "content": "Hi!", "tokens": [11, 7], "stop": True, "model": "policy", "tokens_predicted": 2,
        "tokens_evaluated": 3, "truncated": False, "stop_type": "eos", "completion_probabilities": rows, **changed,
    }  # fmt: skip


def test_the_endpoint_of_llama():
    """It gets ids and sampling parameters, nothing of a chat; what is not said means the whole distribution."""
    client = {"model": "m", "messages": [{"role": "user", "content": "?"}], "tools": [{}], "max_completion_tokens": 9}
    asked = upstream_request(LLAMA, client | {"temperature": 0.5, "ignore_eos": True}, SENT, done=2)
    assert endpoint(LLAMA) == "/completion"
    assert asked == {
        "prompt": SENT, "n_predict": 7, "temperature": 0.5, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "ignore_eos": True,
        "stream": False, "return_tokens": True, "n_probs": 1, "post_sampling_probs": False, "cache_prompt": True,
    }  # fmt: skip
    assert "n_predict" not in upstream_request(LLAMA, {"messages": []}, SENT)


def test_a_reply_of_llama():
    """Ids with their logprobs, text with its calls, and how it ended."""
    reply = read_reply(LLAMA, llama_reply(), SENT)
    assert (reply.output_ids, reply.logprobs, reply.finish) == ([11, 7], [-0.5, -0.25], "stop")
    assert reply.message == {"role": "assistant", "content": "Hi!"}
    call = '<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>'
    called = read_reply(LLAMA, llama_reply(content=call), SENT)
    assert (called.finish, (called.message or {})["tool_calls"][0]["function"]["name"]) == ("tool_calls", "add")
    assert read_reply(LLAMA, llama_reply(stop_type="limit"), SENT).finish == "length"


@pytest.mark.parametrize(
    "changed",
    [
        {"tokens": None},
        {"tokens": [11]},
        {"tokens": [11, 8]},
        {"completion_probabilities": []},
        {"tokens_evaluated": 4},
        {"tokens_predicted": 3},
        {"truncated": True},
        {"stop_type": "none"},
        {"content": None},
        {"error": {"code": 400}, "tokens": None},
    ],
)
def test_a_reply_that_lacks_something_is_refused(changed):
    """Ids without logprobs, other counts, a prompt that was cut off, an end without a reason: nothing is guessed."""
    with pytest.raises(BadReply):
        read_reply(LLAMA, llama_reply(**changed), SENT)


def test_completions_of_sglang():
    """They get ids and return them; a whole reply names the weights of each token, beside its choices."""
    client = {"messages": [{"role": "user", "content": "?"}], "max_completion_tokens": 9}
    asked = upstream_request(SGLANG_COMPLETIONS, client, SENT)
    assert (endpoint(SGLANG_COMPLETIONS), asked["prompt"], asked["max_tokens"]) == ("/v1/completions", SENT, 9)
    assert "messages" not in asked
    scores = {"text_offset": [-1, -1], "token_logprobs": [-0.5, -0.25], "tokens": ["Hi!", ""], "top_logprobs": []}
    spans = [{"version": "8", "start": 0, "end": 1}, {"version": "9", "start": 1, "end": 2}]
    choice = {"index": 0, "text": "Hi!", "logprobs": scores, "finish_reason": "stop", "token_ids": [11, 7]}
    body: dict[str, Any] = {"id": "c7", "choices": [choice | {"prompt_token_ids": SENT}]}
    body["metadata"] = {"weight_version": "9", "weight_versions": spans}
    reply = read_reply(SGLANG_COMPLETIONS, body, SENT)
    assert (reply.prompt_ids, reply.output_ids, reply.logprobs) == (SENT, [11, 7], [-0.5, -0.25])
    assert reply.weight_versions == (("8", 1), ("9", 1))
