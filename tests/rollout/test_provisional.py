"""Turns without a commit: provisional records, failures, and replies that never reached the client."""

import pytest

from onrecord.errors import InvalidInput, TrajectoryMoved
from onrecord.rollout.trajectory import LinearTrajectory, Policy
from onrecord.rollout.turns import ABORTED, COMPLETED, INCOMPLETE, INFRA
from tests.rollout.world import (
    aborted,
    answer,
    ask,
    assistant,
    calling,
    conversation,
    give_up,
    letters,
    say,
    unmoved,
    user,
    whole,
)

# Provisional records


def test_a_provisional_record_moves_nothing_but_the_version():
    """An aborted turn is at the tail: committed count, ids and messages are unchanged, the version is new."""
    trajectory, messages = conversation(2)
    before = (trajectory.num_assistant, trajectory.token_ids, list(trajectory.messages), trajectory.anchors)
    record = give_up(trajectory, *messages, reply=aborted("half", weight_versions=[("v7", 4)]))
    assert (trajectory.num_assistant, trajectory.token_ids, trajectory.messages, trajectory.anchors) == before
    assert (trajectory.version, trajectory.provisional, trajectory.records[-1]) == (3, record, record)
    assert (record.base, record.status, record.cause, record.weight_versions) == (2, ABORTED, "weights", (("v7", 4),))
    assert (list(record.output), len(record.logprobs)) == (letters("half"), 4)
    assert record.fingerprint == ask(trajectory, *messages).fingerprint


def test_the_aborted_output_is_no_context_for_the_retry():
    """The retry's prompt equals the prompt of the aborted turn, bit for bit."""
    trajectory, messages = conversation(2)
    first = ask(trajectory, *messages)
    give_up(trajectory, *messages, reply=aborted("half"))
    assert ask(trajectory, *messages).prompt_ids == first.prompt_ids


def test_success_supersedes_the_abort():
    """A commit drops the provisional turn; except for the version, the result is the same as without any abort."""
    trajectory, messages = conversation(2)
    plain, _ = conversation(2)
    for _ in range(3):
        give_up(trajectory, *messages, reply=aborted("half"))
        assert len(trajectory.records) == 3, "two aborts in a row leave one provisional in the view"
    say(trajectory, *messages, reply=answer("whole"))
    say(plain, *messages, reply=answer("whole"))
    assert trajectory.provisional is None
    assert trajectory.records == plain.records
    assert trajectory.token_ids == plain.token_ids
    assert (trajectory.version, plain.version) == (6, 3)


def test_no_record_but_the_last_is_ever_aborted():
    """After any number of aborts, a consumer sees at most one ABORTED record, and it is the last."""
    trajectory = LinearTrajectory()
    messages = [user("0")]
    for number in range(6):
        for _ in range(number % 3):
            give_up(trajectory, *messages, reply=aborted("half"))
            assert [record.status for record in trajectory.records] == [COMPLETED] * number + [ABORTED]
        say(trajectory, *messages, reply=answer("x"))
        assert [record.status for record in trajectory.records] == [COMPLETED] * (number + 1)
        messages += [assistant("x"), user("y")]


def test_a_retry_with_another_suffix_supersedes_it_too():
    """The turn after an abort may have another request; it still supersedes the abort."""
    trajectory, messages = conversation(1)
    give_up(trajectory, *messages, reply=aborted("half"))
    say(trajectory, *messages[:-1], user("something else"), reply=answer("whole"))
    assert trajectory.provisional is None
    assert trajectory.messages[-2:] == [user("something else"), assistant("whole")]


def test_a_rollback_drops_it():
    """Rolling back to an earlier turn drops a provisional record that was built on the later one."""
    trajectory, messages = conversation(2)
    give_up(trajectory, *messages, reply=aborted("half"))
    say(trajectory, *messages[:-3], user("differently"), reply=answer("x"))
    assert (trajectory.provisional, trajectory.num_assistant) == (None, 2)


def test_a_rollback_that_is_aborted_leaves_what_is_committed():
    """An aborted retry from an earlier turn discards nothing; in the samples it follows the turn it was built on."""
    trajectory, messages = conversation(3)
    ids = trajectory.token_ids
    record = give_up(trajectory, *messages[:-3], user("differently"), reply=aborted("half"))
    assert (trajectory.num_assistant, trajectory.token_ids, record.base) == (3, ids, 2)
    assert [turn.status for turn in trajectory.standing()] == [COMPLETED, COMPLETED, ABORTED]


@pytest.mark.parametrize("how", ["aborted", "failed"])
def test_a_rollback_without_a_token_replaces_nothing(how):
    """The committed turn is still the answer to its request, so it is in the samples."""
    trajectory, messages = conversation(3)
    before = trajectory.standing()
    if how == "aborted":
        give_up(trajectory, *messages[:-3], user("differently"), reply=aborted(""))
    else:
        prepared = ask(trajectory, *messages[:-3], user("differently"))
        trajectory.note_failure(trajectory.failed_record(prepared, INFRA, "down"))
    assert trajectory.standing() == before
    assert [turn.status for turn in before] == [COMPLETED] * 3


def test_a_commit_racing_with_an_abort_is_a_conflict():
    """A reply prepared before the provisional record was added is refused."""
    trajectory, messages = conversation(1)
    prepared = ask(trajectory, *messages)
    give_up(trajectory, *messages, reply=aborted("half"))
    before = unmoved(trajectory)
    with pytest.raises(TrajectoryMoved):
        trajectory.update_pretokenized_state(prepared, answer("late"))
    with pytest.raises(TrajectoryMoved):
        trajectory.provisional_record(prepared, aborted("later"))
    assert unmoved(trajectory) == before


@pytest.mark.parametrize("text", ["", None, "half"])
@pytest.mark.parametrize("turns", [0, 2])
def test_an_abort_may_have_no_tokens_and_may_be_the_first_turn(text, turns):
    """Zero partial tokens, no message at all, and an abort on the first turn are ordinary records."""
    trajectory, messages = conversation(turns)
    record = give_up(trajectory, *messages, reply=aborted(text))
    assert (record.base, len(record.output), trajectory.num_assistant) == (turns, len(text or ""), turns)
    assert record.keep + len(record.prompt) == len(whole(messages))
    say(trajectory, *messages, reply=answer("x"))
    assert trajectory.num_assistant == turns + 1


def test_an_abort_keeps_its_tool_calls():
    """An aborted reply keeps its tool calls on record and is still aborted."""
    trajectory, messages = conversation(1)
    said = calling('{"q": 1')
    record = give_up(trajectory, *messages, reply=aborted("half", message=said))
    assert (record.status, record.message) == (ABORTED, said)
    assert trajectory.messages[-1]["content"] == "answer 0"


def test_only_aborted_records_are_provisional():
    """A completed reply cannot be provisional, and a provisional record must build on committed turns."""
    trajectory, messages = conversation(1)
    prepared = ask(trajectory, *messages)
    with pytest.raises(InvalidInput):
        trajectory.provisional_record(prepared, answer("x"))
    with pytest.raises(InvalidInput):
        trajectory.append_provisional_record(trajectory.committed_record(prepared, answer("x")))


# Failures


@pytest.mark.parametrize("status", [INFRA, INCOMPLETE])
def test_a_failed_call_leaves_the_view_where_it_was(status):
    """A turn without a reply changes nothing, not even the version, and keeps an earlier abort."""
    trajectory, messages = conversation(2)
    for standing in (None, aborted("half")):
        if standing:
            give_up(trajectory, *messages, reply=standing)
        before = (trajectory.head, trajectory.records, trajectory.token_ids, list(trajectory.messages))
        prepared = ask(trajectory, *messages)
        trajectory.note_failure(trajectory.failed_record(prepared, status, "connection refused"))
        assert (trajectory.head, trajectory.records, trajectory.token_ids, trajectory.messages) == before
        assert trajectory.standing()[-1].status == (ABORTED if standing else status)
    trajectory.update_pretokenized_state(prepared, answer("x"))
    assert trajectory.standing()[-1].status == COMPLETED


# Lost replies


def test_a_lost_reply_is_given_again():
    """The same request on the same base gets the committed answer, byte for byte, without a generation."""
    trajectory, messages = conversation(2, Policy(new_tools=True))
    response = '{"id": "r",  "choices": []}\n'
    say(trajectory, *messages, reply=answer("x", response=response))
    assert ask(trajectory, *messages).answer == response
    assert ask(trajectory, *messages, options={"temperature": 1}).answer is None, "another request"
    assert ask(trajectory, *messages, tools=[{"type": "function"}]).answer is None, "another request"
    assert ask(trajectory, *messages[:-1], user("else")).answer is None, "another request"


def test_an_answer_without_a_body_is_its_message():
    """Without a response body, the answer is the message as JSON."""
    trajectory = LinearTrajectory()
    say(trajectory, user("a"), reply=answer("b"))
    assert ask(trajectory, user("a")).answer == '{"content":"b","role":"assistant"}'


def test_an_answer_that_was_built_upon_is_not_lost():
    """Once a turn was built on the answer, committed or not, repeating the request means another generation."""
    for build in (
        lambda trajectory, more: say(trajectory, *more, reply=answer("y")),
        lambda trajectory, more: give_up(trajectory, *more, reply=aborted("half")),
        lambda trajectory, more: trajectory.note_failure(
            trajectory.failed_record(ask(trajectory, *more), INFRA, "down")
        ),
    ):
        trajectory, messages = conversation(1)
        say(trajectory, *messages, reply=answer("x", response="body"))
        assert ask(trajectory, *messages).answer == "body"
        build(trajectory, [*messages, assistant("x"), user("next")])
        if trajectory.num_assistant == 2:
            assert ask(trajectory, *messages).answer is None
            assert ask(trajectory, *messages).base == 1


def test_a_lost_first_reply_is_not_a_new_start():
    """The first prompt again gets its answer while nothing was built on it; later it starts over."""
    trajectory = LinearTrajectory()
    say(trajectory, user("a"), reply=answer("b", response="body"))
    assert ask(trajectory, user("a")).answer == "body"
    say(trajectory, user("a"), assistant("b"), user("c"), reply=answer("d", response="other"))
    assert ask(trajectory, user("a")).answer is None
