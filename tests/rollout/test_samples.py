"""Samples: what a trainer gets, and that the arrays agree with the record."""

import numpy as np
import pytest

from onrecord.errors import AssemblyFailed, InvalidInput
from onrecord.rollout.samples import Sample, assemble, digest_of
from onrecord.rollout.trajectory import LinearTrajectory, Policy
from onrecord.rollout.turns import (
    ABORTED,
    COMPLETED,
    INCOMPLETE,
    INFRA,
    ORIGINS,
    TRUNCATED,
    ChatRequest,
    Reply,
)
from tests.rollout.reference import Turn, merged
from tests.rollout.world import (
    END,
    START,
    Letters,
    aborted,
    answer,
    ask,
    assistant,
    calling,
    conversation,
    give_up,
    letters,
    say,
    user,
    whole,
)


def listed(sample: Sample) -> tuple[list[int], list[int], list[float], str]:
    return sample.tokens.tolist(), sample.loss_mask.tolist(), sample.logprobs.tolist(), sample.status


def turns_of(trajectory: LinearTrajectory) -> list[Turn]:
    """The turns with all their input ids, computed the slow way."""
    found: list[Turn] = []
    ids: list[int] = []
    for record in trajectory.standing():
        inputs = ids[: record.keep] + list(record.prompt)
        found.append(Turn(inputs, list(record.output), list(record.logprobs), record.status))
        ids = inputs + list(record.output)
    return found


def test_a_turn_is_input_and_output():
    """Per record: tokens are input and output ids; the loss mask is 1, with logprobs, only on the output."""
    trajectory, messages = conversation(2)
    first, second = assemble(trajectory.standing(), session="s", merge=False)
    prompt, output = whole(messages[:1]), [*letters("answer 0"), END]
    assert listed(first)[:2] == (prompt + output, [0] * len(prompt) + [1] * len(output))
    assert first.logprobs[len(prompt) :].tolist() == [-0.5 - index / 8 for index in range(len(output))]
    assert not first.logprobs[: len(prompt)].any()
    assert second.tokens.tolist() == [*whole(messages[:3]), *letters("answer 1"), END]
    assert second.loss_mask.sum() == len(output)
    assert (first.index, second.index, second.session) == (0, 1, "s")
    assert [str(values.dtype) for values in (first.tokens, first.loss_mask, first.logprobs, first.provenance)] == [
        "int32",
        "uint8",
        "float32",
        "uint8",
    ]


@pytest.mark.parametrize("turns", [1, 2, 7])
def test_a_merge_is_what_merging_pair_by_pair_gives(turns):
    """Merging in one pass equals copying turn by turn, bit for bit; observations have mask 0 and logprob 0.0."""
    trajectory, _ = conversation(turns)
    (sample,) = assemble(trajectory.standing())
    assert listed(sample) == merged(turns_of(trajectory))
    assert len(sample.turn_ends) == turns
    assert sample.turn_ends[-1] == len(sample.tokens)


@pytest.mark.parametrize(("finish", "status"), [("stop", COMPLETED), ("tool_calls", COMPLETED), ("length", TRUNCATED)])
def test_how_a_turn_ended_is_its_status(finish, status):
    """Stop and tool_calls complete a turn; length truncates it."""
    trajectory, messages = conversation(1)
    say(trajectory, *messages, reply=answer("x", finish))
    (sample,) = assemble(trajectory.standing())
    assert (sample.status, sample.finish) == (status, finish)


@pytest.mark.parametrize("text", ["", None, "half"])
@pytest.mark.parametrize("turns", [0, 2])
def test_retries_exhausted_leave_an_honest_aborted_sample(text, turns):
    """An aborted sample has prior, prompt and partial ids, with mask 1 only on sampled ones; even none, or a first turn."""
    trajectory, messages = conversation(turns)
    for _ in range(3):
        give_up(trajectory, *messages, reply=aborted("other" if text else text))
    give_up(trajectory, *messages, reply=aborted(text, message=calling("{") if text else None))
    (sample,) = assemble(trajectory.standing())
    assert sample.status == ABORTED
    assert sample.tokens.tolist() == whole(messages) + letters(text or "")
    assert sample.loss_mask[len(whole(messages)) :].tolist() == [1] * len(text or "")
    assert int(sample.loss_mask.sum()) == len(text or "") + turns * len([*letters("answer 0"), END])
    assert sample.cause == "weights"
    if not turns and not text:
        assert sample.prompt_length == len(sample.tokens)


@pytest.mark.parametrize("status", [INFRA, INCOMPLETE])
def test_a_failed_last_turn_is_neither_aborted_nor_completed(status):
    """A turn without a reply ends the sample with its own status and its prompt, and no sampled ids."""
    trajectory, messages = conversation(2)
    trajectory.note_failure(trajectory.failed_record(ask(trajectory, *messages), status, "down"))
    (sample,) = assemble(trajectory.standing())
    assert (sample.status, sample.cause) == (status, "down")
    assert sample.tokens.tolist() == whole(messages)


def test_the_merge_stops_at_and_includes_the_first_turn_that_is_not_completed():
    """Turns after a truncated turn are not merged with it."""
    trajectory, messages = conversation(1)
    say(trajectory, *messages, reply=answer("cut", "length"))
    more = [*messages, assistant("cut"), user("go on")]
    say(trajectory, *more, reply=answer("more"))
    give_up(trajectory, *more, assistant("more"), user("and"), reply=aborted("half"))
    (sample,) = assemble(trajectory.standing())
    assert sample.status == TRUNCATED
    assert sample.tokens.tolist() == whole(messages) + letters("cut")
    assert listed(sample) == merged(turns_of(trajectory))
    assert [one.status for one in assemble(trajectory.standing(), merge=False)] == [
        COMPLETED,
        TRUNCATED,
        COMPLETED,
        ABORTED,
    ]


def test_weight_versions_are_kept_as_spans():
    """Samples say which weights sampled which tokens, even if they changed within a turn; prompts belong to none."""
    trajectory = LinearTrajectory()
    say(trajectory, user("a"), reply=answer("bcd", weight_versions=[("v1", 2), ("v2", 2)]))
    say(trajectory, user("a"), assistant("bcd"), user("e"), reply=answer("f", weight_versions=[("v2", 2)]))
    (sample,) = assemble(trajectory.standing())
    first = len(whole([user("a")]))
    last = len(sample.tokens)
    assert sample.weight_versions == [("v1", first, first + 2), ("v2", first + 2, first + 4), ("v2", last - 2, last)]
    for _version, start, end in sample.weight_versions:
        assert sample.loss_mask[start:end].all()
    assert sum(end - start for _version, start, end in sample.weight_versions) == sample.loss_mask.sum()


def test_every_token_says_where_it_comes_from():
    """Sampled, template, injected and repaired tokens are distinguished; mask 1 is exactly on the sampled ones."""
    trajectory = LinearTrajectory(Policy(appended_roles=frozenset({"user", "assistant"})))
    say(trajectory, user("a"), reply=answer("b"))
    say(trajectory, user("a"), assistant("b"), assistant("put in"), user("c"), reply=answer("d"))
    (sample,) = assemble(trajectory.standing())
    names = [ORIGINS[number] for number in sample.provenance]
    assert ((sample.provenance == ORIGINS.index("sampled")) == (sample.loss_mask == 1)).all()
    at = len(whole([user("a")])) + len([*letters("b"), END])
    assert names[at] == "repaired"
    injected = [token for token, name in zip(sample.tokens.tolist(), names, strict=True) if name == "injected"]
    assert injected == Letters().message(assistant("put in"))


def trimmed(turns: int) -> tuple[LinearTrajectory, Letters]:
    """Turns in which the next prompt renders the last sampled id again."""
    tokenizer, trajectory = Letters(stop_is_start=True), LinearTrajectory(Policy(max_trim_tokens=1))
    messages = [user("a")]
    for _ in range(turns):
        reply = Reply(assistant("b"), [*letters("b"), START], [-1.0, -2.0], "stop", weight_versions=[("v", 2)])
        trajectory.update_pretokenized_state(trajectory.prepare(ChatRequest(messages), tokenizer), reply)
        messages = [*messages, assistant("b"), user("c")]
    return trajectory, tokenizer


def test_a_sampled_id_that_was_replaced_has_no_loss():
    """If a later prompt renders the end of a turn again, the replaced id is in the sample once, with mask 0."""
    trajectory, tokenizer = trimmed(3)
    (sample,) = assemble(trajectory.standing())
    messages = [user("a"), assistant("b"), user("c"), assistant("b"), user("c")]
    assert sample.tokens.tolist() == [*tokenizer.prompt(messages, None).ids, *letters("b"), START]
    assert sample.loss_mask.sum() == 4, "b, b, b and the last START"
    assert sample.logprobs[sample.loss_mask == 0].any() is np.False_
    assert sum(end - start for _version, start, end in sample.weight_versions) == 4
    assert sample.turn_ends[-1] == len(sample.tokens)
    assert all(sample.loss_mask[end - 1] for end in sample.turn_ends)


def test_truncation_leaves_out_whole_turns_first():
    """A sample that is too long ends at the last turn that fits, as TRUNCATED; a first turn that is too long is cut."""
    trajectory, _ = conversation(4)
    ends = [record.length for record in trajectory.standing()]
    for length in range(1, ends[-1] + 2):
        (sample,) = assemble(trajectory.standing(), max_seq_len=length)
        fitting = [end for end in ends if end <= length]
        assert len(sample.tokens) == (fitting[-1] if fitting else length)
        assert sample.status == (COMPLETED if length >= ends[-1] else TRUNCATED)
        assert sample.tokens.tolist() == list(trajectory.token_ids)[: len(sample.tokens)]
        assert sample.turn_ends == (fitting or [length])
    with pytest.raises(InvalidInput):
        assemble(trajectory.standing(), max_seq_len=0)


def test_truncation_never_makes_an_aborted_turn_complete():
    """An aborted turn that is cut stays ABORTED; one that is left out leaves a TRUNCATED sample."""
    alone, messages = conversation(0)
    give_up(alone, *messages, reply=aborted("half"))
    (sample,) = assemble(alone.standing(), max_seq_len=3)
    assert (sample.status, len(sample.tokens)) == (ABORTED, 3)
    trajectory, messages = conversation(1)
    give_up(trajectory, *messages, reply=aborted("half"))
    (sample,) = assemble(trajectory.standing(), max_seq_len=trajectory.length)
    assert (sample.status, len(sample.tokens)) == (TRUNCATED, trajectory.length)


def test_a_missing_side_payload_changes_no_status():
    """Side payloads are present only if every turn has them; a missing one does not make a turn COMPLETED."""
    trajectory = LinearTrajectory()
    say(trajectory, user("a"), reply=answer("b", side_payloads={"routed_experts": "AAA="}))
    (sample,) = assemble(trajectory.standing())
    assert sample.side_payloads == {"routed_experts": ["AAA="]}
    give_up(trajectory, user("a"), assistant("b"), user("c"), reply=aborted("half"))
    (sample,) = assemble(trajectory.standing())
    assert (sample.status, sample.side_payloads) == (ABORTED, {"routed_experts": None})


def test_the_digest_sees_every_bit():
    """Another token, mask, logprob, origin, status or order gives another digest; the same samples give the same."""
    trajectory, _messages = conversation(2)
    samples = assemble(trajectory.standing(), merge=False)
    digest = digest_of(samples)
    assert digest_of(assemble(trajectory.standing(), merge=False)) == digest
    assert digest_of(samples[::-1]) != digest
    for name in ("tokens", "loss_mask", "logprobs", "provenance"):
        changed = assemble(trajectory.standing(), merge=False)
        getattr(changed[0], name)[-1] += 1
        assert digest_of(changed) != digest
    changed = assemble(trajectory.standing(), merge=False)
    changed[0].status = TRUNCATED
    assert digest_of(changed) != digest


def test_nothing_on_record_makes_no_sample():
    """A rollout without a turn, and turns that do not continue one another, make no sample."""
    with pytest.raises(AssemblyFailed):
        assemble([])
    trajectory, _ = conversation(3)
    with pytest.raises(AssemblyFailed):
        assemble(trajectory.standing()[1:])
