"""The peer of the rollout benchmarks: the straightforward implementation, with lists.

It keeps the whole sequence after every turn and in every turn's record, compares all messages of a request with all
stored ones, and merges turns into a sample pair by pair, each time on a copy. Nothing in it is slow on purpose.
"""

from __future__ import annotations

import copy
import json
from dataclasses import dataclass, field
from typing import Any

Message = dict[str, Any]


@dataclass
class ListSample:
    """A sample as lists."""

    tokens: list[int]
    loss_mask: list[int]
    logprobs: list[float]
    status: str = "COMPLETED"


@dataclass
class ListRecord:
    """A turn with all its input and output."""

    input_ids: list[int]
    output_ids: list[int]
    logprobs: list[float]


@dataclass
class ListTrajectory:
    """Messages, the whole sequence after each turn, and the records."""

    messages: list[Message] = field(default_factory=list)
    checkpoints: list[list[int]] = field(default_factory=list)
    anchors: list[int] = field(default_factory=list)
    records: list[ListRecord] = field(default_factory=list)

    def prepare(self, messages: list[Message], suffix: list[int]) -> list[int]:
        """The prompt of a request that continues the stored conversation."""
        for stored, given in zip(self.messages, messages, strict=False):
            if _normal(stored) != _normal(given):
                raise ValueError("the request does not continue the stored conversation")
        return list(self.checkpoints[-1]) + suffix if self.checkpoints else list(suffix)

    def commit(self, messages: list[Message], prompt: list[int], record: ListRecord, reply: Message) -> None:
        """Check that the sequence continues the stored one, and store it."""
        sequence = prompt + record.output_ids
        if self.checkpoints:
            stored = self.checkpoints[-1]
            if sequence[: len(stored)] != stored:
                raise ValueError("the sequence does not continue the stored one")
        self.messages = [*messages, reply]
        self.anchors.append(len(self.messages))
        self.checkpoints.append(sequence)
        self.records.append(record)

    def stored_ints(self) -> int:
        """How many ids are in memory."""
        kept = sum(len(checkpoint) for checkpoint in self.checkpoints)
        return kept + sum(len(record.input_ids) + len(record.output_ids) for record in self.records)


def _normal(message: Message) -> str:
    parts = [message.get(name) or None for name in ("role", "content", "reasoning_content", "tool_calls")]
    return json.dumps(parts, sort_keys=True)


def samples_of(records: list[ListRecord]) -> list[ListSample]:
    """A sample per turn."""
    return [
        ListSample(
            record.input_ids + record.output_ids,
            [0] * len(record.input_ids) + [1] * len(record.output_ids),
            [0.0] * len(record.input_ids) + record.logprobs,
        )
        for record in records
    ]


def merge(samples: list[ListSample], *, deep: bool = True) -> ListSample:
    """One sample of many, pair by pair. With `deep`, each step works on a deep copy, so the inputs do not change."""
    merged = samples[0]
    for following in samples[1:]:
        one, other = (copy.deepcopy(merged), copy.deepcopy(following)) if deep else (merged, following)
        length = len(one.tokens)
        if other.tokens[:length] != one.tokens:
            raise ValueError("the later turn does not start with the earlier one")
        merged = ListSample(
            one.tokens + other.tokens[length:],
            one.loss_mask + other.loss_mask[length:],
            one.logprobs + other.logprobs[length:],
            other.status,
        )
    return merged
