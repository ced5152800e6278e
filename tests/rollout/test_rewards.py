"""Rewards, groups and metadata on record, and samples in the form of each trainer."""

import dataclasses
import json
import re
from typing import Any

import numpy as np
import pyarrow.parquet as pq  # type: ignore[import-untyped]  # it ships no types
import pytest

import onrecord
from onrecord.errors import Conflict, InvalidInput, SessionRetired
from onrecord.rollout.recording import Rollout, open_rollout, read_lane, record_reward
from onrecord.rollout.samples import Sample
from onrecord.rollout.trainers import TRAINERS, lines, split, token_versions, turn_ranges
from onrecord.rollout.writing import pieces
from tests.rollout.world import aborted, assistant, begin, letters, play, tool, user


@pytest.fixture
def records(tmp_path):
    with onrecord.connect(str(tmp_path / "store.db"), project="p") as records:
        yield records


@pytest.fixture
def rollout(records):
    return open_rollout(records, "task-17", metadata={"group": "g1", "seed": 3})


def test_a_reward_is_recorded_once(records, rollout):
    """The same reward again changes nothing; another value is a conflict; other names stand beside it."""
    play(rollout, 2)
    assert rollout.reward(1.0) is True
    before = rollout.session.log.head().position
    assert rollout.reward(1) is False
    assert rollout.session.log.head().position == before
    with pytest.raises(Conflict, match="is 1 on record, not 0"):
        rollout.reward(0.0)
    assert rollout.reward(0.5, turn=1) is True
    assert rollout.reward(-2.0, name="length-penalty") is True
    assert read_lane(records.get("task-17", agent="policy")).rewards == rollout.lane.rewards
    (sample,) = (rollout.freeze(), rollout.samples())[1]
    assert (sample.reward, sample.turn_rewards) == (1.0, [None, 0.5])
    assert sample.rewards == {"reward": 1.0, "length-penalty": -2.0}
    assert (sample.group, sample.metadata["seed"]) == ("g1", 3)


@pytest.mark.parametrize("wrong", [True, None, "1", float("nan"), float("inf"), pytest.param(10**400, id="huge")])
def test_a_reward_is_a_finite_number(rollout, wrong):
    """Everything else is refused, and so is a turn that is not committed."""
    with pytest.raises(InvalidInput, match="has no committed turn"):
        rollout.reward(1.0, turn=0)
    play(rollout, 1)
    with pytest.raises(InvalidInput):
        rollout.reward(wrong)
    with pytest.raises(InvalidInput, match="turns 0 to 0"):
        rollout.reward(1.0, turn=1)


def test_a_branch_has_rewards_of_its_own(records, rollout):
    """Rewards that the trunk had before do not count for a branch, and do not stand in the way of its own."""
    messages = play(rollout, 1)
    assert (rollout.reward(1.0), rollout.reward(0.5, turn=0)) == (True, True)
    play(rollout, 1, messages)
    for name, reward in (("same", 1.0), ("other", 0.25)):
        branched = open_rollout(records, rollout.branch(name).id)
        assert (branched.reward(reward), branched.reward(reward)) == (True, False)
        assert branched.reward(0.5, turn=0) is True
        branched.freeze()
        (sample,) = branched.samples()
        assert (sample.rewards, sample.turn_rewards) == ({"reward": reward}, [0.5, None])
    assert rollout.lane.rewards[0, "reward"] == 1.0


def test_a_reward_of_an_earlier_log_is_still_recorded_once(rollout):
    """Its event has an id without the session: it is on record all the same."""
    play(rollout, 1)
    log = rollout.session.log
    data = {"agent": "policy", "name": "reward", "reward": 1.0}
    log.append(log.draft("reward.recorded", data, id="reward/policy/0/reward"))
    before = log.head().position
    assert rollout.reward(1.0) is False
    with pytest.raises(Conflict, match="is 1 on record"):
        rollout.reward(0.0)
    assert log.head().position == before


def test_two_rewards_at_the_same_moment(records, rollout):
    """The one that comes later is a conflict with the recorded one, and its lane has all that came before it."""
    play(rollout, 1)
    sessions = [records.get("task-17", agent="policy") for _judge in range(2)]
    lanes = [read_lane(session) for session in sessions]
    play(rollout, 1, [user("question"), assistant("answer 0"), tool("result")])
    assert record_reward(sessions[0], lanes[0], 1.0) is True
    assert len(lanes[0].commits) == 2
    with pytest.raises(Conflict, match="is 1 on record, not 0") as refused:
        record_reward(sessions[1], lanes[1], 0.0)
    assert (refused.value.code, "another name" in str(refused.value.hint)) == ("conflict", True)
    assert rollout.refresh().lane.rewards == {(0, "reward"): 1.0}


def test_a_late_reward_reaches_the_frozen_samples(records, rollout):
    """A judge without the lease may add a reward after the freeze; the digest stays; after the end it is refused."""
    play(rollout, 1)
    frozen = rollout.freeze()
    judge = Rollout(records.get("task-17", agent="policy"))
    assert judge.reward(0.25) is True
    rollout.refresh()
    (sample,) = rollout.samples()
    assert (sample.reward, rollout.lane.frozen) == (0.25, frozen)
    rollout.acknowledge(frozen.digest)
    rollout.retire()
    with pytest.raises(SessionRetired):
        judge.reward(1.0, name="late")


def test_the_reward_of_a_discarded_turn_is_not_that_of_the_next(rollout):
    """A reward belongs to the turn it was given for, also if another turn takes its number."""
    messages = play(rollout, 2)
    rollout.reward(1.0, turn=1)
    intent = begin(rollout, [*messages[:2], {"role": "tool", "content": "other", "tool_call_id": "c1"}])
    rollout.abort(intent, aborted("half"))
    play(rollout, 1, [*messages[:2], {"role": "tool", "content": "other", "tool_call_id": "c1"}])
    rollout.freeze()
    (sample,) = rollout.samples()
    assert sample.turn_rewards == [None, None]


@pytest.mark.parametrize(("group", "expected"), [(0, "0"), (7, "7"), ("", ""), (None, "")])
def test_a_group_may_be_a_number(records, group, expected):
    """Number 0 is a group like any other."""
    rollout = open_rollout(records, "numbered", metadata={"group": group})
    play(rollout, 1)
    rollout.freeze()
    assert [sample.group for sample in rollout.samples()] == [expected]


@pytest.fixture
def samples(records):
    """Samples of two sessions of one group, the second one aborted."""
    found = []
    for name, reward in (("a", 1.0), ("b", 0.0)):
        rollout = open_rollout(records, name, metadata={"group": "g1"})
        messages = play(rollout, 2)
        if name == "b":
            rollout.abort(begin(rollout, messages), aborted("ha", weight_versions=[("v1", 2)]))
        rollout.reward(reward)
        rollout.freeze()
        found += rollout.samples()
    for sample in found:
        sample.weight_versions = [("7", start, end) for _version, start, end in sample.weight_versions]
    return found


FIELDS = {
    "slime": "index group_index tokens response_length loss_mask rollout_log_probs reward status metadata "
    "weight_versions",
    "verl": "prompt_ids response_ids response_mask response_logprobs reward_score num_turns metrics extra_fields",
    "prime-rl": "token_ids mask logprobs temperatures env_name reward",
    "areal": "input_ids loss_mask logprobs versions attention_mask rewards",
    "openrlhf": "prompt label observation_tokens action_ranges rollout_log_probs reward scores extra_logs truncated",
    "skyrl": "prompt_token_ids response_ids rewards loss_masks stop_reasons rollout_logprobs rollout_metrics",
    "trl": "prompt_ids completion_ids logprobs env_mask reward",
}
"""The documented fields of each framework that a rollout fills."""


@pytest.mark.parametrize("name", FIELDS)
def test_each_trainer_gets_its_fields(samples, name):
    """Every field is there, as JSON, and every list of tokens, masks and logprobs has the same length."""
    made: Any = TRAINERS[name](samples)
    rows = made if isinstance(made, list) else [{key: value and value[0] for key, value in made.items()}]
    for row in rows:
        assert set(row) == set(FIELDS[name].split())
        json.dumps(row)
        lengths = {
            len(value) for key, value in row.items()
            if isinstance(value, list) and re.search("response_(ids|mask|log)|completion|env|logprobs$|loss_masks", key)
        }  # fmt: skip
        assert len(lengths) <= 1


def test_what_trainers_get_is_what_was_sampled(samples):
    """The sampled ids, in order, are exactly those with mask 1, in the form of every trainer."""
    first, second = samples
    said = [*letters("answer 0"), 2, *letters("answer 1"), 2]
    prompt, response, mask, logprobs = split(first)
    assert [id for id, one in zip(response, mask, strict=True) if one] == said
    assert prompt + response == first.tokens.tolist()
    assert all((score != 0) == bool(one) for score, one in zip(logprobs, mask, strict=True))
    ranges = turn_ranges(first)
    assert [id for start, end in ranges for id in first.tokens[start:end].tolist()] == said
    slime, aborted_one = TRAINERS["slime"](samples)
    assert (slime["group_index"], aborted_one["group_index"]) == (0, 0)
    assert (slime["status"], aborted_one["status"]) == ("completed", "aborted")
    assert slime["response_length"] == len(slime["loss_mask"]) == len(slime["rollout_log_probs"])
    versions = token_versions(first)
    assert {version for version, one in zip(versions, first.loss_mask, strict=True) if one} == {7}
    assert set(versions) == {7, -1}
    (one, two), *_ = TRAINERS["agent-lightning"](samples)
    assert (one["reward"], two["reward"]) == (None, 1.0)
    assert two["prompt"]["token_ids"][: len(one["prompt"]["token_ids"])] == one["prompt"]["token_ids"]
    assert TRAINERS["skyrl"](samples)["rewards"] == [1.0, 0.0]
    assert len(TRAINERS["verl"]([second])[0]["response_ids"]) == len(second.tokens) - second.prompt_length


def test_turn_rewards_are_on_the_last_token_of_their_turn(samples):
    """SkyRL gets a reward per token, for every sample of a batch, if a turn has one: it accepts no mixture.

    The final reward is added to the last token.
    """
    first, second = samples
    first.turn_rewards = [0.5, None]
    rewards, others = TRAINERS["skyrl"](samples)["rewards"]
    assert others == [0.0] * (len(second.tokens) - second.prompt_length)
    assert (rewards[first.turn_ends[0] - 1 - first.prompt_length], rewards[-1], sum(rewards)) == (0.5, 1.0, 1.5)


def made(mask, turn_ends, **about):
    """A sample of these turns."""
    size = len(mask)
    return Sample(
        "s", 0, "COMPLETED", np.arange(size, dtype="i4"), np.array(mask, "u1"), np.zeros(size, "f4"),
        np.zeros(size, "u1"), turn_ends, "stop", "", **about,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("mask", "turn_ends", "turn_rewards", "expected"),
    [
        ([0, 1, 0, 1, 1], [2, 5], [0.5, 0.2], [(1, 0.5), (2, 1.2)]),
        ([0, 1, 0, 1, 1], [2, 5], [None, None], [(1, None), (2, 1.0)]),
        ([0, 1, 1, 1, 1], [3, 5], [0.1, 0.2], [(2, 0.1), (2, 1.2)]),
        ([0, 1, 1, 0, 0], [3, 5], [0.1, 0.2], [(2, 1.3)]),
        ([0, 0, 0, 1, 1], [2, 5], [0.5, 0.2], [(2, 1.7)]),
        ([0, 0, 0, 1, 0, 1], [2, 4, 6], [0.5, 0.2, 0.1], [(1, 0.7), (1, 1.1)]),
        ([0, 1, 1, 1, 1], [3, 5], [], [(2, None), (2, 1.0)]),
        ([0, 0, 0, 0, 0], [5], [None], []),
    ],
    ids=[
        "both rewards",
        "the final one",
        "nothing between turns",
        "nothing sampled",
        "nothing first",
        "nothing first of three",
        "no turn rewards",
        "no reply",
    ],
)
def test_agent_lightning_loses_no_turn_and_no_reward(mask, turn_ends, turn_rewards, expected):
    """Each turn is a triplet, also without anything between two of them; the final reward is added to the last one."""
    sample = made(mask, turn_ends, turn_rewards=turn_rewards, rewards={"reward": 1.0})
    (triplets,) = TRAINERS["agent-lightning"]([sample])
    assert [(len(one["response"]["token_ids"]), one["reward"]) for one in triplets] == [
        (count, reward if reward is None else pytest.approx(reward)) for count, reward in expected
    ]
    ids = [id for one in triplets for id in one["response"]["token_ids"]]
    assert ids == [id for id, one in enumerate(mask) if one]
    (rollout,) = TRAINERS["openrlhf"]([sample])
    assert [end - start for start, end in rollout["action_ranges"]] == [count for count, _reward in expected]


@pytest.mark.parametrize(
    ("mask", "turn_ends", "turn_rewards", "expected"),
    [
        ([0, 0, 0, 1, 1], [2, 5], [0.5, None], [0.5, 1.0]),
        ([0, 1, 1, 0, 0], [3, 5], [0.1, 0.5], [0.0, 1.6, 0.0, 0.0]),
        ([0, 1, 0, 0, 0, 1], [2, 4, 6], [0.1, 0.5, None], [0.6, 0.0, 0.0, 0.0, 1.0]),
        ([0, 0, 0, 0, 0], [5], [0.5], []),
    ],
    ids=["first", "last", "between", "all"],
)
def test_a_reward_of_a_turn_without_tokens_is_on_a_sampled_one(mask, turn_ends, turn_rewards, expected):
    """SkyRL gets it on the last sampled token before the turn, or else on the first; others have mask 0."""
    sample = made(mask, turn_ends, turn_rewards=turn_rewards, rewards={"reward": 1.0})
    assert TRAINERS["skyrl"]([sample])["rewards"] == [pytest.approx(expected)]


def test_an_unknown_weight_version_is_left_out():
    """Slime and miles get the versions that are known: miles reads each as a number."""
    sample = made([0, 1, 1, 1], [4], weight_versions=[("", 1, 2), ("8", 2, 3), ("9", 3, 4)])
    for name in ("slime", "miles"):
        assert TRAINERS[name]([sample])[0]["weight_versions"] == ["8", "9"]


@pytest.mark.parametrize("name", TRAINERS)
def test_samples_are_written_one_by_one(samples, name):
    """A line is written before the next sample is read, except for a trainer that takes a batch."""
    read = []

    def reading():
        for sample in samples:
            read.append(sample)
            yield sample

    written = lines(name, reading())
    first = next(written)
    assert len(read) == (2 if name in ("skyrl", "trl") else 1)
    found: Any = TRAINERS[name](samples)
    expected = found if isinstance(found, list) else [found]
    assert [json.loads(line) for line in (first, *written)] == json.loads(json.dumps(expected))


def test_a_version_that_is_not_a_number_is_refused_where_one_is_needed(samples):
    """AReaL needs numbers; a name of weights is refused and not guessed."""
    samples[0].weight_versions = [("step-7", 20, 21)]
    with pytest.raises(InvalidInput, match="step-7"):
        TRAINERS["areal"](samples)


def test_parquet_has_rewards_and_groups(samples, tmp_path):
    """A row has the reward, the rewards of its turns, its group, its metadata and the length of its prompt."""
    file = tmp_path / "s.parquet"
    file.write_bytes(b"".join(pieces(samples, ".parquet")))
    one, two = pq.read_table(file).to_pylist()
    assert (one["reward"], two["reward"], one["group"]) == (1.0, 0.0, "g1")
    assert one["prompt_length"] == samples[0].prompt_length
    assert json.loads(one["metadata"]) == {"group": "g1"}
    assert {field.name for field in dataclasses.fields(samples[0])} - set(one) == set()


def test_branches_share_their_beginning(records, rollout):
    """Branches have the same ids up to where they leave, and requests, samples and rewards of their own."""
    messages = play(rollout, 3)
    whole = [list(record.prompt) + list(record.output) for record in rollout.trajectory.records]
    branches = []
    for number in range(2):
        branched = rollout.branch(f"branch-{number}", turns=1)
        leaf = open_rollout(records, branched.id)
        assert leaf.trajectory.num_assistant == 1
        play(leaf, 1, [*messages[:2], {"role": "tool", "content": f"other {number}", "tool_call_id": "c1"}])
        leaf.reward(float(number))
        leaf.freeze()
        branches += leaf.samples()
    assert open_rollout(records, rollout.branch("fresh", turns=0).id).trajectory.num_assistant == 0
    rollout.freeze()
    (trunk,) = rollout.samples()
    for number, sample in enumerate(branches):
        assert sample.shared_length == trunk.turn_ends[0] == len(whole[0])
        assert sample.tokens[: sample.shared_length].tolist() == trunk.tokens[: sample.shared_length].tolist()
        assert sample.tokens.tolist() != trunk.tokens[: len(sample.tokens)].tolist()
        assert (sample.reward, len(sample.turn_ends)) == (float(number), 2)
    assert (trunk.reward, trunk.shared_length, len(trunk.turn_ends)) == (None, 0, 3)
    for wrong in (-1, 4, True, "1"):
        with pytest.raises(InvalidInput, match="3 committed turns"):
            rollout.branch("wrong", turns=wrong)
