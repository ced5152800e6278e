"""The loop inside a turn: the model sees the open turn, a budget stops the loop, an interrupted turn is continued."""

import asyncio
from itertools import pairwise
from typing import Any

import pytest

import onrecord
from onrecord import aio
from onrecord.errors import BudgetExceeded, BudgetExhausted, IdReused, InvalidInput, SessionPaused, TurnConflict
from onrecord.session.session_store import SessionStore
from onrecord.stores.memory import MemoryStore
from onrecord.testing import FakeClock
from onrecord.views.context import IMAGE_TOKENS
from tests.loop.replies import completion, message, response


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def store(clock):
    with SessionStore(MemoryStore(clock=clock), project="/project", clock=clock) as opened:
        yield opened


@pytest.fixture
def session(store):
    return store.open("work", agent="main")


def say(session: Any, *words: str) -> None:
    session.record_turn([{"role": "user", "content": words[0]}, {"role": "assistant", "content": words[1]}])


def contents(messages: Any) -> list[Any]:
    return [one["content"] for one in messages]


def endless(session: Any, *, calls: int = 5_000) -> int:
    """A loop whose model always calls a tool; how many calls were made until something stopped it."""
    made = 0
    with session.turn() as turn:
        turn.user("go")
        for made in range(calls):  # it is the result
            turn.messages("openai")
            turn.reply(completion(call=f"c{made}", name="look", where=made), cost=0.5)
            turn.run_tools(look)
    return made + 1


def look(where: int) -> str:
    return f"nothing at {where}"


def test_the_open_turn_is_part_of_the_messages(session):
    """Inside a turn, `turn.messages`, `session.messages` and `session.context` have what the turn said so far."""
    say(session, "hello", "good day")
    with session.turn() as turn:
        turn.user("who are you?")
        assert contents(turn.messages()) == ["hello", "good day", "who are you?"]
        assert contents(session.messages()) == ["hello", "good day", "who are you?"]
        assert contents(session.context().items) == ["hello", "good day", "who are you?"]
        turn.assistant("nobody")
    assert contents(session.messages()) == ["hello", "good day", "who are you?", "nobody"]


def test_no_two_calls_of_a_loop_are_the_same(session):
    """A tool loop sends something new to the model each time: every request begins with the one before it."""
    with session.turn() as turn:
        turn.user("look around")
        sent = []
        for number in range(5):
            sent.append(turn.messages("openai", system="You look."))
            turn.reply(completion(call=f"c{number}", name="look", where=number))
            turn.run_tools(look)
    for earlier, later in pairwise(sent):
        assert later[: len(earlier)] == earlier
        assert len(later) == len(earlier) + 2


def test_the_record_comes_first_and_stays_the_same_within_a_turn(store):
    """With an objective the messages begin with the brief, which does not change between the calls of a turn."""
    session = store.open("work", agent="main", objective="Find the cause")
    with session.turn() as turn:
        turn.user("go")
        first = turn.messages()[0]
        assert "Find the cause" in first["content"]
        assert "was begun" not in first["content"]  # the open turn is there itself
        session.decide("look at the cookies")
        assert turn.messages()[0] == first
    assert "look at the cookies" in session.messages()[0]["content"]


def test_another_handle_does_not_see_a_turn_that_is_open_elsewhere(store, session):
    """A turn is part of the context of who has it open; for anyone else it does not count yet."""
    with session.turn() as turn:
        turn.user("mine")
        assert contents(store.get("work", agent="main").messages()) == []


def test_a_turn_from_an_earlier_base_does_not_see_what_it_would_discard(session):
    """The messages of a retry end at the base it builds on."""
    say(session, "one", "1")
    base = session.agents.lane()["last_commit"]
    say(session, "two", "2")
    with session.turn(base=base, rollback=1) as turn:
        turn.user("another two")
        assert contents(turn.messages()) == ["one", "1", "another two"]


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


@pytest.mark.parametrize("tokens", [0, -1, 1.5, "many", None, True])
def test_room_for_tokens_is_a_whole_number(session, tokens):
    """A limit that is no whole number above 0 is refused, and so is a counter that does not count."""
    with pytest.raises(InvalidInput, match="tokens is a whole number above 0"):
        session.messages(tokens=tokens)
    with pytest.raises(InvalidInput, match="count is a function or the name of a model, not int"):
        session.messages(count=7)


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


@pytest.mark.parametrize(
    ("limits", "limit", "made", "spent"),
    [({"steps": 3}, "steps", 3, 3), ({"tokens": 300}, "tokens", 3, 360), ({"tokens": 240}, "tokens", 2, 240),
     ({"spend": 1.2}, "spend", 3, 1.5), ({"repeats": 3}, "repeats", 0, 0)],
)  # fmt: skip
def test_a_budget_stops_the_loop_inside_a_turn(store, limits, limit, made, spent):
    """Past a limit the loop ends with what was spent; the turn is aborted on record and the session is paused."""
    session = store.open("work", agent="main", budget=limits)
    calls = 0

    def look(where: int) -> str:
        nonlocal calls
        calls += 1
        return "the same"

    def loop(turn: Any) -> None:
        turn.user("go")
        for number in range(100):
            turn.messages("openai")
            turn.reply(completion(call=f"c{number}", name="look", where=1 if limit == "repeats" else number), cost=0.5)
            turn.run_tools(look)

    with pytest.raises(BudgetExceeded) as stopped, session.turn() as turn:
        loop(turn)
    assert stopped.value.limit == limit
    if limit != "repeats":
        assert stopped.value.spent[limit] == spent
        assert session.budget.spent()["calls"] == made
    assert calls <= 3
    (aborted,) = session.transcript().provisional
    assert (aborted.status, aborted.ended) == ("aborted", turn.aborted.position)
    assert aborted.reason in str(stopped.value)
    assert session.status == "paused"
    assert session.views.lifecycle.interruption["limit"] == limit
    with pytest.raises((SessionPaused, TurnConflict)):
        session.turn()


def test_seconds_stop_the_loop_too(store, clock):
    """Time is a limit inside a turn: the next call of the model does not happen."""
    session = store.open("work", agent="main", budget={"seconds": 60})
    with session.turn() as turn:
        turn.user("go")
        turn.messages()
        clock.advance(60)
        with pytest.raises(BudgetExceeded, match="60 of 60 seconds used"):
            turn.messages()
    assert session.transcript().provisional[-1].status == "aborted"


def test_use_records_before_it_stops(store):
    """What was used is on record although the call that records it raises; numbers and answers are both taken."""
    session = store.open("work", agent="main", budget={"tokens": 150})
    with session.turn() as turn:
        turn.use(completion("hm"))
        with pytest.raises(BudgetExceeded) as stopped:
            turn.use("some-model", input_tokens=40, output_tokens=1)
    assert stopped.value.spent["tokens"] == session.views.spend.tokens == 161
    assert session.views.spend.steps == 2


def test_the_last_answer_may_exceed_the_budget(store):
    """An answer without tool calls ends the loop anyway: it is committed, and the next turn is refused."""
    session = store.open("work", agent="main", budget={"tokens": 100})
    with session.turn() as turn:
        turn.user("go")
        turn.messages()
        assert turn.reply(completion("done")) == []
    assert len(session.transcript()) == 1
    with pytest.raises(BudgetExhausted):
        session.turn()


def test_a_loop_that_records_no_usage_is_stopped_by_its_steps(store):
    """Messages of the assistant count as steps too, so a loop without usage does not run forever."""
    session = store.open("work", agent="main", budget={"steps": 4})
    with session.turn() as turn:
        turn.user("go")
        for _ in range(4):
            turn.messages()
            turn.assistant("hm")
        with pytest.raises(BudgetExceeded, match="4 of 4 steps used"):
            turn.messages()


def test_one_step_is_enough_for_one_call(store):
    """With a budget of one step a turn may call its model once."""
    session = store.open("work", agent="main", budget={"steps": 1})
    with session.turn() as turn:
        turn.user("go")
        turn.messages()
        turn.reply(completion("done"))
    assert session.views.spend.steps == 1


def test_a_stopped_loop_goes_on_with_a_higher_budget(store):
    """After the limit is raised and the session resumed, the turn continues with all it had."""
    session = store.open("work", agent="main", budget={"steps": 3})
    with pytest.raises(BudgetExceeded):
        endless(session)
    session.budget.set(steps=10)
    session.resume("more steps")
    with session.turn(resume=True) as turn:
        assert turn.resumed
        assert [item["role"] for item in turn.items] == ["user", *["assistant", "tool"] * 3]
        assert turn.messages()[0]["content"] == "go"
        turn.reply(completion("done"))
    transcript = session.transcript()
    assert len(transcript) == 1
    assert transcript.committed[0].items[-1]["content"] == "done"
    assert not transcript.provisional


def test_there_is_nothing_to_continue_after_a_commit(session):
    """`resume` continues the last turn only if that was not committed; if it was, the turn is a new one."""
    say(session, "one", "1")
    with session.turn(resume=True) as turn:
        assert (turn.resumed, turn.items) == (0, [])


def test_a_request_with_an_id_is_answered_once(store):
    """A turn with an id that is committed is not made again: it is done at once, with the items of its answer."""
    session = store.open("work", agent="main", budget={"steps": 1})
    with session.turn(id="pay-17", resume=True) as turn:
        turn.user("pay 17")
        turn.reply(completion("paid"))
    position = session.head.position
    again = store.open("work", agent="main", takeover=True)  # its budget is used up, which an old answer does not need
    with again.turn(id="pay-17", resume=True) as turn:
        assert (turn.done, turn.answered, turn.resumed) == (True, True, 0)
        assert contents(turn.items) == contents(turn.answer) == ["pay 17", "paid"]
        with pytest.raises(TurnConflict, match="already has its answer"):
            turn.user("pay 17")
    assert again.head.position == position + 1  # another process has joined
    with pytest.raises(BudgetExhausted):
        again.turn(id="pay-18", resume=True)


def test_a_turn_that_was_recorded_whole_has_an_id_too(session):
    """`record_turn(id=...)` and `turn(id=..., resume=True)` agree on what is answered."""
    session.record_turn([{"role": "user", "content": "1"}, {"role": "assistant", "content": "2"}], id="x")
    assert contents(session.turn(id="x", resume=True).items) == ["1", "2"]


def test_a_turn_with_an_id_continues_only_itself(session):
    """A turn that was aborted is continued under its id, whatever was said in between; other requests do not continue it."""

    def fail(id: str, *words: str) -> None:
        turn = session.turn(id=id, resume=True)
        for word in words:
            turn.user(word)
        turn.abort("it failed")

    fail("empty")
    fail("mine", "one")
    with session.turn(id="other", resume=True) as turn:
        assert (turn.items, turn.resumed) == ([], 0)
        turn.assistant("something else")
    with session.turn(id="empty", resume=True) as turn:
        assert (turn.items, turn.resumed, turn.origin) == ([], 0, session.store.find(session.id, "empty").position)
        turn.assistant("nothing")
    fail("mine", "two")
    with session.turn(id="mine", resume=True) as turn:
        assert contents(turn.items) == ["one", "two"]
        assert turn.resumed == turn.origin == session.store.find(session.id, "mine").position
        turn.assistant("three")
    assert contents(session.turn(id="mine", resume=True).items) == ["one", "two", "three"]
    assert [turn.items[-1]["content"] for turn in session.transcript()] == ["something else", "nothing", "three"]


def test_an_id_cannot_be_taken_from_something_else(store, session):
    """The id of a turn that was rolled back, of another agent's turn or of another event is refused."""
    session.decide("left", id="decision")
    with session.turn(id="gone", resume=True) as turn:
        turn.assistant("one")
    with session.turn(base=0, rollback=1) as turn:
        turn.assistant("two")
    with pytest.raises(TurnConflict, match="'gone' was committed and then rolled back"):
        session.turn(id="gone", resume=True)
    with pytest.raises(IdReused):
        session.turn(id="decision", resume=True)
    with store.open("work", agent="other") as other, pytest.raises(TurnConflict, match="a turn of agent 'main'"):
        other.turn(id="gone", resume=True)


def test_the_awaited_loop_is_the_same_loop(store):
    """The verbs of the loop are awaited under the same names, and a budget stops it there too."""

    async def main() -> None:
        session = await aio.over(store).open("awaited", agent="main", budget={"steps": 3})

        async def look(where: int) -> str:
            await asyncio.sleep(0)
            return f"nothing at {where}"

        async with session.turn() as turn:
            await turn.user("go")
            for number in range(3):
                assert len(await turn.messages("openai")) == 1 + 2 * number
                await turn.reply(completion(call=f"c{number}", name="look", where=number))
                assert await turn.run_tools(look) == 1
            with pytest.raises(BudgetExceeded):
                await turn.messages("openai")
        await session.budget.set(steps=9)
        await session.resume()
        async with session.turn(resume=True) as turn:
            assert turn.resumed
            assert len(turn.items) == 7

    asyncio.run(main())


def test_messages_are_a_list_with_what_belongs_beside_it(session):
    """`messages` is a list; the system's text, the tokens and the position are beside it."""
    say(session, "hello", "good day")
    made = session.messages("anthropic", system="be brief")
    assert made == made.messages == [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "good day"}]
    assert made.system == "be brief"
    assert made.position == session.head.position
    assert onrecord.Turn is type(session.turn())
