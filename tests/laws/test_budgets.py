"""Laws of budgets: only use reduces what is left, the first used-up limit is reported, and nothing is guessed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onrecord.errors import BudgetExhausted, InvalidInput, SessionPaused
from onrecord.views.spend import LIMITS
from tests.laws.play import Play, quiet_steps

MEASURED = ("steps", "tokens", "seconds", "spend")
budgets = st.dictionaries(st.sampled_from(MEASURED), st.integers(1, 60), min_size=1)
uses = st.lists(
    st.tuples(st.sampled_from(["turn", "use", "wait"]), st.integers(0, 30), st.none() | st.integers(0, 30)), max_size=20
)


@given(budgets, uses)
def test_what_is_left_never_grows_by_use(budget, used):
    """Turns, tokens, money and time only reduce a budget; with a limit used up, no turn begins (K02, K03)."""
    play = Play(budget=budget)
    session = play.session
    left = session.views.spend.remaining(int(play.clock() * 1e6))
    assert left == budget
    for what, amount, cost in used:
        halted = None
        try:
            if what == "turn":
                session.record_turn([{"role": "user", "content": "x"}])
            elif what == "use":
                session.budget.record_usage("m", input_tokens=amount, output_tokens=1, cost=cost)
            else:
                play.clock.advance(amount)
        except BudgetExhausted as stop:
            halted = stop
        now = session.views.spend.remaining(int(play.clock() * 1e6))
        assert set(now) == set(left)
        assert all(now[limit] <= left[limit] for limit in now)
        left = now
        gone = [limit for limit in LIMITS if now.get(limit, 1) <= 0]
        if halted is not None:
            assert halted.limit == gone[0]
            assert session.status == "paused"
            assert session.views.lifecycle.interruption is not None
            return
        assert what != "turn" or not gone or gone == ["steps"] or session.status != "paused"


@given(budgets, st.lists(st.sampled_from(MEASURED)))
def test_the_first_limit_does_not_depend_on_how_it_was_written(budget, order):
    """The process that set the budget and one that reads it later report the same limit first (K03)."""
    shuffled = {limit: budget[limit] for limit in [*order, *budget] if limit in budget}
    play = Play()
    play.session.budget.set(**shuffled)
    play.session.budget.record_usage("m", input_tokens=1_000, cost=1_000)
    play.clock.advance(1_000)
    now = int(play.clock() * 1e6)
    told = play.session.views.spend.exhausted(now)
    assert told == play.records.get("play").views.spend.exhausted(now)
    assert (told is None) == (set(budget) == {"steps"})


@given(st.lists(st.tuples(st.sampled_from(["a", "b"]), st.integers(0, 100), st.none() | st.floats(0, 5)), max_size=12))
def test_unknown_costs_are_counted_and_never_guessed(used):
    """Usage adds up per model and per run; a cost that was not reported counts as unknown, not as zero (K02)."""
    play = Play()
    for model, tokens, cost in used:
        play.session.budget.record_usage(model, output_tokens=tokens, cost=cost)
    spend = play.session.views.spend
    assert spend.total["unknown_cost_calls"] == sum(cost is None for _model, _tokens, cost in used)
    assert abs(spend.total["cost"] - sum(cost or 0 for _model, _tokens, cost in used)) < 1e-6
    assert spend.total["output_tokens"] == sum(tokens for _model, tokens, _cost in used)
    for model in ("a", "b"):
        mine = [use for use in used if use[0] == model]
        assert spend.models.get(model, {"calls": 0})["calls"] == len(mine)
    for parts in (spend.models, spend.runs):
        assert sum(part["calls"] for part in parts.values()) == len(used)


@given(st.integers(1, 100), st.lists(st.integers(1, 60), max_size=6))
def test_slices_never_give_away_more_than_there_is(total, slices):
    """Child sessions get slices of what is left, never more; an assigned slice is not spent twice (K01)."""
    play = Play(budget={"tokens": total})
    given_away = 0
    for number, amount in enumerate(slices):
        try:
            child = play.records.child(play.session, f"child-{number}", budget={"tokens": amount})
        except InvalidInput:
            assert amount > total - given_away
            continue
        given_away += amount
        assert child.views.spend.budget == {"tokens": amount}
        assert play.session.views.spend.remaining(0)["tokens"] == total - given_away
    assert given_away <= total


@given(quiet_steps)
def test_a_pause_costs_no_time(played):
    """Time in a pause does not count as wall-clock time of the budget (A13)."""
    play = Play().run(played)
    play.session.pause("rate limit")
    before = play.session.views.spend.used(int(play.clock() * 1e6))
    play.clock.advance(10_000)
    assert play.session.views.spend.used(int(play.clock() * 1e6)) == before
    play.session.resume()
    play.clock.advance(5)
    assert play.session.views.spend.used(int(play.clock() * 1e6))["seconds"] == before["seconds"] + 5


@given(st.integers(1, 5), st.integers(0, 6))
def test_steps_are_turns_and_the_last_allowed_one_is_done(limit, more):
    """A budget of n steps allows n turns, aborted ones included; then it stops, and stays stopped until it is raised (K03)."""
    play = Play(budget={"steps": limit})
    done = 0
    for number in range(limit + more):
        try:
            with play.session.turn() as turn:
                turn.user("x")
                done += 1
                if number % 2:
                    turn.abort("no good")
        except (BudgetExhausted, SessionPaused):
            assert done == limit
    assert done == min(limit, limit + more)
    if more:
        assert play.session.status == "paused"
        play.session.budget.set(steps=limit + 1)
        play.session.resume("raised")
        play.session.record_turn([{"role": "user", "content": "one more"}])
        with pytest.raises(BudgetExhausted):
            play.session.record_turn([{"role": "user", "content": "too many"}])
