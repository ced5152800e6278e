"""The chapters of a session: what each reads back, and the verbs that replace direct access to the store."""

import pytest

from onrecord.errors import LeaseLost, NotFound

HELLO = [{"role": "user", "content": "hello"}]


def test_a_chapter_reads_back_what_it_recorded(session):
    """Attempts, findings, evidence, agents and the budget are read where they are written."""
    session.attempts.start("make")
    session.attempts.settle(1, "failed", error="no rule")
    proof = session.evidence.record("log", reference="build.log").data["id"]
    session.findings.state("The rule is missing", "verified", evidence=[proof])
    session.budget.set(tokens=100)
    session.budget.record_usage("m", input_tokens=30, output_tokens=10, cost=0.5)
    assert [one["command"] for one in session.attempts.all()] == ["make"]
    assert session.attempts.get(1) == session.attempts.all()[0]
    assert session.attempts.get(2) is None
    assert session.evidence.get(proof)["reference"] == "build.log"
    assert session.evidence.get("nothing") is None
    assert session.findings.get("f1") == session.findings.all()[0]
    assert session.findings.label_of("f1") == "verified"
    with pytest.raises(NotFound):
        session.findings.get("f2")
    assert session.budget.spent() == {
        "calls": 1, "input_tokens": 30, "output_tokens": 10, "cost": 0.5, "unknown_cost_calls": 0,
        "cache_read_tokens": 0, "cache_write_tokens": 0, "reasoning_tokens": 0,
    }  # fmt: skip
    assert session.budget.left() == {"tokens": 60}
    assert session.agents.get()["here"]
    assert session.agents.get("nobody") is None
    session.record_turn(HELLO)
    assert session.agents.lane()["committed"] == 1
    assert session.agents.lane("nobody")["committed"] == 0


def test_what_a_chapter_returns_is_a_copy_where_it_counts(session):
    """Changing the returned lane or usage changes nothing on record."""
    session.record_turn(HELLO, usage={"model": "m", "input_tokens": 3})
    session.agents.lane()["commits"].clear()
    session.budget.spent()["input_tokens"] = 99
    assert len(session.agents.lane()["commits"]) == 1
    assert session.budget.spent()["input_tokens"] == 3


def test_the_log_is_read_from_its_end_and_by_headers(session):
    """`log.newest` reads backwards over any number of pages, `log.headers` forward without payloads; both filter by kind."""
    for number in range(7):
        session.decide(f"decision {number}", id=f"d{number}")
    backwards = [event.position for event in session.log.newest(page=3)]
    assert backwards == list(range(session.head.position, 0, -1))
    made = list(session.log.newest(["decision.made"], page=2))
    assert [event.data["text"] for event in made] == [f"decision {number}" for number in reversed(range(7))]
    assert [event.position for event in session.log.newest(upto=4, headers=True)] == [4, 3, 2, 1]
    assert all(event.data is None for event in session.log.newest(headers=True))
    headers = list(session.log.headers(["decision.made"], page=2))
    assert [event.id for event in headers] == [f"d{number}" for number in range(7)]
    assert all(event.data is None for event in headers)
    assert list(session.log.headers(after=session.head.position)) == []
    assert session.log.find("d3").data["text"] == "decision 3"
    assert session.log.find("d9") is None
    assert session.log.head().position == session.head.position


def test_several_events_in_one_append(session):
    """Drafts are appended together or not at all, next to each other."""
    drafts = [session.log.draft("worklog.written", {"text": text}) for text in ("first", "second")]
    events = session.log.append(*drafts)
    assert events[1].position == events[0].position + 1
    assert [line["text"] for line in session.views.phases.worklog] == ["first", "second"]


def test_a_silent_holder_renews_its_lease(timed, clock):
    """A lease that is renewed in time outlives its first term; one that was taken over cannot be renewed."""
    session = timed.open("work", lease_seconds=10)
    before = session.lease.until
    clock.advance(8)
    session.renew(10)
    assert session.lease.until > before
    assert [lease.lane for lease in session.log.leases()] == [session.agent]
    other = timed.get("work", agent=session.agent)
    other.acquire(takeover=True)
    with pytest.raises(LeaseLost):
        session.renew()
    with pytest.raises(LeaseLost):
        session.record_turn(HELLO)
    other.leave()
    other.renew()  # without a lease there is nothing to renew
    assert other.log.leases() == []


def test_a_store_answers_by_name_by_link_and_by_lease(records):
    """An exact name, a vendor conversation and leases are looked up in the store, without opening a session."""
    session = records.open("work")
    session.agents.locate("claude", "c-1")
    assert records.named("work").session == session.id
    assert records.named("wor") is None
    assert records.linked("claude", "c-1") == [session.id]
    assert records.linked("claude", "c-2") == []
    assert [lease.lane for lease in records.leases(session.id)] == [session.agent]
    assert records.url == session.log.url
