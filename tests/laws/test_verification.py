"""Laws of verification: every edit, drop, swap, duplicate and cut is found, and erased differs from damaged."""

from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from onrecord.errors import OnrecordError
from onrecord.log.events import Record
from onrecord.log.verify import Verifier, ranges_of
from onrecord.stores.memory import MemoryStore
from onrecord.views.fold import fold_whole
from tests.laws.play import Play, quiet_steps, steps


def kept(play: Play) -> list[Record]:
    """The very list in which the store keeps a session, for tests that tamper with it."""
    store: MemoryStore = play.store
    return store._own[play.session.id]


def _text(value: str) -> str:
    return value + "x"


def _flip(value: bytes) -> bytes:
    return bytes([value[0] ^ 1]) + value[1:] if value else b"\0"


EDITS: dict[str, Callable[[Any], Any]] = {
    "session": _text,
    "position": lambda value: value + 1,
    "id": _text,
    "kind": _text,
    "v": lambda value: value + 1,
    "at": lambda value: value - 1,
    "by": _text,
    "run": lambda value: value + 1,
    "because": lambda value: 1 if value is None else None,
    "salt": _flip,
    "payload": _flip,
    "payload_hash": _flip,
    "hash": _flip,
}


@pytest.mark.parametrize("field", EDITS)
@settings(max_examples=settings().max_examples // 4)
@given(played=quiet_steps, where=st.integers(0, 200))
def test_every_edit_is_found(field, played, where):
    """Changing any field of any event is found, at its position or at the next one that rests on it."""
    play = Play().run(played)
    records = kept(play)
    index = where % len(records)
    value = getattr(records[index], field)
    assume(value is not None or field == "because")
    records[index] = records[index]._replace(**{field: EDITS[field](value)})
    report = play.session.verify()
    assert not report.ok
    assert min(problem.position for problem in report.problems) in {index + 1, index + 2}


@given(quiet_steps, st.integers(0, 200))
def test_a_payload_that_is_gone_without_an_event_is_damage(played, where):
    """A payload that is missing without an event of its erasure is reported as missing."""
    play = Play().run(played)
    records = kept(play)
    index = where % len(records)
    for gone in ({"payload": None, "salt": None}, {"payload": None}, {"salt": None}):
        whole = records[index]
        records[index] = whole._replace(**gone)
        report = play.session.verify()
        assert [(problem.position, problem.cause) for problem in report.problems] == [(index + 1, "missing")]
        records[index] = whole
    assert play.session.verify().ok


@given(quiet_steps, st.integers(0, 200), st.integers(0, 200), st.sampled_from(["drop", "swap", "double", "cut"]))
def test_every_change_of_order_is_found(played, one, other, how):
    """Dropping, swapping, doubling or cutting off events is found."""
    play = Play().run(played)
    records = kept(play)
    first, second = sorted((one % len(records), other % len(records)))
    if how == "drop":
        del records[first]
    elif how == "swap":
        assume(first != second)
        records[first], records[second] = records[second], records[first]
    elif how == "double":
        records.insert(second, records[first])
    else:
        del records[max(1, first) :]
        assume(len(records) < play.store.head(play.session.id).position)
    report = play.session.verify()
    assert not report.ok
    assert all(problem.detail and problem.cause for problem in report.problems)


@given(quiet_steps, quiet_steps, st.integers(0, 200))
@example([("decide", "main", "one")], [("decide", "main", "two")], 1)
def test_a_rolled_back_store_is_found_by_a_checkpoint(played, later, where):
    """A checkpoint kept outside shows that the whole store was cut back, or cut back and written again."""
    play = Play().run(played)
    checkpoint = play.session.log.checkpoint()
    assert play.session.verify(checkpoint).ok
    play.run(later)
    assert play.session.verify(checkpoint).ok
    records, head = kept(play), play.store.head(play.session.id)
    cut = where % checkpoint["position"]
    assume(cut)
    del records[cut:]
    play.store._heads[play.session.id] = fold_whole(head, records).head
    assert [problem.cause for problem in play.session.verify(checkpoint).problems] == ["checkpoint"]
    other = Play(name="other")
    assert [problem.cause for problem in other.session.verify(checkpoint).problems] == ["checkpoint"]
    human = play.records.get(play.session.id)
    while play.store.head(play.session.id).position < checkpoint["position"]:
        human.log.append(human.log.draft("weather.changed", {}))
    assert play.session.verify().ok
    assert [problem.cause for problem in play.session.verify(checkpoint).problems] == ["checkpoint"]


@given(steps, st.lists(st.sets(st.integers(1, 60), min_size=1), min_size=1, max_size=4), st.booleans())
def test_erasing_never_breaks_verification(played, chosen, everything):
    """Whatever subset of payloads is erased, in however many steps, the log verifies and says how many are gone (K08)."""
    play = Play().run(played)
    session = play.session
    if session.refresh().head.held:
        session.log.release("let the law be tried")
    for positions in chosen:
        there = [position for position in positions if position <= play.store.head(session.id).position]
        if there:
            with suppress(OnrecordError):
                session.log.erase("on request", positions=there)
    if everything:
        session.log.erase("all of it")
    report = session.verify()
    assert report.problems == []
    gone = [record.position for record in play.store.read(session.id) if record.salt is None]
    assert report.erased == len(gone)
    for event in session.events():
        if event.kind == "payload.erased":
            assert event.data is not None


def test_what_records_an_erasure_cannot_be_erased():
    """The event of an erasure, with its reason, remains: without it the log would look damaged (K08)."""
    play = Play()
    play.session.decide("a secret")
    event = play.session.log.erase("on request", positions=[2])
    with pytest.raises(OnrecordError):
        play.session.log.erase("hide the tracks", positions=[event.position])
    play.session.log.erase("everything")
    assert play.session.log.event(event.position).data["reason"] == "on request"
    assert play.session.verify().ok


@given(quiet_steps, st.sets(st.integers(1, 60), min_size=1))
def test_erased_and_damaged_are_told_apart(played, chosen):
    """After an erasure, another lost payload is still reported, and the erased ones are not."""
    play = Play().run(played)
    head = play.store.head(play.session.id)
    there = sorted(position for position in chosen if position <= head.position)
    assume(there and len(there) < head.position)
    play.session.log.erase("on request", positions=there)
    lost = next(position for position in range(1, head.position + 1) if position not in there)
    records = kept(play)
    records[lost - 1] = records[lost - 1]._replace(payload=None, salt=None)
    report = play.session.verify()
    assert [(problem.position, problem.cause) for problem in report.problems] == [(lost, "missing")]
    assert report.erased == len(there)


def test_an_erasure_covers_only_what_came_before_it():
    """An erasure event that names later positions, or absurdly many, excuses nothing that was written after it."""
    play = Play()
    draft = play.session.log.draft(
        "payload.erased", {"ranges": [[1, 10**15]], "count": 0, "reason": "x", "scope": "positions"}
    )
    play.store.erase(play.session.id, (), draft)
    play.session.refresh().decide("written afterwards")
    records = kept(play)
    records[2] = records[2]._replace(payload=None, salt=None)
    assert [(problem.position, problem.cause) for problem in play.session.verify().problems] == [(3, "missing")]


@given(st.sets(st.integers(1, 300)))
def test_ranges_name_exactly_the_positions(positions):
    """The ranges an erasure names cover exactly what was erased, each position once."""
    ranges = ranges_of(positions)
    covered = [position for first, last in ranges for position in range(first, last + 1)]
    assert covered == sorted(positions)


@given(steps, st.lists(st.integers(0, 60), max_size=4))
def test_verification_in_pieces_is_verification(played, cuts):
    """A log verified in pieces of any size gives the same report as verified at once."""
    play = Play().run(played)
    records, head = play.store.read(play.session.id), play.store.head(play.session.id)
    pieces = Verifier(play.session.id)
    edges = sorted({0, len(records), *(min(cut, len(records)) for cut in cuts)})
    for start, end in pairwise(edges):
        pieces.feed(records[start:end])
    assert pieces.finish(head.position, head.hash) == Verifier(play.session.id).feed(records).finish(
        head.position, head.hash
    )
