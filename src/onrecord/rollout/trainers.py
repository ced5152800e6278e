"""Trainers: samples in the form that RL frameworks take. Plain dictionaries, so no framework is imported.

A response is everything after the first prompt: sampled tokens with mask 1, and between them what tools and users said,
with mask 0. `{name}` of `TRAINERS` takes samples of many sessions; samples of one `group` belong together.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from onrecord.errors import InvalidInput
from onrecord.rollout.turns import ABORT, ABORTED, COMPLETED, INCOMPLETE, INFRA, LENGTH, STOP, TOOL_CALLS, TRUNCATED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from onrecord.rollout.samples import Sample

NOT_SAMPLED = -1
"""The weight version of a token that was not sampled, or whose version is unknown, where a framework wants a number."""
_SLIME = {COMPLETED: "completed", TRUNCATED: "truncated", ABORTED: "aborted", INCOMPLETE: "failed", INFRA: "failed"}
_REASONS = {STOP: "stop", TOOL_CALLS: "tool_calls", LENGTH: "length", ABORT: "abort"}


def split(sample: Sample) -> tuple[list[int], list[int], list[int], list[float]]:
    """Prompt ids, response ids, response mask and response logprobs."""
    start = sample.prompt_length
    tokens = sample.tokens.tolist()
    return tokens[:start], tokens[start:], sample.loss_mask[start:].tolist(), sample.logprobs[start:].tolist()


def token_versions(sample: Sample) -> list[int]:
    """The weight version of each token as a number."""
    versions = [NOT_SAMPLED] * len(sample.tokens)
    for version, start, end in sample.weight_versions:
        try:
            number = int(version or NOT_SAMPLED)
        except ValueError:
            raise InvalidInput(
                f"the weight version {version!r:.80} is not a number, which this trainer needs"
            ) from None
        versions[start:end] = [number] * (end - start)
    return versions


def slime(samples: Iterable[Sample]) -> Iterator[dict[str, Any]]:
    """For slime and miles: the fields of `Sample.from_dict`; mask and logprobs cover the response.

    A sample without a group is a group of its own. Unknown weight versions are left out: miles reads all as numbers.
    """
    groups: dict[str, int] = {}
    for index, sample in enumerate(samples):
        prompt, response, mask, logprobs = split(sample)
        group = groups.setdefault(sample.group or f"\0{sample.session}", len(groups))
        versions = dict.fromkeys(version for version, _start, _end in sample.weight_versions if version)
        yield {
            "index": index, "group_index": group, "tokens": prompt + response, "response_length": len(response),
            "loss_mask": mask, "rollout_log_probs": logprobs, "reward": sample.reward,
            "status": _SLIME[sample.status], "metadata": sample.metadata, "weight_versions": list(versions),
        }  # fmt: skip


def verl(samples: Iterable[Sample]) -> Iterator[dict[str, Any]]:
    """For verl: the fields of `AgentLoopOutput`. It counts what was said before each generated turn as a turn too."""
    for sample in samples:
        prompt, response, mask, logprobs = split(sample)
        yield {
            "prompt_ids": prompt, "response_ids": response, "response_mask": mask, "response_logprobs": logprobs,
            "reward_score": sample.reward, "num_turns": 2 * len(sample.turn_ends), "metrics": {},
            "extra_fields": {"status": sample.status, "group": sample.group, "metadata": sample.metadata},
        }  # fmt: skip


def prime_rl(samples: Iterable[Sample]) -> Iterator[dict[str, Any]]:
    """For prime-rl: the fields of `TrainingSample`, each list with an entry per token.

    `temperature` and `env_name` come from the metadata of the session; they are 1 and empty by default. The reward is
    for the orchestrator, which turns rewards into advantages.
    """
    for sample in samples:
        yield {
            "token_ids": sample.tokens.tolist(), "mask": [bool(one) for one in sample.loss_mask.tolist()],
            "logprobs": sample.logprobs.tolist(), "temperatures": [_temperature(sample)] * len(sample.tokens),
            "env_name": str(sample.metadata.get("env_name", "")), "reward": sample.reward,
        }  # fmt: skip


def _temperature(sample: Sample) -> float:
    found = sample.metadata.get("temperature", 1.0)
    if isinstance(found, bool) or not isinstance(found, int | float):
        raise InvalidInput(f"the temperature in the metadata of {sample.session} is {found!r:.40}, not a number")
    return float(found)


def areal(samples: Iterable[Sample]) -> Iterator[dict[str, Any]]:
    """For AReaL: what a workflow returns as tensors, with the weight version of each token."""
    for sample in samples:
        yield {
            "input_ids": sample.tokens.tolist(), "loss_mask": sample.loss_mask.tolist(),
            "logprobs": sample.logprobs.tolist(), "versions": token_versions(sample),
            "attention_mask": [True] * len(sample.tokens), "rewards": sample.reward or 0.0,
        }  # fmt: skip


def skyrl(samples: Sequence[Sample]) -> dict[str, Any]:
    """For SkyRL: a `GeneratorOutput`. If any turn has a reward, all samples have one per token, at the end of turns."""
    parts = [split(sample) for sample in samples]
    by_token = any(reward is not None for sample in samples for reward in sample.turn_rewards)
    return {
        "prompt_token_ids": [prompt for prompt, _response, _mask, _logprobs in parts],
        "response_ids": [response for _prompt, response, _mask, _logprobs in parts],
        "rewards": [_token_rewards(sample) if by_token else sample.reward or 0.0 for sample in samples],
        "loss_masks": [mask for _prompt, _response, mask, _logprobs in parts],
        "stop_reasons": [_REASONS.get(sample.finish, sample.status.lower()) for sample in samples],
        "rollout_logprobs": [logprobs for _prompt, _response, _mask, logprobs in parts],
        "rollout_metrics": None,
    }


def openrlhf(samples: Iterable[Sample]) -> Iterator[dict[str, Any]]:
    """For OpenRLHF: what an agent executor returns; `action_ranges` are the sampled parts.

    `prompt` and `label`, which it repeats in its logs, come from the metadata of the session.
    """
    for sample in samples:
        ranges = [(start, end) for start, end in turn_ranges(sample) if start < end]
        yield {
            "prompt": sample.metadata.get("prompt", ""), "label": sample.metadata.get("label", ""),
            "observation_tokens": sample.tokens.tolist(), "action_ranges": ranges,
            "rollout_log_probs": sample.logprobs.tolist(), "reward": sample.reward, "scores": sample.reward,
            "extra_logs": {"turns": len(sample.turn_ends)}, "truncated": sample.status == TRUNCATED,
        }  # fmt: skip


def trl(samples: Sequence[Sample]) -> dict[str, Any]:
    """For TRL: what a `rollout_func` of the GRPO trainer returns; `env_mask` is 0 where nothing was sampled."""
    parts = [split(sample) for sample in samples]
    return {
        "prompt_ids": [prompt for prompt, _response, _mask, _logprobs in parts],
        "completion_ids": [response for _prompt, response, _mask, _logprobs in parts],
        "logprobs": [logprobs for _prompt, _response, _mask, logprobs in parts],
        "env_mask": [mask for _prompt, _response, mask, _logprobs in parts],
        "reward": [sample.reward for sample in samples],
    }


def agent_lightning(samples: Iterable[Sample]) -> Iterator[list[dict[str, Any]]]:
    """For Agent Lightning: the `Triplet`s of each sample, one per turn; the final reward is added to that of the last.

    A turn of which nothing was sampled is no triplet; its reward is added to that of the triplet before it, or else of
    the first one.
    """
    for sample in samples:
        tokens, logprobs = sample.tokens.tolist(), sample.logprobs.tolist()
        triplets: list[dict[str, Any]] = []
        early: list[float | None] = []
        for (start, end), reward in _rewarded(sample):
            if start < end:
                triplets.append({
                    "prompt": {"token_ids": tokens[:start]},
                    "response": {"token_ids": tokens[start:end], "logprobs": logprobs[start:end]},
                    "reward": reward, "metadata": {"session": sample.session, "group": sample.group},
                })  # fmt: skip
            elif triplets:
                _add_reward(triplets[-1], reward)
            else:
                early.append(reward)
        if triplets:
            for reward in early:
                _add_reward(triplets[0], reward)
            _add_reward(triplets[-1], sample.reward)
        yield triplets


def _add_reward(triplet: dict[str, Any], reward: float | None) -> None:
    if reward is not None:
        triplet["reward"] = (triplet["reward"] or 0.0) + reward


def turn_ranges(sample: Sample) -> list[tuple[int, int]]:
    """(start, end) of what was sampled in each turn: its last tokens, and none if it got no reply."""
    begins = [0, *sample.turn_ends[:-1]]
    return [
        (end - int(sample.loss_mask[begin:end].sum()), end) for begin, end in zip(begins, sample.turn_ends, strict=True)
    ]


def _token_rewards(sample: Sample) -> list[float]:
    """A reward per response token: that of a turn on its last token, and the final one on the last that was sampled.

    The reward of a turn of which nothing was sampled is on the last token before it, or else on the first.
    """
    rewards = [0.0] * (len(sample.tokens) - sample.prompt_length)
    if not rewards:
        return []
    at = 0  # the first sampled token: a response begins with it
    for (start, end), reward in _rewarded(sample):
        at = end - 1 - sample.prompt_length if start < end else at
        rewards[at] += reward or 0.0
    rewards[at] += sample.reward or 0.0
    return rewards


def _rewarded(sample: Sample) -> Iterator[tuple[tuple[int, int], float | None]]:
    """What was sampled in each turn, and the reward of the turn; a sample may have none."""
    ranges = turn_ranges(sample)
    return zip(ranges, [*sample.turn_rewards, *[None] * len(ranges)], strict=False)


def lines(name: str, samples: Iterable[Sample]) -> Iterator[bytes]:
    """Samples for a trainer as JSON Lines: a line per sample; one line for a trainer that takes a batch.

    Line by line, only one sample is in memory at a time; a batch is in memory as a whole.
    """
    made = _ONE_BY_ONE[name](samples) if name in _ONE_BY_ONE else iter([TRAINERS[name](list(samples))])
    for one in made:
        yield json.dumps(one, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def _listed(make: Callable[[Iterable[Sample]], Iterator[Any]]) -> Callable[[Sequence[Sample]], list[Any]]:
    return lambda samples: list(make(samples))


_ONE_BY_ONE: dict[str, Callable[[Iterable[Sample]], Iterator[Any]]] = {
    "slime": slime, "miles": slime, "verl": verl, "prime-rl": prime_rl, "areal": areal, "openrlhf": openrlhf,
    "agent-lightning": agent_lightning,
}  # fmt: skip
TRAINERS: dict[str, Callable[[Sequence[Sample]], Any]] = {
    **{name: _listed(make) for name, make in _ONE_BY_ONE.items()}, "skyrl": skyrl, "trl": trl,
}  # fmt: skip
