"""The check of a note: it names what a fresh agent would miss, and a summary alone does not close a session."""

import pytest

from onrecord.connection import load_profile
from onrecord.errors import Conflict
from onrecord.views.check import NONE_KEY, check, is_vague, obstacles
from tests.proofs import cite


def essential(session):
    return [gap.field for gap in check(session.views).gaps if gap.essential]


@pytest.fixture
def bug(records):
    """A session with a note from which a fresh agent can continue."""
    session = records.create("bug", agent="main", objective="Fix the intermittent 403 after an invite")
    session.facts.set_reproduction("pytest -k invite", rate="3/10")
    session.evidence.record("run", id="run-a", captured=True)
    session.findings.state("The middleware is the cause", "rejected", evidence=cite(session, "run-a"))
    session.findings.state("The row is written late", "verified", evidence=cite(session, "run-a"))
    session.facts.set_next_action("Look at the order", command="pytest -k commit")
    return session


def test_a_complete_note_is_graded_complete(bug):
    """With objective, reproduction and rate, verified, rejected and next command, nothing is missing (H46, H47)."""
    assert check(bug.views) == ("complete", [])
    assert obstacles(bug.views) == []


def test_an_empty_note_lacks_everything(records):
    """Every missing field is named, with the command that fills it."""
    plain = records.create("plain", agent="main")
    grade, gaps = check(plain.views)
    assert grade == "insufficient"
    assert [gap.field for gap in gaps] == ["objective", "next action", "reproduction", "verified", "rejected"]
    assert all(gap.clear.startswith("onrecord ") for gap in gaps)


@pytest.mark.parametrize("text", ["continue", "Fix the bug.", "TODO", "look into it", "go on!", "make it work"])
def test_a_vague_next_action_is_no_next_action(bug, text):
    """A next action that names nothing to do is as bad as none, unless there is a command."""
    assert is_vague(text)
    bug.facts.set_next_action(text)
    assert essential(bug) == ["next action"]
    bug.facts.set_next_action(text, command="pytest -k commit")
    assert essential(bug) == []


def test_minor_gaps_leave_it_usable(bug):
    """A missing rate, or evidence that was not captured, make a note usable, not complete."""
    bug.facts.set_reproduction("pytest -k invite")
    bug.evidence.record("log", id="log-b")
    bug.findings.state("The cache is warm", "verified", evidence=cite(bug, "log-b"))
    # As an older version recorded it, which accepted any name.
    bug.log.record(
        "finding.stated", {"claim": "It happens on Tuesdays", "label": "rejected", "evidence": ["somewhere"]}
    )
    grade, gaps = check(bug.views)
    assert grade == "usable"
    assert [(gap.field, gap.problem) for gap in gaps] == [
        ("reproduction", "has no rate (3/10 runs)"),
        ("evidence", "f3 rests on asserted evidence only"),
        ("evidence", "f4 rests on a name that resolves to nothing"),
    ]


def test_an_unresolved_attempt_is_a_gap(bug):
    """An unsettled attempt is a gap in the note."""
    bug.attempts.start("pytest")
    assert essential(bug) == ["attempt"]


def test_nothing_can_be_said_on_purpose(bug, records):
    """That nothing was rejected is a statement, with a reason; then it is not a gap."""
    other = records.create("other", agent="main", objective="Find out why it is slow")
    other.findings.state("It is slow", "open")
    other.facts.set_next_action("Profile the start", command="python -X importtime")
    assert essential(other) == ["reproduction", "verified", "rejected"]
    other.facts.set_scratch(NONE_KEY, {"reproduction": "always", "verified": "just begun", "rejected": "just begun"})
    assert essential(other) == []


def test_plain_use_of_the_log_owes_no_note(records):
    """A session without profile, findings and attempts can be closed as it is; with any of them it needs a note."""
    plain = records.create("plain", agent="main")
    plain.decide("Use the log for something else")
    assert obstacles(plain.views) == []
    plain.findings.state("Something", "open")
    assert obstacles(plain.views)


def test_a_profile_counts_by_its_checkpoints(records):
    """With a profile a finished phase replaces the reproduction; when every phase is done no next action is needed."""
    work = records.create("work", agent="main", objective="Does regularisation help on small data")
    work.phases.choose_profile(load_profile("research"))
    work.facts.set_next_action("Write the specification first")
    work.facts.set_scratch(NONE_KEY, {"verified": "no run yet", "rejected": "no run yet"})
    assert [gap.field for gap in obstacles(work.views)] == ["phase"]
    work.phases.enter("Motivation")
    work.phases.write_section("Session Title", "L2")
    work.phases.write_section("Research Specification", "Does L2 help?")
    work.phases.finish("Motivation")
    assert obstacles(work.views) == []
    bug = records.create("bug", agent="main", objective="Fix the intermittent 403")
    bug.phases.choose_profile(load_profile("bugfix"))
    assert "reproduction" in [gap.field for gap in obstacles(bug.views)]


def test_closing_from_python_checks_the_note_only_with_a_profile_or_when_asked(records):
    """`session.close()` closes, unless a profile or `note_owed` asks for a note; `anyway` always closes."""
    work = records.create("work", agent="main")
    work.findings.state("Something", "open")
    assert obstacles(work.views)
    with pytest.raises(Conflict, match="its note lacks"):
        work.close("the process ends", note_owed=True)
    assert work.status == "open"
    work.close("the process ends")
    assert work.status == "closed"
    research = records.create("research", agent="main")
    research.phases.choose_profile(load_profile("research"))
    with pytest.raises(Conflict, match="its note lacks"):
        research.close("the process ends")
    assert research.status == "open"
    research.close("the process ends", anyway="the machine is taken away")
    assert research.status == "closed"
