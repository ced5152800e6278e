"""The loop inside a turn: the model sees the open turn, a budget stops the loop, an interrupted turn is continued."""

import asyncio
import time
from itertools import pairwise
from typing import Any

import pytest

import onrecord
from onrecord import aio
from onrecord.agents.pricing import price
from onrecord.errors import BudgetExceeded, BudgetExhausted, IdReused, InvalidInput, SessionPaused, TurnConflict
from tests.loop.replies import completion
from tests.loop.talk import contents, look, say


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
    assert f"session.budget.set({limit}=" in stopped.value.hint
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


def test_what_is_advised_works_when_typed(store, clock):
    """Every error about a budget says what is spent and has the call that raises it, with all limits, so that work continues."""
    session = store.open("work", agent="main", budget={"steps": 2, "tokens": 90_000, "repeats": 9})
    for number in range(3):
        with pytest.raises(BudgetExceeded) as stopped:
            endless(session)
        assert stopped.value.spent["steps"] == 2 ** (number + 1)
        call = stopped.value.hint.partition(" raises it")[0]
        eval(call, {"session": session})  # the point of this test
        assert session.views.spend.budget == {"steps": 4 * 2**number, "tokens": 90_000, "repeats": 9}
        session.resume()
    session.budget.set(steps=8, tokens=90_000)
    with pytest.raises(BudgetExhausted, match="8 of 8 steps") as refused:
        session.messages()
    assert refused.value.spent["steps"] == 8
    with pytest.raises(BudgetExhausted) as refused:
        session.turn()
    assert (refused.value.spent["steps"], refused.value.limit) == (8, "steps")
    assert refused.value.hint.startswith("session.budget.set(steps=16, tokens=90000), then session.resume()")


@pytest.mark.parametrize("verb", ["reply", "use", "record_usage", "record_turn"])
def test_a_limit_of_spend_counts_prices_that_are_known(verb):
    """With the extra `prices` a call of a model that it knows has a cost, if a limit depends on it; the limit holds."""
    answer = {**completion(call="c1", name="look", where=1), "model": "gpt-4o"}
    tokens = {"input_tokens": 100, "output_tokens": 20, "cache_read_tokens": 40, "reasoning_tokens": 5}
    expected = price("gpt-4o", tokens, int(time.time()) // 86_400)
    assert expected
    with onrecord.connect("memory:") as memory:
        session = memory.open("work", agent="main", budget={"spend": expected * 1.5})
        other = memory.open("unlimited", agent="main")
        for one in (session, other):
            with one.turn() as turn:
                if verb == "reply":
                    turn.reply(answer)
                elif verb == "use":
                    turn.use(answer)
                elif verb == "record_usage":
                    one.budget.record_usage("gpt-4o", **tokens)
                for call in turn.calls:
                    turn.tool(call["id"], "nothing")
            if verb == "record_turn":
                used: Any = {"model": "gpt-4o", **tokens}
                for _again in range(2):
                    one.record_turn([{"role": "user", "content": "x"}], usage=used, id="one")
        assert session.budget.spent()["cost"] == pytest.approx(expected)
        assert other.budget.spent()["unknown_cost_calls"] == 1
        session.budget.record_usage("gpt-4o", **tokens)
        with pytest.raises(BudgetExhausted, match="spend"):
            session.budget.check()


def test_a_limit_of_spend_warns_if_a_cost_is_unknown(store):
    """A call without a cost cannot be limited: that is said, once, with what helps."""
    session = store.open("work", agent="main", budget={"spend": 0.01})
    with session.turn() as turn:
        with pytest.warns(UserWarning, match=r"the cost of a call of 'gpt-x' is not known.*pass cost=") as warned:
            turn.reply(completion("one"))
        turn.reply(completion("two"))
        turn.reply(completion("three"), cost=0.001)
    assert len(warned) == 1
    assert session.budget.spent()["cost"] == 0.001


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


def test_an_awaited_turn_that_has_not_begun_says_so(store):
    """A turn of `aio` that is used without `async with` is refused with what begins it; a misspelt name is a mistake."""

    async def main() -> None:
        session = await aio.over(store).open("awaited", agent="main")
        turn = session.turn()
        with pytest.raises(TurnConflict, match="this turn has not begun") as refused:
            await turn.user("hello")
        assert "async with session.turn() as turn:" in refused.value.hint
        with pytest.raises(AttributeError, match="no attribute 'usr'"):
            turn.usr("hello")  # type: ignore[attr-defined]  # what a caller may misspell
        async with turn:
            await turn.user("hello")
            assert turn.committed is None
        assert turn.committed is not None
        assert turn.aborted is None

    asyncio.run(main())


def test_agents_that_share_a_budget_all_stop(store):
    """When one agent has used up the budget of a session, the turns of the others are stopped and aborted like its own."""
    one, two = store.open("work", agent="one", budget={"steps": 2}), store.open("work", agent="two")
    turns = [one.turn(), two.turn()]
    for turn in turns:
        turn.messages()
        turn.reply(completion(call="c1", name="look", where=1))
    for turn in turns:
        with pytest.raises(BudgetExceeded, match="2 of 2 steps used"):
            turn.messages()
        assert turn.aborted.data["reason"] == "budget: 2 of 2 steps used"
    assert one.refresh().status == "paused"


def test_resume_is_no_id(store):
    """An id given as `resume` would continue another turn: it is refused with the call that was meant."""
    session = store.open("work", agent="main")
    with pytest.raises(InvalidInput, match="resume is True or False") as refused:
        session.turn(resume="invoice-17")
    assert refused.value.hint == "session.turn(id='invoice-17', resume=True)"


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


@pytest.mark.parametrize("id", [None, "i17"])
def test_the_last_answer_is_committed_after_a_crash_too(store, id):
    """If the process dies between the last answer and the commit, no call is left to pay: the turn continues and ends."""
    session = store.open("work", agent="main", budget={"steps": 1})
    turn = session.turn(id=id, resume=True)
    turn.user("go")
    turn.messages()
    turn.reply(completion("done"))
    session = store.open("work", agent="main", takeover=True)
    with session.turn(id=id, resume=True) as turn:
        assert turn.done
    assert len(session.transcript()) == 1
    with pytest.raises(BudgetExhausted):
        session.turn(resume=True)


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
