"""The check of a note: what a fresh agent would miss is named, and a summary alone does not close a session."""

import pytest

from onrecord.connection import load_profile
from onrecord.views.check import NONE_KEY, check, is_vague, obstacles


def essential(session):
    return [gap.field for gap in check(session.views).gaps if gap.essential]


@pytest.fixture
def bug(records):
    """A session whose note a fresh agent can continue from."""
    session = records.create("bug", agent="main", objective="Fix the intermittent 403 after an invite")
    session.set_reproduction("pytest -k invite", rate="3/10")
    session.record_evidence("run", id="run-a", captured=True)
    session.state("The middleware is the cause", "rejected", evidence=["run-a"])
    session.state("The row is written late", "verified", evidence=["run-a"])
    session.set_next_action("Look at the order", command="pytest -k commit")
    return session


def test_a_complete_note_is_graded_complete(bug):
    """Objective, reproduction with rate, verified, rejected, next command: nothing is missing (H46, H47)."""
    assert check(bug.views) == ("complete", [])
    assert obstacles(bug.views) == []


def test_an_empty_note_lacks_everything(records):
    """Every field that is missing is named, with the command that fills it."""
    plain = records.create("plain", agent="main")
    grade, gaps = check(plain.views)
    assert grade == "insufficient"
    assert [gap.field for gap in gaps] == ["objective", "next action", "reproduction", "verified", "rejected"]
    assert all(gap.clear.startswith("onrecord ") for gap in gaps)


@pytest.mark.parametrize("text", ["continue", "Fix the bug.", "TODO", "look into it", "go on!", "make it work"])
def test_a_vague_next_action_is_no_next_action(bug, text):
    """A next action that names nothing to do is as bad as none, unless there is a command."""
    assert is_vague(text)
    bug.set_next_action(text)
    assert essential(bug) == ["next action"]
    bug.set_next_action(text, command="pytest -k commit")
    assert essential(bug) == []


def test_minor_gaps_leave_it_usable(bug):
    """A vague objective, a missing rate, or evidence that nobody captured make a note usable, not complete."""
    bug.set_objective("403")
    bug.set_reproduction("pytest -k invite")
    bug.record_evidence("log", id="log-b")
    bug.state("The cache is warm", "verified", evidence=["log-b"])
    bug.state("It is Tuesday", "rejected", evidence=["somewhere"])
    grade, gaps = check(bug.views)
    assert grade == "usable"
    assert [(gap.field, gap.problem) for gap in gaps[1:]] == [
        ("reproduction", "has no rate (3/10 runs)"),
        ("evidence", "f3 rests on asserted evidence only"),
        ("evidence", "f4 rests on a name that resolves to nothing"),
    ]


def test_an_unresolved_attempt_is_a_gap(bug):
    """Whoever leaves a run unsettled leaves a question."""
    bug.start_attempt("pytest")
    assert essential(bug) == ["attempt"]


def test_nothing_can_be_said_on_purpose(bug, records):
    """That nothing was rejected is a statement, with a reason; then it is no gap."""
    other = records.create("other", agent="main", objective="Find out why it is slow")
    other.state("It is slow", "open")
    other.set_next_action("Profile the start", command="python -X importtime")
    assert essential(other) == ["reproduction", "verified", "rejected"]
    other.set_scratch(NONE_KEY, {"reproduction": "always", "verified": "just begun", "rejected": "just begun"})
    assert essential(other) == []


def test_plain_use_of_the_log_owes_no_note(records):
    """A session without profile, findings and attempts can be closed as it is; with any of them it needs a note."""
    plain = records.create("plain", agent="main")
    plain.decide("Use the log for something else")
    assert obstacles(plain.views) == []
    plain.state("Something", "open")
    assert obstacles(plain.views)


def test_a_profile_counts_by_its_checkpoints(records):
    """With a profile a finished phase stands for the reproduction; when every phase is done no next action is needed."""
    work = records.create("work", agent="main", objective="Does regularisation help on small data")
    work.choose_profile(load_profile("research"))
    work.set_next_action("Write the specification first")
    work.set_scratch(NONE_KEY, {"verified": "no run yet", "rejected": "no run yet"})
    assert [gap.field for gap in obstacles(work.views)] == ["checkpoint"]
    work.enter_phase("Motivation")
    work.write_section("Session Title", "L2")
    work.write_section("Research Specification", "Does L2 help?")
    work.finish_phase("Motivation")
    assert obstacles(work.views) == []
    bug = records.create("bug", agent="main", objective="Fix the intermittent 403")
    bug.choose_profile(load_profile("bugfix"))
    assert "reproduction" in [gap.field for gap in obstacles(bug.views)]


def test_closing_from_python_is_never_refused(records):
    """`session.close()` is the caller's word: it always closes; the check belongs to the command line."""
    work = records.create("work", agent="main")
    work.state("Something", "open")
    assert obstacles(work.views)
    work.close("the process ends")
    assert work.status == "closed"
