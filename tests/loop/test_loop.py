"""The loop inside a turn: the model sees the open turn, a budget stops the loop, an interrupted turn is continued."""

import asyncio
from itertools import pairwise
from typing import Any

import pytest

import onrecord
from onrecord import aio
from onrecord.errors import BudgetExceeded, BudgetExhausted, InvalidInput, SessionPaused, TurnConflict
from onrecord.session.session_store import SessionStore
from onrecord.stores.memory import MemoryStore
from onrecord.testing import FakeClock
from tests.loop.replies import completion


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


def test_a_handle_that_names_no_agent_reads_the_only_one(store, session):
    """`store.get(name).messages()` is what the agent's own handle has; with several agents it says whom to name."""
    assert store.get("work").messages() == []
    say(session, "one", "1")
    assert (
        contents(store.get("work").messages()) == ["one", "1"] == contents(store.get("work", agent="main").messages())
    )
    assert store.get("work", agent="newcomer").messages() == []
    with store.open("work", agent="second") as second:
        say(second, "two", "2")
    with pytest.raises(InvalidInput, match=r"turns of 2 agents \(main, second\)") as problem:
        store.get("work").messages()
    assert problem.value.hint == 'name one: store.get("work", agent="main")'
    assert contents(store.get("work", agent="second").messages()) == ["two", "2"]
    say(store.get("work"), "three", "3")
    assert contents(store.get("work").messages()) == ["three", "3"]


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
