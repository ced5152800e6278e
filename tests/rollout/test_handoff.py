"""Delivery to a trainer: frozen, read as often as necessary, acknowledged once, retired for good."""

import pytest

from onrecord.errors import Conflict, InvalidInput, SessionFrozen, SessionNotFound, SessionRetired, TurnConflict
from onrecord.rollout.recording import Rollout, open_rollout, read_lane
from onrecord.rollout.samples import digest_of
from onrecord.rollout.turns import ChatRequest
from tests.rollout.world import LETTERS, aborted, answer, begin, letters, play


def test_a_reader_that_crashes_gets_the_same_bytes(records, rollout):
    """Frozen samples are the same for every reader, in this process and the next, until they are retired."""
    messages = play(rollout, 3)
    rollout.abort(begin(rollout, messages), aborted("half"))
    frozen = rollout.freeze(merge=False, max_seq_len=10_000)
    assert digest_of(rollout.samples()) == frozen.digest
    assert rollout.freeze() == frozen, "freezing again changes nothing, whatever the options"
    again = open_rollout(records, "task-17", takeover=True)
    assert again.lane.frozen == frozen
    assert digest_of(again.samples()) == frozen.digest
    assert len(again.samples()) == frozen.samples == 4


@pytest.mark.parametrize(
    "options", [{"shuffle": True}, {"session": "x"}, {"merge": 1}, {"max_seq_len": "10"}, {"max_seq_len": True}]
)
def test_samples_are_made_with_known_options(rollout, options):
    """Unknown options and options of the wrong type are refused, and nothing is frozen."""
    play(rollout, 1)
    with pytest.raises(InvalidInput):
        rollout.freeze(**options)
    assert rollout.lane.frozen is None


def test_a_frozen_rollout_takes_no_turn(rollout):
    """After the freeze nothing can be added: the trainer reads everything there is."""
    messages = play(rollout, 1)
    late = rollout.prepare(ChatRequest(messages), LETTERS)
    rollout.freeze()
    with pytest.raises(SessionFrozen):
        rollout.prepare(ChatRequest(messages), LETTERS)
    with pytest.raises(SessionFrozen):
        rollout.intend(late)


def test_a_turn_under_way_is_not_frozen(rollout):
    """Freezing is refused while a turn is running."""
    messages = play(rollout, 1)
    begin(rollout, messages)
    with pytest.raises(TurnConflict):
        rollout.freeze()


def test_only_the_right_digest_is_acknowledged(rollout):
    """An acknowledgement names the received digest; another digest, or nothing frozen, is a conflict."""
    play(rollout, 1)
    with pytest.raises(Conflict, match="not frozen"):
        rollout.acknowledge("x")
    frozen = rollout.freeze()
    with pytest.raises(Conflict, match="digest"):
        rollout.acknowledge("x")
    with pytest.raises(Conflict, match="acknowledged"):
        rollout.retire()
    rollout.acknowledge(frozen.digest)
    before = rollout.session.head.position
    rollout.acknowledge(frozen.digest)
    assert rollout.session.head.position == before, "acknowledging again changes nothing"


@pytest.mark.parametrize("handed_over", [True, False])
def test_a_retired_rollout_is_over_for_good(records, rollout, handed_over):
    """Late requests get SessionRetired, in this process and every other, reopened or not; the id is never reused."""
    messages = play(rollout, 1)
    late = rollout.prepare(ChatRequest(messages), LETTERS)
    if handed_over:
        rollout.acknowledge(rollout.freeze().digest)
    rollout.retire("done", unacknowledged=not handed_over)
    rollout.retire("again changes nothing")
    identity = rollout.session.id
    for step in (
        lambda: rollout.prepare(ChatRequest(messages), LETTERS),
        lambda: rollout.intend(late),
        rollout.freeze,
        rollout.samples,
        lambda: open_rollout(records, "task-17"),
        lambda: open_rollout(records, identity),
        lambda: open_rollout(records, identity, create=False),
    ):
        with pytest.raises(SessionRetired):
            step()
    records.get("task-17").resume(reopen=True)
    with pytest.raises(SessionRetired):
        open_rollout(records, "task-17")
    assert records.find("task-17").session == identity


def test_retiring_meets_a_turn_under_way(records, rollout):
    """If another handle retires a rollout while a turn is running, the late reply is refused as retired."""
    messages = play(rollout, 1)
    intent = begin(rollout, messages)
    other = Rollout(records.get("task-17", agent="policy"))
    other.retire("deleted", unacknowledged=True)
    with pytest.raises(SessionRetired):
        rollout.commit(intent, answer("late"))
    assert rollout.trajectory.num_assistant == 1


def test_an_unknown_rollout_is_not_made_unasked(records):
    """Without `create`, an unknown name or id is not found, and is not created."""
    for name in ("nobody", "01M7FN78N1R2TETTBW07BQKY5H"):
        with pytest.raises(SessionNotFound):
            open_rollout(records, name, create=False)
    assert records.sessions() == []


def test_a_session_may_have_several_lanes(records):
    """Two agents of one session are two trajectories; each sees only its own turns."""
    one = open_rollout(records, "duel", agent="red")
    other = open_rollout(records, "duel", agent="blue")
    play(one, 2)
    play(other, 1)
    assert read_lane(one.session, "red").trajectory == one.trajectory
    assert read_lane(one.session, "blue").trajectory.num_assistant == 1
    assert list(one.trajectory.records[0].output)[:6] == letters("answer")
