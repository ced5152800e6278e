"""A slow, obvious trajectory: every saved state is a full copy of messages and ids; samples are merged pair by pair.

Written only from the text of the contract; it shares no code with the package.
"""

import json
from dataclasses import dataclass
from typing import Any

from tests.rollout.world import LETTERS, Message

Ids = list[int]


class Refused(Exception):
    """The request does not continue the trajectory."""


def spelled(message: Message) -> str:
    """A message as the strict matcher reads it."""
    parts = [message["role"], message.get("content"), message.get("reasoning_content"), message.get("tool_calls")]
    return json.dumps([None if part in ("", []) else part for part in parts], sort_keys=True)


@dataclass
class State:
    """The whole state after a committed turn."""

    messages: list[Message]
    ids: Ids
    request: Any
    answer: str


@dataclass
class Turn:
    """One turn, with all its input and output ids."""

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
        self.states: list[State] = []
        self.turns: list[Turn] = []
        self.version = 0
        self.provisional: tuple[int, Turn] | None = None
        self.failure: tuple[int, Turn] | None = None

    @property
    def messages(self) -> list[Message]:
        return self.states[-1].messages if self.states else []

    @property
    def ids(self) -> Ids:
        return self.states[-1].ids if self.states else []

    @property
    def first_prompt(self) -> int | None:
        return len(self.states[0].messages) - 1 if self.states else None

    def prepare(self, messages: list[Message]) -> Asked:
        stored = self.messages
        shared = 0
        while (
            shared < min(len(stored), len(messages)) and spelled(stored[shared]) == spelled(messages[shared])
        ):  # fmt: skip
            shared += 1
        base = sum(len(state.messages) <= shared for state in self.states)
        before = self.states[base - 1].messages if base else []
        understood = stored[:shared] + messages[shared:]
        appended = understood[len(before) :]
        if not appended or (base and any(message["role"] == "assistant" for message in appended)):
            raise Refused
        answer = self._lost(base, appended)
        first_again = shared == len(messages) and self.first_prompt == shared
        if answer is None and len(self.states) - base > self.max_rollback and not first_again:
            raise Refused
        if answer is None and self._repeats(base, shared, messages[shared:]):
            raise Refused
        prompt = list(LETTERS.prompt(appended, None).ids)
        if base:
            known = self.states[base - 1].ids
            prompt = known + list(LETTERS.repair(known, prompt).ids) + prompt
        return Asked(base, understood, prompt, [base, appended], answer, self.version)

    def _repeats(self, base: int, shared: int, rest: list[Message]) -> bool:
        """Whether a request that discards turns has one of them in it, or an answer that is not of its first prompt."""
        if base == len(self.states):
            return False
        generated = [len(state.messages) - 1 for state in self.states[base:]]
        stored = self.messages
        own = [spelled(stored[at]) for at in range(shared, len(stored)) if at not in generated]
        for message in rest:
            if spelled({**message, "role": "assistant"}) in [spelled(stored[at]) for at in generated]:
                return True
            if message["role"] == "assistant":
                if spelled(message) not in own:
                    return True
                own.remove(spelled(message))
        return False

    def _lost(self, base: int, appended: list[Message]) -> str | None:
        if not self.states or self.states[-1].request != [base, appended]:
            return None
        tried = self.provisional or self.failure
        return None if tried and tried[0] == len(self.states) else self.states[-1].answer

    def commit(self, asked: Asked, message: Message, turn: Turn, answer: str) -> None:
        del self.states[asked.base :], self.turns[asked.base :]
        state = State([*asked.messages, message], turn.inputs + turn.outputs, asked.request, answer)
        self.states.append(state)
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
        if last is None or (not last[1].outputs and last[0] < len(self.turns)):
            return self.turns
        return [*self.turns[: last[0]], last[1]]


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
