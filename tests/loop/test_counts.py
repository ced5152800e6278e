"""Counts, ids and halves of characters as engines send them: an answer that was paid for is not refused for them."""

import json

import pytest

from tests.loop.replies import MAKERS, completion
from tests.loop.test_answers import accepted, gemini, response
from tests.loop.test_formats import FORMATS


@pytest.mark.parametrize(
    ("usage", "counted"),
    [
        ({"prompt_tokens": 32, "completion_tokens": 9, "completion_tokens_details": {"reasoning_tokens": 94}}, (32, 103, 0)),
        ({"prompt_tokens": 10, "completion_tokens": 9, "prompt_tokens_details": {"cached_tokens": 30}}, (40, 9, 30)),
        ({"prompt_tokens": "32", "completion_tokens": "9.0"}, (32, 9, 0)),
        ({"prompt_tokens": -1, "completion_tokens": "many", "prompt_tokens_details": 7}, (0, 0, 0)),
        ({"prompt_tokens": 1e300, "completion_tokens": float("nan")}, (0, 0, 0)),
        ({"prompt_tokens": True, "completion_tokens": float("inf")}, (0, 0, 0)),
        ([1], (0, 0, 0)),
        ("free", (0, 0, 0)),
    ],
)  # fmt: skip
def test_an_answer_is_not_refused_for_its_accounting(session, usage, counted):
    """Whatever an engine counts, the answer is recorded; a part that is larger than its whole was counted beside it."""
    with session.turn() as turn:
        turn.user("hello")
        turn.reply(completion("The paid answer.") | {"usage": usage})
    total = session.budget.spent()
    assert (total["input_tokens"], total["output_tokens"], total["cache_read_tokens"]) == counted


@pytest.mark.parametrize("spoken", ["anthropic", "gemini"])
def test_strange_counts_of_other_vendors_are_left_out(session, spoken):
    """What is no count is left out, whichever vendor sends it."""
    answer = MAKERS[spoken]("Hello.")
    name = "usage" if spoken == "anthropic" else "usage_metadata"
    answer[name] = dict.fromkeys(answer[name], "none") | {"input_tokens": "7", "prompt_token_count": "7"}
    with session.turn() as turn:
        turn.user("hello")
        turn.reply(answer)
    assert session.budget.spent()["input_tokens"] == 7


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("spoken", ["openai", "openai-responses"])
@pytest.mark.parametrize("ids", [("", ""), (None, None), ("a", "a"), ("call_1", ""), ("", "call_1"), (7, 7)])
def test_every_call_of_an_answer_has_an_id_of_its_own(session, spoken, ids, format):
    """Ids of calls that are repeated, empty or missing become unique ones, in what is sent back to the vendor, too."""
    functions = [{"name": "pay", "arguments": json.dumps({"invoice": number})} for number in (17, 18)]
    answer = completion()
    calls = [{"type": "function", "function": one} for one in functions]
    if spoken == "openai":
        answer["choices"][0]["message"]["tool_calls"] = [
            one | ({} if id_ is None else {"id": id_}) for one, id_ in zip(calls, ids, strict=True)
        ]
    else:
        answer = response(
            *({"type": "function_call", "call_id": id_, **one} for one, id_ in zip(functions, ids, strict=True))
        )
    with session.turn() as turn:
        turn.user("pay")
        first, second = turn.reply(answer)
        assert first["id"] != second["id"]
        assert [one if one and isinstance(one, str) else "" for one in ids].count(first["id"]) <= 1 or ids == ("a", "a")
        turn.tool(second["id"], "paid 18")
        turn.tool(first["id"], "paid 17")
        made = accepted(turn.messages(format), format)
    assert "no result on record" not in str(made)
    assert str(made).count("paid 1") == 2
    if spoken == format == "openai":
        assert [call["id"] for call in made[1]["tool_calls"]] == [first["id"], second["id"]]


@pytest.mark.parametrize("spoken", FORMATS)
def test_half_a_character_does_not_cost_the_answer(session, spoken):
    """A model may write half of a character: it is replaced, and two halves are one."""
    with session.turn() as turn:
        turn.user("hello")
        turn.reply(MAKERS[spoken]("cut \ud83d, whole \ud83d\ude00"))
        for format in FORMATS:
            assert "cut \ufffd, whole \U0001f600" in str(accepted(turn.messages(format), format))


def test_an_invented_id_is_short(session):
    """The id that a call of Gemini's gets has at most 40 characters, as OpenAI wants it, also when it comes again."""
    name = "search_customer_invoices_by_number_and_date"
    with session.turn() as turn:
        turn.user("go")
        for _step in range(3):
            turn.reply(
                gemini({"function_call": {"name": name, "args": {}}}, {"function_call": {"name": name, "args": {}}})
            )
            for call in turn.calls:
                turn.tool(call["id"], "r")
        ids = [call["id"] for one in turn.messages("openai") for call in one.get("tool_calls", ())]
    assert len(set(ids)) == 6
    assert max(map(len, ids)) <= 40
