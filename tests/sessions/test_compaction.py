"""Compaction and context: a summary replaces the transcript, facts are unchanged, and a failure does no harm."""

import pytest

from onrecord.errors import BudgetExhausted, CompactionFailed, InvalidInput
from tests.proofs import cite


@pytest.fixture
def session(records):
    """Five turns and some facts."""
    session = records.open("work", objective="find it")
    for number in range(5):
        session.record_turn(
            [{"role": "user", "content": f"question {number}"}, {"role": "assistant", "content": f"answer {number}"}]
        )
    session.decide("it is the cookie")
    session.findings.state("the proxy is fine", "rejected", evidence=cite(session, "run-1"))
    return session


def contents(items):
    return [item["content"] for item in items]


def test_a_summary_stands_for_the_transcript(session):
    """Compaction is an event that says what it covers; the transcript remains readable (C01, C04, C06)."""
    seen = []

    def summarise(items):
        seen.extend(items)
        return "five questions, five answers"

    coverage = session.compact(summarise)
    assert len(seen) == 10
    assert (coverage.turns, coverage.items, coverage.unanswered, coverage.extracted) == (5, 10, 0, 0)
    assert coverage.upto == session.agents.lane()["last_commit"]
    assert coverage.event.data["summary"] == "five questions, five answers"
    assert len(session.transcript().items) == 10
    context = session.context(4_000)
    assert (context.summary, context.items, context.left_out) == ("five questions, five answers", [], 5)


def test_facts_survive_compaction_unchanged(session):
    """The durable tier is byte for byte the same (C03, C07)."""
    before = session.views.facts.dump(), session.views.findings.dump()
    session.compact("a lossy summary")
    assert (session.views.facts.dump(), session.views.findings.dump()) == before
    assert "it is the cookie" in session.context(4_000).brief
    assert "the proxy is fine" in session.context(4_000).brief


def test_a_summary_that_does_not_fit_is_left_out(session):
    """Where record and summary together exceed the budget, the record is kept and the summary is not (C12)."""
    session.compact("many words " * 2_000)
    assert session.context(40_000).summary
    context = session.context(600)
    assert (context.summary, context.left_out) == (None, 5)
    assert context.brief == session.brief()
    assert context.tokens <= 600


def test_what_comes_later_is_shown_beside_the_summary(session):
    """A context has the brief, the summary and the turns after it; a later summary replaces the earlier one (C12)."""
    session.compact("the first five")
    session.record_turn([{"role": "user", "content": "question 5"}])
    context = session.context(4_000)
    assert contents(context.items) == ["question 5"]
    assert context.left_out == 5
    messages = context.messages("openai")
    assert "the first five" in messages[0]["content"]
    assert messages[1:] == [{"role": "user", "content": "question 5"}]
    session.compact("all six")
    assert session.context(4_000).summary == "all six"


def test_a_part_can_be_compacted(session):
    """Compaction up to a position covers the turns that ended before it, and no others (C01)."""
    upto = session.transcript().committed[1].ended
    coverage = session.compact("two turns", upto=upto)
    assert (coverage.upto, coverage.turns, coverage.facts) == (upto, 2, 0)
    assert contents(session.context(4_000).items)[:2] == ["question 2", "answer 2"]


@pytest.mark.parametrize("summary", ["", "  \n", None, 42, "x" * 70_000, "half \ud800"])
def test_what_is_no_summary_is_refused(session, summary):
    """A summary that is empty, too long or not a text fails as a compaction, and nothing is changed (T15)."""
    before = session.head
    with pytest.raises(CompactionFailed):
        session.compact(lambda _items: summary)
    assert session.refresh().head == before


def test_a_failing_summariser_is_reported_as_itself(session):
    """When the summariser fails, its error is reported; transcript and facts are intact and work continues (T15, C06)."""
    before, facts = session.head, session.views.facts.dump()

    def summarise(_items):
        raise TimeoutError("the model did not answer")

    with pytest.raises(CompactionFailed, match="TimeoutError: the model did not answer") as failure:
        session.compact(summarise)
    assert isinstance(failure.value.__cause__, TimeoutError)
    assert session.refresh().head == before
    assert session.views.facts.dump() == facts
    assert len(session.context(4_000).items) == 10
    session.record_turn([{"role": "user", "content": "on we go"}])


def test_a_refusal_inside_a_summariser_stays_what_it_is(session):
    """One of our errors raised while summarising (a budget, a lease) keeps its type (T15)."""

    def summarise(_items):
        raise BudgetExhausted("no tokens left", limit="tokens")

    with pytest.raises(BudgetExhausted):
        session.compact(summarise)


def test_facts_can_be_extracted_in_the_same_step(session):
    """Facts worth keeping are recorded as decisions together with the summary, all or none (C05, C06)."""
    position = session.head.position
    coverage = session.compact("sum", extract=lambda _items: ["keep the retry", "drop the cache"])
    assert coverage.extracted == 2
    kept = session.views.facts.decisions[-2:]
    assert [decision["text"] for decision in kept] == ["keep the retry", "drop the cache"]
    assert [decision["because"] for decision in kept] == [coverage.upto] * 2
    assert session.head.position == position + 3


@pytest.mark.parametrize("extracted", [[""], [5], ["x" * 5_000], [None], ["fine", {"text": "no"}], ["half \ud800"], 7])
def test_what_is_no_fact_is_not_extracted(session, extracted):
    """An extraction that returns anything but short texts fails as a compaction, and nothing is recorded (T15)."""
    before = session.head
    with pytest.raises(CompactionFailed):
        session.compact("sum", extract=lambda _items: extracted)
    assert session.refresh().head == before


def test_there_must_be_something_to_sum_up(records):
    """A lane without committed turns cannot be compacted; provisional ones do not count (C06)."""
    session = records.open("empty")
    session.turn().abort("no")
    for upto in (None, 1):
        with pytest.raises(CompactionFailed):
            session.compact("nothing", upto=upto)


def test_unanswered_calls_are_reported(records):
    """A compaction says how many tool calls of its range have no result on record (C06)."""
    session = records.open("work")
    session.record_turn(
        [{"role": "assistant", "content": "x", "tool_calls": [{"id": "c1", "name": "bash", "arguments": {}}]}]
    )
    assert session.compact("one call").unanswered == 1


def test_the_next_summary_is_made_from_the_last_one_and_what_came_after(session):
    """A long session is not summarised from its beginning each time, and nothing is lost between two summaries (C04)."""
    session.compact("the first five")
    session.record_turn([{"role": "user", "content": "question 5"}])
    seen: list[str] = []

    def summarise(items):
        seen[:] = contents(items)
        return "all six"

    coverage = session.compact(summarise, extract=lambda items: [f"keep {item['content']}" for item in items])
    assert seen == ["Summary of what came before:\nthe first five", "question 5"]
    assert coverage.extracted == 1
    assert session.views.facts.decisions[-1]["text"] == "keep question 5"
    assert (coverage.turns, coverage.items) == (6, 11)
    session.compact(summarise, afresh=True)
    assert seen[0] == "question 0"
    assert len(seen) == 11


def test_a_better_summary_of_the_same_is_made_from_the_turns(session):
    """Where nothing follows the last summary, or a shorter range is requested, the turns themselves are summarised (C04)."""
    seen: list[str] = []

    def summarise(items):
        seen[:] = contents(items)
        return "another"

    session.compact("the first five")
    session.compact(summarise)
    assert len(seen) == 10
    session.compact(summarise, upto=session.transcript().committed[2].ended)
    assert len(seen) == 6


def test_an_erased_summary_is_not_built_upon(session):
    """Erased text is gone from later summaries too: they are made from the turns again (K09)."""
    coverage = session.compact("a secret")
    session.log.erase("secret", positions=[coverage.event.position])
    session.record_turn([{"role": "user", "content": "question 5"}])
    coverage = session.compact(lambda items: f"{len(items)} items: {contents(items)}")
    assert coverage.event.data["summary"].startswith("11 items: ['question 0'")
    assert "a secret" not in coverage.event.data["summary"]


def test_a_summary_of_what_was_rolled_back_is_not_shown(session):
    """When a retry discards turns that a summary covers, the summary is no longer shown (J13, J14)."""
    base = session.transcript().committed[3].ended
    session.compact("all five, the fifth was wrong")
    assert session.context(4_000).summary
    with session.turn(base=base, rollback=1) as turn:
        turn.user("question 4, otherwise")
    context = session.context(4_000)
    assert context.summary is None
    assert contents(context.items)[-2:] == ["answer 3", "question 4, otherwise"]
    session.compact("anew")
    assert session.context(4_000).summary == "anew"


def test_a_summary_of_what_stayed_is_still_shown(session):
    """A retry that discards only turns after the summary keeps the summary (J13)."""
    upto = session.transcript().committed[2].ended
    session.compact("the first three", upto=upto)
    with session.turn(base=upto, rollback=2) as turn:
        turn.user("question 3, otherwise")
    context = session.context(4_000)
    assert context.summary == "the first three"
    assert contents(context.items) == ["question 3, otherwise"]


def test_an_erased_summary_gives_way_to_the_turns(session):
    """When a summary was erased, the turns it replaced are shown again as far as they fit (K09)."""
    coverage = session.compact("a secret")
    session.log.erase("secret", positions=[coverage.event.position])
    context = session.context(4_000)
    assert context.summary is None
    assert len(context.items) == 10


def test_each_agent_has_its_own_summary(records, session):
    """A compaction covers the lane of its agent and no other (A23)."""
    other = records.open("work", agent="tester")
    other.record_turn([{"role": "user", "content": "testing"}])
    session.compact("main's")
    assert other.context(4_000).summary is None
    assert contents(other.context(4_000).items) == ["testing"]


def test_a_context_takes_the_newest_that_fit(session):
    """From a long transcript the newest turns are taken, whole groups of call and result, within the budget (C12)."""
    for number in range(50):
        call = {"id": f"c{number}", "name": "bash", "arguments": {"cmd": "x" * 50}}
        session.record_turn([
            {"role": "user", "content": f"do {number}"},
            {"role": "assistant", "content": "", "tool_calls": [call]},
            {"role": "tool", "call": f"c{number}", "content": "y" * 100},
        ])  # fmt: skip
    context = session.context(1_000)
    assert context.tokens <= 1_000
    assert context.items[-1]["call"] == "c49"
    assert 0 < len(context.items) < 60
    assert context.left_out + sum(item["role"] == "user" for item in context.items) == 55
    assert session.context(10**6).left_out == 0


def test_calls_and_results_in_different_turns_stay_together(records):
    """Where every model call is a separate turn, a result still stays with the call it answers (C12)."""
    session = records.open("work")
    for number in range(20):
        call = {"id": f"c{number}", "name": "bash", "arguments": {"cmd": "x" * 100}}
        session.record_turn([{"role": "assistant", "content": f"step {number}", "tool_calls": [call]}])
        session.record_turn([{"role": "tool", "call": f"c{number}", "content": "y" * 200}])
    for tokens in (150, 250, 400, 1_000, 10_000):
        items = session.context(tokens).items
        calls = [call["id"] for item in items for call in item.get("tool_calls", ())]
        assert calls == [item["call"] for item in items if item["role"] == "tool"]
        assert not any(item.get("synthesised") for item in items)


def test_any_counter_can_be_used(session):
    """The caller's own tokenizer counts the budget (C12)."""
    seen = []

    def count(text: str) -> int:
        seen.append(text)
        return len(text)

    context = session.context(500, count=count)
    assert context.tokens <= 500
    assert any("question" in text for text in seen)
    for tokens in (0, -5, 3):
        with pytest.raises(InvalidInput):
            session.context(tokens, count=len)


def test_an_unknown_dialect_is_refused(session):
    """Messages are made in the dialects that exist (C12)."""
    with pytest.raises(InvalidInput):
        session.context(4_000).messages("klingon")
