"""The world of these tests: a tokenizer of single letters, and short ways to ask and to answer."""

import copy
import json
from collections.abc import Sequence
from typing import Any

from onrecord.rollout.recording import Intent, Rollout
from onrecord.rollout.trajectory import LinearTrajectory, Policy, Prepared
from onrecord.rollout.turns import ABORT, STOP, ChatRequest, Joint, Reply, Tokenized, TurnRecord

START, END, NEWLINE = 1, 2, 10
Message = dict[str, Any]


def letters(text: str) -> list[int]:
    return [100 + ord(letter) for letter in text]


class Letters:
    """Renders `START role NEWLINE text END NEWLINE`. A reply ends with END; the NEWLINE after it is the template's.

    With `stop_is_start`, a reply ends with the START of the next message instead, as with some models: a suffix renders
    it again, and the stored one is dropped.
    """

    def __init__(self, *, stop_is_start: bool = False) -> None:
        self.stop_is_start = stop_is_start

    def prompt(self, messages: Sequence[Any], tools: Any) -> Tokenized:
        ids: list[int] = letters(json.dumps(tools)) if tools else []
        injected = []
        for message in messages:
            start = len(ids)
            ids += self.message(message)
            if message["role"] == "assistant":
                injected.append((start, len(ids)))
        return Tokenized([*ids, START, *letters("assistant"), NEWLINE], injected)

    def suffix(self, before: Sequence[Any], appended: Sequence[Any], tools: Any) -> Tokenized:
        assert before[-1]["role"] == "assistant"
        return self.prompt(appended, None)

    def repair(self, tail: Sequence[int], suffix: Sequence[int]) -> Joint:
        if self.stop_is_start:
            return Joint(1 if tail[-1] == START else 0, [])
        return Joint(0, [NEWLINE] if tail[-1] == END else [END, NEWLINE])

    def message(self, message: Any) -> list[int]:
        calls = message.get("tool_calls")
        said = str(message.get("content") or "") + (json.dumps(calls) if calls else "")
        end = [] if self.stop_is_start else [END, NEWLINE]
        return [START, *letters(message["role"]), NEWLINE, *letters(said), *end]


LETTERS = Letters()


def user(text: str) -> Message:
    return {"role": "user", "content": text}


def assistant(text: str | None, **more: Any) -> Message:
    return {"role": "assistant", "content": text, **more}


def tool(text: str, call: str = "c1") -> Message:
    return {"role": "tool", "content": text, "tool_call_id": call}


def calling(arguments: str, name: str = "search", call: str = "c1", **more: Any) -> Message:
    function = {"name": name, "arguments": arguments}
    return assistant(None, tool_calls=[{"id": call, "type": "function", "function": function, **more}])


def answer(text: str, finish: str = STOP, **more: Any) -> Reply:
    ids = letters(text) + ([END] if finish == STOP else [])
    message = more.pop("message", assistant(text))
    return Reply(message, ids, [-0.5 - index / 8 for index in range(len(ids))], finish, **more)


def aborted(text: str | None = "", cause: str = "weights", **more: Any) -> Reply:
    """An aborted reply; None means no message at all."""
    said = None if text is None else assistant(text)
    return answer(text or "", ABORT, message=more.pop("message", said), abort_cause=cause, **more)


def ask(trajectory: LinearTrajectory, *messages: Message, **more: Any) -> Prepared:
    return trajectory.prepare(ChatRequest(list(messages), **more), LETTERS)


def say(trajectory: LinearTrajectory, *messages: Message, reply: Reply) -> TurnRecord:
    """Ask and commit the reply."""
    return trajectory.update_pretokenized_state(ask(trajectory, *messages), reply)


def give_up(trajectory: LinearTrajectory, *messages: Message, reply: Reply) -> TurnRecord:
    """Ask and keep the aborted reply."""
    prepared = ask(trajectory, *messages)
    record = trajectory.provisional_record(prepared, reply)
    trajectory.append_provisional_record(record)
    return record


def conversation(turns: int, policy: Policy | None = None) -> tuple[LinearTrajectory, list[Message]]:
    """A trajectory of so many committed turns, and the messages of the client's next request."""
    trajectory = LinearTrajectory(policy)
    messages = [user("question 0")]
    for number in range(turns):
        say(trajectory, *messages, reply=answer(f"answer {number}"))
        messages += [assistant(f"answer {number}"), user(f"question {number + 1}")]
    return trajectory, messages


def whole(messages: Sequence[Message]) -> list[int]:
    """The ids of a conversation rendered at once."""
    return list(LETTERS.prompt(messages, None).ids)


def unmoved(trajectory: LinearTrajectory) -> tuple[object, ...]:
    """A copy of a trajectory's whole state, to check afterwards that a refusal changed nothing."""
    return copy.deepcopy(trajectory._state())


def play(rollout: Rollout, turns: int, messages: list[Message] | None = None) -> list[Message]:
    """So many committed turns; returns the messages of the next request."""
    messages = messages or [user("question")]
    for number in range(turns):
        intent = begin(rollout, messages)
        text = f"answer {number}"
        rollout.commit(intent, answer(text, response=f"body {number}", weight_versions=[("v1", len(text) + 1)]))
        messages = [*messages, assistant(text), tool("result")]
    return messages


def begin(rollout: Rollout, messages: list[Message]) -> Intent:
    """Prepare a request and record its intent."""
    return rollout.intend(rollout.prepare(ChatRequest(messages), LETTERS), model="m")
