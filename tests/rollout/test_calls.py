"""Calls that are parsed here: their arguments and their ids."""

import pytest

from onrecord.rollout.engines import VLLM_COMPLETIONS, read_reply, with_calls
from tests.rollout.test_engines import completion_reply, said


@pytest.mark.parametrize("arguments", ['{"x": 1e999}', '{"x":  "\\ud800"}', '{"y": {"arguments": 1}, "x": -1e999}'])
def test_arguments_that_json_cannot_write_again_stay_as_written(arguments):
    """A number or a half letter that would not survive is on record as the model wrote it, and not as Infinity."""
    for text in (f'{{"name": "f", "arguments": {arguments}}}', f'{{"arguments" : {arguments} , "name": "f"}}'):
        (call,) = with_calls({"role": "assistant", "content": f"<tool_call>{text}</tool_call>"})["tool_calls"]
        assert call["function"] == {"name": "f", "arguments": arguments}


def test_no_two_replies_name_their_calls_alike():
    """Ids of calls depend on the ids of prompt and reply only: the same again, and others in every later turn."""
    text = '<tool_call>{"name": "a"}</tool_call><tool_call>{"name": "b"}</tool_call>'

    def names(prompt):
        body = completion_reply(text)
        body["choices"][0]["prompt_token_ids"] = prompt
        body["usage"]["prompt_tokens"] = len(prompt)
        return [call["id"] for call in said(read_reply(VLLM_COMPLETIONS, body, prompt))["tool_calls"]]

    first, again, later = names([1, 2]), names([1, 2]), names([1, 2, 11, 7, 3])
    assert first == again
    assert len({*first, *later}) == 4
    assert all(len(name) <= 40 for name in (*first, *later))


def test_a_parser_may_leave_the_ids_to_us():
    """A parser of one's own that returns calls without an id gets one for each; an id that it gives stays."""
    calls = [{"type": "function", "function": {"name": "f"}}, {"id": "own", "function": {"name": "g"}}]
    body = completion_reply()
    made = said(read_reply(VLLM_COMPLETIONS, body, [1, 2, 3], lambda message: message | {"tool_calls": calls}))
    assert made["tool_calls"][0]["id"].startswith("call_")
    assert made["tool_calls"][1] == calls[1]
