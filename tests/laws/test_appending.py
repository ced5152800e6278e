"""Laws of appending: an event is on record once, whatever is repeated, lost or reordered on the way."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onrecord.errors import IdReused, InvalidInput, LogMoved
from onrecord.log.codec import decode_payload
from onrecord.session.handle import Session
from tests.laws import values
from tests.laws.play import Play, quiet_steps, steps

# Which of four prepared batches to send next: each any number of times, in any order.
deliveries = st.lists(st.lists(st.integers(0, 5), min_size=1, max_size=4), min_size=1, max_size=12)


@given(deliveries, st.lists(values.json_objects, min_size=6, max_size=6))
def test_appending_again_changes_nothing(deliveries, payloads):
    """Drafts sent again in any grouping and order are there once each, with the receipt of the first time (B08)."""
    play = Play()
    drafts = [play.session.log.draft("weather.changed", data, id=f"w{n}") for n, data in enumerate(payloads)]
    receipts: dict[str, tuple[int, bytes]] = {}
    for batch in deliveries:
        for draft, where in zip(
            [drafts[n] for n in batch], play.store.append(play.session.id, [drafts[n] for n in batch]), strict=True
        ):
            first = receipts.setdefault(draft.id, (where.position, where.hash))
            assert first == (where.position, where.hash)
    events = play.events()
    assert [event.position for event in events] == list(range(1, len(receipts) + 2))
    assert {event.id: (event.position, event.hash) for event in events[1:]} == receipts
    assert play.session.verify().ok


@given(steps)
def test_a_whole_log_sent_again_changes_nothing(played):
    """Sending every event of a log again, one by one or at once, is answered and writes nothing (B08)."""
    play = Play().run(played)
    before = play.store.read(play.session.id)
    for record in before:
        if record.payload is None:
            continue
        draft = play.session.log.draft("x.y", {}, id=record.id)._replace(
            kind=record.kind, payload=record.payload, data=decode_payload(record.payload.decode())
        )
        (where,) = play.store.append(play.session.id, [draft])
        assert (where.position, where.hash, where.new) == (record.position, record.hash, False)
    assert play.store.read(play.session.id) == before


@given(values.json_objects, values.json_objects)
def test_an_id_stands_for_one_event(one, other):
    """An id that is used again for other content is refused, and nothing of that append is written."""
    play = Play()
    first = play.session.log.record("weather.changed", one, id="w1")
    if one == other and repr(one) == repr(other):
        assert play.session.log.record("weather.changed", other, id="w1") == first
    else:
        fresh = play.session.log.draft("weather.changed", {}, id="w2")
        with pytest.raises(IdReused):
            play.session.log.append(fresh, play.session.log.draft("weather.changed", other, id="w1"))
    with pytest.raises(IdReused):
        play.session.log.record("weather.turned", one, id="w1")
    assert play.store.head(play.session.id).position == 2


@given(quiet_steps, st.integers(0, 50))
def test_an_expectation_holds_or_nothing_moves(played, expected):
    """An append that expects a position is placed right after it, or refused with both positions."""
    play = Play().run(played)
    head = play.store.head(play.session.id)
    draft = play.session.log.draft("session.held", {"reason": "x"})
    if expected == head.position:
        (where,) = play.store.append(play.session.id, [draft], expect=expected)
        assert where.position == head.position + 1
        return
    with pytest.raises(LogMoved) as moved:
        play.store.append(play.session.id, [draft], expect=expected)
    assert (moved.value.expected, moved.value.actual) == (expected, head.position)
    assert play.store.head(play.session.id) == head


@given(steps)
def test_positions_are_dense_and_times_and_runs_are_told(played):
    """Every event has the next position, an actor, a time and a run; runs only grow (A25, B10)."""
    events = Play().run(played).events()
    assert [event.position for event in events] == list(range(1, len(events) + 1))
    assert all(event.by and event.at > 0 and event.run >= 1 for event in events)
    joins = [event.run for event in events if event.kind == "agent.joined"]
    assert joins == sorted(set(joins))


@given(steps)
def test_a_refused_step_leaves_no_trace(played):
    """Whatever a session refuses, log, head and views are the same as before (T16)."""
    play = Play().run(played)
    handle = Session(play.store, play.session.id, agent="tester", clock=play.clock)
    before = play.store.read(play.session.id), play.store.head(play.session.id), handle.views.dump()
    refused = [
        lambda: handle.decide(""),
        lambda: handle.decide("x" * 4_001),
        lambda: handle.findings.state("x", "certain"),
        lambda: handle.findings.state("x", "verified"),
        lambda: handle.budget.set(patience=3),
        lambda: handle.facts.set_scratch("", 1),
        lambda: handle.rename("../up"),
        lambda: handle.record_turn([]),
        lambda: handle.record_turn([{"role": "wizard"}]),
        lambda: handle.record_turn([{"role": "user", "content": "a"}, {"role": "user", "content": float("nan")}]),
        lambda: handle.budget.record_usage("m", input_tokens=-1),
        lambda: handle.once("", lambda: 1),
        lambda: handle.log.erase("", positions=[1]),
    ]
    for call in refused:
        with pytest.raises(InvalidInput):
            call()
    assert (play.store.read(play.session.id), play.store.head(play.session.id), handle.views.dump()) == before
