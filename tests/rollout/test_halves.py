"""An aborted reply and its continuation: one message, whatever the engine made of each half."""

import pytest

from onrecord.errors import BadReply
from onrecord.rollout.halves import joined
from onrecord.rollout.turns import Reply

CALL = '<tool_call>{"name": "add", "arguments": {"a": 1}}</tool_call>'
END = b"\xff"
"""The model's own end of a turn, which no text shows."""


def decode(ids):
    return bytes(ids).removesuffix(END).decode(errors="replace")


def half(ids, finish, message=None, **options):
    message = {"role": "assistant", "content": decode(ids)} if message is None else message
    return Reply(message, list(ids), [-1.0] * len(ids), finish, **options)


def halves(text, cut):
    """The ids of a text, which were aborted after the first `cut`."""
    ids = list(text.encode() + END)
    return ids[:cut], ids[cut:]


def message_of(first, then):
    return joined(first, then, decode).message or {}


def cuts(text):
    return range(1, len(text.encode()))


def test_two_halves_make_one_reply():
    """It has the ids, logprobs and versions of both, and a call that spans them is parsed, also without a tokenizer."""
    one, two = halves(f"So: {CALL}", 20)
    first, then = half(one, "abort", weight_versions=[("4", len(one))]), half(two, "stop")
    for decoder in (decode, None):
        whole = joined(first, then, decoder)
        assert (whole.output_ids, len(whole.logprobs)) == ([*one, *two], len(one) + len(two))
        assert whole.weight_versions == [("4", len(one)), ("", len(two))]
        assert (whole.finish, (whole.message or {})["content"]) == ("tool_calls", "So:")
        (call,) = (whole.message or {})["tool_calls"]
        assert call["function"] == {"name": "add", "arguments": '{"a": 1}'}


@pytest.mark.parametrize(
    "text", ["Hi \U0001f600 and € é\ufffd ok.", "  Let me\n\nadd these. ", "\ufffd", "é\ufffd\ufffd"]
)
def test_a_plain_text_is_the_text_of_its_ids(text):
    """Wherever it was cut, in the middle of a character or of the one for broken bytes, nothing is lost or added."""
    for cut in cuts(text):
        one, two = halves(text, cut)
        assert message_of(half(one, "abort"), half(two, "stop"))["content"] == text


def test_an_engine_may_leave_out_a_character_that_was_cut():
    """The half that began it has no text of it, the other begins behind it: no space is added, and it is not lost."""
    for text in ("\U0001f600 me", "  \U0001f600 me"):
        start = len(text) - len(text.lstrip())
        for cut in range(start + 1, start + 4):
            one, two = halves(text, cut)
            heard, said = {"role": "assistant", "content": ""}, {"role": "assistant", "content": " me"}
            assert message_of(half(one, "abort", heard), half(two, "stop", said))["content"] == text


def test_an_engine_may_trim_its_halves():
    """Space that the engine stripped where the halves meet is in the ids, and in the message."""
    text = "Let me  add\nthese €."
    for cut in cuts(text):
        messages = [
            {"role": "assistant", "content": decode(part).strip().strip("\ufffd").strip()} for part in halves(text, cut)
        ]
        one, two = halves(text, cut)
        whole = message_of(half(one, "abort", messages[0]), half(two, "stop", messages[1]))
        assert whole["content"] == text


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
def test_an_abort_inside_thinking(name):
    """The engine takes the second half for an answer, because it did not see where the thinking began."""
    text = "<think>\nIt is so.</think>\n\n42."
    for cut in range(len("<think>\nI"), len("<think>\nIt is so.</think>") - 1):
        one, two = halves(text, cut)
        heard = {"role": "assistant", "content": None, name: decode(one).removeprefix("<think>").strip()}
        whole = message_of(half(one, "abort", heard), half(two, "stop"))
        assert (whole[name], whole["content"]) == ("It is so.", "42."), cut


def test_an_abort_after_thinking():
    """Thinking that the engine found in the first half stays, and the answer is that of both halves."""
    one, two = halves("It is so.</think>\n\nLet me add.", 22)
    heard = {"role": "assistant", "content": "Let", "reasoning_content": "It is so."}
    whole = message_of(half(one, "abort", heard), half(two, "stop", {"role": "assistant", "content": "me add."}))
    assert (whole["reasoning_content"], whole["content"]) == ("It is so.", "Let me add.")


def test_thinking_that_never_ended_stays_where_the_engine_put_it():
    """Without the end of the thinking, each half keeps its fields."""
    one, two = halves("I think so", 7)
    heard = {"role": "assistant", "content": None, "reasoning_content": "I think"}
    said = {"role": "assistant", "content": None, "reasoning_content": "so"}
    whole = message_of(half(one, "abort", heard), half(two, "length", said))
    assert (whole["reasoning_content"], whole["content"]) == ("I think so", None)


def test_a_stop_word_stays_out():
    """The ids end with the stop word, and the engine leaves it out of the text."""
    one, two = halves("one two STOP", 4)
    whole = message_of(half(one, "abort"), half(two, "stop", {"role": "assistant", "content": "two "}))
    assert whole["content"] == "one two "


def test_calls_that_the_engine_parsed_are_kept():
    """A call in a form that only the engine knows stays, and so does the space before it."""
    one, two = halves("Let me add.[CALL]add(1)", 4)
    call = {"id": "c7", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
    heard = {"role": "assistant", "content": "Let"}
    said = {"role": "assistant", "content": "me add.", "tool_calls": [call]}
    whole = joined(half(one, "abort", heard), half(two, "stop", said), decode)
    assert whole.message == {"role": "assistant", "content": "Let me add.", "tool_calls": [call]}
    assert whole.finish == "tool_calls"


def test_calls_of_both_halves_have_ids_of_their_own():
    """A whole call in each half: the text of both is parsed again, so no id comes twice."""
    one, two = halves(f"So {CALL} and {CALL}", len(f"So {CALL}"))
    call = {"id": "call_0", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
    heard = {"role": "assistant", "content": "So", "tool_calls": [call]}
    whole = message_of(half(one, "abort", heard), half(two, "stop", heard | {"content": "and"}))
    ids = [one["id"] for one in whole["tool_calls"]]
    assert len(set(ids)) == 2
    assert "call_0" not in ids
    assert whole["content"] == "So  and"


def test_an_engine_that_does_not_return_its_prompt():
    """The ids of calls depend on the prompt all the same: two turns that say the same have other ones."""
    one, two = halves(f"So {CALL}", 9)
    names = [
        [
            call["id"]
            for call in (joined(half(one, "abort"), half(two, "stop"), decode, sent=sent).message or {})["tool_calls"]
        ]
        for sent in ([1], [1], [1, 2])
    ]
    assert names[0] == names[1] != names[2]


def test_an_engine_with_text_of_its_own_is_believed():
    """If the ids decode to other text than the engine returned, its halves are put side by side."""
    one, two = halves("finalHello world", 9)
    whole = message_of(
        half(one, "abort", {"role": "assistant", "content": "Hell"}),
        half(two, "stop", {"role": "assistant", "content": "o world"}),
    )
    assert whole["content"] == "Hello world"


def test_a_continuation_of_other_ids_is_refused():
    """The engine must have read the ids of the first half."""
    one, two = halves("one two", 3)
    assert joined(half(one, "abort"), half(two, "stop", prompt_ids=[7, *one]), decode).prompt_ids == [7]
    with pytest.raises(BadReply, match="did not continue"):
        joined(half(one, "abort"), half(two, "stop", prompt_ids=[7, 8, 9]), decode)
