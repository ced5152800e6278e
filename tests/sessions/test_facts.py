"""Facts: objective, decisions, findings, next action, scratch. Small, permanent, each with its author and its source."""

from functools import partial
from operator import attrgetter

import pytest

from onrecord.errors import EventNotFound, InvalidInput, NotFound
from onrecord.session.session_store import SessionStore
from onrecord.views.note import BRIEF_LIMIT
from tests.proofs import cite

HELLO = [{"role": "user", "content": "hello"}]


def test_a_decision_knows_who_when_why_and_where_from(session):
    """A decision is kept with its author, time, reason and the position it came from (C02, C05, H49)."""
    said = session.record_turn(HELLO)
    event = session.decide("Reproduce before touching the middleware", why="it is intermittent", because=said.position)
    (decision,) = session.views.facts.decisions
    assert decision == {
        "text": "Reproduce before touching the middleware", "why": "it is intermittent", "because": said.position,
        "position": event.position, "at": event.at, "by": "main",
    }  # fmt: skip
    for nowhere in (0, -1, session.head.position + 1, 10**9):
        with pytest.raises(EventNotFound):
            session.decide("from nowhere", because=nowhere)


@pytest.mark.parametrize("because", [1.0, 1.5, True, "1", [1]])
def test_where_a_fact_came_from_is_exactly_an_integer(session, because):
    """A value that a store would return as another one is refused before it is sealed: the log would never verify again."""
    before = session.head
    for record in (partial(session.decide, "x"), partial(session.log.draft, "decision.made", {"text": "x"})):
        with pytest.raises(InvalidInput, match="a whole number, not"):
            record(because=because)
    assert session.refresh().head == before
    assert session.verify().ok


@pytest.mark.parametrize("payload", [["text"], "text", 5])
def test_a_payload_is_an_object(session, payload):
    """A recorded value is a JSON object; anything else is refused with its type, and nothing is recorded."""
    before = session.head
    with pytest.raises(
        InvalidInput, match=f"the payload of worklog.written is a JSON object, not {type(payload).__name__}"
    ):
        session.log.record("worklog.written", payload)
    assert session.refresh().head == before


def test_an_id_makes_a_fact_repeatable(session):
    """A fact with the caller's id is on record once, and a retry gets the very same event (B08)."""
    first = session.decide("use WAL", id="decision-1")
    assert session.decide("use WAL", id="decision-1") == first
    assert len(session.views.facts.decisions) == 1


def test_findings_keep_their_history(session):
    """A finding has a label with evidence; another label adds to its history and overwrites nothing (H10, H11, H24, H27)."""
    session.findings.state("The session cookie is lost on redirect", "open")
    session.findings.relabel("f1", "verified", evidence=cite(session, "run-2026-05-18-a"), why="seen in the trace")
    session.findings.state("The proxy drops the header", "rejected", evidence=cite(session, "log-acceptance-17"))
    finding = session.views.findings.findings["f1"]
    assert finding["label"] == "verified"
    assert [(change["label"], change["evidence"]) for change in finding["history"]] == [
        ("open", []), ("verified", ["run-2026-05-18-a"])
    ]  # fmt: skip
    note = session.note()
    assert note.index("## Rejected") < note.index("## Verified")
    assert "f2: The proxy drops the header [log-acceptance-17]" in note


def test_verified_and_rejected_need_evidence(session):
    """A label `verified` or `rejected` needs evidence that can be inspected (H16)."""
    before = session.head
    for label in ("verified", "rejected"):
        with pytest.raises(InvalidInput):
            session.findings.state("surely", label)
        with pytest.raises(InvalidInput):
            session.findings.relabel("f1", label)
    with pytest.raises(InvalidInput):
        session.findings.state("surely", "certain", evidence=["x"])
    assert session.refresh().head == before
    turn = session.record_turn(HELLO).position
    session.findings.state("as the turn shows", "verified", because=turn)
    cite(session, "run-1")
    session.findings.state("one is enough", "verified", evidence="run-1")
    named = [finding["evidence"] for finding in session.views.findings.findings.values()]
    assert named == [[f"position {turn}"], ["run-1"]]


def test_a_relabelling_names_a_finding_that_is_there(session):
    """Relabelling a finding that was never stated is refused, and nothing is recorded (H27)."""
    session.findings.state("something")
    before = session.head
    for unknown in ("f2", "f0", "", "F1", None):
        with pytest.raises(NotFound):
            session.findings.relabel(unknown, "open")
    assert session.refresh().head == before


@pytest.mark.parametrize(
    "verb",
    ["decide", "findings.state", "facts.set_objective", "facts.set_title", "facts.set_next_action",
     "facts.set_reproduction"],
)  # fmt: skip
@pytest.mark.parametrize("text", ["", "   \n", "x" * 4_001, None, 5, "\ud800"])
def test_facts_say_something_and_are_short(session, verb, text):
    """A fact is a short text that is not empty; anything else is refused and changes nothing (C02)."""
    before = session.head
    with pytest.raises(InvalidInput):
        attrgetter(verb)(session)(text)
    assert session.refresh().head == before


def test_scratch_values_survive_restarts(records):
    """Scratch values are kept under their keys across restarts; null removes one; they are small (A04)."""
    with records.open("work") as session:
        session.facts.set_scratch("plan", {"steps": [1, 2, 3]})
        session.facts.set_scratch("gone", 1)
        session.facts.set_scratch("gone", None)
    later = records.open("work")
    assert later.views.facts.scratch == {"plan": {"steps": [1, 2, 3]}}
    for key, value in (("", 1), (None, 1), ("big", "x" * 20_000), ("odd", {1, 2})):
        with pytest.raises(InvalidInput):
            later.facts.set_scratch(key, value)
    assert later.views.facts.scratch == {"plan": {"steps": [1, 2, 3]}}


def test_the_brief_stands_alone(session):
    """The brief has objective, next action with its command, blockers, rejected, verified, open and decisions (C11, C13, H33)."""
    session.facts.set_next_action("Rerun the invite test with tracing", command="pytest -k invite --trace")
    session.findings.state("Waiting for the staging account", "blocked")
    session.findings.state("The proxy drops the header", "rejected", evidence=cite(session, "log-17"))
    session.findings.state("The cookie is lost", "verified", evidence=cite(session, "run-1"))
    session.findings.state("Is it the same on Firefox?")
    session.decide("Do not touch the middleware yet")
    brief = session.brief()
    for part in (
        "Fix intermittent 403",
        "pytest -k invite --trace",
        "staging account",
        "proxy drops",
        "cookie is lost",
        "Firefox",
        "middleware",
    ):
        assert part in brief
    assert len(brief.encode()) <= BRIEF_LIMIT
    assert session.note().startswith("# fix-invite-403\n")


def test_the_note_shows_the_reproduction_with_its_rate(session):
    """A reproduction has its steps and its rate (H02, H03)."""
    session.facts.set_reproduction("invite a user, accept, log in", rate="3/10", scenario="first login")
    assert "invite a user, accept, log in (rate 3/10)" in session.note()
    assert session.views.facts.reproduction["scenario"] == "first login"


def test_anyone_may_add_facts_at_any_time(records):
    """Facts are additive: any handle can add them without a lane while another agent works (B14)."""
    working, human = records.open("work"), records.get("work")
    turn = working.turn()
    human.decide("a word from outside")
    human.findings.state("I saw it too", "verified", evidence=cite(human, "me"))
    turn.user("still working")
    turn.commit()
    assert working.views.facts.decisions[0]["by"] == "human"
    assert [event.by for event in human.events(kinds=["finding.stated"])] == ["human"]


@pytest.mark.parametrize(
    "reserved",
    ["session.opened", "session.forked", "session.imported", "session.renamed", "session.resumed", "agent.joined", "turn.begun", "turn.committed", "item.added",
     "turn.recorded", "effect.started", "effect.finished", "payload.erased", "transcript.compacted"],
)  # fmt: skip
def test_steps_of_verbs_are_not_recorded_by_hand(session, reserved):
    """An event that only a verb may write cannot be added past the verb's checks (A12)."""
    before = session.head
    with pytest.raises(InvalidInput):
        session.log.record(reserved, {"name": "x", "project": "y", "items": [], "ranges": []})
    assert session.refresh().head == before


def test_other_kinds_can_be_recorded(session):
    """A kind without a verb is recorded as it is, known or not; the payload of a known kind is checked (B03)."""
    event = session.log.record("evidence.recorded", {"id": "INV-403-2026-05-18-A", "path": "trace.json"})
    assert session.views.findings.evidence["INV-403-2026-05-18-A"]["position"] == event.position
    session.log.record("weather.changed", ["to", "rain"])
    assert next(session.events(kinds=["weather.changed"])).data == ["to", "rain"]
    for kind, data in (("evidence.recorded", {}), ("evidence.recorded", []), ("decision.made", {"why": "x"})):
        with pytest.raises(InvalidInput):
            session.log.record(kind, data)


def test_search_finds_transcript_and_facts(records):
    """A search finds words of transcript and facts: all of them, the last as a prefix, with session and position (H39)."""
    session = records.open("work", objective="membership row missing")
    session.record_turn([{"role": "user", "content": "The membership row is written after the redirect."}])
    session.decide("write the membership row first")
    other = records.create("other")
    other.decide("no membership here")
    found = records.search("membership row")
    assert {(hit.session.name, hit.event.kind) for hit in found} == {
        ("work", "session.opened"), ("work", "turn.recorded"), ("work", "decision.made")
    }  # fmt: skip
    assert all("membership" in hit.snippet for hit in found)
    assert not any("user" in hit.snippet for hit in found if hit.event.kind == "turn.recorded"), "a role is not said"
    assert {hit.session.name for hit in records.search("member")} == {"work", "other"}
    assert [hit.event.kind for hit in records.search("row first", session="work")] == ["decision.made"]
    assert records.search("membership", session="other")[0].event.data["text"] == "no membership here"
    assert records.search("unheard") == records.search("") == records.search("'\"*") == []
    assert len(records.search("membership", limit=2)) == 2


def test_search_keeps_to_its_project(records):
    """A search covers one project unless the caller asks for all (A24)."""
    SessionStore(records.store, project="/elsewhere").create("there").decide("canary")
    assert records.search("canary") == []
    assert len(records.search("canary", project="")) == 1
    assert len(records.search("canary", project="/elsewhere")) == 1
