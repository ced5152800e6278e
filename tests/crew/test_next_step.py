"""What a supervisor does next, as a pure function: every state, and what time alone changes."""

import pytest

from onrecord.crew.next_step import (
    DEGRADED,
    END,
    FINISHED,
    FRESH,
    IDLE,
    LIMITED,
    NEEDS_PERSON,
    NOTHING,
    RESTARTING,
    RESTARTS_LIMIT,
    RESUMED,
    START,
    STOPPED,
    WINDOW_SECONDS,
    WORKING,
    Observed,
    next_step,
)

CRASHED = Observed(wanted=True, alive=False, known=True, ended_at=1000.0)


def test_who_is_asked_for_is_started_or_resumed():
    """A new agent starts; one with a conversation resumes it; one that runs is left alone."""
    asked = Observed(wanted=True, alive=False, asked=True)
    assert next_step(asked, 1.0)[:3] == (START, WORKING, FRESH)
    assert next_step(asked._replace(known=True), 1.0)[:3] == (START, WORKING, RESUMED)
    assert next_step(asked._replace(alive=True), 1.0)[:2] == (NOTHING, WORKING)


def test_a_team_without_budget_stops():
    """When the session's budget is used up, agents that run are ended and none is started, also if a person asks."""
    for seen in (CRASHED, CRASHED._replace(asked=True), CRASHED._replace(asked_fresh=True)):
        assert next_step(seen._replace(spent="no steps"), 2000.0)[:2] == (NOTHING, STOPPED)
        assert next_step(seen._replace(spent="no steps", alive=True), 2000.0)[:2] == (END, STOPPED)


def test_who_is_asked_for_is_resumed_although_it_had_finished():
    """`team resume` starts all agents, also those that were done; without it they stay finished."""
    done = CRASHED._replace(finished=True)
    assert next_step(done, 2000.0)[:2] == (NOTHING, FINISHED)
    assert next_step(done._replace(asked=True), 2000.0)[:3] == (START, WORKING, RESUMED)


@pytest.mark.parametrize(
    ("policy", "do", "mode"), [("resume", START, RESUMED), ("fresh", START, FRESH), ("never", NOTHING, "")]
)
def test_a_crash_leads_to_what_the_team_file_says(policy, do, mode):
    """A restart after a crash is a resume unless the team file asks for a fresh start (I24)."""
    step = next_step(CRASHED._replace(restart=policy), 1000.0)
    assert (step.do, step.mode) == (do, mode)


def test_a_deliberate_restart_ends_it_first_and_begins_anew():
    """A fresh start has fresh context, whatever the agent did before, also for one that is degraded or parked (I24)."""
    asked = CRASHED._replace(asked_fresh=True, alive=True, resets_at=9e9)
    assert next_step(asked, 1000.0)[:2] == (END, RESTARTING)
    assert next_step(asked._replace(alive=False), 1000.0)[:3] == (START, WORKING, FRESH)


def test_restarts_wait_longer_each_time():
    """The first restart is at once, then 1, 2, 4, 8 seconds after the end."""
    pauses = []
    for count in range(RESTARTS_LIMIT):
        seen = CRASHED._replace(restarts=tuple(990.0 + one for one in range(count)))
        step = next_step(seen, 1000.0)
        pauses.append(step.at - 1000.0 if step.state == RESTARTING else 0.0)
        assert next_step(seen, 1000.0 + pauses[-1]).do == START
    assert pauses == [0.0, 1.0, 2.0, 4.0, 8.0]


def test_a_degraded_agent_stays_so_however_long_it_takes():
    """After five restarts within 120 s of the end, the supervisor does not start the agent, not even a day later."""
    seen = CRASHED._replace(restarts=(900.0, 910.0, 920.0, 930.0, 940.0))
    for now in (1000.0, 1000.0 + WINDOW_SECONDS, 1000.0 + 86_400):
        step = next_step(seen._replace(last="Invalid API key"), now)
        assert step[:2] == (NOTHING, DEGRADED)
        assert step.why == "5 restarts in 120 s (the last: Invalid API key); restart it by hand"
    assert next_step(seen._replace(asked=True), 1000.0).do == START
    assert next_step(seen._replace(asked_fresh=True), 1000.0).do == START


def test_restarts_long_before_the_end_do_not_count():
    """An agent that ran for an hour after its fifth restart does not count as one that keeps crashing."""
    seen = CRASHED._replace(ended_at=5000.0, restarts=(900.0, 910.0, 920.0, 930.0, 940.0))
    assert next_step(seen, 5000.0).do == START


def test_a_limit_is_waited_for():
    """An agent is parked until the reset, alive or not, requested or not; then it resumes."""
    seen = CRASHED._replace(resets_at=2000.0)
    for one in (seen, seen._replace(asked=True), seen._replace(alive=True)):
        step = next_step(one, 1500.0)
        assert (step.do, step.state, step.at) == (NOTHING, LIMITED, 2000.0)
    assert next_step(seen, 2000.0)[:3] == (START, WORKING, RESUMED)


@pytest.mark.parametrize("doing", [WORKING, IDLE, NEEDS_PERSON])
def test_what_an_open_program_does_is_its_state(doing):
    """Working, idle and asking are three states; a limit without a known end is one too, until the agent works again."""
    seen = CRASHED._replace(alive=True, doing=doing, trouble="Invalid API key")
    assert next_step(seen, 1500.0) == (NOTHING, doing, "", 0.0, "Invalid API key")
    assert next_step(seen._replace(limited=True), 1500.0)[:2] == (NOTHING, LIMITED)
    assert next_step(seen._replace(limited=True, resets_at=2000.0), 1500.0)[:4] == (NOTHING, LIMITED, "", 2000.0)


def test_who_is_not_wanted_is_ended():
    """A member of a group that shrank, or of a dismissed team, is ended."""
    assert next_step(CRASHED._replace(wanted=False, alive=True), 1.0)[:2] == (END, STOPPED)
    assert next_step(CRASHED._replace(wanted=False), 1.0)[:2] == (NOTHING, STOPPED)


def test_whom_a_person_ended_stays_ended():
    """Ctrl-C in an agent's terminal is a decision, not a crash."""
    step = next_step(CRASHED._replace(dismissed="a person ended it"), 1000.0)
    assert (step.do, step.state, step.why) == (NOTHING, STOPPED, "a person ended it")
