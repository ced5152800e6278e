"""Evidence: what is cited is on record, and a label changes only by evidence that did not speak for it before."""

import multiprocessing

import pytest

import onrecord
from onrecord.errors import Conflict, EventNotFound, InvalidInput, NotFound, OnrecordError
from onrecord.session.evidence import EVIDENCE_KINDS
from onrecord.session.handle import Session
from onrecord.session.session_store import SessionStore
from onrecord.stores.memory import MemoryStore
from onrecord.testing import FakeClock
from onrecord.views.findings import without_negation
from tests.proofs import cite

ANCHOR = {"path": "auth.py", "symbol": "accept", "fingerprint": "aaaa"}


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def session(clock):
    records = SessionStore(MemoryStore(clock=clock), project="/project", clock=clock)
    return records.create("bug", agent="claude")


def test_a_line_names_only_the_evidence_for_the_present_label(session):
    """What verified a finding, or challenged it, is not shown as what rejected it; the history has everything."""
    session.findings.state("L2 diverges", "verified", evidence=cite(session, "e1"))
    session.findings.challenge("f1", "it did not", evidence=cite(session, "e2"))
    assert "f1: L2 diverges (challenged) [e1]" in session.note()
    session.findings.relabel("f1", "rejected", evidence=cite(session, "e3"))
    assert "f1: L2 diverges [e3]" in session.note()
    assert [step["evidence"] for step in session.findings.history("f1")] == [["e1"], ["e2"], ["e3"]]


def test_what_is_cited_is_on_record(session):
    """An id that resolves to nothing is refused wherever evidence is cited, and nothing is recorded."""
    session.findings.state("It is the proxy", "verified", evidence=cite(session, "log-1"))
    session.findings.challenge("f1", "not under load", evidence=cite(session, "log-2"))
    before = session.head
    for verb in (
        lambda: session.findings.state("It is the row", "verified", evidence=["nothing-there"]),
        lambda: session.findings.state("It is the row", "open", evidence=["nothing-there"]),
        lambda: session.findings.relabel("f1", "open", evidence=["log-2", "nothing-there"]),
        lambda: session.findings.challenge("f1", "never", evidence=["nothing-there"]),
        lambda: session.findings.uphold("f1", "it does", evidence=["nothing-there"]),
        lambda: session.findings.record_milestone("root_cause", finding="f1", evidence=["nothing-there"]),
    ):
        with pytest.raises(NotFound, match="there is no evidence 'nothing-there'"):
            verb()
    assert session.refresh().head == before


def test_a_challenge_and_a_fix_carry_evidence(session):
    """Neither an argument against a finding nor a fix is recorded without evidence."""
    session.findings.state("It is the proxy", "verified", evidence=cite(session, "log-1"))
    with pytest.raises(InvalidInput, match="challenged only with evidence"):
        session.findings.challenge("f1", "I do not think so")
    with pytest.raises(InvalidInput, match="a fix is reached only with evidence"):
        session.findings.record_milestone("fix", finding="f1")
    session.findings.record_milestone("root_cause", finding="f1")


def test_evidence_has_short_names(session, clock):
    """`last` is the agent's newest evidence, a letter the newest id that ends with it; an id itself comes first."""
    first = session.evidence.record("run", captured=True).data["id"]
    session.evidence.record("log", reference="x")
    assert session.evidence.resolve("a") == first, "captured evidence comes before asserted evidence"
    assert session.evidence.resolve("last").startswith("log-")
    other = Session(session.store, session.id, agent="codex", clock=clock)
    assert other.evidence.resolve("last").startswith("log-"), "another agent without evidence means the newest of all"
    theirs = other.evidence.record("trace", reference="y").data["id"]
    assert (other.evidence.resolve("last"), session.evidence.resolve("last")[:4]) == (theirs, "log-")
    with pytest.raises(NotFound):
        session.evidence.resolve("b")
    clock.advance(86_400)
    tomorrow = session.evidence.record("run", captured=True).data["id"]
    assert tomorrow.endswith("-a")
    assert session.evidence.resolve("a") == tomorrow, "of the newest day"
    cite(session, "a")
    assert session.evidence.resolve("a") == "a"
    with pytest.raises(InvalidInput, match="'last' always means the newest evidence"):
        session.evidence.record("log", id="last")
    session.findings.state("It is the proxy", "verified", evidence=["last", first, "a"])
    assert session.findings.get("f1")["evidence"] == ["a", first], "what is recorded is the full id, once"


def test_two_letters_that_may_be_meant_are_refused(session):
    """A letter that two captured ids of the newest day end with names neither of them."""
    for kind in ("run", "file"):
        session.evidence.record(kind, captured=True)
    with pytest.raises(InvalidInput, match=r"'a' can mean run-.*-a or file-.*-a"):
        session.evidence.resolve("a")


@pytest.mark.parametrize("kind", ["issue", "pull-request", "row", "note", "dashboard"])
def test_evidence_may_be_an_issue_a_row_or_a_dashboard(session, kind):
    """Issues, pull requests, database rows, notes and dashboards are kinds of evidence."""
    assert kind in EVIDENCE_KINDS
    assert session.evidence.record(kind, reference="INV-17").data["id"].startswith(f"{kind}-")
    assert session.evidence.resolve("a").startswith(f"{kind}-")


def test_a_position_is_evidence_only_if_something_was_seen_there(session):
    """`because` is evidence where the event says what was seen; a decision or the opening of the session is none."""
    with pytest.raises(InvalidInput, match="position 1 does not say what was seen"):
        session.findings.state("It is the proxy", "verified", because=1)
    with pytest.raises(EventNotFound):
        session.findings.state("It is the proxy", "verified", because=99)
    seen = session.record_turn([{"role": "tool", "call": "c", "content": "403"}]).position
    session.findings.state("It is the proxy", "verified", because=seen)
    assert session.findings.get("f1")["evidence"] == [f"position {seen}"]
    assert session.views.findings.how(f"position {seen}") == "asserted"
    session.findings.state("Somebody said so", because=1)
    assert session.findings.get("f2")["evidence"] == []


def test_a_rejected_finding_is_reopened_only_by_newer_evidence(session):
    """Evidence from before the rejection, its own evidence and a mere position do not reopen a finding (H23)."""
    cite(session, "before")
    session.findings.state("It is the proxy", "rejected", evidence=cite(session, "why-not"))
    for label in ("open", "verified", "blocked"):
        for about in ({"evidence": ["before"]}, {"evidence": ["why-not"]}, {"because": 1}, {}):
            with pytest.raises(InvalidInput, match=r"reopening it needs new evidence|only with evidence"):
                session.findings.relabel("f1", label, **about)
    session.findings.relabel("f1", "open", evidence=cite(session, "after"))
    with pytest.raises(InvalidInput, match="calling it verified needs new evidence"):
        session.findings.relabel("f1", "verified", evidence=["why-not"])
    with pytest.raises(InvalidInput, match="calling it verified needs new evidence"):
        session.findings.relabel("f1", "verified", evidence=["after"])
    session.findings.relabel("f1", "verified", evidence=cite(session, "seen"))
    assert [one["label"] for one in session.findings.get("f1")["history"]] == ["rejected", "open", "verified"]


def test_a_later_event_reopens_too(session):
    """A position after the rejection reopens a finding if something was seen there."""
    session.findings.state("It is the proxy", "rejected", evidence=cite(session, "why-not"))
    thought = session.decide("look again").position
    with pytest.raises(InvalidInput):
        session.findings.relabel("f1", "open", because=thought)
    session.findings.relabel("f1", "open", because=session.record_turn([{"role": "user", "content": "again"}]).position)


def test_a_label_changes_only_by_evidence_that_did_not_speak_before(session):
    """Verified to rejected, or back to open, needs evidence that no earlier label of the finding was given for."""
    session.findings.state("It is the proxy", "verified", evidence=cite(session, "e1"))
    for label in ("rejected", "open", "blocked"):
        with pytest.raises(InvalidInput, match=r"needs new evidence|only with evidence"):
            session.findings.relabel("f1", label, evidence=["e1"])
    session.findings.relabel("f1", "verified", evidence=["e1"], why="the same label needs nothing new")
    session.findings.challenge("f1", "not without the cache", evidence=cite(session, "e2"))
    session.findings.relabel("f1", "rejected", evidence=["e2"], why="what a challenge cited spoke against the label")
    session.findings.state("It is the row")
    session.findings.relabel("f2", "blocked", why="no access yet")
    session.findings.relabel("f2", "open")


def test_evidence_that_upheld_a_label_does_not_change_it(session):
    """What settled a challenge spoke for the label."""
    session.findings.state("It is the proxy", "verified", evidence=cite(session, "e1"))
    session.findings.challenge("f1", "not under load", evidence=cite(session, "e2"))
    session.findings.uphold("f1", "also under load", evidence=cite(session, "e3"))
    with pytest.raises(InvalidInput, match="needs new evidence"):
        session.findings.relabel("f1", "rejected", evidence=["e3"])


def test_a_judgement_of_other_code_needs_new_evidence(session):
    """New fingerprints of the same code do not make a finding fresh without new evidence, surveyed or not."""
    session.findings.state("It is the proxy", "verified", evidence=cite(session, "e1"), anchors=[ANCHOR])
    with pytest.raises(InvalidInput, match="is stale"):
        session.findings.relabel("f1", "verified", evidence=["e1"], anchors=[ANCHOR | {"fingerprint": "bbbb"}])
    session.findings.relabel("f1", "verified", evidence=cite(session, "e2"), anchors=[ANCHOR | {"fingerprint": "bbbb"}])


def test_an_erased_judgement_does_not_block_the_next(session):
    """After the last judgement was erased, the finding can be judged again, however often."""
    session.findings.state("It is the proxy")
    for number in range(3):
        made = session.findings.relabel("f1", "verified", evidence=cite(session, f"e{number}"))
        session.log.erase("privacy", positions=[made.position])
        assert session.findings.get("f1")["label"] == "open"
    session.findings.relabel("f1", "rejected", evidence=cite(session, "e9"))
    assert session.findings.get("f1")["label"] == "rejected"


def _judge(url, label, evidence, ready, results):
    with onrecord.connect(url, project="/project") as records:
        session = records.open("race", agent=label)
        session.views  # noqa: B018  # folded before the race, so that both judge what they saw
        ready.wait()
        try:
            session.findings.relabel("f1", label, evidence=[evidence])
            results.put(label)
        except OnrecordError as problem:
            results.put(type(problem).__name__)


def test_of_two_judges_at_once_the_second_is_checked_against_the_first(tmp_path):
    """When one rejects while another verifies, with evidence from before, the record never goes from rejected to verified."""
    url = f"sqlite:///{tmp_path}/race.db"
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    with onrecord.connect(url, project="/project") as records:
        session = records.open("race")
        session.findings.state("It is the proxy")
        cite(session, "e1", "e2")
        ready, results = context.Barrier(2), context.Queue()
        processes = [
            context.Process(target=_judge, args=(url, label, proof, ready, results))
            for label, proof in (("rejected", "e1"), ("verified", "e2"))
        ]
        for process in processes:
            process.start()
        found = {results.get(timeout=60) for _process in processes}
        for process in processes:
            process.join(60)
        labels = [one["label"] for one in session.findings.get("f1")["history"]]
    assert labels in (["open", "rejected"], ["open", "verified", "rejected"])
    assert found in ({"rejected", "InvalidInput"}, {"rejected", "verified"})


def test_findings_that_exclude_each_other_are_shown_together(session):
    """Linked findings, and a claim and its negation about the same code, contradict each other until one is rejected."""
    session.findings.state("It is the proxy")
    session.findings.state("It is the row", "verified", evidence=cite(session, "e1"), contradicts=["f1"])
    session.findings.state("accept() is atomic", anchors=[ANCHOR])
    session.findings.state("accept() is not atomic.", anchors=[ANCHOR])
    session.findings.state("accept() isn't atomic", anchors=[ANCHOR | {"symbol": "other"}])
    session.findings.state("It is Tuesday", anchors=[ANCHOR])
    view = session.views.findings
    assert view.contradictions() == [("f1", "f2"), ("f3", "f4")]
    assert "f2: It is the row (contradicts f1) [e1]" in session.note()
    assert "f1: It is the proxy (contradicts f2)" in session.note()
    with pytest.raises(NotFound):
        session.findings.state("x y z", contradicts=["f9"])
    session.findings.relabel("f1", "rejected", evidence=["e1"])
    session.findings.relabel("f3", "open", contradicts=["f6"])
    assert session.views.findings.contradictions() == [("f3", "f4"), ("f3", "f6")]
    session.findings.relabel("f1", "open", evidence=cite(session, "e2"))
    assert ("f1", "f2") in session.views.findings.contradictions()


@pytest.mark.parametrize(
    ("one", "other", "opposite"),
    [
        ("It leaks", "it does not leak.", True), ("It leaks", "It doesn\u2019t leak", True), ("a is b", "a isn't b", True),
        ("The cache can help", "the cache cannot help", True), ("a never fails", "a fails", True), ("a is b", "a is c", False),
        ("a is not b", "a isn't b", False), ("not a", "not not a", True),
    ],
)  # fmt: skip
def test_a_negation_is_recognised_by_its_words(one, other, opposite):
    """`not`, `never` and their short forms turn a claim into its opposite; other words do not."""
    (plain, negated), (same, also) = without_negation(one), without_negation(other)
    assert (plain == same and negated != also) is opposite


def test_the_history_of_a_claim_has_each_step_with_its_evidence(session):
    """Labels, challenges, outcomes, staleness and the fix are in the history of a finding, in order (H24)."""
    session.findings.state("It is the proxy", anchors=[ANCHOR])
    session.findings.relabel("f1", "verified", evidence=cite(session, "e1"), why="seen", anchors=[ANCHOR])
    session.findings.challenge("f1", "not under load", evidence=cite(session, "e2"))
    session.findings.uphold("f1", "also under load", evidence=cite(session, "e3"))
    for seen in ("bbbb", "aaaa", "cccc"):
        session.log.record("code.changed", {"anchors": {"auth.py::accept": seen}})
    session.findings.record_milestone("fix", finding="f1", evidence=cite(session, "e4"))
    told = [(step["what"], step["evidence"], step["why"]) for step in session.findings.history("f1")]
    assert told == [
        ("stated open", [], None), ("verified", ["e1"], "seen"), ("challenged", ["e2"], "not under load"),
        ("upheld", ["e3"], "also under load"), ("turned stale", [], "auth.py::accept changed"),
        ("fresh again: the code is as it was", [], None), ("turned stale", [], "auth.py::accept changed"),
        ("fixed", ["e4"], None),
    ]  # fmt: skip
    positions = [step["position"] for step in session.findings.history("f1")]
    assert positions == sorted(positions)
    assert {step["by"] for step in session.findings.history("f1")} == {"claude"}


def test_old_logs_fold_as_before(session):
    """Events without the newer fields, with evidence that resolves to nothing, are read as they always were."""
    session.log.record("finding.stated", {"claim": "It is the proxy", "label": "rejected", "evidence": ["run-7"]})
    session.log.record("finding.relabelled", {"finding": "f1", "label": "verified", "evidence": ["run-7"]})
    session.log.record("milestone.reached", {"what": "root_cause", "finding": "f1", "evidence": []})
    session.log.record("attempt.started", {"command": "make", "signature": "make"})
    session.log.record("attempt.settled", {"attempt": 1, "outcome": "failed", "error": "boom"})
    views = session.views
    assert views.misfits == []
    assert views.findings.findings["f1"]["label"] == "verified"
    assert views.findings.how("run-7") == "named"
    assert views.attempts.get(1)["status"] == "failed"
    with pytest.raises(Conflict):
        session.attempts.settle(1, "succeeded")
