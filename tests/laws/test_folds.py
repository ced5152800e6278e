"""Laws of the views: a fold in parts is the fold of the whole, snapshots never change meaning, views agree with one another."""

from contextlib import nullcontext
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from onrecord.errors import DamagedLog
from onrecord.log import head as heads
from onrecord.log.codec import seal
from onrecord.log.events import KINDS, RESERVED_KINDS, Event
from onrecord.session.handle import Session
from onrecord.views.findings import Findings
from onrecord.views.fold import BODIES, Whole, fold_whole
from onrecord.views.note import brief, note
from onrecord.views.transcript import Transcript, shown
from tests.laws import values
from tests.laws.play import AGENTS, Play, steps

cuts = st.lists(st.integers(0, 60), max_size=4)

SAID = [{"role": "user", "content": "hi"}]
ROLLED_BACK = [
    ("record_turn", "main", SAID),
    ("record_turn", "main", SAID),
    ("roll_back", "main", 1),
    ("record_turn", "main", SAID),
]
ERASED = [
    ("set_objective", "main", "a secret"),
    ("rename", "two"),
    ("close", ""),
    ("resume", "", True),
    *[("erase", n) for n in range(1, 7)],
]
TWO_TAILS = [("begin", "tester"), ("begin", "main"), ("abort", "tester", "x"), ("abort", "main", "y")]


def parts(events: list[Event], cuts: list[int]) -> list[list[Event]]:
    edges = [0, *sorted(min(cut, len(events)) for cut in cuts), len(events)]
    return [events[start:end] for start, end in pairwise(edges)]


def start(play: Play) -> Whole:
    """The fold after the first event, from which the rest continues."""
    return fold_whole(play.store.head(play.session.id), play.store.read(play.session.id, upto=1))


def meaning(whole: Whole) -> tuple[Any, ...]:
    return whole.dump(), note(whole), brief(whole), whole.spend.exhausted(2 * 10**15), whole.findings.labelled("open")


@given(steps, cuts)
@example(ROLLED_BACK, [2])
@example(ERASED, [3])
@example(TWO_TAILS, [2, 5])
def test_folding_in_parts_is_folding_the_whole(played, cuts):
    """Wherever a log is cut, folding the parts one after another gives the views of the whole (B09)."""
    play = Play().run(played)
    events = play.events()[1:]
    whole, piecewise = start(play).fold(events), start(play)
    for part in parts(events, cuts):
        piecewise.fold(part)
    assert meaning(piecewise) == meaning(whole)
    transcript, stepwise = Transcript().fold(play.events()), Transcript()
    for part in parts(play.events(), cuts):
        stepwise.fold(part)
    for one, other in ((transcript.committed, stepwise.committed), (transcript.provisional, stepwise.provisional)):
        assert [shown(turn) for turn in one] == [shown(turn) for turn in other]
    assert transcript.superseded == stepwise.superseded


@given(steps, cuts)
@example(ROLLED_BACK, [2])
@example(ERASED, [3])
@example(TWO_TAILS, [2, 5])
def test_a_snapshot_never_changes_meaning(played, cuts):
    """Saving the views and loading them again, at any point and any number of times, changes nothing (B07)."""
    play = Play().run(played)
    events = play.events()[1:]
    resumed = start(play)
    for part in parts(events, cuts):
        resumed = Whole.load(resumed.dump()).fold(part)
    resumed = Whole.load(resumed.dump())
    assert meaning(resumed) == meaning(start(play).fold(events))


@given(steps, cuts, st.lists(st.sampled_from(sorted(Whole.VIEWS)), max_size=4))
@example(ROLLED_BACK, [2], [])
@example(ERASED, [3], ["lanes"])
@example(TWO_TAILS, [2, 5], ["attempts", "findings"])
def test_a_view_that_is_decoded_late_is_what_the_log_says(played, cuts, read):
    """A snapshot whose views are decoded when they are read, some early and some late, changes nothing either (B07)."""
    play = Play().run(played)
    events = play.events()[1:]
    resumed = start(play)
    for number, part in enumerate(parts(events, cuts)):
        resumed = Whole.load(resumed.dump(), lock=nullcontext(), again=_never).fold(part)
        for name in read[number : number + 2]:
            assert getattr(resumed, name).dump() == getattr(start(play).fold(_upto(events, resumed)), name).dump()
    assert meaning(resumed) == meaning(start(play).fold(events))
    assert resumed.dump() == Whole.load(resumed.dump()).dump()


def _never():
    raise AssertionError("an intact snapshot needs no log")


def _upto(events, whole):
    return [event for event in events if event.position <= whole.position]


@given(steps)
@example(ROLLED_BACK)
@example(ERASED)
@example(TWO_TAILS)
def test_views_at_hand_are_the_fold_of_the_log(played):
    """The views of a working handle are exactly what a new process folds from the store (B07)."""
    play = Play().run(played)
    fresh = Session(play.store, play.session.id)
    for handle in (play.session, *play.handles.values()):
        assert meaning(handle.views) == meaning(fresh.views)


@given(steps)
@example(ROLLED_BACK)
@example(ERASED)
@example(TWO_TAILS)
def test_a_view_needs_no_transcript_bodies(played):
    """The views of the durable tier are the same when only durable payloads are read (C02)."""
    play = Play().run(played)
    head, records = play.store.head(play.session.id), play.store.read(play.session.id)
    slim = play.store.read(play.session.id, bodies=BODIES)
    assert fold_whole(head, slim).dump() == fold_whole(head, records).dump()


@given(steps)
@example(ROLLED_BACK)
@example(TWO_TAILS)
@example(
    [
        ("record_turn", "main", SAID),
        ("begin", "main"),
        ("add", "main", SAID[0]),
        ("commit", "main"),
        ("decide", "main", "x"),
    ]
)
@example([("begin", "main"), ("set_budget", "tester", {"tokens": 1})])
@example([("record_turn", "main", SAID), ("set_budget", "main", {"steps": 1.0}), ("record_turn", "main", SAID)])
def test_a_handle_knows_where_its_lane_ends(played):
    """What a handle tracks about its lane, so that a turn need not read the views, is what the views say."""
    play = Play().run(played)
    for agent, handle in play.handles.items():
        end, fresh = handle._lane_end, Session(play.store, play.session.id, agent=agent).views
        if end.known and not handle._behind:
            lane = fresh.lanes.lane(agent)
            assert (end.open, end.last_commit, end.turns) == (bool(lane["open"]), lane["last_commit"], lane["turns"])
            if (
                handle._whole.position == fresh.position
            ):  # a budget that another handle set is read with the next append
                assert not fresh.spend.budget


@given(steps)
def test_steps_of_an_active_session_only_move_its_head(played):
    """What stores leave out of the head's row follows from the last event: position, hash and time, nothing else."""
    play = Play().run(played)
    head = play.store.head(play.session.id)
    before = head._replace(status=heads.ACTIVE)
    for kind in heads.STEPS:
        draft = seal(kind, dict.fromkeys(KINDS[kind].needs.split(), ""), "e", head.at + 5, "main", 1, bytes(16))
        after = heads.after(before, draft, 1, bytes(32))
        assert after == before._replace(position=head.position + 1, hash=bytes(32), at=head.at + 5)


@given(steps)
@example(ROLLED_BACK)
@example(ERASED)
@example(TWO_TAILS)
def test_the_head_is_a_fold(played):
    """The head that the store carries forward is the fold of the log, erased events included."""
    play = Play().run(played)
    assert Session(play.store, play.session.id).head == play.store.head(play.session.id)


@given(steps)
@example(ROLLED_BACK)
@example(ERASED)
@example(TWO_TAILS)
def test_lanes_and_transcript_tell_the_same_story(played):
    """The small view of turns and the large one agree on what is committed, what is provisional and what runs (J01, J08)."""
    play = Play().run(played)
    transcript, lanes = play.session.transcript(), play.session.views.lanes
    for agent in AGENTS:
        lane = lanes.lane(agent)
        committed = [turn for turn in transcript.committed if turn.agent == agent]
        tail = [turn for turn in transcript.provisional if turn.agent == agent]
        assert lane["committed"] == len(committed)
        assert lane["last_commit"] == (committed[-1].ended if committed else 0)
        assert [turn["position"] for turn in lane["provisional"]] == [t.begun for t in tail if t.status != "running"]
        assert [turn["how"] for turn in lane["provisional"]] == [t.status for t in tail if t.status != "running"]
        begun = lane["open"]["position"] if lane["open"] else None
        assert begun == next((t.begun for t in tail if t.status == "running"), None)
        assert {turn.status for turn in committed} <= {"committed"}


@given(steps, st.integers(1, 60))
def test_any_moment_is_the_fold_up_to_it(played, position):
    """The session at a position is the fold of the log up to it, whatever was appended later (B09)."""
    play = Play().run(played)
    position = min(position, play.store.head(play.session.id).position)
    past = play.session.at(position)
    assert past.views.dump() == start(play).fold(play.events()[1:position]).dump()
    turns = Transcript().fold(play.events()[:position])
    assert past.transcript().committed == turns.committed


@given(st.lists(st.tuples(st.sampled_from(sorted(KINDS)), values.json_values), max_size=12))
def test_nonsense_cannot_make_a_session_unreadable(said):
    """A known kind with a payload that makes no sense (from a bundle, from a newer version) never breaks a fold."""
    play = Play()
    play.do_record_turn("main", [{"role": "user", "content": "hi"}])
    play.do_begin("main")
    events = play.events()
    whole, transcript = start(play).fold(events[1:]), Transcript().fold(events)
    for number, (kind, data) in enumerate(said, len(events) + 1):
        event = Event(play.session.id, number, f"n{number}", kind, 1, number, "main", 1, None, data, b"", bytes(32))
        transcript.fold([event])
        if kind not in RESERVED_KINDS and not kind.startswith("session."):
            whole.apply(event)
    assert Whole.load(whole.dump()).dump() == whole.dump()
    assert len(brief(whole).encode()) <= 2048
    assert note(whole)
    for turn in transcript.committed + transcript.provisional:
        assert shown(turn)["agent"] == "main"


def test_nonsense_in_a_late_view_is_noted_as_in_any_other():
    """An event that a view cannot read is a misfit, whether the view is decoded before or after it."""
    play = Play()
    play.do_state("main", "claim", "open")
    whole = start(play).fold(play.events()[1:])
    late = Whole.load(whole.dump(), lock=nullcontext(), again=_never)
    told = {"attempt": 99, "outcome": "failed"}
    for number in (whole.position + 1, whole.position + 2):
        kind, data = ("attempt.settled", told) if number % 2 else ("evidence.recorded", {"kind": "log"})
        event = Event(play.session.id, number, f"n{number}", kind, 1, number, "main", 1, None, data, b"", bytes(32))
        whole.apply(event)
        late.apply(event)
    assert late.misfits == whole.misfits != []
    assert late.dump() == whole.dump()


def test_an_interrupted_decoding_loses_nothing_and_folds_nothing_twice(monkeypatch):
    """A signal in the middle of decoding a view leaves it undecoded; the next read begins again."""
    play = Play()
    for number in range(3):
        play.do_state("main", f"claim {number}", "open")
    events = play.events()[1:]
    late = Whole.load(start(play).dump(), lock=nullcontext(), again=_never).fold(events)
    applied, apply = [], Findings.apply

    def interrupted(view, event):
        applied.append(event)
        if len(applied) == 2:
            raise KeyboardInterrupt
        apply(view, event)

    monkeypatch.setattr(Findings, "apply", interrupted)
    with pytest.raises(KeyboardInterrupt):
        _read = late.findings
    assert meaning(late) == meaning(start(play).fold(events))
    assert len(late.findings.findings) == 3


@pytest.mark.parametrize("name", sorted(Whole.VIEWS))
def test_a_damaged_part_is_derived_from_the_log(name):
    """A view whose part of a snapshot is damaged is taken from the log; the others are not."""
    play = Play()
    play.do_state("main", "claim", "open")
    events = play.events()[1:]
    whole, asked = start(play).fold(events), []
    part = whole.dumped(name)
    body = whole.dump()
    at = body.rindex(part)
    damaged = body[:at] + part.replace(b"{", b"[", 1) + body[at + len(part) :]

    def again():
        asked.append(name)
        return start(play).fold(events)

    loaded = Whole.load(damaged, lock=nullcontext(), again=again)
    assert meaning(loaded) == meaning(whole)
    assert loaded.dump() == body
    assert asked == [name]
    with pytest.raises(DamagedLog, match="damaged"):
        Whole.load(damaged)


@pytest.mark.parametrize("count", [9, 10, 23, 120])
def test_findings_keep_their_order_across_a_snapshot(count):
    """The tenth finding comes after the second, before and after a snapshot (H05)."""
    play = Play()
    for number in range(count):
        play.do_state("main", f"claim {number}", "open")
    loaded = Whole.load(play.session.views.dump())
    assert [finding["id"] for finding in loaded.findings.labelled("open")] == [f"f{n + 1}" for n in range(count)]
    assert note(loaded) == play.session.note()
