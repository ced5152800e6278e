"""Budgets: the first used-up limit stops the work with a reason; unknown costs are reported as unknown; loops are detected."""

from typing import Any

import pytest

from onrecord.errors import BudgetExhausted, InvalidInput, LeaseHeld, NameTaken, SessionPaused
from onrecord.session.session_store import SessionStore

HELLO = [{"role": "user", "content": "hello"}]


STOPS = pytest.mark.parametrize(
    ("limits", "use", "limit"),
    [
        ({"steps": 2}, lambda session, clock: [session.record_turn(HELLO) for _ in range(2)], "steps"),
        (
            {"tokens": 100},
            lambda session, clock: session.budget.record_usage("m", input_tokens=60, output_tokens=40),
            "tokens",
        ),
        (
            {"spend": 1.5},
            lambda session, clock: [session.budget.record_usage("m", cost=0.75) for _ in range(2)],
            "spend",
        ),
        ({"seconds": 60}, lambda session, clock: clock.advance(60), "seconds"),
        (
            {"spend": 1, "tokens": 100, "steps": 9},
            lambda session, clock: session.budget.record_usage("m", input_tokens=100, cost=1),
            "tokens",
        ),
    ],
    ids=["steps", "tokens", "spend", "seconds", "first of several"],
)


@STOPS
@pytest.mark.parametrize("way", ["turn", "record_turn"])
def test_the_first_limit_stops_the_work(timed, clock, *, limits, use, limit, way):
    """When a turn begins, the first used-up limit pauses the session with a reason; nothing is half done (K01, K03, G02)."""
    session = timed.open("work", budget=limits)
    use(session, clock)
    with pytest.raises(BudgetExhausted) as stop:
        session.turn() if way == "turn" else session.record_turn(HELLO)
    assert stop.value.limit == limit
    assert limit in stop.value.message
    assert session.status == "paused"
    assert f"{limit} used" in session.views.lifecycle.steps[-1]["reason"]
    assert session.views.lifecycle.interruption["limit"] == limit
    assert "interrupted at position" in session.note()
    assert session.transcript().provisional == []


def test_a_stopped_session_holds_no_process_and_stays_stopped(records):
    """After the stop any process can read, raise the budget and continue; until then no turn begins (A13, K03)."""
    session = records.open("work", budget={"steps": 1})
    session.record_turn(HELLO)
    with pytest.raises(BudgetExhausted):
        session.turn()
    before = session.head.position
    for _ in range(2):
        with pytest.raises((BudgetExhausted, SessionPaused)):
            session.turn()
        with pytest.raises((BudgetExhausted, SessionPaused)):
            session.record_turn(HELLO)
    assert session.refresh().head.position == before
    other = records.open("work")
    with pytest.raises(LeaseHeld):
        session.acquire()
    other.budget.set(steps=2)
    other.resume("raised to 2")
    other.record_turn(HELLO)
    assert other.views.lifecycle.interruption is None
    with pytest.raises(BudgetExhausted):
        other.record_turn(HELLO)


def test_a_resumed_session_without_more_budget_stops_again(records):
    """Resuming does not raise a budget (K03)."""
    session = records.open("work", budget={"steps": 1})
    session.record_turn(HELLO)
    for _ in range(2):
        with pytest.raises(BudgetExhausted):
            session.turn()
        session.resume("again")
    assert session.status == "resumed"


def test_unknown_cost_is_unknown(records):
    """A cost that was not reported is counted as unknown and never guessed; known costs add up (K02)."""
    session = records.open("work", budget={"spend": 1})
    session.budget.record_usage("small", input_tokens=10, cost=0.25)
    with pytest.warns(UserWarning, match="the cost of a call of 'large' is not known and does not count"):
        session.budget.record_usage("large", input_tokens=10)
    session.record_turn(HELLO, usage={"model": "large", "output_tokens": 5, "cost": None})
    total = session.views.spend.total
    assert (total["cost"], total["unknown_cost_calls"], total["calls"]) == (0.25, 2, 3)
    assert session.views.spend.models["large"]["unknown_cost_calls"] == 2


def test_usage_is_billed_per_model_and_run(records):
    """Usage is kept apart by model and by run, aborted turns included (A10, K02)."""
    for number in range(2):
        with records.open("work") as session:
            turn = session.turn()
            turn.record_usage("m", input_tokens=10 * (number + 1), output_tokens=1, cost=0.5)
            turn.abort("no")
            session.budget.record_usage("other", input_tokens=1)
    spend = records.get("work").views.spend
    assert {run: part["input_tokens"] for run, part in spend.runs.items()} == {"1": 11, "2": 21}
    assert {model: part["input_tokens"] for model, part in spend.models.items()} == {"m": 30, "other": 2}
    assert spend.total["cost"] == 1.0


@pytest.mark.parametrize(
    "usage",
    [{"input_tokens": -1}, {"output_tokens": True}, {"cost": float("nan")}, {"cost": float("inf")}, {"input_tokens": "5"},
     {"input_tokens": 10**16}],
)  # fmt: skip
def test_usage_is_a_number(session, usage):
    """Usage that is not a sensible number is refused, alone and with a turn, and nothing is recorded (K02)."""
    before = session.head
    with pytest.raises(InvalidInput):
        session.budget.record_usage("m", **usage)
    with pytest.raises(InvalidInput):
        session.record_turn(HELLO, usage={"model": "m", **usage})
    assert session.refresh().head == before


def test_a_child_inherits_a_slice(records):
    """A child session gets part of what is left, which its parent cannot spend or assign again (K01)."""
    parent = records.open("work", budget={"tokens": 100, "steps": 10})
    parent.budget.record_usage("m", input_tokens=30)
    child = records.child(parent, "part", budget={"tokens": 50}, agent="helper")
    assert child.views.spend.budget == {"tokens": 50}
    assert child.views.lifecycle.parent["session"] == parent.id
    left = parent.views.spend.remaining(0)
    assert left["tokens"] == 20
    for budget in ({"tokens": 21}, {"tokens": 10, "steps": 11}, {"patience": 1}, {"tokens": 0}):
        with pytest.raises(InvalidInput):
            records.child(parent, "more", budget=budget)
    assert parent.views.spend.remaining(0) == left
    parent.budget.record_usage("m", output_tokens=20)
    with pytest.raises(BudgetExhausted, match="100 of 100 tokens"):
        parent.turn()


@pytest.mark.parametrize("name", ["taken", "../up", "x" * 65])
def test_a_child_that_cannot_be_made_costs_nothing(records, name):
    """When the child's name is taken or illegal, no part of the parent's budget is assigned (K01)."""
    parent = records.open("work", budget={"tokens": 100})
    records.create("taken")
    with pytest.raises((NameTaken, InvalidInput)):
        records.child(parent, name, budget={"tokens": 50})
    assert parent.views.spend.remaining(0) == {"tokens": 100}


def call(number: int, name: str = "bash", **arguments: object) -> list[dict[str, Any]]:
    """A turn with one call and its result."""
    made = {"id": f"c{number}", "name": name, "arguments": arguments}
    return [
        {"role": "assistant", "content": "", "tool_calls": [made]},
        {"role": "tool", "call": f"c{number}", "content": "no"},
    ]


def play(records: SessionStore, turns: list[list[dict[str, Any]]]) -> int:
    """After how many of the turns the lack of progress was detected; -1 for never."""
    session = records.open("work", budget={"repeats": 3})
    for number, turn in enumerate(turns):
        try:
            session.record_turn(turn)
        except BudgetExhausted as stop:
            if stop.limit != "repeats":
                raise
            assert "no progress" in session.views.lifecycle.steps[-1]["reason"]
            return number
    return -1


def test_the_same_call_over_and_over_is_no_progress(records):
    """The same call with the same result three times in a row stops the work (K03)."""
    assert play(records, [call(number, cmd="make") for number in range(6)]) == 3


def test_going_back_and_forth_is_no_progress(records):
    """An oscillation between calls is detected too (K03)."""
    assert play(records, [call(number, cmd=f"step {number % 2}") for number in range(10)]) == 6


@pytest.mark.parametrize("change", ["arguments", "result", "name"])
def test_a_change_is_progress(records, change):
    """Other arguments, another result or another tool is progress (K03)."""
    turns = []
    for number in range(8):
        turn = call(
            number, name=f"tool{number}" if change == "name" else "bash", cmd=number if change == "arguments" else 0
        )
        if change == "result":
            turn[1]["content"] = f"{number} failed"
        turns.append(turn)
    assert play(records, turns) == -1


def test_a_budget_has_limits_that_exist(records, session):
    """A budget limits what can be measured, with amounts above zero; it replaces the previous one (K01)."""
    for limits in ({"patience": 3}, {"steps": -1}, {"tokens": "many"}, {"spend": float("nan")}):
        with pytest.raises(InvalidInput):
            session.budget.set(**limits)
    for budget in (3, [("steps", 3)]):
        with pytest.raises(InvalidInput, match="a budget is a dict of limits"):
            records.open("another", agent="main", budget=budget)
    session.budget.set(steps=5, spend=1.5)
    session.budget.set(tokens=7)
    assert session.views.spend.budget == {"tokens": 7}
