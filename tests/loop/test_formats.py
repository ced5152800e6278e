"""What is sent to a model is what its vendor's SDK accepts, whichever vendor said the words before."""

from collections.abc import Iterable
from functools import cache
from types import GenericAlias
from typing import Any

import pytest
from pydantic import BaseModel, TypeAdapter

import onrecord
from onrecord.errors import InvalidInput
from tests.loop.replies import MAKERS

FORMATS = ("openai", "openai-responses", "anthropic", "gemini")
PICTURE = "iVBORw0KGgoAAAANSUhEUg=="


def sdk_type(format: str) -> Any:
    """The type of one message in the vendor's own SDK."""
    if format == "openai":
        from openai.types.chat import ChatCompletionMessageParam

        return ChatCompletionMessageParam
    if format == "openai-responses":
        from openai.types.responses import ResponseInputItemParam

        return ResponseInputItemParam
    if format == "anthropic":
        from anthropic.types import MessageParam

        return MessageParam
    from google.genai.types import Content

    return Content


@cache
def adapter(format: str) -> TypeAdapter[Any]:
    kind: Any = GenericAlias(list, (sdk_type(format),))
    return TypeAdapter(kind)


def walked(value: Any) -> Any:
    """Go through everything: pydantic checks the parts of an iterable only when they are read."""
    if isinstance(value, dict):
        return {name: walked(one) for name, one in value.items()}
    if isinstance(value, Iterable) and not isinstance(value, str | bytes) and not hasattr(value, "model_dump"):
        return [walked(one) for one in value]
    return value


@pytest.fixture
def session():
    with onrecord.connect("memory:") as store, store.open("work", agent="main") as opened:
        yield opened


def talk(session: Any, spoken: str) -> None:
    """A turn with every kind of content, answered by the model of one vendor."""
    make = MAKERS[spoken]
    with session.turn() as turn:
        turn.system("be brief")
        turn.user(
            [
                {"type": "text", "text": "see"},
                {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PICTURE}"}},
            ]
        )
        turn.reply(make("Looking.", call="c1", invoice=17))
        turn.run_tools(pay)
        turn.user([{"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}}])
        turn.reply(make(call="c2", invoice=18))
        turn.run_tools(pay)
        turn.assistant("")
        turn.reply(make("done"))


def pay(invoice: int) -> dict[str, Any]:
    if invoice == 18:
        raise ValueError("no such invoice")
    return {"paid": invoice}


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("spoken", FORMATS)
def test_an_sdk_accepts_what_any_vendor_said(session, spoken, format):
    """Messages in a vendor's format pass the types of the vendor's SDK, with the answers of any vendor in them."""
    talk(session, spoken)
    with session.turn() as turn:
        turn.user("and now?")
        made = turn.messages(format, system="You pay invoices.")
        walked(adapter(format).validate_python(made.messages))
    said = f"{made.system} {made.messages}"
    for words in ("You pay invoices.", "be brief", "Looking.", "paid", "no such invoice", "and now?"):
        assert words in said
    roles = [one.get("role") for one in made.messages]
    if format in ("anthropic", "gemini"):
        assert roles[0] == "user"
        assert "system" not in roles
    else:
        assert made.system == ""
        assert roles[0] == "system"


@pytest.mark.parametrize("format", FORMATS)
def test_an_answer_goes_back_word_for_word(session, format):
    """A vendor's own answer is sent back as it came: signed thoughts and encrypted reasoning included."""
    talk(session, format)
    made = session.messages(format).messages
    if format == "openai-responses":
        assert [part for part in made if part.get("type") == "reasoning"] == [MAKERS[format]()["output"][0]] * 3
    elif format == "anthropic":
        assert sum(part["type"] == "thinking" for one in made for part in one["content"] if isinstance(part, dict)) == 3
    elif format == "gemini":
        signed = [part["thought_signature"] for one in made for part in one["parts"] if "thought_signature" in part]
        assert signed == [b"\xff\xee\xfe"] * 2
    else:
        assert made[2]["tool_calls"] == MAKERS[format](call="c1", invoice=17)["choices"][0]["message"]["tool_calls"]


@pytest.mark.parametrize("spoken", FORMATS)
def test_the_usage_of_an_answer_is_recorded(session, spoken):
    """`reply` records what the vendor counted, with what came from a cache and what was reasoning as parts of it."""
    with session.turn() as turn:
        turn.user("hello")
        assert turn.reply(MAKERS[spoken]("good day")) == []
    total = session.budget.spent()
    assert (total["input_tokens"], total["cache_read_tokens"], total["output_tokens"]) == (100, 40, 20)
    assert total["unknown_cost_calls"] == 1
    assert list(session.views.spend.models) == [{"anthropic": "claude-x", "gemini": "gemini-x"}.get(spoken, "gpt-x")]


def test_objects_of_an_sdk_are_taken_as_they_are(session):
    """A completion, a response, a message and generated content are recorded as the SDK returned them."""
    from anthropic.types import Message
    from google.genai.types import GenerateContentResponse
    from openai.types.chat import ChatCompletion

    with session.turn() as turn:
        turn.user("hello")
        turn.reply(ChatCompletion.model_validate(MAKERS["openai"]("one")))
        turn.reply(Message.model_validate(MAKERS["anthropic"]("two")))
        turn.reply(GenerateContentResponse.model_validate(MAKERS["gemini"]("three")))
        turn.add(ChatCompletion.model_validate(MAKERS["openai"]("four")).choices[0].message, format="openai")
    assert [item["content"] if isinstance(item["content"], str) else item["content"][-1]["text"] for item in turn.items] == [
        "hello", "one", "two", "three", "four",
    ]  # fmt: skip


STRICT = {"name": "pay", "strict": True, "parameters": {"type": "object", "properties": {"invoice": {"type": "integer"}},
                                                        "required": ["invoice"], "additionalProperties": False}}  # fmt: skip


class Paid(BaseModel):
    """What a model answers if its answer has a schema."""

    invoice: int


def parsed_completion(answer: dict[str, Any]) -> Any:
    from openai.lib._parsing._completions import parse_chat_completion
    from openai.types.chat import ChatCompletion

    tools: Any = [{"type": "function", "function": STRICT}]
    return parse_chat_completion(
        response_format=Paid, input_tools=tools, chat_completion=ChatCompletion.model_validate(answer)
    )


def parsed_response(answer: dict[str, Any]) -> Any:
    from openai.lib._parsing._responses import parse_response
    from openai.types.responses import Response

    tools: Any = [{"type": "function", **STRICT}]
    more = {"created_at": 1, "parallel_tool_calls": True, "tool_choice": "auto", "tools": [], "usage": None}
    return parse_response(text_format=Paid, input_tools=tools, response=Response.model_validate(answer | more))


@pytest.mark.parametrize(
    ("format", "parse"),
    [("openai", parsed_completion), ("openai-responses", parsed_response)],
)
@pytest.mark.parametrize("as_dict", [False, True])
def test_what_an_sdk_parsed_is_not_sent_back(session, format, parse, as_dict):
    """The stream and parse helpers of OpenAI's SDK add what they parsed, which its APIs refuse: it is not sent back."""
    make = MAKERS[format]
    with session.turn() as turn:
        turn.user("pay")
        for answer in (make(call="c1", invoice=17), make('{"invoice": 17}')):
            parsed = parse(answer)
            assert "parsed" in str(parsed.model_dump(warnings=False))
            turn.reply(parsed.model_dump(mode="json", warnings=False) if as_dict else parsed)
            if turn.calls:
                turn.run_tools(pay)
        made = turn.messages(format).messages
    assert "parsed" not in str(made)
    assert "'arguments'" in str(made)


def test_a_parsed_message_can_be_added(session):
    """A message of a parsed completion that is added by itself goes back without what was parsed, too."""
    with session.turn() as turn:
        turn.add(parsed_completion(MAKERS["openai"](call="c1", invoice=17)).choices[0].message, format="openai")
        assert "parsed" not in str(turn.messages("openai"))


@pytest.mark.parametrize("wrong", ["text", None, {}, {"choices": []}, {"role": "user", "content": []}, 7])
def test_what_is_no_answer_is_refused(session, wrong):
    """Something that is no answer of a model is refused with a sentence that says what to pass; nothing is recorded."""
    with session.turn() as turn:
        before = session.head.position
        with pytest.raises(InvalidInput) as refused:
            turn.reply(wrong)
        assert session.head.position == before
        assert refused.value.hint


def test_an_unknown_format_is_refused(session):
    """The error names the formats that exist."""
    with pytest.raises(InvalidInput, match="unknown message format 'morse'") as refused:
        session.messages("morse")
    assert all(format in refused.value.hint for format in ("neutral", *FORMATS))
