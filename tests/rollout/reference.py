"""A slow, obvious trajectory: every checkpoint is a full copy of messages and ids; samples are merged pair by pair.

Written from the words of the contract alone; it shares no code with the package.
"""

import json
from dataclasses import dataclass
from typing import Any

from tests.rollout.world import LETTERS, Message

Ids = list[int]


class Refused(Exception):
    """The request does not fit."""


def spelled(message: Message) -> str:
    """A message as the strict matcher reads it."""
    parts = [message["role"], message.get("content"), message.get("reasoning_content"), message.get("tool_calls")]
    return json.dumps([None if part in ("", []) else part for part in parts], sort_keys=True)


@dataclass
class Checkpoint:
    """Everything there is after a committed turn."""

    messages: list[Message]
    ids: Ids
    request: Any
    answer: str


@dataclass
class Turn:
    """One turn, with all the ids it was given and all it gave."""

    inputs: Ids
    outputs: Ids
    logprobs: list[float]
    status: str


@dataclass
class Asked:
    """A request as the reference understands it."""

    base: int
    messages: list[Message]
    prompt: Ids
    request: Any
    answer: str | None
    version: int


class Reference:
    """The trajectory, kept in full."""

    def __init__(self, max_rollback: int = 1) -> None:
        self.max_rollback = max_rollback
        self.checkpoints: list[Checkpoint] = []
        self.turns: list[Turn] = []
        self.version = 0
        self.provisional: tuple[int, Turn] | None = None
        self.failure: tuple[int, Turn] | None = None

    @property
    def messages(self) -> list[Message]:
        return self.checkpoints[-1].messages if self.checkpoints else []

    @property
    def ids(self) -> Ids:
        return self.checkpoints[-1].ids if self.checkpoints else []

    @property
    def first_prompt(self) -> int | None:
        return len(self.checkpoints[0].messages) - 1 if self.checkpoints else None

    def prepare(self, messages: list[Message]) -> Asked:
        stored = self.messages
        shared = 0
        while (
            shared < min(len(stored), len(messages)) and spelled(stored[shared]) == spelled(messages[shared])
        ):  # fmt: skip
            shared += 1
        base = sum(len(checkpoint.messages) <= shared for checkpoint in self.checkpoints)
        before = self.checkpoints[base - 1].messages if base else []
        understood = stored[:shared] + messages[shared:]
        appended = understood[len(before) :]
        if not appended or (base and any(message["role"] == "assistant" for message in appended)):
            raise Refused
        answer = self._lost(base, appended)
        first_again = shared == len(messages) and self.first_prompt == shared
        if answer is None and len(self.checkpoints) - base > self.max_rollback and not first_again:
            raise Refused
        prompt = list(LETTERS.prompt(appended, None).ids)
        if base:
            known = self.checkpoints[base - 1].ids
            prompt = known + list(LETTERS.repair(known, prompt).ids) + prompt
        return Asked(base, understood, prompt, [base, appended], answer, self.version)

    def _lost(self, base: int, appended: list[Message]) -> str | None:
        if not self.checkpoints or self.checkpoints[-1].request != [base, appended]:
            return None
        tried = self.provisional or self.failure
        return None if tried and tried[0] == len(self.checkpoints) else self.checkpoints[-1].answer

    def commit(self, asked: Asked, message: Message, turn: Turn, answer: str) -> None:
        del self.checkpoints[asked.base :], self.turns[asked.base :]
        checkpoint = Checkpoint([*asked.messages, message], turn.inputs + turn.outputs, asked.request, answer)
        self.checkpoints.append(checkpoint)
        self.turns.append(turn)
        self.provisional = self.failure = None
        self.version += 1

    def abort(self, asked: Asked, turn: Turn) -> None:
        self.provisional, self.failure = (asked.base, turn), None
        self.version += 1

    def fail(self, asked: Asked, status: str) -> None:
        self.failure = (asked.base, Turn(asked.prompt, [], [], status))

    def standing(self) -> list[Turn]:
        last = self.provisional or self.failure
        return [*self.turns[: last[0]], last[1]] if last else self.turns


def merged(turns: list[Turn]) -> tuple[Ids, list[int], list[float], str]:
    """One sample of many turns, pair by pair: tokens, loss mask, logprobs, status."""
    tokens: Ids = []
    mask: list[int] = []
    logprobs: list[float] = []
    status = "COMPLETED"
    for turn in turns:
        if status != "COMPLETED":
            break
        assert turn.inputs[: len(tokens)] == tokens
        observed = turn.inputs[len(tokens) :]
        tokens = tokens + observed + turn.outputs
        mask = mask + [0] * len(observed) + [1] * len(turn.outputs)
        logprobs = logprobs + [0.0] * len(observed) + turn.logprobs
        status = turn.status
    return tokens, mask, logprobs, status
