"""How much is sent: what fits into the tokens that are allowed, and how they are counted."""

import pytest

from onrecord.errors import InvalidInput
from onrecord.views.context import IMAGE_TOKENS
from tests.loop.replies import completion, message, response
from tests.loop.talk import look, say


def test_what_does_not_fit_is_left_out_from_the_oldest_on(session):
    """Earlier turns go first, then older steps of the open turn; its question stays, and calls keep their results."""
    say(session, "x" * 4_000, "y" * 4_000)
    with session.turn() as turn:
        turn.user("the question")
        for number in range(10):
            turn.reply(completion(call=f"c{number}", name="look", where=number))
            turn.tool(f"c{number}", f"{number}" * 400)
        made = turn.messages("openai", tokens=1_000)
        assert made.left_out == 1
        assert 0 < made.left_out_steps < 10
        assert made.tokens <= 1_000
        assert made[0]["content"] == "the question"
        assert [one["role"] for one in made[1:]] == ["assistant", "tool"] * (10 - made.left_out_steps)
        assert made[-1]["content"] == "9" * 400
        with pytest.raises(InvalidInput, match="too small for the open turn"):
            turn.messages(tokens=2)


def test_tokens_are_counted_by_the_caller_or_by_a_model_that_is_known(session):
    """A function counts; the name of an unknown model, and a tokenizer that is missing, are clear errors."""
    say(session, "one two three", "four five six")
    assert session.messages(count=lambda text: len(text.split())).tokens > 3
    with pytest.raises(InvalidInput, match="tiktoken does not know the model 'no-such-model'"):
        session.messages(count="no-such-model")


def test_a_model_is_counted_with_its_own_vocabulary(session, monkeypatch):
    """With the name of a model, its vocabulary counts every text, the system's included."""
    asked = []

    class Words:
        def encode_ordinary(self, text: str) -> list[str]:
            return text.split()

    def load(model: str) -> Words:
        asked.append(model)
        return Words()

    monkeypatch.setattr("tiktoken.encoding_for_model", load)
    say(session, "one two three", "four five six")
    made = session.messages(count="gpt-5")
    assert asked == ["gpt-5"]
    assert made.tokens == session.messages(count=lambda text: len(text.split())).tokens > 0
    assert session.messages(count="gpt-5", system="be very brief").tokens == made.tokens + 3


def test_what_is_sent_word_for_word_is_counted(session):
    """A vendor's own answer counts with all that goes back to the vendor; in another format it does not."""
    with session.turn() as turn:
        turn.user("the question")
        for number in range(10):
            answer = response(call=f"c{number}", name="look", where=number)
            answer["output"][0]["encrypted_content"] = "A" * 4_000
            turn.reply(answer)
            turn.run_tools(look)
        made = turn.messages("openai-responses", tokens=5_000)
        assert 3_000 < made.tokens <= 5_000
        assert len(str(made.messages)) / 4 <= 5_000
        assert made.left_out_steps == 6
        assert turn.messages("anthropic", tokens=5_000).left_out_steps == 0
        with pytest.raises(InvalidInput, match="1,000 tokens is too small for the last step of the open turn"):
            turn.messages("openai-responses", tokens=1_000)


@pytest.mark.parametrize("inside", ["message", "result"])
def test_an_image_has_a_constant_number_of_tokens(session, inside):
    """An image counts as an image, not by its bytes, in a message and in a result; earlier turns still fit beside it."""
    say(session, "earlier", "yes")
    source = {"type": "base64", "media_type": "image/png", "data": "A" * 1_000_000}
    with session.turn() as turn:
        if inside == "message":
            turn.user([{"type": "text", "text": "what is this?"}, {"type": "image", "source": source}])
        else:
            turn.user("what is this?")
            turn.reply(message(call="t1", name="look", where=1))
            turn.tool("t1", [{"type": "image", "source": source}])
        made = turn.messages("anthropic")
        assert IMAGE_TOKENS < made.tokens < IMAGE_TOKENS + 200
        assert made.left_out == 0
        turn.assistant("a cat")
    say(session, "later", "yes")
    assert session.messages("openai").left_out == 0


@pytest.mark.parametrize(
    "part", [{"type": "input_image", "file_id": "f1"}, {"type": "image", "source": {"type": "file", "file_id": "f1"}}]
)
def test_an_image_that_the_vendor_stores_counts_too(session, part):
    """An image that is only named, by the id of its file, counts like any other."""
    with session.turn() as turn:
        turn.user([part])
        assert turn.messages("openai-responses").tokens > IMAGE_TOKENS


@pytest.mark.parametrize("tokens", [0, -1, 1.5, "many", None, True])
def test_room_for_tokens_is_a_whole_number(session, tokens):
    """A limit that is no whole number above 0 is refused, and so is a counter that does not count."""
    with pytest.raises(InvalidInput, match="tokens is a whole number above 0"):
        session.messages(tokens=tokens)
    with pytest.raises(InvalidInput, match="tokens is a whole number above 0"):
        session.context(tokens)
    for verb in (session.messages, session.context):
        with pytest.raises(InvalidInput, match="count is a function or the name of a model, not int"):
            verb(count=7)


@pytest.mark.parametrize("found", [None, [1, 2, 3], "5", -1, True])
def test_a_counter_counts(session, found):
    """A function that returns anything but a number, such as the tokens themselves, is refused with what it returned."""
    say(session, "hello", "good day")
    with pytest.raises(
        InvalidInput, match=r"the function in count returned .*, which is no number of tokens"
    ) as refused:
        session.messages(count=lambda _text: found)
    assert "len(" in refused.value.hint


@pytest.mark.parametrize("system", [["You pay."], 7, "half a character: \ud800"])
def test_the_system_is_told_in_text(session, system):
    """What is no text that can be sent is refused before it is counted, with what to pass or to do."""
    with session.turn() as turn:
        with pytest.raises(InvalidInput) as refused:
            turn.messages(system=system)
        assert refused.value.hint


def test_a_system_text_that_is_too_long_is_named(session):
    """The error says how long the system's text is, and what is allowed."""
    say(session, "hello", "good day")
    with pytest.raises(InvalidInput, match="the system's text alone has 2,501 tokens, and 2,000 are allowed in all"):
        session.messages(system="z" * 10_000, tokens=2_000)


def test_a_missing_tokenizer_says_what_to_install(session, monkeypatch):
    """Without tiktoken the error has the command that installs it."""
    monkeypatch.setitem(__import__("sys").modules, "tiktoken", None)
    with pytest.raises(InvalidInput, match="tiktoken, which is not installed") as refused:
        session.messages(count="gpt-4o")
    assert 'pip install "onrecord[tokens]"' in refused.value.hint
