"""Samples: what a trainer gets from a trajectory. The arrays are built in one pass over the turns.

A sample's tokens are input and output ids; the loss mask is 1 on sampled ids and 0 elsewhere; logprobs are 0.0 where
nothing was sampled. In a merged sample each turn continues the ids of the one before, and the merge ends with the first
turn that is not COMPLETED: its status is the sample's. Nothing else decides a status.
"""

from __future__ import annotations

import json
from array import array
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import numpy as np

from onrecord.errors import AssemblyFailed, InvalidInput
from onrecord.rollout.lane import REWARD
from onrecord.rollout.turns import COMPLETED, ORIGINS, SAMPLED, TRUNCATED

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from onrecord.log.item_values import Json
    from onrecord.rollout.lane import Lane
    from onrecord.rollout.turns import TurnRecord

_NUMBERED = {origin: bytes([number]) for number, origin in enumerate(ORIGINS)}


@dataclass(slots=True, eq=False)
class Sample:
    """One training sample."""

    session: str
    index: int
    """Its number among the samples of its session."""
    status: str
    tokens: NDArray[np.int32]
    loss_mask: NDArray[np.uint8]
    logprobs: NDArray[np.float32]
    provenance: NDArray[np.uint8]
    """Where each id comes from, as a number into `turns.ORIGINS`."""
    turn_ends: list[int]
    """How many tokens there are at the end of each of its turns."""
    finish: str
    cause: str
    weight_versions: list[tuple[str, int, int]] = field(default_factory=list)
    """(version, start, end) of the tokens that those weights sampled."""
    side_payloads: dict[str, list[Any] | None] = field(default_factory=dict)
    """By name, one value per turn; None if a turn lacks it."""
    discarded_tokens: int = 0
    """On the first sample of a session: how many tokens that it sampled are in none of its samples, because a request
    discarded their turn, they follow a turn that is not COMPLETED, or they did not fit into `max_seq_len`. Those of
    turns that a branch shares are counted in the rollout that it branched from."""
    shared_length: int = 0
    """In a branch: how many tokens at its beginning are also in the rollout that it branched from."""
    rewards: dict[str, float] = field(default_factory=dict)
    """The rewards of the whole rollout, by name."""
    turn_rewards: list[float | None] = field(default_factory=list)
    """The reward of each of its turns."""
    group: str = ""
    """Which samples are compared with each other: `group` in the metadata of the session."""
    metadata: dict[str, Json] = field(default_factory=dict)
    """The metadata of the session."""

    @property
    def reward(self) -> float | None:
        """The reward of the rollout."""
        return self.rewards.get(REWARD)

    @property
    def prompt_length(self) -> int:
        """How many tokens come before the first sampled one (all of them if none was sampled)."""
        return int(self.loss_mask.argmax()) if self.loss_mask.any() else len(self.tokens)

    def about(self) -> dict[str, Json]:
        """Everything but the arrays, as JSON."""
        return self.identity() | {
            "discarded_tokens": self.discarded_tokens, "shared_length": self.shared_length,
            "prompt_length": self.prompt_length, "reward": self.reward,
            "rewards": self.rewards, "turn_rewards": self.turn_rewards, "group": self.group, "metadata": self.metadata,
        }  # fmt: skip

    def identity(self) -> dict[str, Json]:
        """The part of that which the digest covers. It never changes, or frozen samples could not be read any more."""
        return {
            "session": self.session, "index": self.index, "status": self.status, "length": len(self.tokens),
            "turn_ends": self.turn_ends, "finish": self.finish, "cause": self.cause,
            "weight_versions": [list(span) for span in self.weight_versions], "side_payloads": self.side_payloads,
        }  # fmt: skip


def assemble(
    records: Sequence[TurnRecord],
    *,
    session: str = "",
    merge: bool = True,
    max_seq_len: int | None = None,
    past_length: bool = False,
) -> list[Sample]:
    """The samples of a line of turns: merged into one, or one per turn.

    With `past_length`, the merge continues after a turn that ran out of tokens, if there are turns after it.
    `max_seq_len` leaves out whole turns from the end first; if the first turn alone is too long, it is cut.
    """
    if max_seq_len is not None and (type(max_seq_len) is not int or max_seq_len < 1):
        raise InvalidInput(f"max_seq_len must be a positive integer, not {max_seq_len!r:.80}")
    for name, value in (("merge", merge), ("past_length", past_length)):
        if type(value) is not bool:
            raise InvalidInput(f"{name} must be true or false, not {value!r:.80}")
    if not records:
        raise AssemblyFailed("there is no recorded turn to make a sample from")
    _check_line(records)
    if merge:
        return [_merged(_until_unfinished(records, past_length=past_length), session, max_seq_len)]
    return [_single(records, number, session, max_seq_len) for number in range(len(records))]


def of_lane(lane: Lane, session: str, metadata: dict[str, Json], *, merge: bool = True, **options: Any) -> list[Sample]:
    """The samples of a lane, with all that is on record about them."""
    made = assemble(lane.standing(), session=session, merge=merge, **options)
    rewards = {name: value for (position, name), value in lane.rewards.items() if not position}
    of_turns = [lane.rewards.get((position, REWARD)) for position in lane.commits]
    kept = 0
    for sample in made:
        sample.metadata, sample.group, sample.rewards = metadata, _text(metadata.get("group")), rewards
        ends = sample.turn_ends if merge else [0] * sample.index + sample.turn_ends
        shared = min(lane.inherited, len(ends))
        sample.shared_length = ends[shared - 1] if shared else 0
        kept += int(sample.loss_mask[sample.shared_length :].sum())
        turns = of_turns[: len(sample.turn_ends)] if merge else of_turns[sample.index :][:1]
        sample.turn_rewards = [*turns, *[None] * (len(sample.turn_ends) - len(turns))]
    made[0].discarded_tokens = lane.sampled_tokens - kept
    return made


def _text(value: Json) -> str:
    """A value of the metadata as text; 0 is one, too."""
    return "" if value is None else str(value)


def _check_line(records: Sequence[TurnRecord]) -> None:
    length = 0
    for number, record in enumerate(records):
        if record.base != number or record.keep > length:
            raise AssemblyFailed(f"turn {number} does not continue the one before")
        length = record.length


def _until_unfinished(records: Sequence[TurnRecord], *, past_length: bool) -> Sequence[TurnRecord]:
    """The turns up to and including the first that is not COMPLETED."""
    for number, record in enumerate(records):
        if record.status != COMPLETED and not (past_length and record.status == TRUNCATED):
            return records[: number + 1]
    return records


def _merged(records: Sequence[TurnRecord], session: str, max_seq_len: int | None) -> Sample:
    kept = len(records)
    while max_seq_len is not None and kept > 1 and records[kept - 1].length > max_seq_len:
        kept -= 1
    arrays = _Arrays(records[:kept], first_sampled=0)
    sample = _sample(records[:kept], arrays, session, 0, cut=kept < len(records))
    return sample if max_seq_len is None else _cut(sample, max_seq_len)


def _single(records: Sequence[TurnRecord], number: int, session: str, max_seq_len: int | None) -> Sample:
    """One turn alone: everything before its output is its prompt and counts as not sampled."""
    line = records[: number + 1]
    sample = _sample(line, _Arrays(line, first_sampled=number), session, number, cut=False)
    sample.turn_ends = sample.turn_ends[-1:]
    return sample if max_seq_len is None else _cut(sample, max_seq_len)


def _sample(records: Sequence[TurnRecord], arrays: _Arrays, session: str, index: int, *, cut: bool) -> Sample:
    last = records[-1]
    ours = records[arrays.first_sampled :]
    return Sample(
        session, index, TRUNCATED if cut else last.status, arrays.tokens, arrays.loss_mask, arrays.logprobs,
        arrays.provenance, arrays.turn_ends, last.finish, last.cause, arrays.weights, _side_payloads(ours),
    )  # fmt: skip


class _Arrays:
    """The assembled ids of a line of turns: memory is allocated once, and each id is copied once."""

    def __init__(self, records: Sequence[TurnRecord], first_sampled: int) -> None:
        self.first_sampled = first_sampled
        self.turn_ends: list[int] = []
        self.weights: list[tuple[str, int, int]] = []
        room, length = max(record.length for record in records), records[-1].length
        tokens, mask, logprobs, origins = bytearray(4 * room), bytearray(room), bytearray(4 * room), bytearray(room)
        self._tokens, self._logprobs = memoryview(tokens).cast("i"), memoryview(logprobs).cast("f")
        self._mask, self._origins = memoryview(mask), memoryview(origins)
        for number, record in enumerate(records):
            self._put(record, sampled=number >= first_sampled)
        self.tokens = np.frombuffer(tokens, np.int32)[:length]
        self.loss_mask = np.frombuffer(mask, np.uint8)[:length]
        self.logprobs = np.frombuffer(logprobs, np.float32)[:length]
        self.provenance = np.frombuffer(origins, np.uint8)[:length]

    def _put(self, record: TurnRecord, *, sampled: bool) -> None:
        start, end, drawn = record.keep, record.length, len(record.output)
        middle = end - drawn
        if self.turn_ends and self.turn_ends[-1] > start:
            self._trim(start)
        self._tokens[start:middle] = record.prompt
        self._tokens[middle:end] = record.output
        if sampled:
            self._mask[middle:end] = b"\1" * drawn
            self._logprobs[middle:end] = record.logprobs
            at = middle
            for version, count in record.weight_versions:
                self.weights.append((version, at, at + count))
                at += count
        at = start
        for origin, count in (*record.origins, (SAMPLED, drawn)):
            self._origins[at : at + count] = _NUMBERED[origin] * count
            at += count
        self.turn_ends.append(end)

    def _trim(self, start: int) -> None:
        """A later turn replaces the ids from `start`: clear their marks, and let no earlier turn end behind them."""
        behind = self.turn_ends[-1] - start
        self._mask[start : start + behind] = bytes(behind)
        self._logprobs[start : start + behind] = array("f", bytes(4 * behind))
        number = len(self.turn_ends)
        while number and self.turn_ends[number - 1] > start:
            number -= 1
            self.turn_ends[number] = start
        while self.weights and self.weights[-1][2] > start:
            version, at, _end = self.weights.pop()
            if at < start:
                self.weights.append((version, at, start))


def _side_payloads(records: Iterable[TurnRecord]) -> dict[str, list[Any] | None]:
    turns = list(records)
    names = sorted({name for record in turns for name in record.side_payloads})
    return {
        name: [record.side_payloads[name] for record in turns]
        if all(name in record.side_payloads for record in turns)
        else None
        for name in names
    }


def _cut(sample: Sample, length: int) -> Sample:
    """Cut a sample of one turn that is too long."""
    if len(sample.tokens) <= length:
        return sample
    sample.tokens, sample.loss_mask = sample.tokens[:length], sample.loss_mask[:length]
    sample.logprobs, sample.provenance = sample.logprobs[:length], sample.provenance[:length]
    sample.turn_ends = [min(end, length) for end in sample.turn_ends]
    sample.weight_versions = [
        (version, start, min(end, length)) for version, start, end in sample.weight_versions if start < length
    ]
    sample.status = TRUNCATED if sample.status == COMPLETED else sample.status
    return sample


def digest_of(samples: Sequence[Sample]) -> str:
    """The identity of samples in any file format: every bit of every array, and all metadata."""
    digest = sha256(b"onrecord/samples/1\0")
    for sample in samples:
        about = json.dumps(sample.identity(), sort_keys=True, ensure_ascii=False, separators=(",", ":")).encode()
        digest.update(len(about).to_bytes(8, "little") + about)
        for values, kind in (
            (sample.tokens, "<i4"), (sample.loss_mask, "u1"), (sample.logprobs, "<f4"), (sample.provenance, "u1"),
        ):  # fmt: skip
            digest.update(np.ascontiguousarray(values, kind).tobytes())
    return digest.hexdigest()


def check_digest(samples: Sequence[Sample], digest: str) -> None:
    """Refuse to deliver anything but the frozen samples."""
    found = digest_of(samples)
    if found != digest:
        raise AssemblyFailed(
            f"the samples have the digest {found} now, not the frozen {digest}",
            hint="the log may be damaged; verify the session",
        )
