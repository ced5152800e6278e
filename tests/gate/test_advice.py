"""Advice at the moment of action: matched by structure, one line, once."""

import pytest

from onrecord.rules import ADVICE_WIDTH, ToolRequest, commands_of
from tests.proofs import cite


def edit(path, lines=None, agent="claude"):
    return ToolRequest(agent, "edit", paths=[path], lines=lines)


def run(line, agent="claude"):
    return ToolRequest(agent, "run", commands=commands_of(line))


@pytest.fixture
def failed(session):
    session.attempts.start("pytest -k invite")
    session.attempts.settle(1, "failed", error="AssertionError: 403", fix="seed the membership row", evidence="run-a")
    return session


def test_a_command_that_failed_is_met_with_its_error(failed):
    """A command that failed before, also inside a longer line, gets error, fix and evidence; it is still allowed."""
    verdict = failed.gate.judge(run("cd /p && pytest -k invite | tail -3"))
    assert verdict.decision == "allow"
    assert verdict.advice == (
        "[run-a] attempt 1 of this command failed: AssertionError: 403; fix: seed the membership row"
    )


def test_advice_is_given_once_for_each_agent(failed):
    """Each agent gets a match once; another agent gets it too."""
    assert failed.gate.judge(run("pytest -k invite")).advice
    assert failed.gate.judge(run("pytest -k invite")).plain
    assert failed.gate.judge(run("pytest -k invite", agent="codex")).advice


@pytest.mark.parametrize("line", ["pytest -k invite2", "echo pytest -k invite", "pytest", "pytest -k 'invite '"])
def test_a_similar_text_is_no_match(failed, line):
    """Commands match by their whole argument list, never by a part of their text."""
    assert failed.gate.judge(run(line)).plain


def test_quotes_do_not_make_another_command(failed):
    """How a command is quoted does not matter; its arguments do."""
    assert failed.gate.judge(run("pytest -k 'invite'")).advice


def test_a_command_that_works_again_needs_no_advice(failed):
    """When the last attempt of a command succeeded, its old failure no longer counts."""
    failed.attempts.start("pytest -k invite")
    failed.attempts.settle(2, "succeeded")
    assert failed.gate.judge(run("pytest -k invite")).plain


def test_an_edit_where_a_theory_was_rejected_is_told(session):
    """Touching a file that a rejected finding rests on names the finding and its evidence; other files do not."""
    anchors = [{"path": "src/middleware.py", "lines": [10, 20], "fingerprint": "x"}]
    session.findings.state(
        "The middleware drops the header", "rejected", evidence=cite(session, "run-b"), anchors=anchors
    )
    assert session.gate.judge(edit("src/middleware.pyc")).plain
    assert session.gate.judge(edit("src/middleware.py", (30, 40))).plain
    assert session.gate.judge(edit("src/middleware.py", (15, 40))).advice == (
        "[run-b] f1 was rejected: The middleware drops the header"
    )


@pytest.mark.parametrize(
    ("anchored", "edited", "touches"),
    [
        ([10, 20], (20, 25), True), ([10, 20], (5, 10), True), ([10, 20], (12, 13), True), ([10, 20], (21, 25), False),
        ([10, 20], (5, 9), False), ([10, 20], None, True), (None, (30, 40), True), (None, None, True),
    ],
)  # fmt: skip
def test_an_edit_touches_an_anchor_where_their_lines_meet(session, anchored, edited, touches):
    """First and last line count; where either side has no lines, the whole file counts."""
    anchor = {"path": "a.py", "fingerprint": "x"} | ({"lines": anchored} if anchored else {})
    session.findings.state("The cache is stale", "rejected", evidence=cite(session, "run-b"), anchors=[anchor])
    assert bool(session.gate.judge(edit("a.py", edited)).advice) is touches


def test_a_run_that_rejected_a_theory_is_told(session):
    """Repeating the captured command of a rejected finding names that finding."""
    session.attempts.start("pytest -k middleware")
    session.attempts.settle(1, "succeeded", evidence="run-a")
    session.findings.state("The middleware drops the header", "rejected", evidence=cite(session, "run-a"))
    assert "f1 was rejected" in session.gate.judge(run("pytest -k middleware")).advice


def test_a_stale_rejection_is_not_held_against_anyone(session):
    """When the code under a rejection has changed, there is no advice."""
    anchors = [{"path": "src/middleware.py", "fingerprint": "x"}]
    session.findings.state(
        "The middleware drops the header", "rejected", evidence=cite(session, "run-b"), anchors=anchors
    )
    session.log.record("code.changed", {"anchors": {"src/middleware.py": "y"}})
    assert session.gate.judge(edit("src/middleware.py")).plain


def test_advice_is_one_bounded_line(session):
    """However long and hostile the claim, advice is one line of bounded width without control characters."""
    anchors = [{"path": "a.py", "fingerprint": "x"}]
    session.findings.state(
        "multi\nline \x1b[2J " + "word " * 100, "rejected", evidence=cite(session, "run-b"), anchors=anchors
    )
    advice = session.gate.judge(edit("a.py")).advice
    assert len(advice) <= ADVICE_WIDTH
    assert advice.isprintable()


def test_a_scarce_budget_is_said_once_and_a_spent_one_refuses(session):
    """At 80 % of a limit each agent gets one line, and another after the budget is set again; at 100 % the gate refuses."""
    session.budget.set(tokens=100, steps=50)
    session.budget.record_usage("m", input_tokens=79)
    assert session.gate.judge(run("make")).plain
    session.budget.record_usage("m", output_tokens=1)
    told = session.gate.judge(run("make"))
    assert (told.decision, told.advice) == ("allow", "80 % of the budget is used: 80 of 100 tokens")
    assert session.gate.judge(run("make")).plain
    assert session.gate.judge(run("make", agent="codex")).advice
    session.budget.set(tokens=90, steps=50)
    assert session.gate.judge(run("make")).advice == "88 % of the budget is used: 80 of 90 tokens"
    session.budget.record_usage("m", output_tokens=10)
    refused = session.gate.judge(run("make"))
    assert (refused.decision, refused.rule) == ("deny", "budget_spent")
    assert refused.clear == "onrecord open invite-403 --budget steps=50 --budget tokens=180"
