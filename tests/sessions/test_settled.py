"""A fix does not un-verify its cause: verified at one revision, fixed by a later one, the cause is settled."""

import pytest

import onrecord
from onrecord.errors import InvalidInput
from onrecord.views.check import obstacles
from onrecord.views.fold import Whole
from onrecord.views.note_forms import pull_request, task
from tests.proofs import cite

ANCHOR = {"path": "auth.py", "symbol": "accept", "fingerprint": "aaaa"}
OLD, NEW = {"revision": "4f2c1a9" + "0" * 33, "dirty": None}, {"revision": "9a1b03e" + "0" * 33, "dirty": None}


@pytest.fixture
def session():
    return onrecord.connect("memory:", project="/project").open("bug", objective="Fix the 403 after an invitation")


def seen(session, id, revision=None):
    """Captured evidence at a revision: a command that fails until the fix."""
    code = int(revision != NEW)
    session.evidence.record("run", id=id, captured=True, command="pytest", exit_code=code, revision=revision)
    return [id]


def change(session, fingerprint):
    session.log.record("code.changed", {"anchors": {"auth.py::accept": fingerprint}})


def label(session, finding="f1"):
    return session.findings.label_of(finding)


@pytest.fixture
def cause(session):
    session.findings.state(
        "The row is late", "verified", evidence=seen(session, "e1", OLD), anchors=[ANCHOR], revision=OLD
    )
    session.findings.record_milestone("root_cause", finding="f1")
    return session


def test_a_fixed_cause_is_settled_and_not_stale(cause):
    """After the fix, the cause is settled with both revisions; note, brief, pull request and status say so."""
    change(cause, "bbbb")
    assert label(cause) == "stale"
    cause.findings.record_milestone("fix", evidence=seen(cause, "e2", NEW), revision=NEW)
    assert label(cause) == "settled"
    text = "verified at 4f2c1a9, fixed by 9a1b03e"
    assert f"f1: The row is late ({text}) [e1✓]" in cause.note()
    assert f"root cause verified (f1: {text}); fix implemented" in cause.brief()
    assert text in pull_request(cause.views)
    assert "Stale" not in cause.note() + pull_request(cause.views)
    assert Whole.load(cause.views.dump()).findings.is_settled(cause.findings.get("f1"))


def test_further_changes_leave_it_settled_and_a_revert_does_not(cause):
    """A settled cause does not turn stale later; when the code is as it was, the cause holds again."""
    change(cause, "bbbb")
    cause.findings.record_milestone("fix", evidence=cite(cause, "e2"))
    change(cause, "cccc")
    assert label(cause) == "settled"
    change(cause, "aaaa")
    assert label(cause) == "verified"
    change(cause, "bbbb")
    assert [step["what"] for step in cause.findings.history("f1")][-2:] == [
        "fresh again: the code is as it was", "turned out fixed",
    ]  # fmt: skip


def test_what_verified_the_cause_does_not_show_its_fix(cause):
    """A fix needs evidence that it works: not the cause's own, not the same failure again, not a run that failed."""
    failing = {"captured": True, "command": "pytest -k invite", "exit_code": 1}
    cause.evidence.record("run", id="before", **failing)
    cause.findings.relabel("f1", "verified", evidence=["before"])
    cause.evidence.record("run", id="again", **failing)
    cause.attempts.start("make check")
    cause.evidence.record("run", id="broken", captured=True, command="make check", exit_code=2)
    cause.attempts.settle(1, "failed", error="it broke", evidence="broken")
    change(cause, "bbbb")
    for old in ("e1", "before", "again", "broken"):
        with pytest.raises(InvalidInput, match="does not show that the fix works"):
            cause.findings.record_milestone("fix", evidence=[old])
    cause.evidence.record("run", id="after", captured=True, command="pytest -k invite", exit_code=0)
    cause.findings.record_milestone("fix", evidence=["before", "after"])
    assert label(cause) == "settled"


def test_a_fix_without_a_change_of_the_code_settles_nothing(cause):
    """Where the code a cause rests on is unchanged, the cause stays verified."""
    cause.findings.record_milestone("fix", evidence=cite(cause, "e2"), revision=OLD)
    assert label(cause) == "verified"


def test_only_the_cause_of_the_fix_is_settled(cause):
    """Another finding about the same code turns stale; a second cause keeps the first one settled."""
    cause.findings.state("accept() is slow", "verified", evidence=["e1"], anchors=[ANCHOR])
    cause.findings.state("accept() is public", "rejected", evidence=["e1"], anchors=[ANCHOR])
    change(cause, "bbbb")
    cause.findings.record_milestone("fix", evidence=cite(cause, "e2"))
    assert [label(cause, name) for name in ("f1", "f2", "f3")] == ["settled", "stale", "stale"]
    cause.findings.record_milestone("fix", finding="f2", evidence=["e2"])
    assert [label(cause, name) for name in ("f1", "f2", "f3")] == ["settled", "settled", "stale"]


@pytest.mark.parametrize("order", ["cause", "fix"])
def test_a_cause_is_declared_after_its_fix_with_evidence_from_before(session, order):
    """A cause that is named after its fix is settled, if its evidence is older than the fix."""
    seen(session, "e1", OLD)
    seen(session, "e2", NEW)
    fixed = ANCHOR | {"fingerprint": "bbbb"}
    if order == "fix":
        session.findings.record_milestone("fix", evidence=["e2"], revision=NEW)
    session.findings.state(
        "The row is late", "verified", evidence=["e1"], anchors=[fixed], revision=NEW, after_change=True
    )
    assert label(session) == "stale"
    session.findings.record_milestone("root_cause", finding="f1")
    if order == "cause":
        session.findings.record_milestone("fix", evidence=["e2"], revision=NEW)
    assert label(session) == "settled"
    assert "verified at 4f2c1a9, fixed by 9a1b03e" in session.note()


def test_a_cause_that_turned_stale_is_declared_after_its_fix(session):
    """A finding that was verified before the fix, and whose code the fix changed, is declared the cause and is settled; not
    if the fix was shown by nothing but what verified the cause.
    """
    session.findings.state("The row is late", "verified", evidence=seen(session, "e1", OLD), anchors=[ANCHOR])
    change(session, "bbbb")
    session.findings.record_milestone("fix", evidence=["e1"], revision=NEW)
    with pytest.raises(InvalidInput, match="does not show that the fix works"):
        session.findings.record_milestone("root_cause", finding="f1")
    session.findings.record_milestone("fix", evidence=seen(session, "e2", NEW), revision=NEW)
    session.findings.record_milestone("root_cause", finding="f1")
    assert label(session) == "settled"
    assert "root cause verified (f1: verified at 4f2c1a9, fixed by 9a1b03e); fix implemented" in session.brief()


def test_a_cause_seen_only_after_the_fix_is_not_settled_by_it(session):
    """Evidence that is newer than the fix speaks about the fixed code."""
    session.findings.record_milestone("fix", evidence=cite(session, "e1"))
    session.findings.state("The row is late", "verified", evidence=cite(session, "e2"), anchors=[ANCHOR])
    session.findings.record_milestone("root_cause", finding="f1")
    assert label(session) == "verified"


def test_a_cause_that_shows_again_is_verified_again(cause):
    """New evidence after the fix, on the present code, makes a settled cause a verified one."""
    change(cause, "bbbb")
    cause.findings.record_milestone("fix", evidence=cite(cause, "e2"))
    cause.findings.relabel("f1", "verified", evidence=cite(cause, "e3"), anchors=[ANCHOR | {"fingerprint": "bbbb"}])
    assert label(cause) == "verified"


def test_a_root_cause_must_be_verified(session):
    """An open, rejected or stale finding is no root cause; a settled one is."""
    session.findings.state("It is the proxy", anchors=[ANCHOR])
    with pytest.raises(InvalidInput, match="must be a verified finding"):
        session.findings.record_milestone("root_cause", finding="f1")
    session.findings.relabel("f1", "verified", evidence=cite(session, "e1"), anchors=[ANCHOR])
    change(session, "bbbb")
    with pytest.raises(InvalidInput, match="must be a verified finding"):
        session.findings.record_milestone("root_cause", finding="f1")
    session.findings.record_milestone("fix", finding="f1", evidence=cite(session, "e2"))
    session.findings.record_milestone("root_cause", finding="f1")
    session.findings.state("It is the cache", "verified", evidence=cite(session, "e3"))
    with pytest.raises(InvalidInput, match="is not named") as refused:
        session.findings.record_milestone("root_cause")
    assert refused.value.details["finding"] == "f2"


@pytest.mark.parametrize(
    ("held", "fixed", "evidence", "told"),
    [
        (OLD, NEW | {"dirty": "d1"}, "log", "verified at 4f2c1a9, fixed by 9a1b03e+"),
        (OLD, OLD | {"dirty": "d1"}, "log", "verified at 4f2c1a9, fixed by changes on 4f2c1a9"),
        (OLD | {"dirty": "d0"}, NEW, "log", "verified at 4f2c1a9+, fixed by 9a1b03e"),
        (OLD, NEW, "commit", "verified at 4f2c1a9, fixed by deadbeef"), (None, None, "log", "verified, then fixed"),
    ],
)  # fmt: skip
def test_what_a_settled_cause_says(session, held, fixed, evidence, told):
    """The revisions, changed files and the commit that is cited are named as far as they are known."""
    session.findings.state("The row is late", "verified", evidence=seen(session, "e1", held), revision=held)
    session.evidence.record(evidence, id="e2", reference="deadbeef")
    session.findings.record_milestone("fix", finding="f1", evidence=["e2"], revision=fixed)
    assert session.views.findings.settled_by(session.findings.get("f1")) == told
    assert label(session) == "settled"


def test_a_fixed_bug_closes_without_a_next_action(cause):
    """What keeps a fixed bug from being closed is never the next action."""
    cause.facts.set_reproduction("accept an invitation", rate="3/10")
    cause.findings.state("It is the proxy", "rejected", evidence=["e1"])
    assert [gap.field for gap in obstacles(cause.views)] == ["next action"]
    change(cause, "bbbb")
    cause.findings.record_milestone("fix", evidence=cite(cause, "e2"))
    assert obstacles(cause.views) == []


def test_a_next_action_that_is_done_does_not_stay_in_a_closed_note(cause):
    """In an ended session a next action is shown only if neither its command nor the fix came after it."""
    cause.facts.set_next_action("Run the suite", command="pytest -k 'invite'")
    cause.close()
    assert "Next action: Run the suite" in cause.brief()
    cause.resume(reopen=True)
    cause.attempts.start(["pytest", "-k", "invite"])
    cause.attempts.settle(1, "failed", error="no")
    cause.close()
    assert "Next action: Run the suite" in cause.brief()
    cause.resume(reopen=True)
    cause.attempts.start(["pytest", "-k", "invite"])
    cause.attempts.settle(2, "succeeded")
    assert "Next action: Run the suite" in cause.brief(), "an open session shows it"
    cause.close()
    assert "Next action: (none: the work has ended)" in cause.brief()
    assert "**Next action:** (none: the work has ended)" in cause.note()
    cause.resume(reopen=True)
    cause.facts.set_next_action("Return the row first")
    change(cause, "bbbb")
    cause.findings.record_milestone("fix", evidence=cite(cause, "e2"))
    assert task(cause.views)["next_action"]["text"] == "Return the row first"
    cause.close()
    assert "Return the row first" not in cause.note()
    assert task(cause.views)["next_action"] is None
