"""Replies of engines, read into one form; and the requests to engines."""

import contextlib
import copy
import json
import math
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onrecord.errors import BadReply, InvalidInput
from onrecord.rollout.engines import (
    DIALECTS,
    LLAMA,
    SGLANG,
    VLLM,
    VLLM_COMPLETIONS,
    VLLM_GENERATE,
    endpoint,
    load_json,
    read_reply,
    upstream_request,
    with_calls,
)
from onrecord.rollout.requests import check_request
from tests.rollout.test_llama import llama_reply

SENT = [1, 2, 3]
CALL = {"id": "call_0", "type": "function", "index": 0, "function": {"name": "add", "arguments": '{"a": 1}'}}


def sglang_reply(**meta):
    return {
        "id": "e1f0",
        "object": "chat.completion",
        "created": 1_770_000_000,
        "model": "policy",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "Hi!", "reasoning_content": None, "tool_calls": None},
                "logprobs": None,
                "finish_reason": "stop",
                "matched_stop": 7,
                "meta_info": {
                    "id": "e1f0",
                    "finish_reason": {"type": "stop", "matched": 7},
                    "prompt_tokens": 3,
                    "completion_tokens": 2,
                    "cached_tokens": 0,
                    "weight_version": "4",
                    "output_token_logprobs": [[-0.5, 11, None], [-0.25, 7, None]],
                    **meta,
                },
            }
        ],
        "usage": {"prompt_tokens": 3, "total_tokens": 5, "completion_tokens": 2},
    }


def vllm_reply():
    return {
        "id": "chatcmpl-9",
        "object": "chat.completion",
        "model": "policy",
        "prompt_token_ids": [1, 2, 3],
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "Hi!", "tool_calls": []},
                "logprobs": {
                    "content": [
                        {"token": "token_id:11", "logprob": -0.5, "bytes": None, "top_logprobs": []},
                        {"token": "token_id:7", "logprob": -0.25, "bytes": None, "top_logprobs": []},
                    ]
                },
                "finish_reason": "stop",
                "token_ids": [11, 7],
            }
        ],
        "usage": {"prompt_tokens": 3, "completion_tokens": 2},
    }


def completion_reply(text="Hi!"):
    return {
        "id": "cmpl-9",
        "object": "text_completion",
        "choices": [
            {
                "index": 0,
                "text": text,
                "logprobs": {"tokens": ["Hi!", ""], "token_logprobs": [-0.5, -0.25], "text_offset": [0, 3]},
                "finish_reason": "stop",
                "token_ids": [11, 7],
                "prompt_token_ids": [1, 2, 3],
            }
        ],
        "usage": {"prompt_tokens": 3, "completion_tokens": 2},
    }


def generate_reply(**choice):
    """A reply of vLLM's endpoint for ids, as version 0.32 gives it."""
    rows = [{"token": "Hi!", "logprob": -0.5, "bytes": [72], "top_logprobs": []}]
    rows += [{"token": "", "logprob": -0.25, "bytes": [], "top_logprobs": []}]
    return {
        "request_id": "generate-tokens-9",
        "output_mode": "text",
        "model": "policy",
        "prompt_token_ids": [1, 2, 3],
        "choices": [
            {
                "index": 0,
                "text": "Hi!",
                "logprobs": {"content": rows},
                "finish_reason": "stop",
                "stop_reason": None,
                "token_ids": [11, 7],
                "weight_versions": [{"version": "8", "start": 0, "end": 1}, {"version": "9", "start": 1, "end": 2}],
                **choice,
            }
        ],
        "usage": {"prompt_tokens": 3, "completion_tokens": 2},
    }


def said(reply):
    """The message of a reply that has one."""
    assert reply.message is not None
    return reply.message


def changed(reply, path, value):
    """The reply with one value changed; `...` removes it."""
    reply = copy.deepcopy(reply)
    at = reply
    for step in path[:-1]:
        at = at[step]
    if value is ...:
        del at[path[-1]]
    else:
        at[path[-1]] = value
    return reply


CHOICE = ("choices", 0)
META = (*CHOICE, "meta_info")


def aborted(reply, message="weight update"):
    reply = changed(reply, (*META, "finish_reason"), {"type": "abort", "message": message})
    return changed(reply, (*CHOICE, "finish_reason"), "abort")


def test_a_reply_of_sglang():
    """Ids and logprobs come from meta_info, the weight version as a span over all of them."""
    reply = read_reply(SGLANG, sglang_reply(), SENT)
    assert (reply.output_ids, reply.logprobs) == ([11, 7], [-0.5, -0.25])
    assert (reply.prompt_ids, reply.finish, reply.abort_cause) == (None, "stop", "")
    assert (reply.weight_versions, reply.response_id, reply.side_payloads) == ((("4", 2),), "e1f0", {})
    assert reply.message == {"role": "assistant", "content": "Hi!"}


@pytest.mark.parametrize(
    ("listed", "expected"),
    [
        ([{"version": "4", "start": 0, "end": 1}, {"version": "5", "start": 1, "end": 2}], (("4", 1), ("5", 1))),
        ([{"version": "4", "start": 0, "end": 2}], (("4", 2),)),
        ([{"version": 0, "start": 0, "end": 2}], (("0", 2),)),
        ([{"version": "5", "start": 1, "end": 2}], (("", 1), ("5", 1))),
        ([{"version": "4", "start": 0, "end": 1}], (("4", 1), ("", 1))),
        ([{"version": "4", "start": 0, "end": 9}, "odd", {"start": True, "end": 2}], (("", 2),)),
    ],
)
def test_weights_that_changed_inside_a_reply(listed, expected):
    """Spans of versions are kept token by token; tokens that no valid span covers have an unknown version."""
    reply = read_reply(SGLANG, changed(sglang_reply(), (*META, "weight_versions"), listed), SENT)
    assert reply.weight_versions == expected


@pytest.mark.parametrize(("dialect", "make"), [(VLLM, vllm_reply), (VLLM_COMPLETIONS, completion_reply)])
def test_a_reply_of_vllm(dialect, make):
    """Both endpoints of vLLM give the same normalised reply, with the prompt ids that the engine reports."""
    reply = read_reply(dialect, make(), SENT)
    assert (reply.prompt_ids, reply.output_ids, reply.logprobs) == ([1, 2, 3], [11, 7], [-0.5, -0.25])
    assert (reply.finish, reply.weight_versions) == ("stop", ())
    assert said(reply)["content"] == "Hi!"


def test_ids_may_be_named_in_the_logprobs():
    """A vLLM that returns tokens as `token_id:123` does not need to return token_ids."""
    reply = read_reply(VLLM, changed(vllm_reply(), (*CHOICE, "token_ids"), ...), SENT)
    assert reply.output_ids == [11, 7]
    words = changed(vllm_reply(), (*CHOICE, "token_ids"), ...)
    words = changed(words, (*CHOICE, "logprobs", "content", 0, "token"), "Hi")
    with pytest.raises(BadReply, match="no token_ids"):
        read_reply(VLLM, words, SENT)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("choices",), []),
        (("choices",), None),
        (("choices",), [{}, {}]),
        ((*CHOICE, "message"), None),
        ((*CHOICE, "message"), "Hi!"),
        ((*CHOICE, "meta_info"), None),
        ((*CHOICE, "finish_reason"), "tired"),
        ((*CHOICE, "finish_reason"), None),
        ((*CHOICE, "finish_reason"), ["stop"]),
        ((*META, "output_token_logprobs"), ...),
        ((*META, "output_token_logprobs"), []),
        ((*META, "output_token_logprobs"), [[-0.5, 11, None]]),
        ((*META, "output_token_logprobs", 0), [-0.5]),
        ((*META, "output_token_logprobs", 0), None),
        ((*META, "output_token_logprobs", 0, 0), None),
        ((*META, "output_token_logprobs", 0, 0), float("nan")),
        ((*META, "output_token_logprobs", 0, 0), float("-inf")),
        ((*META, "output_token_logprobs", 0, 0), "-0.5"),
        ((*META, "output_token_logprobs", 0, 1), -1),
        ((*META, "output_token_logprobs", 0, 1), True),
        ((*META, "output_token_logprobs", 0, 1), 2**31),
        ((*META, "output_token_logprobs", 0, 1), 11.0),
        ((*META, "completion_tokens"), 3),
        ((*META, "prompt_tokens"), 4),
        (("usage", "completion_tokens"), 1),
        ((*CHOICE, "prompt_token_ids"), [1, "2"]),
    ],
)
def test_a_bad_reply_of_sglang_is_refused(path, value):
    """Missing ids, lengths that differ, a null message, invalid numbers: such a reply is refused."""
    with pytest.raises(BadReply):
        read_reply(SGLANG, changed(sglang_reply(), path, value), SENT)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("prompt_token_ids",), ...),
        (("prompt_token_ids",), [1, 2]),
        ((*CHOICE, "token_ids"), [11]),
        ((*CHOICE, "token_ids"), "11"),
        ((*CHOICE, "logprobs"), None),
        ((*CHOICE, "logprobs", "content", 1), None),
        ((*CHOICE, "message"), None),
        (("usage", "completion_tokens"), 7),
    ],
)
def test_a_bad_reply_of_vllm_is_refused(path, value):
    """The same is true for vLLM; a reply without the prompt ids is refused too."""
    with pytest.raises(BadReply):
        read_reply(VLLM, changed(vllm_reply(), path, value), SENT)


@pytest.mark.parametrize("body", [None, [], "ok", 7, {"error": "x"}])
def test_something_else_than_a_reply_is_refused(body):
    """A reply that is not an object with one choice is refused."""
    for dialect in (SGLANG, VLLM, VLLM_COMPLETIONS):
        with pytest.raises(BadReply):
            read_reply(dialect, body, SENT)


def test_an_abort_keeps_what_was_sampled():
    """An abort is an answer: the partial ids, their logprobs, and the engine's message about the cause."""
    reply = read_reply(SGLANG, aborted(sglang_reply()), SENT)
    assert (reply.finish, reply.abort_cause, reply.output_ids) == ("abort", "weight update", [11, 7])
    assert read_reply(VLLM, changed(vllm_reply(), (*CHOICE, "finish_reason"), "abort"), SENT).abort_cause == "abort"


def test_an_abort_in_the_waiting_queue():
    """A generation aborted before it was scheduled has no prompt_tokens and no samples, and is still an abort."""
    waiting = aborted(sglang_reply(completion_tokens=0, output_token_logprobs=[]))
    waiting = changed(waiting, (*META, "prompt_tokens"), ...)
    waiting["usage"] = {"prompt_tokens": 0, "completion_tokens": 0}
    waiting["choices"][0]["message"]["content"] = ""
    reply = read_reply(SGLANG, waiting, SENT)
    assert (reply.finish, reply.output_ids, reply.logprobs, reply.weight_versions) == ("abort", [], [], ())
    waiting["choices"][0]["message"] = None
    assert read_reply(SGLANG, waiting, SENT).message is None
    del waiting["choices"][0]["meta_info"]["output_token_logprobs"]
    assert read_reply(SGLANG, waiting, SENT).output_ids == []
    empty = changed(vllm_reply(), (*CHOICE, "finish_reason"), "abort")
    empty["choices"][0] |= {"token_ids": [], "logprobs": None}
    empty["usage"] = {"prompt_tokens": 3, "completion_tokens": 0}
    assert read_reply(VLLM, empty, SENT).output_ids == []


def test_an_abort_that_sampled_something_must_say_what():
    """An abort that counts tokens it does not return is a bad reply: sampled tokens are never dropped."""
    with pytest.raises(BadReply):
        read_reply(SGLANG, aborted(changed(sglang_reply(), (*META, "output_token_logprobs"), ...)), SENT)


def test_an_aborted_turn_with_a_call_stays_aborted():
    """A call parsed from an aborted turn is kept, and the turn is still aborted, whatever the choice says."""
    body = changed(sglang_reply(), (*META, "finish_reason"), {"type": "abort", "message": "x" * 900})
    body = changed(body, (*CHOICE, "finish_reason"), "tool_calls")
    body["choices"][0]["message"]["tool_calls"] = [CALL]
    reply = read_reply(SGLANG, body, SENT)
    assert (reply.finish, said(reply)["tool_calls"], len(reply.abort_cause)) == ("abort", [CALL], 500)


def test_other_ends():
    """Length, tool calls and an engine's error are kept as finish reasons."""
    for said, finish in (("length", "length"), ("tool_calls", "tool_calls"), ("error", "error")):
        body = changed(sglang_reply(), (*CHOICE, "finish_reason"), said)
        assert read_reply(SGLANG, body, SENT).finish == finish


def test_side_payloads_are_kept():
    """Side payloads for the trainer come with the reply."""
    assert read_reply(SGLANG, sglang_reply(routed_experts="AAECAw=="), SENT).side_payloads == {
        "routed_experts": "AAECAw=="
    }


REQUEST = {
    "model": "policy",
    "messages": [{"role": "user", "content": "Hi"}],
    "stream": True,
    "stream_options": {"include_usage": True},
    "temperature": 0.7,
    "max_tokens": 10,
    "input_ids": [666],
    "n": 1,
}


def test_what_sglang_is_asked():
    """Ids in, never a stream, logprobs and meta_info out; a client cannot inject its own ids."""
    body = upstream_request(SGLANG, REQUEST, SENT)
    assert endpoint(SGLANG) == "/v1/chat/completions"
    assert (body["input_ids"], body["stream"], body["logprobs"], body["return_meta_info"]) == (SENT, False, True, True)
    assert body["temperature"] == 0.7
    assert "stream_options" not in body
    assert "n" not in body


def test_what_vllm_is_asked():
    """The chat endpoint gets messages and ids; the completions endpoint gets ids alone."""
    body = upstream_request(VLLM, REQUEST, SENT)
    assert (body["prompt_token_ids"], body["return_token_ids"], body["stream"]) == (SENT, True, False)
    assert body["messages"] == REQUEST["messages"]
    assert body["kv_transfer_params"] == {"prompt_token_ids": SENT}, "where version 0.32 reads them"
    given = upstream_request(VLLM, REQUEST | {"kv_transfer_params": {"do_remote_decode": True}}, SENT)
    assert given["kv_transfer_params"] == {"do_remote_decode": True, "prompt_token_ids": SENT}
    plain = upstream_request(VLLM_COMPLETIONS, REQUEST | {"max_completion_tokens": 9, "tools": [{}]}, SENT)
    assert endpoint(VLLM_COMPLETIONS) == "/v1/completions"
    assert (plain["prompt"], plain["max_tokens"], plain["add_special_tokens"]) == (SENT, 9, False)
    assert not {"messages", "tools", "max_completion_tokens"} & set(plain)


def test_a_continued_turn_has_fewer_tokens_left():
    """Tokens sampled before an abort count against the client's limit."""
    assert upstream_request(SGLANG, REQUEST, [*SENT, 11, 12], done=2)["max_tokens"] == 8


@pytest.mark.parametrize(
    "text", ["<tool_call>{}</tool_call>", "<tool_call>{x}</tool_call>", '<tool_call>{"name": 1}</tool_call>', "none"]
)
def test_what_is_no_call_stays_text(text):
    """Text that only looks like a call is left alone."""
    message = {"role": "assistant", "content": text}
    assert with_calls(message) == message


def test_calls_in_a_plain_completion():
    """The completions endpoint parses no calls, so they are parsed here."""
    text = 'Go.<tool_call>{"name": "add", "arguments": {"a": 1}}</tool_call>'
    reply = read_reply(VLLM_COMPLETIONS, completion_reply(text), SENT)
    assert (reply.finish, said(reply)["content"]) == ("tool_calls", "Go.")


@pytest.mark.parametrize(
    "request_",
    [
        None, [], {}, {"messages": []}, {"messages": "hi"}, {"messages": [{}]}, {"messages": [{"role": 1}]},
        {"messages": [None]}, REQUEST | {"n": 2}, REQUEST | {"n": True}, REQUEST | {"max_tokens": 0},
        REQUEST | {"tools": "all"}, REQUEST | {"tools": [1]},
    ],
)  # fmt: skip
def test_what_cannot_be_a_turn_is_refused(request_):
    """A request without messages, or for more than one answer, is refused before anything happens."""
    with pytest.raises(InvalidInput):
        check_request(request_)


def test_json_is_read_by_the_standard():
    """NaN and Infinity are Python, not JSON, and are refused."""
    assert load_json(b'{"a": [1, 2.5]}') == {"a": [1, 2.5]}
    for text in (b"NaN", b"[-Infinity]", b"{", json.dumps({"a": float("inf")}).encode()):
        with pytest.raises(ValueError, match=r"."):
            load_json(text)


NUMBERS = st.integers(-5, 2**40) | st.floats() | st.booleans()
ANYTHING = st.recursive(
    st.none()
    | NUMBERS
    | st.text(max_size=5)
    | st.sampled_from(["abort", "stop", "token_id:7", "token_id:99999999999"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["type", "content", "id"]), inner),
    max_leaves=5,
)
PLACES = [
    ("id",), ("usage",), ("choices",), ("prompt_token_ids",), ("usage", "prompt_tokens"), ("usage", "completion_tokens"),
    CHOICE, (*CHOICE, "message"), (*CHOICE, "finish_reason"), (*CHOICE, "logprobs"), (*CHOICE, "token_ids"),
    (*CHOICE, "text"), (*CHOICE, "meta_info"), (*CHOICE, "weight_version"), (*CHOICE, "routed_experts"),
    (*CHOICE, "prompt_token_ids"), (*META, "finish_reason"), (*META, "output_token_logprobs"), (*META, "weight_version"),
    (*META, "output_token_logprobs", 0), (*META, "output_token_logprobs", 0, 0), (*META, "completion_tokens"),
    (*CHOICE, "logprobs", "content"), (*CHOICE, "logprobs", "content", 0), (*CHOICE, "logprobs", "token_logprobs"),
    ("tokens",), ("completion_probabilities",), ("completion_probabilities", 0), ("stop_type",), ("content",),
]  # fmt: skip


@given(st.sampled_from(DIALECTS), st.lists(st.tuples(st.sampled_from(PLACES), ANYTHING), min_size=1, max_size=3))
def test_no_reply_is_hostile_enough(dialect, changes):
    """Any reply is either refused as a bad reply or read into a consistent one; nothing else happens."""
    made = {SGLANG: sglang_reply, VLLM: vllm_reply, VLLM_GENERATE: generate_reply, LLAMA: llama_reply}
    body = made.get(dialect, completion_reply)()
    for path, value in changes:
        with contextlib.suppress(KeyError, IndexError, TypeError):
            body = changed(body, path, value)
    try:
        reply = read_reply(dialect, body, SENT)
    except BadReply:
        return
    assert len(reply.output_ids) == len(reply.logprobs)
    assert all(type(id_) is int and 0 <= id_ < 2**31 for id_ in reply.output_ids)
    assert all(type(score) is float and math.isfinite(score) for score in reply.logprobs)
    assert sum(length for _version, length in reply.weight_versions) in (0, len(reply.output_ids))
    assert reply.finish in ("stop", "tool_calls", "length", "abort", "error")
    assert reply.message is None or reply.message["role"]
    assert isinstance(reply.abort_cause, str)
    assert isinstance(reply.response_id, str)


def test_a_parser_of_your_own_finds_the_calls():
    """A parser gets the whole text and returns the message; a message that no template renders is a bad reply."""
    call = {"id": "1", "type": "function", "function": {"name": "add", "arguments": "{}"}}
    reply = read_reply(VLLM_COMPLETIONS, completion_reply(), SENT, lambda message: message | {"tool_calls": [call]})
    assert ((reply.message or {})["tool_calls"], reply.finish) == ([call], "tool_calls")
    odd: list[Any] = [None, {"content": 7}, {"content": "", "tool_calls": ["add"]}]
    for broken in odd:
        with pytest.raises(BadReply):
            read_reply(VLLM_COMPLETIONS, completion_reply(), SENT, partial(lambda said, _message: said, broken))


def test_the_endpoint_of_vllm_for_ids():
    """It gets ids and sampling parameters, nothing of a chat; its reply has the weights of each token."""
    client = REQUEST | {"max_completion_tokens": 9, "tools": [{}], "top_k": 4, "ignore_eos": True, "stop": ["x"]}
    asked = upstream_request(VLLM_GENERATE, client | {"min_tokens": 8}, SENT, done=2)
    assert asked["sampling_params"]["min_tokens"] == 6
    assert endpoint(VLLM_GENERATE) == "/inference/v1/generate"
    assert asked["token_ids"] == SENT
    assert (asked["output_mode"], asked["return_token_ids"], asked["stream"]) == ("text", True, False)
    expected = {"top_k": 4, "ignore_eos": True, "stop": ["x"], "logprobs": 0, "max_tokens": 7}
    assert expected.items() <= asked["sampling_params"].items()
    assert not {"messages", "tools", "logprobs", "max_completion_tokens"} & set(asked)
    reply = read_reply(VLLM_GENERATE, generate_reply(), SENT)
    assert (reply.prompt_ids, reply.output_ids, reply.logprobs) == (SENT, [11, 7], [-0.5, -0.25])
    assert (reply.weight_versions, reply.response_id) == ((("8", 1), ("9", 1)), "generate-tokens-9")
    assert reply.message == {"role": "assistant", "content": "Hi!"}
    call = '<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>'
    called = read_reply(VLLM_GENERATE, generate_reply(text=call), SENT)
    assert (called.finish, said(called)["tool_calls"][0]["function"]["name"]) == ("tool_calls", "add")


@pytest.mark.parametrize(
    ("listed", "expected"),
    [
        ([{"version": "default", "start": 0, "end": 2}], ()),
        ([{"version": "default", "start": 0, "end": 1}, {"version": "2", "start": 1, "end": 2}], (("", 1), ("2", 1))),
    ],
)
def test_unnamed_weights_have_no_version(listed, expected):
    """`default` is what engines say for weights without a name: a version that the trainer reports counts instead."""
    assert read_reply(VLLM_GENERATE, generate_reply(weight_versions=listed), SENT).weight_versions == expected
    assert read_reply(SGLANG, sglang_reply(weight_version="default"), SENT).weight_versions == ()
