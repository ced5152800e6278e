"""Turns that ended on record while a program still has them, and what they may no longer do."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest

import onrecord
from onrecord.errors import BudgetExceeded, IdReused, InvalidInput, LeaseLost, SessionPaused, TooLarge, TurnConflict
from onrecord.session import turns
from onrecord.session.handle import Session
from tests.loop.replies import completion


@pytest.fixture
def session():
    with onrecord.connect("memory:") as store:
        yield store.open("work", agent="main")


@pytest.mark.parametrize("verb", ["reply", "user", "tool", "run_tools", "messages", "commit", "abort", "use"])
@pytest.mark.parametrize("way", ["leave", "pause"])
def test_a_turn_that_ended_with_its_run_takes_nothing_more(session, way, verb):
    """A handle that left or paused ended its turn; when it has a lease again, that turn still takes nothing."""
    turn = session.turn(id="r", resume=True)
    turn.user("Pay.")
    turn.reply(completion(call="c1", name="pay", invoice=17))
    if way == "leave":
        session.leave()
    else:
        session.pause("ask a person")
        session.resume("go on")
    session.acquire()
    given: dict[str, Any] = {
        "reply": [completion("done")], "user": ["more"], "tool": ["c1", "paid"], "run_tools": [], "messages": [],
        "commit": [], "abort": ["no"], "use": [completion("x")],
    }  # fmt: skip
    before = session.head.position
    with pytest.raises(TurnConflict, match="ended when its handle gave up the lease") as refused:
        getattr(turn, verb)(*given[verb])
    assert refused.value.hint == "session.turn(resume=True) continues it"
    assert session.refresh().head.position == before
    with session.turn(resume=True) as again:
        assert [call["id"] for call in again.calls] == ["c1"]
        again.tool("c1", "paid")
        again.reply(completion("Paid."))
    assert session.transcript().committed[-1].items[-1]["content"] == "Paid."


def test_a_tool_that_takes_the_lease_again_does_not_revive_a_turn(session):
    """A call outside of the loop takes the lease silently; the next request never reads its lost turn's results."""
    paid: list[int] = []

    @session.tool
    def pay(invoice: int) -> str:
        paid.append(invoice)
        return f"invoice {invoice} paid"

    @session.tool
    def look() -> str:
        return "ok"

    lost = session.turn(id="r", resume=True)
    lost.user("Pay.")
    session.leave()
    look()
    with pytest.raises(TurnConflict):
        lost.reply(completion(call="c1", name="pay", invoice=17))
    with session.turn(id="r", resume=True) as turn:
        turn.reply(completion(call="c1", name="pay", invoice=18))
        turn.run_tools(pay)
        assert turn.items[-1]["content"] == "invoice 18 paid"
        turn.reply(completion("Paid 18."))
    assert paid == [18]


def test_reading_an_earlier_answer_leaves_the_budget_of_the_open_turn(session):
    """A request that was answered before is only read: the limits of the turn that is open hold as before."""
    with session.turn(id="old", resume=True) as turn:
        turn.user("a")
        turn.reply(completion("A"))
    session.budget.set(repeats=3)
    turn = session.turn(id="new", resume=True)
    turn.user("b")
    for number in range(3):
        turn.messages("openai")
        assert session.turn(id="old", resume=True).done
        turn.reply(completion(call=f"c{number}", name="f"))
        turn.tool(f"c{number}", "r")
    with pytest.raises(BudgetExceeded) as stopped:
        turn.messages("openai")
    assert stopped.value.limit == "repeats"
    assert turn.aborted
    assert session.status == "paused"


def test_messages_of_a_turn_that_lost_its_lane_are_refused(session):
    """Before a model is called: its answer would be refused, and the messages would be another process's."""
    turn = session.turn()
    turn.user("What is 6*7?")
    Session(session.store, session.id, agent="main").acquire(takeover=True)
    with pytest.raises(LeaseLost, match="another process has taken lane 'main'"):
        turn.messages("openai")


def test_messages_of_a_paused_session_are_refused(session):
    """A session that someone else paused takes no answer, so it gives no messages."""
    turn = session.turn()
    turn.user("q")
    Session(session.store, session.id, agent="person").pause("stop")
    with pytest.raises(SessionPaused):
        turn.messages("openai")


def test_a_result_needs_a_call_of_its_turn(session):
    """A mistaken id is refused with the ids that wait; it is not recorded beside the call."""
    with session.turn() as turn:
        turn.user("q")
        turn.reply(completion(call="call_1", name="f"))
        with pytest.raises(InvalidInput, match="no tool call of this turn has the id 'call-1'") as refused:
            turn.tool("call-1", "the result")
        assert refused.value.hint == "without result: 'call_1'"
        turn.tool("call_1", "the result")
        turn.reply(completion("done"))


def test_the_id_of_a_turn_that_died_says_how_to_continue(session):
    """Without `resume`, the id of an earlier turn is refused, and the hint continues it."""
    session.turn(id="x").abort("killed")
    with pytest.raises(IdReused, match="'x' is on record already") as refused:
        session.turn(id="x")
    assert refused.value.hint.startswith("session.turn(id='x', resume=True) continues it")


def test_a_turn_never_grows_too_long_to_be_continued(session, monkeypatch):
    """An open turn takes as many items as a turn that continues it can begin with."""
    monkeypatch.setattr(turns, "TURN_LIMIT", 4)
    turn = session.turn(id="long")
    for number in range(4):
        turn.user(str(number))
    with pytest.raises(TooLarge, match="up to 4 items"):
        turn.user("one more")
    turn.abort("killed")
    assert len(session.turn(id="long", resume=True).items) == 4


def test_a_full_turn_takes_the_results_of_its_calls(session, monkeypatch):
    """What a tool did is on record although the turn is full; the next call of a model is refused before it is made."""
    monkeypatch.setattr(turns, "TURN_LIMIT", 2)
    turn = session.turn()
    turn.user("pay")
    turn.reply(completion(call="c1", name="pay"))
    assert turn.run_tools(session.tool(lambda: "paid", name="pay")) == 1
    assert turn.items[-1]["content"] == "paid"
    with pytest.raises(TooLarge, match="up to 2 items"):
        turn.messages()
    turn.commit()
    assert session.turn().messages()[-1]["content"] == "paid"


def test_a_loop_takes_methods_of_a_new_object_in_each_turn(session):
    """In the loop a call is known by its place in the log, so a server may make new tools for each request."""

    class Tools:
        def search(self, q: str) -> str:
            return f"{id(self)} found {q}"

    kept = [Tools(), Tools()]
    for tools in kept:
        with session.turn() as turn:
            turn.user("q")
            turn.reply(completion(call="c1", name="search", q="x"))
            turn.run_tools(tools.search)
            assert turn.items[-1]["content"] == f"{id(tools)} found x"


def test_a_session_whose_tools_know_it_can_be_freed(session):
    """An object that has the session and whose method is a tool of it does not stay in memory with it."""

    class Agent:
        def __init__(self, session: Any) -> None:
            self.session = session
            self.look = session.tool(self.see)

        def see(self, q: str) -> str:
            return q

    agent = Agent(Session(session.store, session.id, agent="other"))
    seen = [weakref.ref(agent), weakref.ref(agent.session)]
    del agent
    gc.collect()
    assert [one() for one in seen] == [None, None]


def test_methods_of_two_objects_are_two_tools(session):
    """Calls are known by the name of their tool: the second object's method needs a name of its own."""

    class Account:
        def __init__(self, owner: str) -> None:
            self.owner = owner

        def pay(self, invoice: int) -> str:
            return f"{self.owner} paid {invoice}"

    ada, bob = Account("ada"), Account("bob")
    assert session.tool(ada.pay)(1) == session.tool(ada.pay)(1) == "ada paid 1"
    with pytest.raises(InvalidInput, match="another object's method 'pay'"):
        session.tool(bob.pay)
    assert session.tool(bob.pay, name="pay-bob")(1) == "bob paid 1"
