"""The trajectory, rule by rule: prepare, commit, provisional records, lost replies."""

from array import array
from typing import Any

import pytest

from onrecord.errors import InvalidInput, TokenMismatch, TrajectoryMoved
from onrecord.rollout.trajectory import LinearTrajectory, Policy
from onrecord.rollout.turns import COMPLETED, TRUNCATED, ChatRequest, Joint, Reply, Tokenized
from tests.rollout.world import (
    END,
    LETTERS,
    NEWLINE,
    START,
    Letters,
    answer,
    ask,
    assistant,
    conversation,
    letters,
    say,
    tool,
    unmoved,
    user,
    whole,
)

# Prepare


def test_the_first_prompt_is_rendered_whole():
    """Before any turn is committed, the prompt is the whole request; few-shot answers in it are not turns."""
    trajectory = LinearTrajectory()
    shots = [user("1+1"), assistant("2"), user("2+2")]
    prepared = ask(trajectory, *shots)
    assert list(prepared.prompt_ids) == whole(shots)
    assert (prepared.base, prepared.expected_version, trajectory.num_assistant) == (0, 0, 0)
    say(trajectory, *shots, reply=answer("4"))
    assert trajectory.num_assistant == 1
    assert trajectory.anchors == [4]


def test_a_prompt_is_the_stored_ids_and_the_new_suffix():
    """Later prompts begin with the exact ids of the last answer, joined by the repair, and equal a whole rendering."""
    trajectory, messages = conversation(3)
    stored = trajectory.token_ids
    prepared = ask(trajectory, *messages)
    assert prepared.prompt_ids[: len(stored)] == stored
    assert list(prepared.prompt_ids) == whole(messages)
    assert prepared.prompt_length == len(prepared.prompt_ids)


def test_stored_ids_win_over_what_a_tokenizer_would_make_of_the_text():
    """Sampled ids are kept even if the same text would now render to others: nothing is tokenized again."""
    trajectory = LinearTrajectory()
    odd = [7_001, 7_002, END]
    say(trajectory, user("a"), reply=Reply(assistant("hello"), odd, [-1.0, -2.0, -3.0], "stop"))
    prompt = list(ask(trajectory, user("a"), assistant("hello"), user("b")).prompt_ids)
    assert prompt == [*whole([user("a")]), *odd, NEWLINE, *whole([user("b")])]


def test_prepare_is_pure():
    """Preparing changes nothing, whether it succeeds, is refused or finds a lost answer; repeating it gives the same."""
    trajectory, messages = conversation(2)
    before = unmoved(trajectory)
    assert ask(trajectory, *messages) == ask(trajectory, *messages)
    ask(trajectory, *messages[:-2])
    with pytest.raises(InvalidInput):
        ask(trajectory, user("something else"))
    assert unmoved(trajectory) == before


@pytest.mark.parametrize("rollback", [0, 1, 2, 3])
def test_a_request_may_discard_so_many_turns_and_no_more(rollback):
    """With max_rollback n, n generated turns may be discarded; one more is refused and nothing changes."""
    trajectory, messages = conversation(6, Policy(max_rollback=rollback))
    before = unmoved(trajectory)
    if rollback:
        kept = messages[: -2 * rollback]
        prepared = ask(trajectory, *kept[:-1], user("another way"))
        assert prepared.base == 6 - rollback
        assert list(prepared.prompt_ids) == whole([*kept[:-1], user("another way")])
    with pytest.raises(InvalidInput, match="discard"):
        ask(trajectory, *messages[: -2 * (rollback + 1)][:-1], user("another way"))
    assert unmoved(trajectory) == before


def test_exactly_the_first_prompt_again_starts_over():
    """However many turns there are, the first prompt again is accepted; any other early prompt is not."""
    trajectory, messages = conversation(5)
    prepared = ask(trajectory, messages[0])
    assert (prepared.base, prepared.answer) == (0, None)
    with pytest.raises(InvalidInput, match="discard 5"):
        ask(trajectory, user("question zero"))
    with pytest.raises(InvalidInput, match="discard 5"):
        ask(trajectory, messages[0], user("and another"))
    with pytest.raises(InvalidInput, match="discard 4"):
        ask(trajectory, *messages[:3])
    record = trajectory.update_pretokenized_state(prepared, answer("again"))
    assert (trajectory.num_assistant, record.base) == (1, 0)
    assert list(trajectory.token_ids) == [*whole(messages[:1]), *letters("again"), END]


def test_a_first_prompt_of_many_messages_again_starts_over():
    """The first prompt is the whole first request, few-shot answers included; a part of it is another prompt."""
    trajectory = LinearTrajectory()
    shots = [user("1+1"), assistant("2"), user("2+2")]
    say(trajectory, *shots, reply=answer("4"))
    say(trajectory, *shots, assistant("4"), user("3+3"), reply=answer("6"))
    assert ask(trajectory, *shots).base == 0
    with pytest.raises(InvalidInput, match="discard 2"):
        ask(trajectory, *shots[:1])


def test_what_is_committed_after_a_rollback_replaces_what_was_discarded():
    """After a retry from an earlier turn is committed, messages, ids, anchors and records are as if it came first."""
    trajectory, messages = conversation(3)
    other = [*messages[:-3], user("question 2, better")]
    say(trajectory, *other, reply=answer("better"))
    expected, _ = conversation(2)
    say(expected, *other, reply=answer("better"))
    assert trajectory.token_ids == expected.token_ids
    assert trajectory.messages == expected.messages
    assert (trajectory.anchors, trajectory.records) == (expected.anchors, expected.records)


def test_appended_roles_must_be_allowed():
    """After a generated turn only allowed roles may follow; the error names them and nothing changes."""
    trajectory, messages = conversation(1)
    before = unmoved(trajectory)
    for message in (assistant("injected"), {"role": "critic", "content": "x"}, {"content": "x"}, {"role": 3}):
        with pytest.raises(InvalidInput):
            ask(trajectory, *messages, message)
    assert unmoved(trajectory) == before
    ask(trajectory, *messages, {"role": "developer", "content": "x"}, tool("y"), {"role": "system", "content": "z"})
    narrow, messages = conversation(1, Policy(appended_roles=frozenset({"tool"})))
    with pytest.raises(InvalidInput) as refused:
        ask(narrow, *messages)
    assert refused.value.hint == "allowed roles: tool"


def test_an_injected_answer_is_history_and_no_checkpoint():
    """If assistant messages may be appended, they become prompt ids marked as injected, and do not count as turns."""
    trajectory, messages = conversation(1, Policy(appended_roles=frozenset({"user", "assistant"})))
    injected = [*messages, assistant("as if I had said"), user("go on")]
    record = say(trajectory, *injected, reply=answer("fine"))
    assert trajectory.num_assistant == 2
    assert [mark for mark, _count in record.origins] == ["repaired", "template", "injected", "template"]
    assert sum(count for _mark, count in record.origins) == len(record.prompt)
    assert dict(record.origins)["injected"] == len(LETTERS.message(assistant("as if I had said")))


def test_an_edited_answer_is_not_taken_for_ours():
    """An answer that a client sends back changed is not appended in the assistant's name."""
    trajectory, messages = conversation(2)
    before = unmoved(trajectory)
    with pytest.raises(InvalidInput, match=r"message 3 is a generated turn.*content"):
        ask(trajectory, *messages[:3], assistant("answer 1, edited"), user("go on"))
    assert unmoved(trajectory) == before


@pytest.mark.parametrize("messages", [[], ["text"], [None], [user("question 0"), 7]])
def test_a_request_is_messages(messages):
    """An empty request, or one that is not made of messages, is refused."""
    trajectory, _ = conversation(1)
    with pytest.raises(InvalidInput):
        trajectory.prepare(ChatRequest(messages), LETTERS)


def test_a_request_that_ends_with_the_answer_asks_nothing():
    """Sending back the conversation up to an answer leaves nothing to answer."""
    trajectory, messages = conversation(2)
    with pytest.raises(InvalidInput, match="nothing to answer"):
        ask(trajectory, *messages[:-1])


def test_what_cannot_be_recorded_is_refused_before_anything_happens():
    """NaN, half a character and objects that are not JSON are refused in prepare."""
    unrecordable: list[Any] = [float("nan"), "\ud800", [{"x": object()}], {1: 2}]
    for content in unrecordable:
        with pytest.raises(InvalidInput):
            ask(LinearTrajectory(), user("a") | {"content": content})


def test_ids_are_checked_when_they_come_in():
    """Negative, too large or non-integer ids are refused, from a tokenizer and from an engine."""

    class Broken(Letters):
        ids: Any

        def prompt(self, messages, tools):
            return Tokenized(self.ids)

    wrong: list[Any] = [[-1], [1 << 31], ["1"], [1.5]]
    for ids in wrong:
        broken = Broken()
        broken.ids = ids
        with pytest.raises(InvalidInput):
            LinearTrajectory().prepare(ChatRequest([user("a")]), broken)
        trajectory = LinearTrajectory()
        with pytest.raises(InvalidInput):
            say(trajectory, user("a"), reply=Reply(assistant("b"), ids, [-1.0], "stop"))
        assert trajectory.version == 0


def test_tools_are_rendered_with_the_first_prompt():
    """Tools reach the tokenizer with the request."""
    tools = [{"type": "function", "function": {"name": "f"}}]
    with_tools = ask(LinearTrajectory(), user("a"), tools=tools)
    assert len(with_tools.prompt_ids) > len(whole([user("a")]))
    assert with_tools.fingerprint != ask(LinearTrajectory(), user("a")).fingerprint


# Requests that name the turn they follow


def test_a_request_may_say_which_turn_it_follows():
    """The messages before that turn may be left out: the request means the same as the whole conversation."""
    trajectory, messages = conversation(3)
    assert trajectory.last == trajectory.records[-1]
    assert ask(trajectory, messages[-1], after=trajectory.last) == ask(trajectory, *messages)
    first = trajectory.records[0]
    assert ask(trajectory, *messages[2:], after=first) == ask(trajectory, *messages)


def test_a_request_that_follows_an_earlier_turn_is_a_rollback():
    """It discards later turns, within the limit."""
    trajectory, messages = conversation(3)
    _first, second, _third = trajectory.records
    assert ask(trajectory, user("else"), after=second) == ask(trajectory, *messages[:4], user("else"))
    before = unmoved(trajectory)
    with pytest.raises(InvalidInput, match="would discard 2 generated turns"):
        ask(trajectory, user("else"), after=trajectory.records[0])
    assert unmoved(trajectory) == before


def test_a_lost_reply_is_found_by_what_follows_too():
    """The last request again, naming the turn before it, gets its recorded answer."""
    trajectory, messages = conversation(1)
    first = trajectory.last
    say(trajectory, *messages, reply=answer("lost", response="the very body"))
    assert ask(trajectory, messages[-1], after=first).answer == "the very body"


def test_what_follows_a_turn_that_is_gone_is_refused():
    """If another turn replaced it, the request is refused: it would silently continue from something else."""
    trajectory, messages = conversation(2)
    gone = trajectory.last
    say(trajectory, *messages[:2], user("else"), reply=answer("another"))
    before = unmoved(trajectory)
    for turn in (gone, conversation(3)[0].last):
        with pytest.raises(TrajectoryMoved, match=r"is not \(or no longer\) committed here") as refused:
            ask(trajectory, user("on"), after=turn)
        assert refused.value.head == trajectory.head
    assert unmoved(trajectory) == before
    assert LinearTrajectory().last is None


def test_an_equal_turn_of_another_history_is_refused():
    """If the turn before it was replaced by one of the same length, an equal reply after it is still another turn."""
    trajectory = LinearTrajectory(Policy(max_rollback=2))
    say(trajectory, user("a"), reply=answer("one"))
    second = say(trajectory, user("a"), assistant("one"), user("b"), reply=answer("same"))
    say(trajectory, user("a"), reply=answer("two"))
    again = say(trajectory, user("a"), assistant("two"), user("b"), reply=answer("same"))
    assert again == second
    with pytest.raises(TrajectoryMoved):
        ask(trajectory, user("c"), after=second)
    assert ask(trajectory, user("c"), after=again).base == 2


def test_what_follows_must_say_something_and_by_who_may_speak():
    """The rules for whole requests apply to the new messages."""
    trajectory, _messages = conversation(2)
    with pytest.raises(InvalidInput, match="at least one message"):
        ask(trajectory, after=trajectory.last)
    with pytest.raises(InvalidInput, match="cannot follow a generated turn"):
        ask(trajectory, assistant("I go on"), after=trajectory.last)
    with pytest.raises(InvalidInput, match="is a recorded answer; there is nothing to answer"):
        ask(trajectory, user("question 1"), assistant("answer 1"), after=trajectory.records[0])


# Commit


def test_a_commit_advances_everything_together():
    """Messages, ids, anchor, record and version change with a commit, and only then."""
    trajectory = LinearTrajectory()
    reply = answer("hi", weight_versions=[("v1", 1), ("v1", 1), ("v2", 1)], response_id="r1", side_payloads={"e": [1]})
    record = say(trajectory, user("hello"), reply=reply)
    assert trajectory.messages == [user("hello"), assistant("hi")]
    assert list(trajectory.token_ids) == [*whole([user("hello")]), *letters("hi"), END]
    assert (trajectory.num_assistant, trajectory.anchors, trajectory.version) == (1, [2], 1)
    assert trajectory.records == [record]
    assert (record.status, record.finish, record.base, record.length) == (COMPLETED, "stop", 0, trajectory.length)
    assert record.weight_versions == (("v1", 2), ("v2", 1))
    assert (record.response_id, record.side_payloads) == ("r1", {"e": [1]})
    assert (list(record.output), record.logprobs) == ([*letters("hi"), END], array("f", [-0.5, -0.625, -0.75]))


def test_a_commit_on_a_moved_trajectory_is_a_conflict_that_carries_the_head():
    """A reply prepared on an older version is refused, never skipped silently; the error has the present head."""
    trajectory, messages = conversation(2)
    first, second = ask(trajectory, *messages), ask(trajectory, *messages)
    trajectory.update_pretokenized_state(first, answer("mine"))
    before = unmoved(trajectory)
    with pytest.raises(TrajectoryMoved) as refused:
        trajectory.update_pretokenized_state(second, answer("theirs"))
    assert refused.value.head == trajectory.head
    assert refused.value.head["version"] == 3
    assert refused.value.retryable
    assert unmoved(trajectory) == before


@pytest.mark.parametrize("finish", ["abort", "error", "", "content_filter"])
def test_only_an_answer_is_committed(finish):
    """A reply that did not end with an answer is not committed, and neither is one without a message."""
    trajectory = LinearTrajectory()
    prepared = ask(trajectory, user("a"))
    with pytest.raises(InvalidInput):
        trajectory.update_pretokenized_state(prepared, answer("b", finish))
    with pytest.raises(InvalidInput, match="message"):
        trajectory.update_pretokenized_state(prepared, Reply(None, [1], [-1.0], "stop"))
    wrong: Any = "hello"
    with pytest.raises(InvalidInput, match="JSON object"):
        trajectory.update_pretokenized_state(prepared, Reply(wrong, [1], [-1.0], "stop"))
    assert trajectory.version == 0


def test_lengths_must_agree():
    """Wrong numbers of logprobs, weight versions that do not cover the ids, and NaN are refused; nothing changes."""
    trajectory = LinearTrajectory()
    prepared = ask(trajectory, user("a"))
    for reply in (
        Reply(assistant("b"), [1, 2], [-1.0], "stop"),
        Reply(assistant("b"), [1], [], "stop"),
        Reply(assistant("b"), [1, 2], [-1.0, -1.0], "stop", weight_versions=[("v1", 3)]),
        Reply(assistant("b"), [1], [float("nan")], "stop"),
        Reply(assistant("b"), [1], ["-1"], "stop"),  # type: ignore[list-item]  # on purpose
    ):
        with pytest.raises(InvalidInput):
            trajectory.update_pretokenized_state(prepared, reply)
    assert trajectory.version == 0


def test_truncated_answers_are_committed_as_truncated():
    """An answer cut at the length limit counts as a turn, with its own status."""
    trajectory = LinearTrajectory()
    record = say(trajectory, user("a"), reply=answer("b", "length"))
    assert (record.status, trajectory.num_assistant) == (TRUNCATED, 1)
    assert list(ask(trajectory, user("a"), assistant("b"), user("c")).prompt_ids) == whole(
        [user("a"), assistant("b"), user("c")]
    ), "the repair ends what was cut"


def test_an_engine_that_rendered_the_same_prompt_changes_nothing():
    """If an engine reports the prepared prompt ids, the record is the same as without the report."""
    one, messages = conversation(2)
    other, _ = conversation(2)
    prepared = ask(one, *messages)
    one.update_pretokenized_state(prepared, answer("x", prompt_ids=list(prepared.prompt_ids)))
    other.update_pretokenized_state(ask(other, *messages), answer("x"))
    assert one == other


@pytest.mark.parametrize("trim", [0, 1, 2])
def test_stored_ids_must_be_a_prefix_up_to_the_trim(trim):
    """An engine's prompt may replace max_trim_tokens trailing ids; one more is an error with the first mismatch."""
    trajectory, messages = conversation(2, Policy(max_trim_tokens=trim))
    stored = trajectory.token_ids
    prepared = ask(trajectory, *messages)
    before = unmoved(trajectory)
    seen = list(prepared.prompt_ids)
    seen[len(stored) - trim - 1] = 9_999
    with pytest.raises(TokenMismatch) as refused:
        trajectory.update_pretokenized_state(prepared, answer("x", prompt_ids=seen))
    assert refused.value.index == len(stored) - trim - 1
    assert "9999" in str(refused.value)
    assert unmoved(trajectory) == before
    if trim:
        seen = list(prepared.prompt_ids)
        seen[len(stored) - trim] = 9_999
        record = trajectory.update_pretokenized_state(prepared, answer("x", prompt_ids=seen))
        assert (record.keep, record.origins[0]) == (len(stored) - trim, ("repaired", trim))
        assert list(trajectory.token_ids) == [*seen, *letters("x"), END]


def test_a_prompt_that_is_cut_short_is_a_mismatch():
    """An engine whose prompt ends inside the stored ids did not see the conversation."""
    trajectory, messages = conversation(2)
    prepared = ask(trajectory, *messages)
    for length in (0, 5, trajectory.length - 1):
        with pytest.raises(TokenMismatch) as refused:
            trajectory.update_pretokenized_state(prepared, answer("x", prompt_ids=list(prepared.prompt_ids)[:length]))
        assert refused.value.index == length


def test_a_repair_may_leave_out_no_more_than_the_trim():
    """A boundary repair that drops stored ids needs max_trim_tokens; then the dropped id is in no later prompt."""
    tokenizer = Letters(stop_is_start=True)

    def turn(trajectory, messages, text):
        reply = Reply(assistant(text), [*letters(text), START], [-1.0] * (len(text) + 1), "stop")
        return trajectory.update_pretokenized_state(trajectory.prepare(ChatRequest(messages), tokenizer), reply)

    messages = [user("a")]
    for trim in (0, 1):
        trajectory = LinearTrajectory(Policy(max_trim_tokens=trim))
        turn(trajectory, messages, "b")
        more = [*messages, assistant("b"), user("c")]
        if not trim:
            with pytest.raises(TokenMismatch):
                trajectory.prepare(ChatRequest(more), tokenizer)
            continue
        expected = list(tokenizer.prompt(more, None).ids)
        assert list(trajectory.prepare(ChatRequest(more), tokenizer).prompt_ids) == expected
        turn(trajectory, more, "d")
        turn(trajectory, [*more, assistant("d"), user("e")], "f")
        again = trajectory.prepare(ChatRequest([*more, assistant("d"), user("other")]), tokenizer)
        assert list(again.prompt_ids) == list(tokenizer.prompt([*more, assistant("d"), user("other")], None).ids)


def test_a_repair_is_shown_the_last_ids_only():
    """However long the sequence, a repair sees its end, assembled from as many turns as necessary."""
    shown = []

    class Looking(Letters):
        def repair(self, tail, suffix):
            shown.append(list(tail))
            return Joint()

    for reply in ("y" * 3, "y" * 200):
        trajectory = LinearTrajectory()
        messages = [user("x")]
        for _ in range(9):
            prepared = trajectory.prepare(ChatRequest(messages), Looking())
            if trajectory.num_assistant:
                assert shown[-1] == list(trajectory.token_ids)[-64:]
            trajectory.update_pretokenized_state(prepared, answer(reply))
            messages = [*messages, assistant(reply), user("")]


@pytest.mark.parametrize("policy", [Policy(max_rollback=9), Policy(max_rollback=-1), Policy(max_trim_tokens=65)])
def test_a_policy_has_limits(policy):
    """The values of a policy are bounded."""
    with pytest.raises(InvalidInput):
        LinearTrajectory(policy)


def test_memory_is_the_tokens():
    """After 200 turns at most 1.1 integers are stored per token, however long the conversation is."""
    trajectory, _ = conversation(200)
    stored = sum(len(record.prompt) + len(record.output) for record in trajectory.records)
    assert stored <= 1.1 * len(trajectory.token_ids)
