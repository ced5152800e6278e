"""What is sent to a model is what its vendor's SDK accepts, whichever vendor said the words before."""

import re
from collections.abc import Iterable
from functools import cache
from types import GenericAlias
from typing import Any

import pytest
from pydantic import BaseModel, TypeAdapter

import onrecord
from onrecord.errors import BudgetExceeded, InvalidInput
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


def ids_of(messages: list[Any]) -> list[tuple[str, Any, Any]]:
    """The calls and results of messages in any format, in their order: which it is, its id, and a number in it."""
    found: list[tuple[str, Any, Any]] = []
    for one in messages:
        parts = one.get("parts") or (one["content"] if isinstance(one.get("content"), list) else [])
        found += [
            ("call", call["id"], call.get("arguments", call.get("function"))) for call in one.get("tool_calls") or ()
        ]
        if one.get("role") == "tool":
            found.append(("result", one.get("tool_call_id", one.get("call")), one["content"]))
        if "call_id" in one:
            found.append(
                ("result" if "output" in one else "call", one["call_id"], one.get("output", one.get("arguments")))
            )
        for part in parts:
            if part.get("type") in ("tool_use", "tool_result"):
                is_call = part["type"] == "tool_use"
                found.append(("call", part["id"], part["input"]) if is_call else
                             ("result", part["tool_use_id"], part["content"]))  # fmt: skip
            elif call := part.get("function_call"):
                found.append(("call", call.get("id"), call["args"]))
            elif result := part.get("function_response"):
                found.append(("result", result.get("id"), result["response"]))
    return [(kind, id_, re.findall(r"\d+", str(what))) for kind, id_, what in found]


@pytest.mark.parametrize("format", ["neutral", *FORMATS])
@pytest.mark.parametrize("spoken", FORMATS)
def test_ids_of_calls_are_unique(session, spoken, format):
    """A model that numbers its calls from 1 in each answer, or not at all: no id repeats, and each result has its call's.

    Results that were recorded in another order than the calls belong to the right ones, too.
    """
    make = MAKERS[spoken]
    with session.turn() as turn:
        turn.user("pay")
        for step in range(3):
            one, two = make(call="c:1", invoice=10 + step), make(call="c:2", invoice=20 + step)
            turn.reply(both(spoken, one, two))
            first, second = turn.calls
            turn.tool(second["id"], f"paid {20 + step}")
            turn.tool(first["id"], f"paid {10 + step}")
        made = turn.messages(format).messages
    found = ids_of(made)
    calls, results = ([one[1:] for one in found if one[0] == kind] for kind in ("call", "result"))
    assert sorted(number for _id, (number,) in calls) == ["10", "11", "12", "20", "21", "22"]
    ids = [id_ for id_, _numbers in calls]
    if spoken == format == "gemini":
        assert ids == [None] * 6
        assert calls == results  # they belong together by their order
    else:
        assert len(set(ids)) == 6
        assert dict(results) == dict(calls)
        assert format != "anthropic" or all(re.fullmatch("[a-zA-Z0-9_-]+", id_) for id_ in ids)
    if format != "neutral":
        walked(adapter(format).validate_python(made))
    assert session.messages(format)[: len(made)] == made


def test_a_result_names_its_own_tool(session):
    """If an id of a call comes again with another tool, each of Gemini's results names the tool of its own call."""
    with session.turn() as turn:
        turn.user("go")
        for name in ("look", "pay"):
            turn.reply(MAKERS["openai"](call="1", name=name))
            turn.tool("1", "ok")
        made = turn.messages("gemini")
    results = [
        part["function_response"]["name"] for one in made for part in one["parts"] if "function_response" in part
    ]
    assert results == ["look", "pay"]


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("spoken", FORMATS)
def test_nothing_empty_is_sent(session, spoken, format):
    """An answer that is only thoughts, or nothing, is not sent to another vendor as an empty message."""
    with session.turn() as turn:
        turn.user("hello")
        turn.reply(MAKERS[spoken]())
        turn.user("are you there?")
        made = turn.messages(format).messages
    answers = [one for one in made if one.get("role") in ("assistant", "model")]
    assert bool(answers) is (spoken == format == "anthropic")


def test_white_space_alone_is_not_sent_to_anthropic(session):
    """Anthropic refuses text that is only white space, which other models say beside a call: it is left out."""
    with session.turn() as turn:
        turn.user("hello")
        turn.reply(MAKERS["openai"]("\n\n", call="c1"))
        turn.run_tools(pay)
        turn.assistant(" ")
        made = turn.messages("anthropic").messages
        assert turn.messages("openai")[1]["content"] == "\n\n"
    assert [one["role"] for one in made] == ["user", "assistant", "user"]
    assert [part["type"] for part in made[1]["content"]] == ["tool_use"]


@pytest.mark.parametrize("format", FORMATS)
def test_a_refusal_is_said(session, format):
    """What a model refuses in a chat completion is what it said: it goes back in every format."""
    answer = MAKERS["openai"]()
    answer["choices"][0]["message"]["refusal"] = "I will not."
    with session.turn() as turn:
        turn.user("hello")
        turn.reply(answer)
        assert turn.items[-1]["content"] == "I will not."
        made = turn.messages(format).messages
    assert "I will not." in str(made)
    walked(adapter(format).validate_python(made))


PDF = {"type": "base64", "media_type": "application/pdf", "data": "JVBERg=="}
OWN = [
    ("openai", {"type": "file", "file": {"file_id": "f1"}}),
    ("openai", {"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}}),
    ("openai-responses", {"type": "input_file", "file_id": "f1"}),
    ("openai-responses", {"type": "input_image", "file_id": "f1", "detail": "auto"}),
    ("anthropic", {"type": "document", "source": PDF}),
    ("anthropic", {"type": "image", "source": {"type": "file", "file_id": "f1"}}),
    ("gemini", {"file_data": {"file_uri": "gs://files/a.pdf", "mime_type": "application/pdf"}}),
]


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize(("vendor", "part"), OWN)
def test_what_only_its_vendor_has_goes_there(session, vendor, part, format):
    """A document, or a file by its id, goes to its own vendor as the user gave it; another one reads that it is missing."""
    with session.turn() as turn:
        turn.user([{"type": "text", "text": "see"}, part])
        (message,) = turn.messages(format).messages
    walked(adapter(format).validate_python([message]))
    last = message.get("content", message.get("parts"))[-1]
    if format == vendor:
        assert last == part
    else:
        assert "that this format cannot express" in last["text"]


@pytest.mark.parametrize("format", FORMATS)
def test_a_document_is_no_image(session, format):
    """A document that came in Gemini's form is not sent to others as an image, which they would refuse."""
    with session.turn() as turn:
        turn.user([{"text": "see"}, {"inline_data": {"mime_type": "application/pdf", "data": "JVBERg=="}}])
        (message,) = turn.messages(format).messages
    last = message.get("content", message.get("parts"))[-1]
    if format == "gemini":
        assert last == {"inline_data": {"mime_type": "application/pdf", "data": b"%PDF"}}
    else:
        assert last["text"] == "[application/pdf that this format cannot express]"


@pytest.mark.parametrize("spoken", ["openai", "openai-responses"])
@pytest.mark.parametrize("format", FORMATS)
def test_a_custom_tool_can_be_called(session, spoken, format):
    """A call of a custom tool of OpenAI's, whose input is text, is recorded, and its result has the type of the call."""
    answer = MAKERS[spoken]()
    if spoken == "openai":
        call = {"id": "c1", "type": "custom", "custom": {"name": "patch", "input": "*** begin"}}
        answer["choices"][0]["message"]["tool_calls"] = [call]
    else:
        answer["output"].append({"type": "custom_tool_call", "call_id": "c1", "name": "patch", "input": "*** begin"})
    with session.turn() as turn:
        turn.user("go")
        assert turn.reply(answer) == [{"id": "c1", "name": "patch", "arguments": "*** begin"}]
        turn.tool("c1", "done")
        made = turn.messages(format).messages
    walked(adapter(format).validate_python(made))
    types = [one.get("type") for one in made]
    if format == "openai-responses":
        assert types[-1] == ("custom_tool_call_output" if spoken == format else "function_call_output")
    elif format == spoken:
        assert made[-2]["tool_calls"] == [call]


def both(spoken: str, one: dict[str, Any], two: dict[str, Any]) -> dict[str, Any]:
    """One answer with the calls of two."""

    def parts(answer: dict[str, Any]) -> list[Any]:
        if spoken == "openai":
            return list(answer["choices"][0]["message"]["tool_calls"])
        if spoken == "gemini":
            return list(answer["candidates"][0]["content"]["parts"])
        return list(answer["output" if spoken == "openai-responses" else "content"])

    more = parts(two)[-1:]
    if spoken == "openai":
        one["choices"][0]["message"]["tool_calls"] += more
    elif spoken == "gemini":
        one["candidates"][0]["content"]["parts"] += more
    else:
        one["output" if spoken == "openai-responses" else "content"] += more
    return one


def test_a_loop_without_ids_is_seen_to_repeat():
    """A model without ids that makes the same call over and over is stopped by the limit of repeats, like any other."""
    with onrecord.connect("memory:") as store:
        session = store.open("work", agent="main", budget={"repeats": 3})
        turn = session.turn()
        for _step in range(3):
            turn.messages("gemini")
            turn.reply(MAKERS["gemini"](call="x", invoice=17))
            turn.run_tools(pay)
        with pytest.raises(BudgetExceeded, match="pay made 3 times in a row"):
            turn.messages("gemini")


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


MALFORMED: list[Any] = [
    "text", None, {}, {"choices": []}, {"role": "user", "content": []}, 7, {"choices": [None]}, {"candidates": [None]},
    {"choices": [{"message": None}], "usage": [1]}, {"candidates": [], "usage_metadata": 3},
    {"choices": [{"message": {"tool_calls": [{"id": "a", "function": "pay"}]}}]},
]  # fmt: skip


@pytest.mark.parametrize("wrong", MALFORMED)
def test_what_is_no_answer_is_refused(session, wrong):
    """Something that is no answer of a model is refused with a sentence that says what to pass; nothing is recorded."""
    with session.turn() as turn:
        before = session.head.position
        with pytest.raises(InvalidInput) as refused:
            turn.reply(wrong)
        assert session.head.position == before
        assert refused.value.hint


def test_an_unknown_format_is_refused(session):
    """The error names the formats that exist; what is no text is refused like an unknown name."""
    with pytest.raises(InvalidInput, match="unknown message format"):
        session.messages(["openai"])
    with pytest.raises(InvalidInput, match="unknown message format 'morse'") as refused:
        session.messages("morse")
    assert all(format in refused.value.hint for format in ("neutral", *FORMATS))
